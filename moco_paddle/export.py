"""The encoder in the form that timm's programs load: `python -m moco_paddle export CHECKPOINT OUTPUT`.

A pre-training checkpoint gives its base encoder without the projector, a trained classifier goes whole. Names and
layouts are torch's from either twin, so that both write the same arrays.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from paddle import nn
from safetensors.numpy import save_file

from .builder import ARCHITECTURES, build_encoder
from .checkpoint import written_beside
from .program import execute
from .weights import encoder_weights, number_of_classes, read_weights

# diff: only torch writes torch's own files, which DeiT's programs want; timm's take a bare .safetensors as well.
SUFFIX = ".safetensors"
TORCH_NAMES = {"_mean": "running_mean", "_variance": "running_var"}


def build_parser() -> argparse.ArgumentParser:
    """Return the program's options."""
    parser = argparse.ArgumentParser(prog=f"python -m {__package__} export", description="hand the encoder on")
    add = parser.add_argument
    add("checkpoint", type=Path, metavar="CHECKPOINT", help="of pre-training or of a trained classifier")
    add("output", type=Path, metavar="OUTPUT", help=".safetensors")
    add("--use-ema", action="store_true", help="take the average that --model-ema kept")
    add("-a", "--arch", choices=list(ARCHITECTURES), metavar="ARCH", help="where the checkpoint does not name it")
    return parser


def run(args: argparse.Namespace) -> None:
    """Write the file.

    Raises:
        ValueError, OSError: the checkpoint or the output's suffix is wrong; the message is one line.
    """
    if args.output.suffix != SUFFIX:
        raise ValueError(f"{args.output}: is written as {SUFFIX}; give this suffix")
    weights, values = read_weights(args.checkpoint, args.use_ema)
    arch = args.arch or values.get("arch")
    if arch not in ARCHITECTURES:
        raise ValueError(f"{args.checkpoint}: does not name its architecture; give --arch")
    exported = exported_weights(weights, arch)
    if not exported:
        raise ValueError(f"{args.checkpoint}: holds no encoder to export")
    with written_beside(args.output) as temporary:
        save_file(exported, temporary)
    print(f"{args.output}: {len(exported)} arrays of {arch}")


def exported_weights(weights: dict[str, Any], arch: str) -> dict[str, np.ndarray]:
    """Return the encoder's entries by torch's names and in torch's layouts, a classifier's head among them."""
    if number_of_classes(weights) is None:
        weights = encoder_weights(weights, ARCHITECTURES[arch].func.head_name)
    # diff: a Linear weight is [in, out] here and [out, in] there; batch norms have other names for their statistics.
    linear = {f"{n}.weight" for n, layer in build_encoder(arch).named_sublayers() if isinstance(layer, nn.Linear)}
    exported = {}
    for key, value in weights.items():
        prefix, _, name = key.rpartition(".")
        target = f"{prefix}.{TORCH_NAMES.get(name, name)}" if prefix else name
        exported[target] = np.ascontiguousarray(value.T if key in linear else value)
    return exported


def main(argv: list[str] | None = None) -> int:
    """Run the program; return its exit code."""
    return execute(run, build_parser().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
