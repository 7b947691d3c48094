"""RandAugment (Cubuk et al., arXiv 1909.13719) as timm varies it, with addressed draws.

Every layer picks one of fifteen operations with equal chances and applies it half of the time. The strength is
drawn around the option's magnitude, from 0 to 10, and half of the operations with a direction go the other way. Names,
order, ranges and the increasing variants are those of timm 1.0's list "rand"; uncovered pixels get ImageNet's mean
colour, as in timm's own pipelines.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from .augmentation import IMAGENET_MEAN

FILL = tuple(round(255 * mean) for mean in IMAGENET_MEAN)
STRONGEST = 10
"""The magnitude at the end of every operation's range."""
PROBABILITY = 0.5
"""Chance that a layer does what it chose."""
UNIFORM_FROM = 100
"""A deviation of the magnitude above this stands for every magnitude from 0 up being as likely."""
_WHICH, _WHETHER, _RADIUS, _ANGLE, _DIRECTION, _COUNT = range(6)
_SECTION = re.compile(r"(mstd|inc|m|n)(\d+(?:\.\d+)?)")


def _solarize_add(image: Image.Image, addend: int) -> Image.Image:
    """Brighten the values below 128."""
    return image.point([min(255, value + addend) if value < 128 else value for value in range(256)] * 3)


def _posterize(image: Image.Image, bits: int) -> Image.Image:
    """Keep the highest bits of each value; with none the image is black, where newer Pillows raise an error."""
    return image.point([value >> (8 - bits) << (8 - bits) for value in range(256)] * 3)


def _enhance(kind: Callable[[Image.Image], Any], image: Image.Image, factor: float) -> Image.Image:
    return kind(image).enhance(factor)


def _move(matrix: Callable[[Image.Image, float], tuple], image: Image.Image, amount: float, how: int) -> Image.Image:
    """Let the pixel at (x, y) come from (ax + by + c, dx + ey + f) for the matrix (a, b, c, d, e, f)."""
    return image.transform(image.size, Image.Transform.AFFINE, matrix(image, amount), resample=how, fillcolor=FILL)


def _rotate(image: Image.Image, degrees: float, how: int) -> Image.Image:
    return image.rotate(degrees, resample=how, fillcolor=FILL)


PLAIN: dict[str, Callable[[Image.Image], Image.Image]] = {
    "AutoContrast": ImageOps.autocontrast,
    "Equalize": ImageOps.equalize,
    "Invert": ImageOps.invert,
}
"""Operations without a strength."""
MOVING: dict[str, tuple[float, Callable[[Image.Image, float, int], Image.Image]]] = {
    "Rotate": (30.0, _rotate),
    "ShearX": (0.3, partial(_move, lambda image, amount: (1, amount, 0, 0, 1, 0))),
    "ShearY": (0.3, partial(_move, lambda image, amount: (1, 0, 0, amount, 1, 0))),
    "TranslateXRel": (0.45, partial(_move, lambda image, amount: (1, 0, amount * image.size[0], 0, 1, 0))),
    "TranslateYRel": (0.45, partial(_move, lambda image, amount: (1, 0, 0, 0, 1, amount * image.size[1]))),
}
"""The amount at magnitude 10 (degrees, slopes, shares of the side), and the operation, which interpolates."""
VALUES: dict[str, Callable[[Image.Image, Any], Image.Image]] = {
    "Posterize": _posterize,
    "Solarize": ImageOps.solarize,
    "SolarizeAdd": _solarize_add,
    "Color": partial(_enhance, ImageEnhance.Color),
    "Contrast": partial(_enhance, ImageEnhance.Contrast),
    "Brightness": partial(_enhance, ImageEnhance.Brightness),
    "Sharpness": partial(_enhance, ImageEnhance.Sharpness),
}
"""Operations on values, whose argument `value_argument` gives."""
MOVEMENTS_LAST = ("ShearX", "ShearY", "TranslateXRel", "TranslateYRel")
OPERATIONS = (*PLAIN, "Rotate", *VALUES, *MOVEMENTS_LAST)
"""In timm's order, which a drawn number counts along."""


def value_argument(name: str, magnitude: float, is_negative: bool, is_increasing: bool) -> float:
    """What an operation on values is called with: bits to keep, a threshold, an addend, a factor.

    Args:
        name: one of `VALUES`.
        magnitude: from 0 to 10.
        is_negative: whether an increasing factor lies below 1; nothing else looks at it.
        is_increasing: whether a larger magnitude always means a stronger operation; else it only means more bits kept,
            a higher threshold, a larger factor.
    """
    amount = magnitude / STRONGEST
    if name == "Posterize":
        return 4 - int(amount * 4) if is_increasing else int(amount * 4)
    if name == "Solarize":
        threshold = min(256, int(amount * 256))
        return 256 - threshold if is_increasing else threshold
    if name == "SolarizeAdd":
        return int(amount * 110)
    if not is_increasing:
        return amount * 1.8 + 0.1
    return max(0.1, 1 - amount * 0.9 if is_negative else 1 + amount * 0.9)


@dataclass(frozen=True)
class DrawnOperation:
    """One operation, spelled out.

    Attributes:
        name: one of `OPERATIONS`.
        magnitude: from 0 to 10.
        is_negative: whether an operation with a direction goes the other way.
    """

    name: str
    magnitude: float
    is_negative: bool


@dataclass(frozen=True)
class RandAugment:
    """The settings of RandAugment.

    Attributes:
        magnitude: how strong the operations are, from 0 to 10.
        layers: how many operations are chosen for a picture, one perhaps twice.
        deviation: standard deviation of the magnitude, which is normal and cut off at 0 and 10; infinite where it is
            uniform from 0 to `magnitude`.
        is_increasing: whether a larger magnitude makes every operation stronger.
        interpolation: Pillow's number of what rotates, shears and shifts.
    """

    magnitude: float = 10.0
    layers: int = 2
    deviation: float = 0.0
    is_increasing: bool = False
    interpolation: int = Image.Resampling.BILINEAR

    @property
    def draws(self) -> int:
        return self.layers * _COUNT

    def draw(self, uniforms: np.ndarray) -> list[DrawnOperation]:
        """Turn uniform numbers, (`draws`,) float64, into the operations to carry out, in their order."""
        operations = []
        for numbers in uniforms.reshape(self.layers, _COUNT):
            if numbers[_WHETHER] < PROBABILITY:
                name = OPERATIONS[int(numbers[_WHICH] * len(OPERATIONS))]
                is_negative = bool(numbers[_DIRECTION] < 0.5)
                operations.append(DrawnOperation(name, self._magnitude(numbers[_RADIUS], numbers[_ANGLE]), is_negative))
        return operations

    def _magnitude(self, radius: float, angle: float) -> float:
        if self.deviation == np.inf:
            return min(STRONGEST, self.magnitude * float(radius))
        # Box and Muller; the generator may give 0 but never 1; the logarithm needs the opposite.
        normal = np.sqrt(-2 * np.log(1 - radius)) * np.cos(2 * np.pi * angle)
        return float(np.clip(self.magnitude + self.deviation * normal, 0, STRONGEST))

    def apply(self, image: Image.Image, operation: DrawnOperation) -> Image.Image:
        """Carry an operation out on an RGB image; the size stays."""
        if operation.name in PLAIN:
            return PLAIN[operation.name](image)
        if operation.name in MOVING:
            most, move = MOVING[operation.name]
            amount = operation.magnitude / STRONGEST * most
            return move(image, -amount if operation.is_negative else amount, self.interpolation)
        argument = value_argument(operation.name, operation.magnitude, operation.is_negative, self.is_increasing)
        return VALUES[operation.name](image, argument)

    def __call__(self, image: Image.Image, uniforms: np.ndarray) -> Image.Image:
        """Augment an RGB image by the draws that `uniforms`, (`draws`,) float64, are."""
        for operation in self.draw(uniforms):
            image = self.apply(image, operation)
        return image


def parse_policy(text: str, interpolation: int = Image.Resampling.BILINEAR) -> RandAugment:
    """Read timm's form of a policy, `rand-m9-mstd0.5-inc1`: magnitude, number of layers (n), deviation, increasing.

    Raises:
        ValueError: it is another policy, or has a section that is not supported or out of range.
    """
    kind, *sections = text.split("-")
    found = [_SECTION.fullmatch(section) for section in sections]
    values = {match[1]: float(match[2]) for match in found if match}
    whole = all(value.is_integer() for name, value in values.items() if name != "mstd")
    in_range = 0 <= values.get("m", 10) <= STRONGEST and values.get("n", 1) >= 1
    if kind != "rand" or not all(found) or len(values) < len(sections) or not whole or not in_range:
        raise ValueError(
            f"--aa: {text!r} is not supported; give rand, and after it any of -mM (magnitude, 0 to 10), -nN "
            "(operations a picture, from 1), -mstdS (deviation of the magnitude) and -inc1, as in rand-m9-mstd0.5-inc1"
        )
    deviation = values.get("mstd", 0.0)
    return RandAugment(
        values.get("m", float(STRONGEST)),
        int(values.get("n", 2)),
        np.inf if deviation > UNIFORM_FROM else deviation,
        bool(values.get("inc", 0)),
        interpolation,
    )
