"""A hook of MkDocs: links that lead out of docs/, into the repository, become the path's name in the site."""

import re
from pathlib import Path
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s:]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Replace such links; called by MkDocs for each page."""
    docs = Path(config["docs_dir"]).resolve()
    folder = Path(page.file.abs_src_path).resolve().parent

    def inside(found: re.Match[str]) -> str:
        target = (folder / found[2]).resolve()
        served = target.is_relative_to(docs) and target.is_file() and target.suffix not in (".py", ".diff")
        return found[0] if served else f"{found[1]} (`{target.relative_to(docs.parent)}`)"

    return _LINK.sub(inside, markdown)
