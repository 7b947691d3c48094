"""Image operations with Pillow's pixels, under torchvision's names: its own for its images, compiled loops for arrays.

The loops (`kernels.py`) round as Pillow does. Every process checks this once, with its Pillow and processor, on a
picture made for it; if anything differs or numba does not work, Pillow does the work.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TypeVar

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

Pixels = TypeVar("Pixels", Image.Image, np.ndarray)
"""An RGB image: Pillow's, or (height, width, 3) uint8. An operation gives the form that it was given."""


def shift_hue(image: Image.Image, shift: float) -> Image.Image:
    """Shift hues by a share of the circle, in whole steps of 1/255, as torchvision does."""
    hue, saturation, value = image.convert("HSV").split()
    shifted = Image.fromarray(np.asarray(hue) + np.uint8(int(255 * shift) % 256))
    return Image.merge("HSV", (shifted, saturation, value)).convert("RGB")


PILLOW: dict[str, Callable[..., Image.Image]] = {
    "brightness": lambda image, factor: ImageEnhance.Brightness(image).enhance(factor),
    "contrast": lambda image, factor: ImageEnhance.Contrast(image).enhance(factor),
    "saturation": lambda image, factor: ImageEnhance.Color(image).enhance(factor),
    "hue": shift_hue,
    "grayscale": lambda image: image.convert("L").convert("RGB"),
    "blur": lambda image, sigma: image.filter(ImageFilter.GaussianBlur(sigma)),
}
"""The operations by Pillow, on RGB images; `kernels.py` has them under the same names, on planes."""


def adjust_brightness(image: Pixels, factor: float) -> Pixels:
    """`factor` of the way from black to the image."""
    return operate("brightness", image, factor)


def adjust_contrast(image: Pixels, factor: float) -> Pixels:
    """`factor` of the way from the gray of the mean luma."""
    return operate("contrast", image, factor)


def adjust_saturation(image: Pixels, factor: float) -> Pixels:
    """`factor` of the way from each pixel's own gray."""
    return operate("saturation", image, factor)


def adjust_hue(image: Pixels, shift: float) -> Pixels:
    """Hues shifted by a share of the circle, in whole steps of 1/255 (`int(255 * shift)`)."""
    return operate("hue", image, shift)


def to_grayscale(image: Pixels) -> Pixels:
    """Three equal channels of the image's luma."""
    return operate("grayscale", image)


def gaussian_blur(image: Pixels, sigma: float) -> Pixels:
    """Pillow's Gaussian blur, as in the official recipe: three box blurs, up to 4.6 grey levels off a true Gaussian."""
    return operate("blur", image, sigma)


def solarize(image: Pixels) -> Pixels:
    """Invert all values from 128 on."""
    if isinstance(image, Image.Image):
        return ImageOps.solarize(image, 128)
    return np.minimum(image, 255 - image)  # from 128 on a value exceeds its inverse


def hflip(image: Pixels) -> Pixels:
    """Change left and right."""
    if isinstance(image, Image.Image):
        return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return image[:, ::-1]


def operate(name: str, image: Pixels, *strength: float) -> Pixels:
    """Carry out one of the operations of `PILLOW`.

    Args:
        name: of the operation.
        image: what to change; it stays as it is.
        strength: a factor (1 changes nothing), a share of the colour circle from -0.5 to 0.5, or a standard deviation
            in pixels; none for grayscale.

    Returns:
        Pillow's pixels, in the form of `image`.
    """
    if isinstance(image, Image.Image):
        return PILLOW[name](image, *strength)
    kernels = compiled_kernels()
    if kernels is None:
        return by_pillow(name, image, *strength)
    return by_kernels(kernels, name, image, *strength)


def by_pillow(name: str, image: np.ndarray, *strength: float) -> np.ndarray:
    """`operate` on an array by Pillow."""
    return np.asarray(PILLOW[name](Image.fromarray(image), *strength))


def by_kernels(kernels: ModuleType, name: str, image: np.ndarray, *strength: float) -> np.ndarray:
    """`operate` on an array by compiled loops; its result lies in memory as planes, which the next need not make."""
    # "W": the loops are compiled for arrays that may be written to, which those of an image are not.
    planes = np.require(image.transpose(2, 0, 1), requirements=["C", "W"])
    return getattr(kernels, name)(planes, *strength).transpose(1, 2, 0)


@functools.cache
def compiled_kernels() -> ModuleType | None:
    """The compiled loops, or None, said once on stderr, where they do not work or differ from Pillow.

    The first call in a process loads them, or compiles them where no process has before. A program that is going to
    start workers calls this first, so that they inherit the outcome.
    """
    try:
        from . import kernels

        wrong = sorted({name for name, *case in check_cases() if differs(kernels, name, *case)})
    except Exception as error:  # whatever keeps the loops from running, Pillow makes the same pixels
        reason = f"numba does not work here ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
    else:
        if not wrong:
            return kernels
        reason = f"the compiled loops give other pixels here ({', '.join(wrong)})"
    print(f"Pillow makes the views instead, which is slower: {reason}", file=sys.stderr, flush=True)
    return None


def differs(kernels: ModuleType, name: str, image: np.ndarray, *strength: float) -> bool:
    """Whether the loops' pixels are not Pillow's."""
    return not np.array_equal(by_kernels(kernels, name, image, *strength), by_pillow(name, image, *strength))


def check_cases() -> Iterator[tuple]:
    """Operation, picture and strength of each comparison with Pillow: where different rounding would show.

    Factors are thirds and fifths because their products fall next to whole numbers, so that a fused multiply-add
    gives 2 % of all blends another value; of factors at random, hardly one does so.
    """
    colors = check_picture()
    for name in ("brightness", "contrast", "saturation"):
        for factor in (2 / 3, 4 / 3, 6 / 5):
            yield name, colors, factor
    for shift in (0.0, -0.1, 0.05):
        yield "hue", colors, shift
    yield "grayscale", colors
    for sigma in (0.1, 0.7, 1.2, 2.0):
        yield "blur", colors, sigma


def check_picture() -> np.ndarray:
    """Colours at regular places, those next to a rounding's edge, and random ones: (128, 128, 3) uint8."""
    levels = np.arange(0, 256, 17)
    regular = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(-1, 3)
    # Hue and back brings these a channel that lies 1/43350 from a half, which is as near as there is.
    between = np.stack([np.arange(256), np.full(256, 38), np.full(256, 199)], axis=-1)
    delicate = np.concatenate([np.roll(between, turn, axis=1) for turn in range(3)])
    rest = 128 * 128 - len(regular) - len(delicate)
    random = np.random.Generator(np.random.PCG64(0)).random((rest, 3)) * 256
    return np.concatenate([regular, delicate, random]).astype(np.uint8).reshape(128, 128, 3)
