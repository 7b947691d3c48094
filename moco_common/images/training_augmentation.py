"""The view of a picture that a classifier is trained on: cropped and flipped, and more on request.

The pipeline is the usual one for ImageNet, also used by the official linear classification: RandomResizedCrop and
horizontal flip. Fine-tuning may add colour jitter or RandAugment (`rand_augment.py`), and random erasing (Zhong et al.,
arXiv 1708.04896). The draws are addressed as those of pre-training are (`augmentation.py`), and by the repeat as well.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from PIL import Image

from .augmentation import CropAndResize, ViewRecipe, between, crop_size, draw_view, view_steps
from .rand_augment import RandAugment, parse_policy

CROP_AND_FLIP = ViewRecipe(
    jitter_probability=0.0, grayscale_probability=0.0, blur_probability=0.0, solarize_probability=0.0
)
_VIEW, _ERASING, _NOISE, _OPERATIONS = 1, 4, 5, 6
"""View numbers for four sets of draws; 0 is an epoch's order, 2 pre-training's second view, 3 mixing, 7 drop path."""
REPEAT_STEP = 8
"""Added to a view number for each repeat."""
REPEATS = 3
"""How often --repeated-aug shows a picture by default."""
ERASED_AREA = 0.02, 1 / 3
ERASED_RATIO = 0.3, 1 / 0.3
ERASE_TRIES = 10


def jittered(strength: float) -> ViewRecipe:
    """Return crop and flip with a jitter of brightness, contrast and saturation; of none where `strength` is 0.

    Raises:
        ValueError: it is not from 0 to 1.
    """
    if not 0 <= strength <= 1:
        raise ValueError(f"--color-jitter: must be from 0 to 1, got {strength}")
    strengths = {"brightness": strength, "contrast": strength, "saturation": strength, "hue": 0.0}
    return replace(CROP_AND_FLIP, jitter_probability=1.0, **strengths) if strength else CROP_AND_FLIP


def draw_erasing(height: int, width: int, probability: float, uniforms: np.ndarray) -> tuple[int, int, int, int] | None:
    """The box to erase: the first of ten tries that fits into the view; None for no box.

    Args:
        height, width: of the view in pixels.
        probability: chance that there is a box.
        uniforms: (23,) float64 from `addressed_uniforms`.

    Returns:
        Top, left, height and width in pixels.
    """
    if uniforms[0] >= probability:
        return None
    log_ratios = math.log(ERASED_RATIO[0]), math.log(ERASED_RATIO[1])
    for area, ratio in uniforms[3:].reshape(ERASE_TRIES, 2):
        size = crop_size(width, height, between(*ERASED_AREA, area), math.exp(between(*log_ratios, ratio)))
        if 0 < size[0] < height and 0 < size[1] < width:
            return int(uniforms[1] * (height - size[0] + 1)), int(uniforms[2] * (width - size[1] + 1)), *size
    return None


def normal_noise(shape: tuple[int, ...], uniforms: np.ndarray) -> np.ndarray:
    """Standard normal float32 numbers (Box and Muller, 1958) out of twice as many uniform ones."""
    count = math.prod(shape)
    # The generator may give 0 but never 1; the logarithm needs the opposite.
    noise = np.sqrt(-2 * np.log(1 - uniforms[:count])) * np.cos(2 * np.pi * uniforms[count:])
    return noise.reshape(shape).astype(np.float32)


@dataclass(frozen=True)
class TrainingAugmentation:
    """How a picture is augmented.

    Attributes:
        recipe: crop, flip and colour jitter.
        rand_augment: further operations, between flip and normalisation; None for none.
        erase_probability: chance that noise takes the place of a box of the view.
        is_bicubic: whether the crop is scaled by bicubic interpolation; else by bilinear.

    Raises:
        ValueError: `erase_probability` is not from 0 to 1.
    """

    recipe: ViewRecipe = CROP_AND_FLIP
    rand_augment: RandAugment | None = None
    erase_probability: float = 0.0
    is_bicubic: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.erase_probability <= 1:
            raise ValueError(f"--reprob: must be from 0 to 1, got {self.erase_probability}")

    def __call__(
        self, crop_and_resize: CropAndResize, image: Image.Image, size: int, draw: Callable[..., np.ndarray]
    ) -> np.ndarray:
        """The view, (3, size, size) float32, of an RGB image; `draw(place, [count])` gives uniform numbers."""
        draws = draw_view(*image.size, self.recipe, draw(_VIEW))
        (_, cut_out), *steps, (_, to_array) = view_steps(crop_and_resize, draws, size)
        if self.is_bicubic:
            cut_out = partial(crop_and_resize_bicubic, crop=draws.crop, image_size=size)
        # RandAugment's operations need Pillow; all others are compiled for arrays.
        view = cut_out(image) if self.rand_augment else np.asarray(cut_out(image))
        for _, step in steps:
            view = step(view)
        if self.rand_augment:
            view = self.rand_augment(view, draw(_OPERATIONS, self.rand_augment.draws))
        return self._erased(to_array(view), draw)

    def _erased(self, view: np.ndarray, draw: Callable[..., np.ndarray]) -> np.ndarray:
        uniforms = draw(_ERASING, 3 + 2 * ERASE_TRIES)
        box = draw_erasing(*view.shape[1:], self.erase_probability, uniforms)
        if box is not None:
            top, left, height, width = box
            shape = 3, height, width
            view[:, top : top + height, left : left + width] = normal_noise(shape, draw(_NOISE, 2 * math.prod(shape)))
        return view


def crop_and_resize_bicubic(image: Image.Image, crop: tuple[int, int, int, int], image_size: int) -> Image.Image:
    """Cut the box (top, left, height, width) out and scale it to a square, bicubic with antialiasing."""
    top, left, height, width = crop
    piece = image.crop((left, top, left + width, top + height))
    return piece.resize((image_size, image_size), Image.Resampling.BICUBIC)


def add_augmentation_options(parser: argparse.ArgumentParser) -> None:
    """Add the options, under timm's names; by default there are crop and flip alone."""
    add = parser.add_argument
    add("--color-jitter", type=float, default=0.0, metavar="STRENGTH", help="of brightness, contrast and saturation")
    add("--aa", metavar="POLICY", help="RandAugment in place of the jitter, such as rand-m9-mstd0.5-inc1")
    add("--train-interpolation", default="bilinear", choices=("bilinear", "bicubic"), help="of crops and of --aa")
    add("--reprob", type=float, default=0.0, help="chance that noise replaces a box of a picture")
    add("--repeated-aug", action="store_true", help="show --repeats copies of fewer pictures, each augmented anew")
    add("--repeats", type=int, default=REPEATS, help="copies of a picture with --repeated-aug")


def build_augmentation(args: argparse.Namespace) -> TrainingAugmentation:
    """Return what the options ask for; as in timm, RandAugment takes the colour jitter's place.

    Raises:
        ValueError: an option is out of its range.
    """
    is_bicubic = args.train_interpolation == "bicubic"
    interpolation = Image.Resampling.BICUBIC if is_bicubic else Image.Resampling.BILINEAR
    recipe, rand_augment = jittered(args.color_jitter), None
    if args.aa:
        recipe, rand_augment = CROP_AND_FLIP, parse_policy(args.aa, interpolation)
    return TrainingAugmentation(recipe, rand_augment, args.reprob, is_bicubic)
