"""What is installed for each side and which devices and dtypes work, tested in a process of each framework."""

import sys
from collections.abc import Mapping
from typing import Any

from twinalign.backends import load_backend
from twinalign.files.freshness import interpreter_versions
from twinalign.processes.side_process import ChildError, SideProcess
from twinalign.sides import FRAMEWORK_OF_SIDE

PATHS = [(device, dtype) for device in ("cpu", "gpu") for dtype in ("float32", "float64", "bfloat16", "float16")]


def diagnose(pythons: Mapping[str, str | None]) -> dict[str, Any]:
    """Side → its framework, interpreter, versions, flags and working combinations of device and dtype.

    `pythons`: side → interpreter that has its framework, None for this one. Raises InputError if one does not start.
    """
    sides: dict[str, Any] = {}
    for side, framework in FRAMEWORK_OF_SIDE.items():
        python = pythons.get(side)
        interpreter = interpreter_versions(python or sys.executable, side)
        with SideProcess(side, python=python) as process:
            try:
                found = process.call(check, framework=framework)
            except ChildError as error:
                ended = f"the process ended {error.reason}" if error.died else error.reason
                found = {"installed": False, "reason": ended}
        sides[side] = {"framework": framework, "interpreter": interpreter, **found}
    return sides


def ready(sides: Mapping[str, Any]) -> bool:
    """Whether both sides can record on the CPU."""
    return all(side.get("paths", {}).get("cpu float32") == "works" for side in sides.values())


def check(framework: str) -> dict[str, Any]:
    """Versions, flags and, for each device and dtype, "works" or the line of the framework's message that tells why
    not."""
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
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "Error:" in line or "not found" in line.lower() or "no GPU" in line]
    return (telling or lines or [type(error).__name__])[0].split(". ")[0][:120]
