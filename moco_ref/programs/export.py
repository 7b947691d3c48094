"""The encoder in the form that DeiT's and timm's programs load: `python -m moco_ref export CHECKPOINT OUTPUT`."""

from __future__ import annotations

import argparse
from typing import Any

from safetensors.torch import save
from torch import Tensor

from moco_common.files import encoder_weights, number_of_classes, written_beside
from moco_common.programs import export
from moco_common.programs.options import execute
from moco_ref.files.checkpoint import write_file
from moco_ref.files.weights import read_weights
from moco_ref.models.moco import ARCHITECTURES

SUFFIXES = (".pth", ".safetensors")
FORMS = ("deit", "timm")


def run(args: argparse.Namespace) -> None:
    """Write the file.

    Raises:
        ValueError, OSError: the checkpoint or the output's suffix is wrong; the message is one line.
    """
    if args.output.suffix not in SUFFIXES:
        raise ValueError(f"{args.output}: is written as .pth or .safetensors; give one of these suffixes")
    weights, values = read_weights(args.checkpoint, args.use_ema)
    arch = export.architecture(args, values, ARCHITECTURES)
    exported = exported_weights(weights, arch)
    if not exported:
        raise ValueError(f"{args.checkpoint}: holds no encoder to export")
    if args.output.suffix == ".safetensors":
        with written_beside(args.output) as temporary:
            temporary.write_bytes(save(exported))
    else:
        write_file({"model": exported} if args.form == "deit" else exported, args.output)
    print(export.describe(args.output, exported, arch))


def exported_weights(weights: dict[str, Any], arch: str) -> dict[str, Tensor]:
    """Return the encoder's entries by torch's names and in torch's layouts, with the head of a classifier."""
    if number_of_classes(weights) is None:
        weights = encoder_weights(weights, ARCHITECTURES[arch].func.head_name)
    return {key: value.contiguous() for key, value in weights.items()}


def main(argv: list[str] | None = None) -> int:
    """Run the program; return its exit code."""
    return execute(run, export.build_parser("moco_ref", ARCHITECTURES, SUFFIXES, FORMS).parse_args(argv))
