"""The programs: `python -m moco_ref COMMAND …`."""

from __future__ import annotations

import importlib
import sys

from moco_common.programs.commands import run_command


def main(argv: list[str] | None = None) -> int:
    """Run the command that the first argument names; return its exit code, 2 where there is no such command."""
    return run_command(argv, "moco_ref", lambda name: importlib.import_module(f"moco_ref.programs.{name}").main)


if __name__ == "__main__":
    sys.exit(main())
