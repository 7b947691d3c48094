"""Pictures with labels for training a classifier: one view a picture, cropped and flipped.

The pipeline is ImageNet's usual one, which the official linear classification has too: RandomResizedCrop and horizontal
flip. Fine-tuning may add colour jitter and random erasing (Zhong et al., arXiv 1708.04896). The draws are addressed as
those of pre-training are (`augmentation.py`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from .augmentation import ViewRecipe, addressed_uniforms, apply_view, between, crop_size, draw_view
from .data import BadImageError, ImageFolder, Pictures, PretrainingDataset, PretrainingLoader
from .pixels import compiled_kernels
from .sampler import PretrainingBatchSampler

CROP_AND_FLIP = ViewRecipe(
    jitter_probability=0.0, grayscale_probability=0.0, blur_probability=0.0, solarize_probability=0.0
)
_VIEW, _ERASING, _NOISE = 1, 4, 5
"""Places among the views, for three sets of draws; 2 is pre-training's second view, 3 mixing's."""
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


def normal_noise(shape: tuple[int, ...], seed: int, epoch: int, index: int) -> np.ndarray:
    """Standard normal float32 numbers that depend on their address alone (Box and Muller, 1958)."""
    count = math.prod(shape)
    uniforms = addressed_uniforms(seed, epoch, index, _NOISE, 2 * count)
    # The generator gives 0 and never 1; a logarithm wants it the other way round.
    noise = np.sqrt(-2 * np.log(1 - uniforms[:count])) * np.cos(2 * np.pi * uniforms[count:])
    return noise.reshape(shape).astype(np.float32)


class TrainingDataset(PretrainingDataset):
    """One augmented view of each picture with its label; an item's address is (epoch, index).

    A picture that does not decode is replaced by the next that does, with that one's label.

    Args:
        folder: the pictures.
        image_size: width and height of the views in pixels.
        seed: the first part of every address.
        recipe: the pipeline.
        erase_probability: chance that noise takes the place of a box of the view.
    """

    def __init__(
        self,
        folder: Pictures,
        image_size: int,
        seed: int,
        recipe: ViewRecipe = CROP_AND_FLIP,
        erase_probability: float = 0.0,
    ) -> None:
        super().__init__(folder, None)
        self.image_size = image_size
        self.seed = seed
        self.recipe = recipe
        self.erase_probability = erase_probability

    def __getitem__(self, address: tuple[int, int]) -> tuple[np.ndarray, int, int]:
        """The view, (3, size, size) float32, the label, and the index of the picture shown, -1 where none decodes."""
        epoch, index = address
        for offset in range(len(self)):
            shown = (index + offset) % len(self)
            label = self.folder.samples[shown][1]
            try:
                image = self.folder.load(shown)
            except BadImageError:
                continue
            draws = draw_view(*image.size, self.recipe, addressed_uniforms(self.seed, epoch, index, _VIEW))
            return self._erased(apply_view(image, draws, self.image_size), epoch, index), label, shown
        return np.zeros((3, self.image_size, self.image_size), dtype=np.float32), 0, -1

    def _erased(self, view: np.ndarray, epoch: int, index: int) -> np.ndarray:
        uniforms = addressed_uniforms(self.seed, epoch, index, _ERASING, 3 + 2 * ERASE_TRIES)
        box = draw_erasing(*view.shape[1:], self.erase_probability, uniforms)
        if box is not None:
            top, left, height, width = box
            noise = normal_noise((3, height, width), self.seed, epoch, index)
            view[:, top : top + height, left : left + width] = noise
        return view


def build_training_loader(
    pictures: str | Path | Pictures,
    batch_size: int,
    image_size: int = 224,
    seed: int = 0,
    workers: int = 0,
    on_bad_image: str = "refuse",
    recipe: ViewRecipe = CROP_AND_FLIP,
    erase_probability: float = 0.0,
) -> PretrainingLoader:
    """The loader of (view, label, index), in an order shuffled anew each epoch, the last batch perhaps smaller.

    Args:
        pictures: the pictures, or the folder that holds one sub-folder of them a class.
        batch_size: size of a batch.
        image_size: width and height of the views in pixels.
        seed: what order and draws depend on, besides the epoch.
        workers: processes that read and augment; 0 does it in this one.
        on_bad_image: "refuse" raises `BadImageError` at a picture that does not decode; "skip" takes the next one
            that does, and lists the bad one in `bad_images`.
        recipe, erase_probability: as `TrainingDataset` has them.

    Raises:
        DataFolderError, ValueError: the folder or an option is wrong.
    """
    if not 0 <= erase_probability <= 1:
        raise ValueError(f"--reprob: must be from 0 to 1, got {erase_probability}")
    folder = pictures if isinstance(pictures, Pictures) else ImageFolder(pictures)
    dataset = TrainingDataset(folder, image_size, seed, recipe, erase_probability)
    batch_sampler = PretrainingBatchSampler(len(dataset), batch_size, seed, keep_last=True)
    if recipe.jitter_probability:
        compiled_kernels()  # here, so that workers inherit them
    return PretrainingLoader(dataset, batch_sampler, workers, on_bad_image)
