"""Fine-tuning encoder and classifier on a folder of pictures: `python -m moco_ref finetune DATA --pretrained FILE`.

SGD or AdamW with linear warm-up and half a cosine per iteration; crops and flips and, where asked, what DeiT's recipe
(arXiv 2012.12877) adds, under timm's names: RandAugment, repeated augmentation, random erasing, mixup, CutMix, label
smoothing, drop path, clipped gradients, an average of the weights. All draws are addressed. Several processes train as
one would on the joined batch (`torchrun`, as `train`).
"""

from __future__ import annotations

import argparse
import sys

from .classification import add_options, run
from .labelled_data import add_augmentation_options
from .mixing import add_mixing_options
from .program import execute


def build_parser() -> argparse.ArgumentParser:
    """Return the program's options."""
    parser = argparse.ArgumentParser(prog=f"python -m {__package__} finetune", description="transfer by fine-tuning")
    add_options(parser, batch_size=512, epochs=100, lr=0.01, weight_decay=1e-4)
    parser.add_argument("--optimizer", default="sgd", choices=("sgd", "adamw"))
    parser.add_argument("--warmup-epochs", type=int, default=5)
    parser.add_argument(
        "--filter-bias-and-bn", action="store_true", help="no decay of biases, norms and class token, as timm has it"
    )
    parser.add_argument("--drop-path", type=float, default=0.0, metavar="RATE", help="of the last residual branch")
    parser.add_argument("--clip-grad", type=float, metavar="NORM", help="scale larger gradients down to it")
    parser.add_argument("--model-ema", action="store_true", help="keep an exponential moving average of the weights")
    parser.add_argument("--model-ema-decay", type=float, default=0.9998, help="what its decay rises to")
    add_augmentation_options(parser)
    add_mixing_options(parser)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the program; return its exit code."""
    return execute(lambda args: run(args, frozen=False), build_parser().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
