"""Cropping and scaling, and paddle's loader, for the data sets that both twins share (`moco_common.data`)."""

# diff: paddle includes image operations; torch's are in torchvision, which takes longer to import than torch itself, so
# that Pillow is used there.

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import paddle.vision.transforms.functional as F
from paddle.io import DataLoader
from paddle.io.dataloader.dataloader_iter import _DataLoaderIterMultiProcess
from PIL import Image

from moco_common.data import loaders
from moco_common.images import augmentation
from moco_common.training.interruption import set_up_worker


def resize_and_center(image: Image.Image, image_size: int) -> Image.Image:
    """Scale the shorter side to 8/7 of the size (224: the official 256) and cut the central square out."""
    # diff: torch's twin has these two from Pillow.
    return F.center_crop(F.resize(image, image_size * 8 // 7), [image_size, image_size])


def crop_and_resize(image: Image.Image, crop: tuple[int, int, int, int], image_size: int) -> Image.Image:
    """Cut the box out and scale it to a square, bilinear with antialiasing.

    The box is cut first: `Image.resize(box=...)` would let pixels from outside the box into its border.
    """
    return F.resize(F.crop(image, *crop), [image_size, image_size])


# diff: avoids a race in paddle's loader; torch's enters a batch before handing it out.
class _ExpectedTasks(dict):
    """Paddle's table of the batches that its workers make, which waits for an entry instead of missing it.

    Paddle's loader hands a batch's indices to a worker before it enters the batch here. If a fast worker answers in
    between, out of turn, the thread that receives it dies of a KeyError and the program hangs.
    """

    def __missing__(self, number: int) -> tuple:
        while number not in self:
            time.sleep(0.001)
        return self[number]


# diff: puts that table in its place.
class _Workers(_DataLoaderIterMultiProcess):
    def _init_thread(self) -> None:
        self._task_infos = _ExpectedTasks(self._task_infos)
        super()._init_thread()


# diff: paddle's loader, with the iterator above where it reads in processes of its own.
class _WorkersLoader(DataLoader):
    def __iter__(self) -> Iterator[Any]:
        return _Workers(self) if self.num_workers else super().__iter__()


def framework_loader(dataset: Any, batch_sampler: Any, workers: int) -> DataLoader:
    """Build the loader that turns addresses into batches of tensors, in so many processes of its own."""
    return _WorkersLoader(
        dataset,
        batch_sampler=batch_sampler,
        num_workers=workers,
        worker_init_fn=set_up_worker,
        # diff: batches come on the current device; there is no pin_memory to ask for.
        # diff: a worker that puts tensors into shared memory takes a lock of paddle's. If a thread of the parent,
        # clearing away an earlier epoch, held it at the fork, the worker hangs.
        use_shared_memory=False,
    )


build_two_views = partial(augmentation.build_two_views, crop_and_resize)
evaluation_transform = partial(augmentation.EvaluationTransform, resize_and_center)
build_pretraining_loader = partial(loaders.build_pretraining_loader, framework_loader, crop_and_resize)
build_training_loader = partial(loaders.build_training_loader, framework_loader, crop_and_resize)
build_evaluation_loader = partial(loaders.build_evaluation_loader, framework_loader, resize_and_center)
