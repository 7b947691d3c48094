"""Fine-tuning encoder and classifier on a folder of pictures: `python -m moco_ref finetune DATA --pretrained FILE`.

SGD or AdamW with linear warm-up and half a cosine per iteration; crops and flips and, where asked, colour jitter,
random erasing, mixup, CutMix and label smoothing, under timm's names. RandAugment and drop path, which DeiT's programs
have for the published accuracies, are not here: `export` hands on.
"""

from __future__ import annotations

import argparse
import sys

from .classification import add_options, run
from .mixing import add_mixing_options
from .program import execute


def build_parser() -> argparse.ArgumentParser:
    """Return the program's options."""
    parser = argparse.ArgumentParser(prog=f"python -m {__package__} finetune", description="transfer by fine-tuning")
    add_options(parser, batch_size=512, epochs=100, lr=0.01, weight_decay=1e-4)
    parser.add_argument("--optimizer", default="sgd", choices=("sgd", "adamw"))
    parser.add_argument("--warmup-epochs", type=int, default=5)
    parser.add_argument(
        "--color-jitter", type=float, default=0.0, metavar="STRENGTH", help="of brightness, contrast and saturation"
    )
    parser.add_argument("--reprob", type=float, default=0.0, help="chance that noise erases a box of a picture")
    add_mixing_options(parser)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the program; return its exit code."""
    return execute(lambda args: run(args, frozen=False), build_parser().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
