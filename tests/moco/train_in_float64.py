"""The training program in float64, where two orders of summation stay together: started by the launchers in tests."""

from __future__ import annotations

import importlib
import sys
from typing import Any

package, *arguments = sys.argv[1:]
training = importlib.import_module(f"{package}.training")
build_moco = training.build_moco


def in_float64(*options: Any, **named: Any) -> Any:
    model = build_moco(*options, **named)
    return model.double() if package == "moco_ref" else model.to(dtype="float64")


training.build_moco = in_float64
sys.exit(training.main(arguments))
