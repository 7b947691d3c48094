"""Fine-tuning encoder and classifier on a folder of pictures: `python -m moco_paddle finetune DATA --pretrained FILE`.

SGD or AdamW with linear warm-up and half a cosine per iteration, crops and flips. What the official release hands to
DeiT's programs for its published accuracies (mixup, CutMix, RandAugment, drop path) is not here: `export` hands on.
"""

from __future__ import annotations

import argparse
import sys

from .classification import add_options, run
from .program import execute


def build_parser() -> argparse.ArgumentParser:
    """Return the program's options."""
    parser = argparse.ArgumentParser(prog=f"python -m {__package__} finetune", description="transfer by fine-tuning")
    add_options(parser, batch_size=512, epochs=100, lr=0.01, weight_decay=1e-4)
    parser.add_argument("--optimizer", default="sgd", choices=("sgd", "adamw"))
    parser.add_argument("--warmup-epochs", type=int, default=5)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the program; return its exit code."""
    return execute(lambda args: run(args, frozen=False), build_parser().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
