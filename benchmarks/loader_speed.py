"""Two-view loading in one process: images per second of CPU time, ours against torchvision's own transforms.

    python benchmarks/loader_speed.py [--root lite_data/photos/train] [--seconds 10]

Both sides read the same files and make two 224-pixel views of each; CPU time is taken, so that other work on the
machine disturbs little. Prints one line a side, with the share of each operation in ours, and the ratio.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch
import torchvision.transforms as T
from PIL import ImageFilter, ImageOps

from moco_ref.augmentation import IMAGENET_MEAN, IMAGENET_STD, build_two_views
from moco_ref.data import ImageFolder, PretrainingDataset, load_image


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


def shares(dataset: PretrainingDataset) -> Counter:
    """Milliseconds of CPU time an image, by operation, decoding included."""
    from moco_ref import augmentation

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
            augmentation.apply_view(image, draws, 224, watch=lambda name, _: note(name))
            note("normalize")
    return Counter({name: value / (4 * len(dataset.folder.samples)) for name, value in spent.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path("lite_data/photos/train"))
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dataset = PretrainingDataset(ImageFolder(options.root), build_two_views())
    pipelines, samples = torchvision_pipelines(), dataset.folder.samples

    def theirs(index: int) -> list:
        image = load_image(samples[index % len(samples)][0])
        return [pipeline(image) for pipeline in pipelines]

    rates = {"torchvision": [], "ours": []}
    for _ in range(3):  # in turn, so that a change of the machine's pace meets both
        rates["torchvision"].append(rate(theirs, options.seconds / 3))
        rates["ours"].append(
            rate(lambda index: dataset[index // len(samples), index % len(samples)], options.seconds / 3)
        )
    best = {name: max(values) for name, values in rates.items()}
    for name, values in rates.items():
        print(f"{name:12s} {best[name]:7.1f} images/s (runs: {', '.join(f'{value:.1f}' for value in values)})")
    print(f"ratio        {best['ours'] / best['torchvision']:7.2f}")
    print("ours, ms an image: " + ", ".join(f"{name} {value:.2f}" for name, value in shares(dataset).most_common()))


if __name__ == "__main__":
    main()
