"""The programs: `python -m moco_paddle COMMAND …`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

COMMANDS = {
    "train": ("training", "pre-train MoCo v3 on a folder of pictures"),
    "lincls": ("linear_classification", "train a linear classifier on a frozen encoder"),
    "finetune": ("fine_tuning", "train encoder and classifier on a folder of pictures with labels"),
    "knn": ("neighbours", "kNN accuracy of an encoder, without training"),
    "predict": ("prediction", "classes, features and nearest neighbours of pictures"),
    "export": ("export", "hand the encoder on in DeiT's or timm's form"),
    "summary": ("summary", "parameters and FLOPs of an architecture"),
}


def main(argv: list[str] | None = None) -> int:
    """Run the command that the first argument names; return its exit code, 2 where there is no such command."""
    name, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if name in COMMANDS:
        return importlib.import_module(f".{COMMANDS[name][0]}", __package__).main(rest)
    usage = "\n".join(
        [f"usage: python -m {__package__} COMMAND …", ""] + [f"  {n:10}{t}" for n, (_, t) in COMMANDS.items()]
    )
    if name in ("-h", "--help"):
        print(usage)
        return 0
    print(f"error: no command is called {name!r}; there are {', '.join(COMMANDS)}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    if not __package__:
        # diff: paddle's launcher starts a file, which does not know its package; torchrun starts a module as well.
        sys.path[0], __package__ = str(Path(__file__).resolve().parent.parent), Path(__file__).resolve().parent.name
    sys.exit(main())
