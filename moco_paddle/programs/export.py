"""The encoder in the form that DeiT's and timm's programs load: `python -m moco_paddle export CHECKPOINT OUTPUT`."""

# diff: only torch writes torch's own files, which DeiT's programs need; timm's also read a bare .safetensors. So there
# is neither `FORMS` nor --form here.

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from safetensors.numpy import save

from moco_common.files import encoder_weights, number_of_classes, written_beside
from moco_common.programs import export
from moco_common.programs.options import execute
from moco_paddle.files.weights import read_weights, to_torch
from moco_paddle.models.moco import ARCHITECTURES

# diff: one suffix, one form.
SUFFIXES = (".safetensors",)


def run(args: argparse.Namespace) -> None:
    """Write the file.

    Raises:
        ValueError, OSError: the checkpoint or the output's suffix is wrong; the message is one line.
    """
    if args.output.suffix not in SUFFIXES:
        # diff: there is no choice here.
        raise ValueError(f"{args.output}: is written as .safetensors; give this suffix")
    weights, values = read_weights(args.checkpoint, args.use_ema)
    arch = export.architecture(args, values, ARCHITECTURES)
    exported = exported_weights(weights, arch)
    if not exported:
        raise ValueError(f"{args.checkpoint}: holds no encoder to export")
    with written_beside(args.output) as temporary:
        temporary.write_bytes(save(exported))
    print(export.describe(args.output, exported, arch))


def exported_weights(weights: dict[str, Any], arch: str) -> dict[str, np.ndarray]:
    """Return the encoder's entries by torch's names and in torch's layouts, with the head of a classifier."""
    if number_of_classes(weights) is None:
        weights = encoder_weights(weights, ARCHITECTURES[arch].func.head_name)
    # diff: paddle has other names and layouts.
    return to_torch(weights)


def main(argv: list[str] | None = None) -> int:
    """Run the program; return its exit code."""
    return execute(run, export.build_parser("moco_paddle", ARCHITECTURES, SUFFIXES).parse_args(argv))
