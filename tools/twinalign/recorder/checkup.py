"""What works in an interpreter: run there as `python -m twinalign.recorder.checkup torch`, prints JSON."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from twinalign.backends import load_backend

PATHS = [(device, dtype) for device in ("cpu", "gpu") for dtype in ("float32", "float64", "bfloat16", "float16")]


def check(framework: str) -> dict[str, Any]:
    """Versions, flags and, path by path, "works" or the first line of what the framework says."""
    try:
        backend = load_backend(framework)
    except ImportError as error:
        return {"installed": False, "reason": f"{type(error).__name__}: {error}"}
    paths = {}
    for device, dtype in PATHS:
        try:
            backend.try_path(device, dtype)
            paths[f"{device} {dtype}"] = "works"
        except Exception as error:  # whatever it raises is the answer
            paths[f"{device} {dtype}"] = _reason(error)
    return {
        "installed": True,
        "versions": backend.versions(),
        "flags": backend.numerics_flags(),
        "paths": paths,
        "communication": backend.communication_backends(),
    }


def _reason(error: Exception) -> str:
    """The line of a framework's message that says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "Error:" in line or "not found" in line.lower() or "no GPU" in line]
    return (telling or lines or [type(error).__name__])[0].split(". ")[0][:120]


if __name__ == "__main__":
    events = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # frameworks print at import; standard output is for the result alone
    json.dump(check(sys.argv[1]), events)
