"""A training program in float64, where two orders of summation stay together: started by the launchers in tests."""

from __future__ import annotations

import importlib
import sys
from typing import Any

MAKERS = {
    "train": ("programs.train", "build_moco"),
    "lincls": ("programs.classification", "build_classifier"),
    "finetune": ("programs.classification", "build_classifier"),
}


def in_float64(package: str, command: str) -> None:
    """Let the program of that name build its model in float64."""
    name, maker = MAKERS[command]
    module = importlib.import_module(f"{package}.{name}")
    build = getattr(module, maker)

    def build_in_float64(*options: Any, **named: Any) -> Any:
        model = build(*options, **named)
        return model.double() if package == "moco_ref" else model.to(dtype="float64")

    setattr(module, maker, build_in_float64)


if __name__ == "__main__":
    package, *arguments = sys.argv[1:]
    in_float64(package, arguments[0])
    sys.exit(importlib.import_module(f"{package}.__main__").main(arguments))
