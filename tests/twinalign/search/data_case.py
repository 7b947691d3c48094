"""Six small pictures through a pipeline of every usual step, whose paddle side is really wrong in one way."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from PIL import Image, ImageFilter, ImageOps

from twinalign import Case

COUNT = 10
MEAN = np.array([0.485, 0.456, 0.406], np.float32)[:, None, None]
STD = np.array([0.229, 0.224, 0.225], np.float32)[:, None, None]


@dataclasses.dataclass(frozen=True)
class Jitter:
    order: tuple[int, ...]
    brightness: float
    contrast: float
    saturation: float
    hue: float


@functools.cache
def picture(index: int) -> Image.Image:
    """Smooth colours with noise, no symmetry, 70 to 90 pixels wide and 50 to 60 high."""
    rng = np.random.default_rng(index)
    height, width = 50 + index, 70 + 2 * index
    y, x = np.mgrid[0:height, 0:width]
    smooth = np.stack([127 + 90 * np.sin(x / (9 + c) + c) * np.cos(y / (7 + 2 * c) + x / 40) for c in range(3)], -1)
    return Image.fromarray((smooth + 15 * rng.standard_normal(smooth.shape)).clip(0, 255).astype(np.uint8))


def functional(framework: str) -> Any:
    library = "torchvision" if framework == "torch" else "paddle.vision"
    return importlib.import_module(f"{library}.transforms.functional")


def jittered(image: Image.Image, jitter: Jitter, framework: str) -> Image.Image:
    library = functional(framework)
    parts = (
        library.adjust_brightness,
        library.adjust_contrast,
        library.adjust_saturation,
        library.adjust_hue,
    )
    factors = (jitter.brightness, jitter.contrast, jitter.saturation, jitter.hue)
    for part in jitter.order:
        image = parts[part](image, factors[part])
    return image


def cropped(image: Image.Image, box: tuple[int, int, int, int], framework: str) -> Image.Image:
    return functional(framework).crop(image, *box)


def gray(image: Image.Image, framework: str) -> Image.Image:
    library = functional(framework)
    return library.rgb_to_grayscale(image, 3) if framework == "torch" else library.to_grayscale(image, 3)


def scaled(image: Image.Image) -> np.ndarray:
    return np.asarray(image).transpose(2, 0, 1).astype(np.float32) / 255


def normalized(image: np.ndarray) -> np.ndarray:
    return (image - MEAN) / STD


def steps(framework: str, index: int) -> dict[str, Callable[[Any], Any]]:
    library = functional(framework)
    jitter = Jitter(((2, 0, 3, 1), (1, 3, 0, 2))[index % 2], 1.3 + index / 20, 0.7, 1.2, 0.08 + index / 100)
    found: dict[str, Callable[[Any], Any]] = {
        "load": lambda nothing: picture(index).convert("RGB"),
        "resize": lambda image: library.resize(image, 40),
        "crop": functools.partial(cropped, box=(3, 5, 32, 30), framework=framework),
        "jitter": functools.partial(jittered, jitter=jitter, framework=framework),
    }
    if index % 3 == 1:
        found["grayscale"] = functools.partial(gray, framework=framework)
    found["blur"] = lambda image: image.filter(ImageFilter.GaussianBlur(1.3))
    found["solarize"] = lambda image: ImageOps.solarize(image, 128)
    if index % 2 == 0:
        found["flip"] = library.hflip
    found["to_tensor"] = scaled
    found["normalize"] = normalized
    return found


class Pictures:
    """A dataset with a transform, as both frameworks have them."""

    def __init__(self, transform: Callable[[Any], Any]) -> None:
        self.transform: Callable[[Any], Any] | None = transform

    def __getitem__(self, index: int) -> tuple[Any, int]:
        if index >= COUNT:
            raise IndexError(index)
        image = picture(index)
        return (self.transform(image) if self.transform else image), index % 4


class Pipeline(Case):
    """Chosen by options: how much is known of the steps, and what is wrong in the port."""

    name = "pipeline"
    known = "hook"
    fault = ""
    splits = ("train",)
    data_samples = 6
    batch = 0

    def reference(self) -> Any:
        raise AssertionError("data needs no model")

    def chain(self, framework: str, index: int) -> list[tuple[str, Callable[[Any], Any]]]:
        found = list(steps(framework, index).items())
        if framework == "paddle" and self.fault:
            import data_faults

            found = data_faults.STEPS.get(self.fault, lambda chain, index: chain)(found, index)
        return found

    def preprocessing(self, framework: str, split: str, index: int) -> dict[str, Any]:
        return {"image": self.chain(framework, index)} if self.known == "hook" else {}

    def dataset(self, framework: str, split: str) -> Any:
        import data_faults

        if self.known == "compose":
            return Pictures(data_faults.composed(framework, self.fault))
        samples: Iterator[Any] = (self.sample(framework, index) for index in range(COUNT))
        samples = data_faults.faulty(self.fault if framework == "paddle" else "", samples)
        return batches(samples, self.batch) if self.batch else samples

    def sample(self, framework: str, index: int) -> dict[str, Any]:
        image: Any = None
        for _, step in self.chain(framework, index):
            image = step(image)
        return {"image": image, "label": np.int64((index * 3) % 4)}


def batches(samples: Iterator[Any], size: int) -> Iterator[Any]:
    while batch := list(itertools.islice(samples, size)):
        yield {name: np.stack([sample[name] for sample in batch]) for name in batch[0]}
