"""The programs' names, and the choice of one by the first argument: `python -m PACKAGE COMMAND …`."""

from __future__ import annotations

import sys
from collections.abc import Callable

COMMANDS = {
    "train": "pre-train MoCo v3 on a folder of pictures",
    "lincls": "train a linear classifier on a frozen encoder",
    "finetune": "train encoder and classifier on a folder of pictures with labels",
    "knn": "kNN accuracy of an encoder, without training",
    "predict": "classes, features and nearest neighbours of pictures",
    "export": "export the encoder in DeiT's or timm's form",
    "summary": "parameters and FLOPs of an architecture",
}


def run_command(argv: list[str] | None, package: str, program: Callable[[str], Callable[[list[str]], int]]) -> int:
    """Run the command that the first argument names; return its exit code, 2 where there is no such command.

    Args:
        argv: the arguments, None for the process's own.
        package: what the programs belong to.
        program: finds the program of a command, which takes the other arguments.
    """
    name, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if name in COMMANDS:
        return program(name)(rest)
    if name in ("-h", "--help"):
        print(f"usage: python -m {package} COMMAND …\n")
        print("\n".join(f"  {name:10}{text}" for name, text in COMMANDS.items()))
        return 0
    print(f"error: no command is called {name!r}; there are {', '.join(COMMANDS)}", file=sys.stderr)
    return 2
