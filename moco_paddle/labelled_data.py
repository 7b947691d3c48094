"""Pictures with labels for training a classifier: one view a picture, cropped and flipped, nothing else.

The pipeline is ImageNet's usual one, which the official linear classification has too: RandomResizedCrop and horizontal
flip. The draws are addressed as those of pre-training are (`augmentation.py`).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .augmentation import ViewRecipe, addressed_uniforms, apply_view, draw_view
from .data import BadImageError, ImageFolder, PretrainingDataset, PretrainingLoader, load_image
from .sampler import PretrainingBatchSampler

CROP_AND_FLIP = ViewRecipe(
    jitter_probability=0.0, grayscale_probability=0.0, blur_probability=0.0, solarize_probability=0.0
)
_VIEW = 1


class TrainingDataset(PretrainingDataset):
    """One augmented view of each picture with its label; an item's address is (epoch, index).

    A picture that does not decode is replaced by the next that does, with that one's label.

    Args:
        folder: the pictures.
        image_size: width and height of the views in pixels.
        seed: the first part of every address.
    """

    def __init__(self, folder: ImageFolder, image_size: int, seed: int) -> None:
        super().__init__(folder, None)
        self.image_size = image_size
        self.seed = seed

    def __getitem__(self, address: tuple[int, int]) -> tuple[np.ndarray, int, int]:
        """The view, (3, size, size) float32, the label, and the index of the picture shown, -1 where none decodes."""
        epoch, index = address
        for offset in range(len(self)):
            shown = (index + offset) % len(self)
            path, label = self.folder.samples[shown]
            try:
                image = load_image(path)
            except BadImageError:
                continue
            draws = draw_view(*image.size, CROP_AND_FLIP, addressed_uniforms(self.seed, epoch, index, _VIEW))
            return apply_view(image, draws, self.image_size), label, shown
        return np.zeros((3, self.image_size, self.image_size), dtype=np.float32), 0, -1


def build_training_loader(
    root: str | Path,
    batch_size: int,
    image_size: int = 224,
    seed: int = 0,
    workers: int = 0,
    on_bad_image: str = "refuse",
) -> PretrainingLoader:
    """The loader of (view, label, index), in an order shuffled anew each epoch, the last batch perhaps smaller.

    Args:
        root: the folder that holds one sub-folder a class.
        batch_size: size of a batch.
        image_size: width and height of the views in pixels.
        seed: what order and draws depend on, besides the epoch.
        workers: processes that read and augment; 0 does it in this one.
        on_bad_image: "refuse" raises `BadImageError` at a picture that does not decode; "skip" takes the next one
            that does, and lists the bad one in `bad_images`.

    Raises:
        DataFolderError, ValueError: the folder or an option is wrong.
    """
    dataset = TrainingDataset(ImageFolder(root), image_size, seed)
    batch_sampler = PretrainingBatchSampler(len(dataset), batch_size, seed, keep_last=True)
    return PretrainingLoader(dataset, batch_sampler, workers, on_bad_image)
