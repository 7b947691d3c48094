"""The data sets, and what both frameworks' loaders of them share: batches of addresses in, tensors out.

A framework's own loader is handed in as `FrameworkLoader`, and iterates over the batches of tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from moco_common.images.augmentation import (
    CropAndResize,
    EvaluationTransform,
    ResizeAndCenter,
    TwoViews,
    addressed_uniforms,
    build_two_views,
)
from moco_common.images.pixels import compiled_kernels
from moco_common.images.training_augmentation import REPEAT_STEP, TrainingAugmentation

from .folders import BadImageError, ImageFolder, Pictures
from .samplers import EvaluationBatchSampler, PretrainingBatchSampler, TrainingBatchSampler

BAD_LABEL = -1
FrameworkLoader = Callable[[Any, Any, int], Iterable[Any]]
"""Takes a data set, a batch sampler and the number of worker processes; gives batches of tensors."""


def load_readable(folder: Pictures, index: int) -> tuple[int, Image.Image | None]:
    """The picture at `index`, or the next one that decodes (after the last comes the first), and its own index.

    Where none decodes: -1 and None.
    """
    for offset in range(len(folder)):
        shown = (index + offset) % len(folder)
        try:
            return shown, folder.load(shown)
        except BadImageError:
            continue
    return -1, None


def blank(size: int) -> np.ndarray:
    """Replaces a view that cannot be made, (3, size, size) float32."""
    return np.zeros((3, size, size), dtype=np.float32)


class PretrainingDataset:
    """Two augmented views of each picture; an item's address is (epoch, index).

    A picture that does not decode is replaced as `load_readable` does, as the returned index shows. Nothing is raised
    here: an error in a worker of paddle's loader would reach the main process as a "blocking queue is killed" without
    its reason. The loader refuses or lists, in the main process.

    Args:
        folder: the pictures.
        two_views: the pipelines.
    """

    def __init__(self, folder: Pictures, two_views: TwoViews) -> None:
        self.folder = folder
        self.two_views = two_views

    def __len__(self) -> int:
        return len(self.folder)

    def __getitem__(self, address: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, int]:
        """Both views, each (3, size, size) float32, and the index of the picture they show, -1 where none decodes."""
        epoch, index = address
        shown, image = load_readable(self.folder, index)
        if image is None:
            return blank(self.two_views.image_size), blank(self.two_views.image_size), shown
        return *self.two_views(image, epoch, index), shown


class EvaluationDataset:
    """Each picture without randomness, and its label; an item's address is (any epoch, index).

    A picture that does not decode comes as zeros with the label -1, for the loader to leave out: a replacement would
    count twice in an accuracy.

    Args:
        folder: the pictures.
        transform: picture to array.
    """

    def __init__(self, folder: Pictures, transform: EvaluationTransform) -> None:
        self.folder = folder
        self.transform = transform

    def __len__(self) -> int:
        return len(self.folder)

    def __getitem__(self, address: tuple[int, int]) -> tuple[np.ndarray, int, int]:
        """The picture, (3, size, size) float32, its label and its index."""
        _, index = address
        label = self.folder.samples[index][1]
        try:
            return self.transform(self.folder.load(index)), label, index
        except BadImageError:
            return blank(self.transform.image_size), BAD_LABEL, index


class TrainingDataset:
    """One augmented view of each picture with its label; an item's address is (epoch, index, repeat).

    A picture that does not decode is replaced by the next that does, with that one's label.

    Args:
        crop_and_resize: makes the first step of the views.
        folder: the pictures.
        image_size: width and height of the views in pixels.
        seed: the first part of every address.
        augmentation: what makes the view.
    """

    def __init__(
        self,
        crop_and_resize: CropAndResize,
        folder: Pictures,
        image_size: int,
        seed: int,
        augmentation: TrainingAugmentation | None = None,
    ) -> None:
        self.crop_and_resize = crop_and_resize
        self.folder = folder
        self.image_size = image_size
        self.seed = seed
        self.augmentation = augmentation or TrainingAugmentation()

    def __len__(self) -> int:
        return len(self.folder)

    def __getitem__(self, address: tuple[int, int, int]) -> tuple[np.ndarray, int, int]:
        """The view, (3, size, size) float32, the label, and the index of the picture shown, -1 where none decodes."""
        epoch, index, repeat = address

        def draw(place: int, *count: int) -> np.ndarray:
            return addressed_uniforms(self.seed, epoch, index, place + REPEAT_STEP * repeat, *count)

        shown, image = load_readable(self.folder, index)
        if image is None:
            return blank(self.image_size), 0, shown
        return (
            self.augmentation(self.crop_and_resize, image, self.image_size, draw),
            self.folder.samples[shown][1],
            shown,
        )


class _Loader:
    """What both loaders share: the framework's loader and what is done about pictures that do not decode.

    Args:
        framework_loader: builds the loader of tensors.
        dataset: the dataset, with the pictures in `dataset.folder`.
        batch_sampler: the sampler of addresses.
        workers: processes that read; 0 does it in this one.
        on_bad_image: "refuse" raises `BadImageError` at a picture that does not decode, "skip" lists it.

    Attributes:
        bad_images: the paths of the pictures skipped so far, each once, in order of discovery.

    Raises:
        ValueError: `on_bad_image` is neither word.
    """

    def __init__(
        self, framework_loader: FrameworkLoader, dataset: Any, batch_sampler: Any, workers: int, on_bad_image: str
    ) -> None:
        if on_bad_image not in ("refuse", "skip"):
            raise ValueError(f"on_bad_image: {on_bad_image!r} is not known; give 'refuse' or 'skip'")
        self.dataset = dataset
        self.batch_sampler = batch_sampler
        self.on_bad_image = on_bad_image
        self.bad_images: list[Path] = []
        self._loader = framework_loader(dataset, batch_sampler, workers)

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def _meet_bad_image(self, index: int) -> None:
        path = self.dataset.folder.samples[index][0]
        if self.on_bad_image == "refuse":
            self.dataset.folder.load(index)  # raises, with the reason
            raise BadImageError(f"{path}: could not be read a moment ago, and can be now; run again")
        if path not in self.bad_images:
            self.bad_images.append(path)


class PretrainingLoader(_Loader):
    """Batches (view 1, view 2, index): float32 (n, 3, size, size) twice and int64 (n,), tensors of the framework."""

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        """Choose the epoch, and the iteration in it to begin with (for a run that resumes)."""
        self.batch_sampler.set_epoch(epoch, start)

    def __iter__(self) -> Iterator[tuple[Any, Any, Any]]:
        """The chosen epoch's batches of this rank.

        Raises:
            BadImageError: a picture does not decode and is not to be skipped, or none does.
        """
        length = len(self.dataset)
        for addresses, (view1, view2, shown) in zip(self.batch_sampler, self._loader, strict=True):
            for (_, index, *_), instead in zip(addresses, shown.tolist(), strict=True):
                # If another picture came back than the one requested, all before it are bad.
                for offset in range((instead - index) % length if instead >= 0 else length):
                    self._meet_bad_image((index + offset) % length)
                if instead < 0:
                    raise BadImageError(
                        f"{self.dataset.folder.root}: none of its {length} pictures can be read; check the data"
                    )
            yield view1, view2, shown


class EvaluationLoader(_Loader):
    """Batches (images, labels): float32 (n, 3, size, size) and int64 (n,), tensors of the framework."""

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """This rank's batches in the dataset's order; a batch is smaller by the bad pictures in it, or left out.

        Raises:
            BadImageError: a picture does not decode and is not to be skipped.
        """
        for images, labels, indices in self._loader:
            bad = (labels == BAD_LABEL).numpy()
            for index in indices.numpy()[bad].tolist():
                self._meet_bad_image(index)
            if not bad.any():
                yield images, labels
            elif not bad.all():
                good = np.flatnonzero(~bad).tolist()
                yield images[good], labels[good]


def build_pretraining_loader(
    framework_loader: FrameworkLoader,
    crop_and_resize: CropAndResize,
    root: str | Path,
    batch_size: int,
    image_size: int = 224,
    seed: int = 0,
    workers: int = 0,
    rank: int = 0,
    world_size: int = 1,
    crop_min: float = 0.08,
    on_bad_image: str = "refuse",
) -> PretrainingLoader:
    """The loader of two augmented views; what it yields does not depend on the number of workers.

    Args:
        framework_loader: builds the framework's own loader.
        crop_and_resize: makes the first step of the views.
        root: the folder that holds one sub-folder a class.
        batch_size: size of the global batch, over all ranks.
        image_size: width and height of the views in pixels.
        seed: what order and draws depend on, besides the epoch.
        workers: processes that read and augment; 0 does it in this one.
        rank, world_size: this process and how many there are.
        crop_min: smallest share of a picture's area that a crop takes.
        on_bad_image: "refuse" raises `BadImageError` at a picture that does not decode; "skip" takes the next one
            that does, and lists the bad one in `bad_images`.

    Raises:
        DataFolderError, ValueError: the folder or an option is wrong.
    """
    dataset = PretrainingDataset(ImageFolder(root), build_two_views(crop_and_resize, image_size, crop_min, seed))
    batch_sampler = PretrainingBatchSampler(len(dataset), batch_size, seed, rank, world_size)
    compiled_kernels()  # here, so that workers inherit them
    return PretrainingLoader(framework_loader, dataset, batch_sampler, workers, on_bad_image)


def build_training_loader(
    framework_loader: FrameworkLoader,
    crop_and_resize: CropAndResize,
    pictures: str | Path | Pictures,
    batch_size: int,
    image_size: int = 224,
    seed: int = 0,
    workers: int = 0,
    rank: int = 0,
    world_size: int = 1,
    on_bad_image: str = "refuse",
    augmentation: TrainingAugmentation | None = None,
    repeats: int = 1,
) -> PretrainingLoader:
    """The loader of this rank's (view, label, index), in an order shuffled anew each epoch.

    Args:
        framework_loader: builds the framework's own loader.
        crop_and_resize: makes the first step of the views.
        pictures: the pictures, or the folder that holds one sub-folder of them a class.
        batch_size: size of a batch over all ranks; the last one may be smaller.
        image_size: width and height of the views in pixels.
        seed: what order and draws depend on, besides the epoch.
        workers: processes that read and augment; 0 does it in this one.
        rank, world_size: this process and how many there are.
        on_bad_image: "refuse" raises `BadImageError` at a picture that does not decode; "skip" takes the next one
            that does, and lists the bad one in `bad_images`.
        augmentation: what makes a view; by default crop and flip.
        repeats: how often a picture comes in a row, with other draws each time.

    Raises:
        DataFolderError, ValueError: the folder or an option is wrong.
    """
    folder = pictures if isinstance(pictures, Pictures) else ImageFolder(pictures)
    dataset = TrainingDataset(crop_and_resize, folder, image_size, seed, augmentation)
    batch_sampler = TrainingBatchSampler(len(dataset), batch_size, seed, rank, world_size, repeats)
    if dataset.augmentation.recipe.jitter_probability:
        compiled_kernels()  # here, so that workers inherit them
    return PretrainingLoader(framework_loader, dataset, batch_sampler, workers, on_bad_image)


def build_evaluation_loader(
    framework_loader: FrameworkLoader,
    resize_and_center: ResizeAndCenter,
    pictures: str | Path | Pictures,
    batch_size: int,
    image_size: int = 224,
    workers: int = 0,
    rank: int = 0,
    world_size: int = 1,
    on_bad_image: str = "refuse",
) -> EvaluationLoader:
    """The loader of pictures and labels in the pictures' order.

    Args:
        framework_loader: builds the framework's own loader.
        resize_and_center: makes the first step.
        pictures: the pictures, or the folder that holds one sub-folder of them a class.
        batch_size: size of this rank's batches.
        image_size: width and height of the images in pixels.
        workers: processes that read; 0 does it in this one.
        rank, world_size: this process and how many there are.
        on_bad_image: "refuse" raises `BadImageError` at a picture that does not decode; "skip" leaves it out and
            lists it in `bad_images`.

    Raises:
        DataFolderError, ValueError: the folder or an option is wrong.
    """
    folder = pictures if isinstance(pictures, Pictures) else ImageFolder(pictures)
    dataset = EvaluationDataset(folder, EvaluationTransform(resize_and_center, image_size))
    batch_sampler = EvaluationBatchSampler(len(dataset), batch_size, rank, world_size)
    return EvaluationLoader(framework_loader, dataset, batch_sampler, workers, on_bad_image)
