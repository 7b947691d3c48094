"""The encoder in the form that DeiT's and timm's programs load: `python -m moco_ref export CHECKPOINT OUTPUT`.

A pre-training checkpoint gives its base encoder without the projector, a trained classifier goes whole. Names and
layouts are torch's from either twin, so that both write the same arrays.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from .builder import ARCHITECTURES
from .checkpoint import written_beside
from .program import execute
from .weights import encoder_weights, number_of_classes, read_weights

FORMS = ("deit", "timm")


def build_parser() -> argparse.ArgumentParser:
    """Return the program's options."""
    parser = argparse.ArgumentParser(prog=f"python -m {__package__} export", description="hand the encoder on")
    add = parser.add_argument
    add("checkpoint", type=Path, metavar="CHECKPOINT", help="of pre-training or of a trained classifier")
    add("output", type=Path, metavar="OUTPUT", help=".pth or .safetensors")
    add("--form", default="deit", choices=FORMS, help='deit: {"model": …}, timm: bare; .safetensors is bare always')
    add("--use-ema", action="store_true", help="take the average that --model-ema kept")
    add("-a", "--arch", choices=list(ARCHITECTURES), metavar="ARCH", help="where the checkpoint does not name it")
    return parser


def run(args: argparse.Namespace) -> None:
    """Write the file.

    Raises:
        ValueError, OSError: the checkpoint or the output's suffix is wrong; the message is one line.
    """
    if args.output.suffix not in (".pth", ".safetensors"):
        raise ValueError(f"{args.output}: is written as .pth or .safetensors; give one of these suffixes")
    weights, values = read_weights(args.checkpoint, args.use_ema)
    arch = args.arch or values.get("arch")
    if arch not in ARCHITECTURES:
        raise ValueError(f"{args.checkpoint}: does not name its architecture; give --arch")
    exported = exported_weights(weights, arch)
    if not exported:
        raise ValueError(f"{args.checkpoint}: holds no encoder to export")
    with written_beside(args.output) as temporary:
        if args.output.suffix == ".safetensors":
            save_file(exported, temporary)
        else:
            torch.save({"model": exported} if args.form == "deit" else exported, temporary)
    print(f"{args.output}: {len(exported)} arrays of {arch}")


def exported_weights(weights: dict[str, Any], arch: str) -> dict[str, Tensor]:
    """Return the encoder's entries by torch's names and in torch's layouts, a classifier's head among them."""
    if number_of_classes(weights) is None:
        weights = encoder_weights(weights, ARCHITECTURES[arch].func.head_name)
    return {key: value.contiguous() for key, value in weights.items()}


def main(argv: list[str] | None = None) -> int:
    """Run the program; return its exit code."""
    return execute(run, build_parser().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
