"""What is installed for each side and which device paths work, asked in a process of each framework's own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from twinalign.backends import FRAMEWORK_OF_SIDE
from twinalign.freshness import interpreter_versions
from twinalign.recorder.process import borrowed_package


def diagnose(pythons: Mapping[str, str | None]) -> dict[str, Any]:
    """Side → its framework, interpreter, versions, flags and device paths.

    Args:
        pythons: side → interpreter that has its framework; None: this one.

    Raises:
        InputError: an interpreter that does not start.
    """
    sides: dict[str, Any] = {}
    for side, framework in FRAMEWORK_OF_SIDE.items():
        python = pythons.get(side)
        interpreter = interpreter_versions(python or sys.executable, side)
        with borrowed_package(python) as environment:
            finished = subprocess.run(
                [python or sys.executable, "-m", "twinalign.recorder.checkup", framework],
                capture_output=True,
                text=True,
                env=environment,
            )
        try:
            found = json.loads(finished.stdout)
        except ValueError:
            last = (finished.stderr.strip().splitlines() or ["no output"])[-1]
            found = {"installed": False, "reason": f"the process ended with {finished.returncode}: {last}"}
        sides[side] = {"framework": framework, "interpreter": interpreter, **found}
    return sides


def ready(sides: Mapping[str, Any]) -> bool:
    """Whether both sides can record on the CPU."""
    return all(side.get("paths", {}).get("cpu float32") == "works" for side in sides.values())
