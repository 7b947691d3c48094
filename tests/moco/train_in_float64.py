"""The training program in float64, where two orders of summation stay together: started by the launchers in tests."""

from __future__ import annotations

import importlib
import sys

package, *arguments = sys.argv[1:]
framework = importlib.import_module({"moco_ref": "torch", "moco_paddle": "paddle"}[package])
framework.set_default_dtype(framework.float64)
sys.exit(importlib.import_module(f"{package}.training").main(arguments))
