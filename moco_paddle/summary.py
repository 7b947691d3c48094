"""Parameters and FLOPs of an architecture: the program `python -m moco_paddle summary -a ARCH`.

A multiplication with its addition counts as one FLOP, as the papers of these networks count (ViT-Small 4.6 G, ResNet-50
4.1 G). Counted are convolutions, Linear layers and the two products of attention; all else is less than a hundredth.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from typing import Any

import paddle
from paddle import nn

from .builder import ARCHITECTURES, build_encoder, build_moco
from .classification import default_image_size
from .program import check_positive, encoder_options, execute
from .vision_transformer import Attention


@dataclass(frozen=True)
class Summary:
    """What a model costs.

    Attributes:
        parameters: number of values that an optimizer may move or not, running statistics left out.
        trainable: those that it moves.
        flops: of one forward pass of one image, by layer name.
    """

    parameters: int
    trainable: int
    flops: dict[str, int]


def summarize(model: nn.Layer, image_size: int) -> Summary:
    """Return what `model` costs for one image `[1, 3, image_size, image_size]`; its mode is put back afterwards."""
    flops: dict[str, int] = {}
    was_training = model.training
    model.eval()
    handles = [
        layer.register_forward_post_hook(_counter(flops, name, layer))
        for name, layer in model.named_sublayers()
        if isinstance(layer, (nn.Linear, nn.Conv2D, Attention))
    ]
    try:
        with paddle.no_grad():
            model(paddle.zeros([1, 3, image_size, image_size]))
    finally:
        for handle in handles:
            handle.remove()
    # diff: paddle 2.6's train() takes no argument.
    if was_training:
        model.train()
    return Summary(*count_parameters(model), flops)


def count_parameters(model: nn.Layer) -> tuple[int, int]:
    """Return how many values the parameters have, and how many of them are trained."""
    # diff: paddle lists the running statistics of its batch norms among the parameters.
    sizes = [
        (math.prod(p.shape), not p.stop_gradient)
        for name, p in model.named_parameters()
        if not name.endswith(("._mean", "._variance"))
    ]
    return sum(size for size, _ in sizes), sum(size for size, is_trained in sizes if is_trained)


def _counter(flops: dict[str, int], name: str, layer: nn.Layer) -> Any:
    def count(_: Any, inputs: Any, output: Any) -> None:
        if isinstance(layer, Attention):
            batch_size, tokens, dim = inputs[0].shape
            flops[name] = 2 * batch_size * tokens**2 * dim
        elif isinstance(layer, nn.Conv2D):
            flops[name] = math.prod(output.shape) * math.prod(layer.weight.shape[1:])
        else:
            flops[name] = math.prod(inputs[0].shape) * output.shape[-1]

    return count


def build_parser() -> argparse.ArgumentParser:
    """Return the program's options."""
    parser = argparse.ArgumentParser(prog=f"python -m {__package__} summary", description="what an architecture costs")
    add = parser.add_argument
    add("-a", "--arch", default="resnet50", choices=list(ARCHITECTURES), metavar="ARCH")
    add("--image-size", type=int, help="in pixels; by default the architecture's own, mostly 224")
    add("--num-classes", type=int, default=1000)
    add("--stop-grad-conv1", action="store_true", help="leave a ViT's patch projection as initialised")
    add("--layers", action="store_true", help="show every layer")
    return parser


def run(args: argparse.Namespace) -> None:
    """Print the table.

    Raises:
        ValueError: an option has no sense.
    """
    check_positive(args, "image_size", "num_classes")
    size = args.image_size or default_image_size(args.arch)
    encoder = summarize(build_encoder(args.arch, args.num_classes, **encoder_options(args)), size)
    if args.layers:
        for name, flops in encoder.flops.items():
            print(f"{name:40} {flops:>16,} FLOPs")
    total, trainable = count_parameters(
        build_moco(args.arch, stop_grad_conv1=args.stop_grad_conv1, **encoder_options(args))
    )
    print(f"{args.arch}, {args.num_classes} classes, {size} px")
    print(f"  parameters           {encoder.parameters:>16,}")
    print(f"  FLOPs an image       {sum(encoder.flops.values()):>16,}")
    print(f"MoCo v3 of it (256, 4096): {total:,} parameters, {trainable:,} trained")


def main(argv: list[str] | None = None) -> int:
    """Run the program; return its exit code."""
    return execute(run, build_parser().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
