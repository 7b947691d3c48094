"""Cropping and scaling, and torch's loader, for the data sets that both twins share (`moco_common.data`)."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from PIL import Image
from torch.utils.data import DataLoader

from moco_common.data import loaders
from moco_common.images import augmentation
from moco_common.training.interruption import set_up_worker


def resize_and_center(image: Image.Image, image_size: int) -> Image.Image:
    """Scale the shorter side to 8/7 of the size (224: the official 256) and cut the central square out."""
    shorter = image_size * 8 // 7
    width, height = (shorter * extent // min(image.size) for extent in image.size)
    left, top = round((width - image_size) / 2), round((height - image_size) / 2)
    scaled = image.resize((width, height), Image.Resampling.BILINEAR)
    return scaled.crop((left, top, left + image_size, top + image_size))


def crop_and_resize(image: Image.Image, crop: tuple[int, int, int, int], image_size: int) -> Image.Image:
    """Cut the box out and scale it to a square, bilinear with antialiasing.

    The box is cut first: `Image.resize(box=...)` would let pixels from outside the box into its border.
    """
    top, left, height, width = crop
    box = image.crop((left, top, left + width, top + height))
    return box.resize((image_size, image_size), Image.Resampling.BILINEAR)


def framework_loader(dataset: Any, batch_sampler: Any, workers: int) -> DataLoader:
    """Build the loader that turns addresses into batches of tensors, in so many processes of its own."""
    return DataLoader(
        dataset,
        batch_sampler=batch_sampler,
        num_workers=workers,
        worker_init_fn=set_up_worker,
        pin_memory=torch.cuda.is_available(),
    )


build_two_views = partial(augmentation.build_two_views, crop_and_resize)
evaluation_transform = partial(augmentation.EvaluationTransform, resize_and_center)
build_pretraining_loader = partial(loaders.build_pretraining_loader, framework_loader, crop_and_resize)
build_training_loader = partial(loaders.build_training_loader, framework_loader, crop_and_resize)
build_evaluation_loader = partial(loaders.build_evaluation_loader, framework_loader, resize_and_center)
