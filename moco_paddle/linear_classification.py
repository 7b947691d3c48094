"""Linear classification on frozen features: the program `python -m moco_paddle lincls DATA --pretrained FILE`.

The protocol of the official program: SGD, a rate of half a cosine that changes once an epoch, no warm-up, no decay;
the encoder in evaluation mode, and checked after every epoch not to have moved by a bit.
"""

from __future__ import annotations

import argparse
import sys

from .classification import add_options, run
from .program import execute
from .recipes import LINEAR, parse_with_recipe


def build_parser() -> argparse.ArgumentParser:
    """Return the program's options; names and defaults are the official ones, but for --workers and --seed."""
    parser = argparse.ArgumentParser(prog=f"python -m {__package__} lincls", description="linear classification")
    parser.add_argument("--recipe", choices=list(LINEAR), help="a published recipe; options given beside it win")
    add_options(parser, batch_size=1024, epochs=90, lr=0.1, weight_decay=0.0)
    parser.set_defaults(optimizer="sgd", warmup_epochs=0)
    return parser


def run_linear_classification(args: argparse.Namespace) -> None:
    """Train or evaluate a linear classifier.

    Raises:
        ValueError, OSError, FloatingPointError, StoppedError: as `classification.run`; neither file is given.
    """
    if not args.pretrained and not args.resume:
        raise ValueError("--pretrained: name what pre-training wrote (or a checkpoint of this program with --resume)")
    run(args, frozen=True)


def main(argv: list[str] | None = None) -> int:
    """Run the program; return its exit code."""
    return execute(run_linear_classification, parse_with_recipe(build_parser(), LINEAR, argv))


if __name__ == "__main__":
    sys.exit(main())
