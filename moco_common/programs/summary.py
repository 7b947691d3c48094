"""Parameters and FLOPs of an architecture: the program's options and its table.

A multiplication with its addition counts as one FLOP, as in the papers of these networks (ViT-Small 4.6 G, ResNet-50
4.1 G). Convolutions, Linear layers and the two products of attention are counted; everything else is less than 1 %.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Summary:
    """What a model costs.

    Attributes:
        parameters: number of values, frozen ones included and running statistics excluded.
        trainable: those that an optimizer updates.
        flops: of one forward pass of one image, by layer name.
    """

    parameters: int
    trainable: int
    flops: dict[str, int]


def build_parser(package: str, architectures: Iterable[str]) -> argparse.ArgumentParser:
    """Return the program's options."""
    parser = argparse.ArgumentParser(prog=f"python -m {package} summary", description="what an architecture costs")
    add = parser.add_argument
    add("-a", "--arch", default="resnet50", choices=list(architectures), metavar="ARCH")
    add("--image-size", type=int, help="in pixels; by default the architecture's own, mostly 224")
    add("--num-classes", type=int, default=1000)
    add("--stop-grad-conv1", action="store_true", help="leave a ViT's patch projection as initialised")
    add("--layers", action="store_true", help="show every layer")
    return parser


def print_table(args: argparse.Namespace, image_size: int, encoder: Summary, moco: tuple[int, int]) -> None:
    """Print what the encoder costs; `moco` is how many parameters MoCo v3 of it has, and how many are trained."""
    if args.layers:
        for name, flops in encoder.flops.items():
            print(f"{name:40} {flops:>16,} FLOPs")
    print(f"{args.arch}, {args.num_classes} classes, {image_size} px")
    print(f"  parameters           {encoder.parameters:>16,}")
    print(f"  FLOPs an image       {sum(encoder.flops.values()):>16,}")
    print(f"MoCo v3 of it (256, 4096): {moco[0]:,} parameters, {moco[1]:,} trained")
