"""Drafts a package in paddle with PaConvert, in a process of its own, and keeps the drafts of equal sources."""

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from twinalign.drafting.comments import Comments
from twinalign.errors import InputError
from twinalign.files.writer import replacing
from twinalign.processes.guardian import temporary_folder

_RUN = "import sys; from paconvert.main import main; main()"
_FORMAT = """
import json, sys
import black
found = {}
for path, text in json.load(sys.stdin).items():
    try:
        found[path] = black.format_str(text, mode=black.Mode())
    except Exception:
        pass
print(json.dumps(found))
"""
_IMPORTS = re.compile(r"^(from \S+ import )[\w ]+\n(?:\1[\w ]+\n)+", re.MULTILINE)
_MARK = re.compile(r"^>{6}", re.MULTILINE)
_FORGOTTEN = ("einops.layers.paddle",)
"""Modules that PaConvert writes in full and does not import."""
_HELPERS = re.compile(r"^(?:import sys\n+)?sys\.path\.append\(.*\)\n|^from paddle_utils import \*\n", re.MULTILINE)


def draft(files: Mapping[str, str], python: str | None = None) -> dict[str, str]:
    """Path → source in paddle, of path → source in torch; lines that PaConvert marks as not converted lose the mark.

    Comments come along (`comments`).

    `python` is an interpreter that has PaConvert. Raises InputError if it is not installed, or fails.
    """
    python = python or sys.executable
    asked = subprocess.run(
        [python, "-c", "from importlib.metadata import version; print(version('paconvert'))"],
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.returncode:
        raise InputError(f"port: {python} has no PaConvert, which drafts the port; pip install 'twinalign[port]'")
    comments = {path: Comments(text) for path, text in files.items()}
    marked = {path: one.marked for path, one in comments.items()}
    key = hashlib.sha256(
        json.dumps([asked.stdout, "as PaConvert wrote it", marked], sort_keys=True).encode()
    ).hexdigest()[:32]
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "twinalign" / "drafts" / f"{key}.json"
    if kept.exists():
        drafts = json.loads(kept.read_text(encoding="utf-8"))
        return {path: comments[path].restored(_cleaned(text)) for path, text in drafts.items()}
    with temporary_folder("twinalign-draft-") as folder:
        given, made = folder / "given", folder / "made"
        for path, text in marked.items():
            (given / path).parent.mkdir(parents=True, exist_ok=True)
            (given / path).write_text(text, encoding="utf-8")
        command = [python, "-c", _RUN, "-i", str(given), "-o", str(made), "--log_level", "WARNING", "--no_format"]
        ran = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
        if ran.returncode:
            said = (ran.stderr or ran.stdout).strip().splitlines() or ["no message"]
            raise InputError(f"port: PaConvert failed: {said[-1]}")
        drafts = {path: (made / path).read_text(encoding="utf-8") for path in files}
    with replacing(kept) as file:
        file.write(json.dumps(drafts).encode())
    return {path: comments[path].restored(_cleaned(text)) for path, text in drafts.items()}


def formatted(files: Mapping[str, str], python: str | None = None) -> dict[str, str]:
    """Path → source as black writes it, which PaConvert brings along; imports of one module's names become one.

    A file that black cannot read stays as it is; so do all if `python` has no black.
    """
    merged = {path: _IMPORTS.sub(_merged, text) for path, text in files.items()}
    ran = subprocess.run(
        [python or sys.executable, "-c", _FORMAT], input=json.dumps(merged), capture_output=True, text=True, check=False
    )
    found: dict[str, str] = json.loads(ran.stdout) if ran.returncode == 0 else {}
    return {path: found.get(path, text) for path, text in merged.items()}


def _merged(lines: re.Match[str]) -> str:
    names = [line.partition(" import ")[2] for line in lines.group().splitlines()]
    return f"{lines.group(1)}{', '.join(dict.fromkeys(names))}\n"


def _cleaned(text: str) -> str:
    """Without its marks and helpers, and with the imports that it forgets."""
    text = _HELPERS.sub("", _MARK.sub("", text))
    for module in _FORGOTTEN:
        if f"{module}." in text:
            package = module.partition(".")[0]
            text = re.sub(rf"^import {package}$", f"import {package}\nimport {module}", text, flags=re.MULTILINE)
    return text
