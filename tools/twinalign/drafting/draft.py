"""Drafts a package in paddle with PaConvert, in a process of its own, and keeps the drafts of equal sources."""

import ast
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from twinalign.errors import InputError
from twinalign.files.writer import replacing
from twinalign.processes.guardian import temporary_folder

_RUN = "import sys; from paconvert.main import main; main()"
_MARK = re.compile(r"^>{6}", re.MULTILINE)
_FUTURES = re.compile(r"^from __future__ import .*\n", re.MULTILINE)
_HELPERS = re.compile(r"^(?:import sys\n+)?sys\.path\.append\(.*\)\n|^from paddle_utils import \*\n", re.MULTILINE)


def draft(files: Mapping[str, str], python: str | None = None) -> dict[str, str]:
    """Path → source in paddle, of path → source in torch; lines that PaConvert marks as not converted lose the mark.

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
    key = hashlib.sha256(
        json.dumps([asked.stdout, "as PaConvert wrote it", dict(files)], sort_keys=True).encode()
    ).hexdigest()[:32]
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "twinalign" / "drafts" / f"{key}.json"
    if kept.exists():
        return {path: _cleaned(text) for path, text in json.loads(kept.read_text(encoding="utf-8")).items()}
    with temporary_folder("twinalign-draft-") as folder:
        given, made = folder / "given", folder / "made"
        for path, text in files.items():
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
    return {path: _cleaned(text) for path, text in drafts.items()}


def _cleaned(text: str) -> str:
    """Without its marks and helpers, and with `from __future__` where Python wants it: PaConvert imports before it."""
    text = _HELPERS.sub("", _MARK.sub("", text))
    futures = _FUTURES.findall(text)
    if not futures:
        return text
    text = _FUTURES.sub("", text)
    try:
        first = ast.parse(text).body[:1]
    except SyntaxError:
        return text
    described = first and isinstance(first[0], ast.Expr) and isinstance(first[0].value, ast.Constant)
    at = (first[0].end_lineno or 0) if described else 0
    lines = text.splitlines(keepends=True)
    return "".join([*lines[:at], *futures, *lines[at:]])
