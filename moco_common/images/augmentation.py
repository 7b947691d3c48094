"""The two asymmetric augmentation pipelines of MoCo v3, with addressed randomness.

A view is made in two steps. `draw_view` turns an address (seed, epoch, sample index, view number) into a `ViewDraws`:
every random choice of the pipeline, spelled out. `apply_view` carries the choices out on a PIL image. Nothing else is
random and no generator is kept between samples, so that pixels do not depend on worker, rank, batch or earlier draws,
and a run can resume anywhere. The distributions are those of the official recipe: torchvision's RandomResizedCrop,
ColorJitter and RandomApply; BYOL's asymmetric blur and solarisation (arXiv 2006.07733, table 6); MoCo v3's strengths
(arXiv 2104.02057, section A).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from PIL import Image

from .pixels import (
    Pixels,
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
    gaussian_blur,
    hflip,
    solarize,
    to_grayscale,
)

CropAndResize = Callable[[Image.Image, tuple[int, int, int, int], int], Image.Image]
"""Cuts a box (top, left, height, width) out of an image and scales it to a square of a size."""
ResizeAndCenter = Callable[[Image.Image, int], Image.Image]
"""Scales an image's shorter side to 8/7 of a size and cuts out the central square. Each twin has its own of both."""

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
CROP_TRIES = 10
"""How often RandomResizedCrop draws a box before it falls back to the centre."""


@dataclass(frozen=True)
class ViewRecipe:
    """The settings of one pipeline: ranges to draw from and probabilities.

    Attributes:
        crop_area: smallest and largest share of the image's area that a crop takes.
        crop_ratio: smallest and largest width to height of a crop, drawn uniformly on a logarithmic scale.
        jitter_probability: chance that colours are jittered at all.
        brightness, contrast, saturation: factors are uniform on 1 ± this.
        hue: shifts are uniform on ± this, as a share of the colour circle.
        grayscale_probability, blur_probability, solarize_probability, flip_probability: chances of the operations.
        blur_sigma: smallest and largest standard deviation of the blur, in pixels.
    """

    crop_area: tuple[float, float] = (0.08, 1.0)
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    jitter_probability: float = 0.8
    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.2
    hue: float = 0.1
    grayscale_probability: float = 0.2
    blur_probability: float = 1.0
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    solarize_probability: float = 0.0
    flip_probability: float = 0.5


VIEW_1 = ViewRecipe(blur_probability=1.0, solarize_probability=0.0)
VIEW_2 = ViewRecipe(blur_probability=0.1, solarize_probability=0.2)


@dataclass(frozen=True)
class JitterDraws:
    """The choices of ColorJitter.

    Attributes:
        order: the order of the four operations, a permutation of 0 brightness, 1 contrast, 2 saturation, 3 hue; without
            the latter where no hue is to be drawn.
        brightness, contrast, saturation: factors, 1 for no change.
        hue: shift as a share of the colour circle, between -0.5 and 0.5.
    """

    order: tuple[int, ...]
    brightness: float
    contrast: float
    saturation: float
    hue: float


@dataclass(frozen=True)
class ViewDraws:
    """Every random choice of one view.

    Attributes:
        crop: top, left, height and width of the box, in pixels of the image.
        jitter: the colour jitter, None for none.
        grayscale: whether colours are dropped.
        blur_sigma: standard deviation of the blur in pixels, None for none.
        solarize: whether values from 128 on are inverted.
        flip: whether left and right are swapped.
    """

    crop: tuple[int, int, int, int]
    jitter: JitterDraws | None
    grayscale: bool
    blur_sigma: float | None
    solarize: bool
    flip: bool


# The index of each choice among a view's uniform numbers. Fixed indices instead of a stream: a probability that
# changes, or a crop that needs more tries, shifts no other draw.
_CROP_AREA = slice(0, CROP_TRIES)
_CROP_RATIO = slice(CROP_TRIES, 2 * CROP_TRIES)
_CROP_TOP, _CROP_LEFT = 20, 21
_JITTER, _BRIGHTNESS, _CONTRAST, _SATURATION, _HUE = 22, 23, 24, 25, 26
_JITTER_ORDER = slice(27, 31)
_GRAYSCALE, _BLUR, _BLUR_SIGMA, _SOLARIZE, _FLIP = 31, 32, 33, 34, 35
_COUNT = 36


def addressed_uniforms(seed: int, epoch: int, index: int, view: int, count: int = _COUNT) -> np.ndarray:
    """Uniform numbers that depend on their address alone.

    Only the bit stream of PCG64 and its conversion to doubles are used, which numpy holds fixed; its distributions
    (`uniform`, `integers`, `permutation`) may change from release to release, and the two frameworks' processes may
    run different releases.

    Args:
        seed, epoch, index, view: the address, integers of 0 or more.
        count: how many numbers.

    Returns:
        (count,) float64 in [0, 1).

    Raises:
        ValueError: a part of the address is negative.
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, epoch, index, view)))).random(count)


def between(low: float, high: float, uniform: float) -> float:
    """Interpolate: `low` at 0, `high` at 1."""
    return low + (high - low) * float(uniform)


def crop_size(width: int, height: int, area: float, ratio: float) -> tuple[int, int]:
    """Height and width, in pixels, of a crop with this share of the area and this width to height."""
    target = width * height * area
    return round(math.sqrt(target / ratio)), round(math.sqrt(target * ratio))


def central_crop(width: int, height: int, crop_ratio: tuple[float, float]) -> tuple[int, int, int, int]:
    """The box that RandomResizedCrop falls back to: the largest central one with an admissible ratio.

    Returns:
        Top, left, height and width in pixels.
    """
    crop_height, crop_width = height, width
    if width / height < crop_ratio[0]:
        crop_height = round(width / crop_ratio[0])
    elif width / height > crop_ratio[1]:
        crop_width = round(height * crop_ratio[1])
    return (height - crop_height) // 2, (width - crop_width) // 2, crop_height, crop_width


def draw_crop(width: int, height: int, recipe: ViewRecipe, uniforms: np.ndarray) -> tuple[int, int, int, int]:
    """The box of RandomResizedCrop: the first of ten tries that fits into the image, else the central one.

    Returns:
        Top, left, height and width in pixels.
    """
    log_ratios = math.log(recipe.crop_ratio[0]), math.log(recipe.crop_ratio[1])
    for area, ratio in zip(uniforms[_CROP_AREA], uniforms[_CROP_RATIO], strict=True):
        crop_height, crop_width = crop_size(
            width, height, between(*recipe.crop_area, area), math.exp(between(*log_ratios, ratio))
        )
        if 0 < crop_width <= width and 0 < crop_height <= height:
            top = int(uniforms[_CROP_TOP] * (height - crop_height + 1))
            left = int(uniforms[_CROP_LEFT] * (width - crop_width + 1))
            return top, left, crop_height, crop_width
    return central_crop(width, height, recipe.crop_ratio)


def draw_view(width: int, height: int, recipe: ViewRecipe, uniforms: np.ndarray) -> ViewDraws:
    """Turn a view's uniform numbers into its choices.

    Args:
        width, height: the image's size in pixels.
        recipe: the pipeline.
        uniforms: (36,) float64 from `addressed_uniforms`.
    """
    jitter = None
    if uniforms[_JITTER] < recipe.jitter_probability:
        # Sorting random keys gives every order the same chance. A hue shift by nothing would still round colours.
        parts = range(4 if recipe.hue else 3)
        jitter = JitterDraws(
            order=tuple(int(part) for part in np.argsort(uniforms[_JITTER_ORDER], kind="stable") if part in parts),
            brightness=between(1 - recipe.brightness, 1 + recipe.brightness, uniforms[_BRIGHTNESS]),
            contrast=between(1 - recipe.contrast, 1 + recipe.contrast, uniforms[_CONTRAST]),
            saturation=between(1 - recipe.saturation, 1 + recipe.saturation, uniforms[_SATURATION]),
            hue=between(-recipe.hue, recipe.hue, uniforms[_HUE]),
        )
    blurred = uniforms[_BLUR] < recipe.blur_probability
    return ViewDraws(
        crop=draw_crop(width, height, recipe, uniforms),
        jitter=jitter,
        grayscale=bool(uniforms[_GRAYSCALE] < recipe.grayscale_probability),
        blur_sigma=between(*recipe.blur_sigma, uniforms[_BLUR_SIGMA]) if blurred else None,
        solarize=bool(uniforms[_SOLARIZE] < recipe.solarize_probability),
        flip=bool(uniforms[_FLIP] < recipe.flip_probability),
    )


def adjust_colors(image: Pixels, jitter: JitterDraws) -> Pixels:
    """Carry out a colour jitter in its drawn order; the hue shift is in whole steps of 1/255 (`int(255 * hue)`)."""
    for part in jitter.order:
        if part == 0:
            image = adjust_brightness(image, jitter.brightness)
        elif part == 1:
            image = adjust_contrast(image, jitter.contrast)
        elif part == 2:
            image = adjust_saturation(image, jitter.saturation)
        else:
            image = adjust_hue(image, jitter.hue)
    return image


def normalize(image: Pixels) -> np.ndarray:
    """Pixels over 255, less ImageNet's mean, over its standard deviation, each step rounded to float32.

    Args:
        image: an RGB image.

    Returns:
        (3, height, width) float32.
    """
    pixels = np.asarray(image).transpose(2, 0, 1).astype(np.float32, order="C")
    # Three roundings, as in ToTensor and Normalize; a factor of 1/255 or another table would differ.
    pixels /= np.float32(255)
    pixels -= np.array(IMAGENET_MEAN, dtype=np.float32)[:, None, None]
    pixels /= np.array(IMAGENET_STD, dtype=np.float32)[:, None, None]
    return pixels


def view_steps(
    crop_and_resize: CropAndResize, draws: ViewDraws, image_size: int
) -> list[tuple[str, Callable[[Any], Any]]]:
    """The operations that make a view from an image: their names and themselves, with their choices as arguments."""
    steps: list[tuple[str, Callable[[Any], Any]]] = [
        ("crop", partial(crop_and_resize, crop=draws.crop, image_size=image_size))
    ]
    if draws.jitter is not None:
        steps.append(("jitter", partial(adjust_colors, jitter=draws.jitter)))
    if draws.grayscale:
        steps.append(("grayscale", to_grayscale))
    if draws.blur_sigma is not None:
        steps.append(("blur", partial(gaussian_blur, sigma=draws.blur_sigma)))
    if draws.solarize:
        steps.append(("solarize", solarize))
    if draws.flip:
        steps.append(("flip", hflip))
    return [*steps, ("normalize", normalize)]


def apply_view(
    crop_and_resize: CropAndResize,
    image: Image.Image,
    draws: ViewDraws,
    image_size: int,
    watch: Callable[[str, np.ndarray], None] | None = None,
) -> np.ndarray:
    """Make a view from an image and its choices.

    Args:
        crop_and_resize: makes the first step.
        image: an RGB image.
        draws: the choices.
        image_size: width and height of the view in pixels.
        watch: called with the name and result of each operation that makes an image.

    Returns:
        (3, image_size, image_size) float32, normalised.
    """
    (cut, cut_out), *operations, (_, to_array) = view_steps(crop_and_resize, draws, image_size)
    pixels = np.asarray(cut_out(image))  # on arrays the operations that follow are compiled
    if watch is not None:
        watch(cut, pixels)
    for name, operation in operations:
        pixels = operation(pixels)
        if watch is not None:
            watch(name, pixels)
    return to_array(pixels)


@dataclass(frozen=True)
class TwoViews:
    """Two augmented views of an image.

    Attributes:
        crop_and_resize: makes the first step of each.
        recipes: the two pipelines.
        image_size: width and height of the views in pixels.
        seed: the first part of every address.
    """

    crop_and_resize: CropAndResize
    recipes: tuple[ViewRecipe, ViewRecipe]
    image_size: int = 224
    seed: int = 0

    def draws(self, width: int, height: int, epoch: int, index: int) -> tuple[ViewDraws, ViewDraws]:
        """The choices of both views for an image of this size at this address."""
        first, second = (
            draw_view(width, height, recipe, addressed_uniforms(self.seed, epoch, index, view))
            for view, recipe in enumerate(self.recipes, start=1)
        )
        return first, second

    def __call__(self, image: Image.Image, epoch: int, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Both views, each (3, image_size, image_size) float32, of an RGB image at this address."""
        first, second = (
            apply_view(self.crop_and_resize, image, draws, self.image_size)
            for draws in self.draws(*image.size, epoch, index)
        )
        return first, second


def build_two_views(
    crop_and_resize: CropAndResize, image_size: int = 224, crop_min: float = 0.08, seed: int = 0
) -> TwoViews:
    """The two pipelines of MoCo v3.

    Args:
        crop_and_resize: makes the first step of each.
        image_size: width and height of the views in pixels.
        crop_min: smallest share of the area that a crop takes: 0.08, and 0.2 in the ResNet recipes.
        seed: what all draws depend on, besides epoch, sample index and view.

    Raises:
        ValueError: `crop_min` is not in (0, 1] or `seed` is negative.
    """
    if not 0 < crop_min <= 1:
        raise ValueError(f"crop_min: {crop_min} is not a share of the image's area; give more than 0 and at most 1")
    if seed < 0:
        raise ValueError(f"seed: {seed} is negative; give 0 or more")
    area = (crop_min, 1.0)
    recipes = replace(VIEW_1, crop_area=area), replace(VIEW_2, crop_area=area)
    return TwoViews(crop_and_resize, recipes, image_size, seed)


@dataclass(frozen=True)
class EvaluationTransform:
    """The pipeline without randomness: scaled, central square, normalised.

    Attributes:
        resize_and_center: makes the first step.
        image_size: width and height of the result in pixels.
    """

    resize_and_center: ResizeAndCenter
    image_size: int = 224

    def steps(self) -> list[tuple[str, Callable[[Any], Any]]]:
        """The operations and their names, with their sizes as arguments."""
        return [
            ("resize_and_center", partial(self.resize_and_center, image_size=self.image_size)),
            ("normalize", normalize),
        ]

    def __call__(self, image: Image.Image) -> np.ndarray:
        """The (3, image_size, image_size) float32 array of an RGB image."""
        result: Any = image
        for _, operation in self.steps():
            result = operation(result)
        return result
