"""Linear classification on frozen features: the program `python -m moco_paddle lincls DATA --pretrained FILE`.

As in the official program: SGD, a learning rate of half a cosine that changes once an epoch, no warm-up, no decay. The
encoder stays in evaluation mode, and after every epoch a check makes sure that no bit of it has changed.
"""

from __future__ import annotations

import argparse

from moco_common.programs.classification import build_linear_parser
from moco_common.programs.options import execute
from moco_common.programs.recipes import LINEAR, parse_with_recipe
from moco_paddle.devices import default_device
from moco_paddle.models.moco import ARCHITECTURES
from moco_paddle.programs import classification


def run(args: argparse.Namespace) -> None:
    """Train or evaluate a linear classifier.

    Raises:
        ValueError, OSError, FloatingPointError, StoppedError: as `classification.run`, or neither file is given.
    """
    if not args.pretrained and not args.resume:
        raise ValueError("--pretrained: name what pre-training wrote (or a checkpoint of this program with --resume)")
    classification.run(args, frozen=True)


def main(argv: list[str] | None = None) -> int:
    """Run the program; return its exit code."""
    parser = build_linear_parser("moco_paddle", ARCHITECTURES, default_device())
    return execute(run, parse_with_recipe(parser, LINEAR, argv))
