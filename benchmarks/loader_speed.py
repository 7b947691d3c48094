"""Two-view loading in one process: images per second of CPU time, both twins' against torchvision's own transforms.

    python benchmarks/loader_speed.py [--root lite_data/photos/train] [--seconds 10]

All sides read the same files and make two 224-pixel views of each; CPU time is measured, so that other work on the
machine has little influence. Prints one line per side with its ratio to torchvision, the time of each operation in the
reference twin, and the time that the compiled operations take before a process's first view: the first process compiles
them, later ones load them.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torchvision.transforms as T
from PIL import ImageFilter, ImageOps

from moco_common.data.folders import ImageFolder, load_image
from moco_common.data.loaders import PretrainingDataset
from moco_common.images import augmentation
from moco_common.images.augmentation import IMAGENET_MEAN, IMAGENET_STD

TWINS = ("moco_ref", "moco_paddle")
START = """
import time
import numpy, PIL.ImageEnhance
from moco_common.images import pixels
start = time.process_time()
assert pixels.compiled_kernels() is not None
print(time.process_time() - start)
"""


def torchvision_pipelines() -> list[T.Compose]:
    """The two pipelines of the recipe as torchvision's random transforms write them."""

    def blur(image):
        return image.filter(ImageFilter.GaussianBlur(random.uniform(0.1, 2.0)))

    def pipeline(blur_probability: float, *last: Callable) -> T.Compose:
        return T.Compose(
            [
                T.RandomResizedCrop(224, scale=(0.08, 1.0)),
                T.RandomApply([T.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8),
                T.RandomGrayscale(p=0.2),
                T.RandomApply([blur], p=blur_probability),
                *last,
                T.RandomHorizontalFlip(),
                T.ToTensor(),
                T.Normalize(IMAGENET_MEAN, IMAGENET_STD),
            ]
        )

    return [pipeline(1.0), pipeline(0.1, T.RandomApply([ImageOps.solarize], p=0.2))]


def rate(make: Callable[[int], object], seconds: float) -> float:
    """Images a second of CPU time."""
    for index in range(8):
        make(index)
    start, count = time.process_time(), 0
    while time.process_time() - start < seconds:
        make(count)
        count += 1
    return count / (time.process_time() - start)


def two_views(package: str, root: Path) -> Any:
    """A twin's dataset of both views."""
    views = importlib.import_module(f"{package}.data").build_two_views()
    return PretrainingDataset(ImageFolder(root), views)


def shares(dataset: Any) -> Counter:
    """Milliseconds of CPU time an image, by operation, decoding included."""
    spent: Counter = Counter()
    for index, (path, _) in enumerate(dataset.folder.samples * 4):
        last = time.process_time()

        def note(name: str) -> None:
            nonlocal last
            now = time.process_time()
            spent[name] += (now - last) * 1000
            last = now

        image = load_image(path)
        note("decode")
        for draws in dataset.two_views.draws(*image.size, 0, index):
            note("draw")
            cut = dataset.two_views.crop_and_resize
            augmentation.apply_view(cut, image, draws, 224, watch=lambda name, _: note(name))
            note("normalize")
    return Counter({name: value / (4 * len(dataset.folder.samples)) for name, value in spent.items()})


def starts() -> list[float]:
    """Seconds of CPU time until the compiled operations are ready: in the first process, and in three later ones."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache, "PYTHONPYCACHEPREFIX": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, "-c", START]
        return [
            float(subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout)
            for _ in range(4)
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path("lite_data/photos/train"))
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    datasets = {package: two_views(package, options.root) for package in TWINS}
    pipelines, samples = torchvision_pipelines(), datasets["moco_ref"].folder.samples

    def theirs(index: int) -> list:
        image = load_image(samples[index % len(samples)][0])
        return [pipeline(image) for pipeline in pipelines]

    sides: dict[str, Callable[[int], object]] = {"torchvision": theirs}
    for package, dataset in datasets.items():
        sides[package] = lambda index, dataset=dataset: dataset[index // len(samples), index % len(samples)]
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(3):  # in turn, so that a change of the machine's speed affects all
        for name, make in sides.items():
            rates[name].append(rate(make, options.seconds / 3))
    best = {name: max(values) for name, values in rates.items()}
    for name, values in rates.items():
        runs = ", ".join(f"{value:.1f}" for value in values)
        print(f"{name:12s} {best[name]:7.1f} images/s, ratio {best[name] / best['torchvision']:.2f} (runs: {runs})")
    spent = shares(datasets["moco_ref"]).most_common()
    print("moco_ref, ms an image: " + ", ".join(f"{name} {value:.2f}" for name, value in spent))
    first, *later = starts()
    print(f"start of the compiled operations: {first:.1f} s, later {min(later):.1f} s")


if __name__ == "__main__":
    main()
