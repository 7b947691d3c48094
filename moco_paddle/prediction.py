"""What a trained model says of pictures: the program `python -m moco_paddle predict PICTURE… --checkpoint FILE`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import Tensor, nn
from paddle.nn import functional as F

from .augmentation import evaluation_transform
from .builder import ARCHITECTURES, build_encoder
from .checkpoint import written_beside
from .data import IMAGE_SUFFIXES, BadImageError, ImageFolder, load_image
from .program import check_positive, default_device, encoder_options, execute, list_bad_images, on_device, set_device
from .weights import load_classifier, load_encoder, number_of_classes, read_weights


def build_parser() -> argparse.ArgumentParser:
    """Return the program's options."""
    parser = argparse.ArgumentParser(prog=f"python -m {__package__} predict", description="predict what pictures show")
    add = parser.add_argument
    add("pictures", type=Path, nargs="+", metavar="PICTURE", help="files, or folders with pictures at any depth")
    add("--checkpoint", type=Path, required=True, metavar="FILE", help="a trained classifier, or a pre-trained model")
    add("--use-ema", action="store_true", help="take the average that --model-ema kept out of it")
    add("-a", "--arch", choices=list(ARCHITECTURES), metavar="ARCH", help="where the checkpoint does not name it")
    add("--classes", type=Path, metavar="FILE", help="names of the classes, a line each, where the checkpoint has none")
    add("--topk", type=int, default=5, help="how many classes are shown")
    add("--neighbours", type=Path, metavar="DIR", help="show the most similar pictures of this folder as well")
    add("-k", type=int, default=5, help="how many of them")
    add("--features", type=Path, metavar="FILE", help="write the features, [N, D] float32, as .npy")
    add("--json", type=Path, metavar="FILE", help="write all that is shown as JSON")
    add("-b", "--batch-size", type=int, default=64)
    add("--image-size", type=int, help="in pixels; by default the architecture's own, mostly 224")
    add("--on-bad-image", default="refuse", choices=("refuse", "skip"))
    add("--device", choices=("cpu", "gpu"), default=default_device())
    return parser


def run(args: argparse.Namespace) -> None:
    """Print the classes, and the neighbours where asked, of every picture.

    Raises:
        ValueError, OSError: an option, a picture or the checkpoint is wrong; the message is one line.
    """
    check_positive(args, "topk", "k", "batch_size", "image_size")
    device = set_device(args.device)
    model, classes = load_model(args)
    model = on_device(model, device)
    model.eval()
    paths, features, logits = compute(model, find_pictures(args.pictures), args)
    results = [{"picture": str(path)} for path in paths]
    if classes:
        add_classes(results, logits, classes, args.topk)
    if args.neighbours:
        known, known_features, _ = compute(model, [path for path, _ in ImageFolder(args.neighbours).samples], args)
        add_neighbours(results, features, known, known_features, args.k)
    if args.features:
        with written_beside(args.features) as temporary, open(temporary, "wb") as file:
            np.save(file, features.numpy())
    if args.json:
        with written_beside(args.json) as temporary:
            temporary.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    for result in results:
        print("\n".join(describe(result)))


def load_model(args: argparse.Namespace) -> tuple[nn.Layer, list[str]]:
    """Build the model that the checkpoint is of, with its weights; return it with its classes, none without a head.

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
    names = values.get("classes", [str(number) for number in range(count)])
    if args.classes:
        names = args.classes.read_text(encoding="utf-8").splitlines()
    if len(names) != count:
        raise ValueError(f"{args.classes or args.checkpoint}: {len(names)} names for {count} classes; give as many")
    return model, names


def find_pictures(given: list[Path]) -> list[Path]:
    """Return the files as given and the pictures below the folders, sorted.

    Raises:
        ValueError: a path does not exist, or a folder holds no picture.
    """
    found: list[Path] = []
    for path in given:
        if not path.exists():
            raise ValueError(f"{path}: no such file or folder")
        inside = sorted(file for file in path.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES)
        if path.is_dir() and not inside:
            raise ValueError(f"{path}: holds no pictures")
        found += inside if path.is_dir() else [path]
    return found


@paddle.no_grad()
def compute(model: nn.Layer, paths: list[Path], args: argparse.Namespace) -> tuple[list[Path], Tensor, Tensor]:
    """Return the pictures that decode, their features `[N, D]` and the head's output `[N, C]`.

    Raises:
        ValueError: a picture does not decode and is not to be skipped, or none does.
    """
    transform = evaluation_transform(args.image_size or model.image_size)
    arrays, good, bad, features = [], [], [], []
    for number, path in enumerate(paths, start=1):
        try:
            arrays.append(transform(load_image(path)))
            good.append(path)
        except BadImageError:
            if args.on_bad_image == "refuse":
                raise
            bad.append(path)
        if arrays and (len(arrays) == args.batch_size or number == len(paths)):
            features.append(model.forward_features(paddle.to_tensor(np.stack(arrays))))
            arrays = []
    list_bad_images(bad)
    if not features:
        raise ValueError("none of the pictures can be read")
    joined = paddle.concat(features)
    return good, joined, getattr(model, model.head_name)(joined)


def add_classes(results: list[dict[str, Any]], logits: Tensor, classes: list[str], topk: int) -> None:
    """Give each result its likeliest classes with their probabilities."""
    probabilities = F.softmax(logits, axis=1)
    values, indices = probabilities.topk(min(topk, len(classes)), axis=1)
    for result, row, places in zip(results, values.tolist(), indices.tolist(), strict=True):
        result["classes"] = [
            {"class": classes[place], "probability": value} for place, value in zip(places, row, strict=True)
        ]


def add_neighbours(
    results: list[dict[str, Any]], features: Tensor, known: list[Path], known_features: Tensor, k: int
) -> None:
    """Give each result the known pictures of the largest cosine similarity."""
    similarity = F.normalize(features, axis=1) @ F.normalize(known_features, axis=1).T
    values, indices = similarity.topk(min(k, len(known)), axis=1)
    for result, row, places in zip(results, values.tolist(), indices.tolist(), strict=True):
        result["neighbours"] = [
            {"picture": str(known[place]), "similarity": value} for place, value in zip(places, row, strict=True)
        ]


def describe(result: dict[str, Any]) -> list[str]:
    """Return a picture's lines."""
    lines = [result["picture"]]
    lines += [f"  {entry['probability']:8.4f}  {entry['class']}" for entry in result.get("classes", [])]
    lines += [f"  similar {entry['similarity']:.4f}  {entry['picture']}" for entry in result.get("neighbours", [])]
    return lines


def main(argv: list[str] | None = None) -> int:
    """Run the program; return its exit code."""
    return execute(run, build_parser().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
