"""Predictions of a trained model for pictures: the program's options, input and output."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from moco_common.data.folders import IMAGE_SUFFIXES, BadImageError, load_image
from moco_common.files import written_beside
from moco_common.images.augmentation import EvaluationTransform
from moco_common.programs.options import list_bad_images


def build_parser(package: str, architectures: Iterable[str], device: str) -> argparse.ArgumentParser:
    """Return the program's options."""
    parser = argparse.ArgumentParser(prog=f"python -m {package} predict", description="predict what pictures show")
    add = parser.add_argument
    add("pictures", type=Path, nargs="+", metavar="PICTURE", help="files, or folders with pictures at any depth")
    add("--checkpoint", type=Path, required=True, metavar="FILE", help="a trained classifier, or a pre-trained model")
    add("--use-ema", action="store_true", help="use the average that --model-ema kept in it")
    add("-a", "--arch", choices=list(architectures), metavar="ARCH", help="where the checkpoint does not name it")
    add("--classes", type=Path, metavar="FILE", help="names of the classes, one per line, if the checkpoint has none")
    add("--topk", type=int, default=5, help="how many classes are shown")
    add("--neighbours", type=Path, metavar="DIR", help="also show the most similar pictures of this folder")
    add("-k", type=int, default=5, help="how many of them")
    add("--features", type=Path, metavar="FILE", help="write the features, [N, D] float32, as .npy")
    add("--json", type=Path, metavar="FILE", help="write all that is shown as JSON")
    add("-b", "--batch-size", type=int, default=64)
    add("--image-size", type=int, help="in pixels; by default the architecture's own, mostly 224")
    add("--on-bad-image", default="refuse", choices=("refuse", "skip"))
    add("--device", choices=("cpu", "gpu"), default=device)
    return parser


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


def read_batches(
    transform: EvaluationTransform, paths: list[Path], batch_size: int, on_bad_image: str, good: list[Path]
) -> Iterator[np.ndarray]:
    """Yield batches, (n, 3, size, size) float32, of the pictures that decode, and append their paths to `good`.

    Raises:
        ValueError: a picture does not decode and is not to be skipped, or none does.
    """
    arrays, bad = [], []
    for number, path in enumerate(paths, start=1):
        try:
            arrays.append(transform(load_image(path)))
            good.append(path)
        except BadImageError:
            if on_bad_image == "refuse":
                raise
            bad.append(path)
        if arrays and (len(arrays) == batch_size or number == len(paths)):
            yield np.stack(arrays)
            arrays = []
    list_bad_images(bad)
    if not good:
        raise ValueError("none of the pictures can be read")


def class_names(args: argparse.Namespace, values: dict[str, Any], count: int) -> list[str]:
    """Return the names of the classes: those of --classes, those beside the weights, or their numbers.

    Raises:
        ValueError: the number of names differs from that of the classes.
    """
    names = values.get("classes", [str(number) for number in range(count)])
    if args.classes:
        names = args.classes.read_text(encoding="utf-8").splitlines()
    if len(names) != count:
        raise ValueError(f"{args.classes or args.checkpoint}: {len(names)} names for {count} classes; give as many")
    return names


def add_classes(
    results: list[dict[str, Any]], classes: list[str], values: list[list[float]], indices: list[list[int]]
) -> None:
    """Add the likeliest classes with their probabilities to each result."""
    for result, row, places in zip(results, values, indices, strict=True):
        result["classes"] = [
            {"class": classes[place], "probability": value} for place, value in zip(places, row, strict=True)
        ]


def add_neighbours(
    results: list[dict[str, Any]], known: list[Path], values: list[list[float]], indices: list[list[int]]
) -> None:
    """Add the known pictures with the largest cosine similarity to each result."""
    for result, row, places in zip(results, values, indices, strict=True):
        result["neighbours"] = [
            {"picture": str(known[place]), "similarity": value} for place, value in zip(places, row, strict=True)
        ]


def write_results(args: argparse.Namespace, results: list[dict[str, Any]], features: np.ndarray) -> None:
    """Print the results, and write the files that the options ask for."""
    if args.features:
        with written_beside(args.features) as temporary, open(temporary, "wb") as file:
            np.save(file, features)
    if args.json:
        with written_beside(args.json) as temporary:
            temporary.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    for result in results:
        print("\n".join(_lines(result)))


def _lines(result: dict[str, Any]) -> list[str]:
    lines = [result["picture"]]
    lines += [f"  {entry['probability']:8.4f}  {entry['class']}" for entry in result.get("classes", [])]
    lines += [f"  similar {entry['similarity']:.4f}  {entry['picture']}" for entry in result.get("neighbours", [])]
    return lines
