"""Unified diffs of changed sources, with the cause beside each hunk."""

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_CONTEXT = 1
"""Lines around a change: few, so that each change has a hunk and its cause beside it."""
_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@$")


def root_of(files: Sequence[str]) -> Path:
    """The folder that the paths of a patch start from: the working folder if all files lie in it, else theirs."""
    here = Path.cwd().resolve()
    if all(Path(file).is_relative_to(here) for file in files):
        return here
    return Path(os.path.commonpath([os.path.dirname(file) for file in files]))


def patch_of(before: Mapping[str, str], after: Mapping[str, str], accepted: Sequence[Mapping[str, Any]]) -> str:
    """The patch, which `git apply` takes; empty where nothing differs.

    Args:
        before, after: real path -> text.
        accepted: edits as JSON, each with `file`, `line` and `cause`, the sentence that stands beside its hunk.
    """
    changed = [file for file in after if before[file] != after[file]]
    root = root_of(changed) if changed else Path()
    lines: list[str] = []
    for file in changed:
        name = Path(file).relative_to(root).as_posix()
        old, new = (re.findall(r".*\n|.+", text[file]) for text in (before, after))
        causes = [(edit["line"], edit["cause"]) for edit in accepted if edit["file"] == file]
        for line in difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", n=_CONTEXT):
            lines += _line(line, causes)
    return "".join(lines)


def _line(line: str, causes: Sequence[tuple[int, str]]) -> list[str]:
    if (hunk := _HUNK.match(line.rstrip("\n"))) is not None:
        first, count = int(hunk[1]), int(hunk[2] or 1)
        said = dict.fromkeys(cause for at, cause in sorted(causes) if first <= at <= first + count)
        return [f"{line.rstrip()} {'; '.join(said)}".rstrip() + "\n"]
    return [line] if line.endswith("\n") else [line + "\n", "\\ No newline at end of file\n"]
