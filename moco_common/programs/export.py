"""Exporting the encoder: the program's options and messages.

A pre-training checkpoint is exported as its base encoder without the projector, a classifier as a whole. Names and
layouts are torch's from either twin, so that both write the same arrays, except torch's `num_batches_tracked` of batch
norms, which paddle lacks.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from moco_common.files import number_of_classes

TIMM_HEADS = {"vit_small": ("vit_small_patch16_224", 12)}
"""Models that have another number of heads in timm: timm's name and the heads here; the same weights fit both."""


def build_parser(
    package: str, architectures: Iterable[str], suffixes: Iterable[str], forms: Iterable[str] = ()
) -> argparse.ArgumentParser:
    """Return the program's options; the output has one of the suffixes and, where there are some, one of the forms."""
    parser = argparse.ArgumentParser(prog=f"python -m {package} export", description="hand the encoder on")
    add = parser.add_argument
    add("checkpoint", type=Path, metavar="CHECKPOINT", help="of pre-training or of a trained classifier")
    add("output", type=Path, metavar="OUTPUT", help=" or ".join(suffixes))
    if forms:
        add("--form", default="deit", choices=forms, help='deit: {"model": …}, timm: bare; .safetensors is bare always')
    add("--use-ema", action="store_true", help="take the average that --model-ema kept")
    add("-a", "--arch", choices=list(architectures), metavar="ARCH", help="where the checkpoint does not name it")
    return parser


def architecture(args: argparse.Namespace, values: dict[str, Any], architectures: Iterable[str]) -> str:
    """Return the architecture that --arch or the checkpoint's plain values name.

    Raises:
        ValueError: neither names one.
    """
    arch = args.arch or values.get("arch")
    if arch not in architectures:
        raise ValueError(f"{args.checkpoint}: does not name its architecture; give --arch")
    return arch


def describe(output: Path, exported: dict[str, Any], arch: str) -> str:
    """Return what the program says of the file that it has written."""
    lines = [f"{output}: {len(exported)} arrays of {arch}"]
    if arch in TIMM_HEADS:
        name, heads = TIMM_HEADS[arch]
        call = f'timm.create_model("{name}", num_heads={heads}, num_classes={number_of_classes(exported) or 0})'
        lines.append(
            f"timm's {name} has another number of heads, into which these weights load as well; build it as {call}"
        )
    return "\n".join(lines)
