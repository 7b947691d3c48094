"""Predictions for pictures: the program `python -m moco_paddle predict PICTURE… --checkpoint FILE`."""

from __future__ import annotations

import argparse
from pathlib import Path

import paddle
from paddle import Tensor, nn
from paddle.nn import functional as F

from moco_common.data.folders import ImageFolder
from moco_common.files import number_of_classes
from moco_common.programs import predict
from moco_common.programs.options import check_positive, encoder_options, execute
from moco_paddle.data import evaluation_transform
from moco_paddle.devices import default_device, on_device, set_device
from moco_paddle.files.weights import load_classifier, load_encoder, read_weights
from moco_paddle.models.moco import ARCHITECTURES, build_encoder


def run(args: argparse.Namespace) -> None:
    """Print the classes, and on request the neighbours, of every picture.

    Raises:
        ValueError, OSError: an option, a picture or the checkpoint is wrong; the message is one line.
    """
    check_positive(args, "topk", "k", "batch_size", "image_size")
    device = set_device(args.device)
    model, classes = load_model(args)
    model = on_device(model, device)
    model.eval()
    paths, features, logits = compute(model, predict.find_pictures(args.pictures), args)
    results = [{"picture": str(path)} for path in paths]
    if classes:
        values, indices = F.softmax(logits, axis=1).topk(min(args.topk, len(classes)), axis=1)
        predict.add_classes(results, classes, values.tolist(), indices.tolist())
    if args.neighbours:
        known, known_features, _ = compute(model, [path for path, _ in ImageFolder(args.neighbours).samples], args)
        similarity = F.normalize(features, axis=1) @ F.normalize(known_features, axis=1).T
        values, indices = similarity.topk(min(args.k, len(known)), axis=1)
        predict.add_neighbours(results, known, values.tolist(), indices.tolist())
    predict.write_results(args, results, features.numpy())


def load_model(args: argparse.Namespace) -> tuple[nn.Layer, list[str]]:
    """Build the checkpoint's model with its weights; return it and the names of its classes, none without a head.

    Raises:
        ValueError: nothing names the architecture, or the names are not as many as the classes.
    """
    weights, values = read_weights(args.checkpoint, args.use_ema)
    args.arch = args.arch or values.get("arch")
    if args.arch not in ARCHITECTURES:
        raise ValueError(f"{args.checkpoint}: does not name its architecture; give --arch")
    args.image_size = args.image_size or values.get("image_size")
    count = number_of_classes(weights)
    model = build_encoder(args.arch, count or 1, **encoder_options(args))
    if count is None:
        load_encoder(model, args.checkpoint, args.use_ema)
        return model, []
    load_classifier(model, args.checkpoint, args.use_ema)
    return model, predict.class_names(args, values, count)


@paddle.no_grad()
def compute(model: nn.Layer, paths: list[Path], args: argparse.Namespace) -> tuple[list[Path], Tensor, Tensor]:
    """Return the pictures that decode, their features `[N, D]` and the head's output `[N, C]`.

    Raises:
        ValueError: a picture does not decode and is not to be skipped, or none does.
    """
    good: list[Path] = []
    transform = evaluation_transform(args.image_size or model.image_size)
    batches = predict.read_batches(transform, paths, args.batch_size, args.on_bad_image, good)
    # diff: the batches are already on the current device, as the model is.
    features = paddle.concat([model.forward_features(paddle.to_tensor(batch)) for batch in batches])
    return good, features, getattr(model, model.head_name)(features)


def main(argv: list[str] | None = None) -> int:
    """Run the program; return its exit code."""
    return execute(run, predict.build_parser("moco_paddle", ARCHITECTURES, default_device()).parse_args(argv))
