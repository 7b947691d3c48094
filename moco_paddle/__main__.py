"""The programs: `python -m moco_paddle COMMAND …`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

if not __package__:
    # diff: paddle's launcher starts a file, which does not know its package; torchrun starts a module as well.
    sys.path[0], __package__ = str(Path(__file__).resolve().parent.parent), Path(__file__).resolve().parent.name

from moco_common.programs.commands import run_command


def main(argv: list[str] | None = None) -> int:
    """Run the command that the first argument names; return its exit code, 2 where there is no such command."""
    return run_command(argv, "moco_paddle", lambda name: importlib.import_module(f"moco_paddle.programs.{name}").main)


if __name__ == "__main__":
    sys.exit(main())
