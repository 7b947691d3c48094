"""Parameters and FLOPs of an architecture: the program `python -m moco_paddle summary -a ARCH`."""

from __future__ import annotations

import argparse
import math
from typing import Any

import paddle
from paddle import nn

from moco_common.programs.options import check_positive, encoder_options, execute
from moco_common.programs.summary import Summary, build_parser, print_table
from moco_paddle.models.moco import ARCHITECTURES, build_encoder, build_moco, default_image_size
from moco_paddle.models.vision_transformer import Attention


def summarize(model: nn.Layer, image_size: int) -> Summary:
    """Return what `model` costs for one image `[1, 3, image_size, image_size]`; its mode is restored."""
    flops: dict[str, int] = {}
    was_training = model.training
    model.eval()
    handles = [
        layer.register_forward_post_hook(_counter(flops, name, layer))
        for name, layer in model.named_sublayers(include_self=True)
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


def run(args: argparse.Namespace) -> None:
    """Print the table.

    Raises:
        ValueError: an option has no sense.
    """
    check_positive(args, "image_size", "num_classes")
    size = args.image_size or default_image_size(args.arch)
    encoder = summarize(build_encoder(args.arch, args.num_classes, **encoder_options(args)), size)
    moco = build_moco(args.arch, stop_grad_conv1=args.stop_grad_conv1, **encoder_options(args))
    print_table(args, size, encoder, count_parameters(moco))


def main(argv: list[str] | None = None) -> int:
    """Run the program; return its exit code."""
    return execute(run, build_parser("moco_paddle", ARCHITECTURES).parse_args(argv))
