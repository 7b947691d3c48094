"""Whether a recording is still up to date with the code, data and packages that made it."""

import hashlib
import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from twinalign.errors import InputError

MISSING = "missing"
"""Stands where the hash of a file would that is not there."""

_VERSIONS = """
import importlib.metadata as m, json, sys
found = {"python": sys.version.split()[0], "executable": sys.executable}
for name in "torch torchvision paddlepaddle paddlepaddle-gpu numpy pillow reprod-log safetensors".split():
    try: found[name] = m.version(name)
    except m.PackageNotFoundError: pass
print(json.dumps(found))
"""


def hash_path(path: Path) -> str:
    """SHA-256 of a file's bytes or of the sorted names in a directory; "missing" if neither exists."""
    try:
        if path.is_dir():
            return hashlib.sha256("\n".join(sorted(entry.name for entry in path.iterdir())).encode()).hexdigest()
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return MISSING


def hash_paths(paths: Iterable[Path]) -> dict[str, str]:
    """`hash_path` of each, by path."""
    return {str(path): hash_path(Path(path)) for path in sorted(paths)}


def interpreter_versions(python: str, side: str) -> dict[str, str]:
    """Versions of the numeric packages in an interpreter, without importing them.

    Raises:
        InputError: `python` does not start or is not Python.
    """
    try:
        finished = subprocess.run([python, "-c", _VERSIONS], capture_output=True, text=True, timeout=60, check=True)
        return json.loads(finished.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        raise InputError(f"--{side}-python {python}: not a working Python interpreter") from None


def is_fresh(metadata: Mapping[str, Any], identity: Mapping[str, Any]) -> bool:
    """Whether the recording was made under `identity` and its code and data files are unchanged."""
    if not metadata or metadata.get("identity") != identity:
        return False
    recorded = {**metadata.get("code_sha256", {}), **metadata.get("data_sha256", {})}
    return bool(recorded) and all(hash_path(Path(path)) == digest for path, digest in recorded.items())
