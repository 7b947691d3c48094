"""Image folders and the loaders of both phases: two views for pre-training, one image and its label for evaluation.

A picture is read as the official recipe reads it (torchvision's `pil_loader`): `Image.open(path).convert("RGB")`. An
EXIF orientation is not applied, a palette is resolved, a grayscale picture gets three equal channels.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle.io import DataLoader, Dataset
from paddle.io.dataloader.dataloader_iter import _DataLoaderIterMultiProcess
from PIL import Image

from .augmentation import EvaluationTransform, TwoViews, build_two_views, evaluation_transform
from .interruption import set_up_worker
from .pixels import compiled_kernels
from .sampler import EvaluationBatchSampler, PretrainingBatchSampler

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"})
DECODER_ERRORS = (
    OSError,
    SyntaxError,  # Pillow's word for a broken PNG chunk
    ValueError,
    EOFError,
    IndexError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)
BAD_LABEL = -1


class DataFolderError(ValueError):
    """A folder that is no image folder; the message is one line with the path and the remedy."""


class BadImageError(ValueError):
    """A file that does not decode; the message is one line with the path and the remedy."""


def load_image(path: Path) -> Image.Image:
    """Read a picture as RGB, its EXIF orientation not applied.

    Raises:
        BadImageError: it cannot be read.
    """
    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except DECODER_ERRORS as error:
        reason = " ".join(str(error).replace(str(path), "it").split())
        raise BadImageError(
            f"{path}: cannot be read as an image ({reason}); mend or remove it, or leave such out: --on-bad-image skip"
        ) from error


class Pictures:
    """Pictures with labels, wherever they lie.

    Attributes:
        root: the folder.
        classes: the names of the classes; a label is a place in this list.
        samples: path and label of every picture.
    """

    root: Path
    classes: list[str]
    samples: list[tuple[Path, int]]

    def __len__(self) -> int:
        return len(self.samples)

    def load(self, index: int) -> Image.Image:
        """Read a picture as RGB.

        Raises:
            BadImageError: it cannot be read.
        """
        return load_image(self.samples[index][0])


class ImageFolder(Pictures):
    """The pictures under `root/CLASS/`, at any depth, in order of class and path; the classes are sorted.

    Raises:
        DataFolderError: the folder is missing, or one of its classes, or it as a whole, holds no picture.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        if not self.root.is_dir():
            raise DataFolderError(f"{root}: no such folder; give the folder that holds one sub-folder a class")
        self.classes = sorted(path.name for path in self.root.iterdir() if path.is_dir())
        if not self.classes:
            raise DataFolderError(f"{root}: holds no sub-folders; give the folder that holds one sub-folder a class")
        self.samples = []
        for label, name in enumerate(self.classes):
            found = sorted(path for path in (self.root / name).rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES)
            if not found:
                raise DataFolderError(f"{self.root / name}: holds no pictures; remove the folder or fill it")
            self.samples.extend((path, label) for path in found)


def split_folder(root: Path, split: str) -> Path:
    """The folder of the classes of a split: `root/SPLIT` where there are `root/train` and `root/val`, else `root`."""
    return root / split if all((root / name).is_dir() for name in ("train", "val")) else root


class PretrainingDataset(Dataset):
    """Two augmented views of each picture; an item's address is (epoch, index).

    A picture that does not decode is replaced by the next that does (after the last comes the first), and the index
    returned tells. Nothing is raised here: an error in a worker of paddle's loader would reach the main process as a
    "blocking queue is killed" without its reason. The loader refuses or lists, in the main process.

    Args:
        folder: the pictures.
        two_views: the pipelines.
    """

    def __init__(self, folder: Pictures, two_views: TwoViews) -> None:
        super().__init__()
        self.folder = folder
        self.two_views = two_views

    def __len__(self) -> int:
        return len(self.folder)

    def __getitem__(self, address: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, int]:
        """Both views, each (3, size, size) float32, and the index of the picture they show, -1 where none decodes."""
        epoch, index = address
        for offset in range(len(self)):
            shown = (index + offset) % len(self)
            try:
                image = self.folder.load(shown)
            except BadImageError:
                continue
            return *self.two_views(image, epoch, index), shown
        nothing = np.zeros((3, self.two_views.image_size, self.two_views.image_size), dtype=np.float32)
        return nothing, nothing, -1


class EvaluationDataset(Dataset):
    """Each picture without randomness, and its label; an item's address is (any epoch, index).

    A picture that does not decode comes as zeros with the label -1, for the loader to leave out: a replacement would
    count twice in an accuracy.

    Args:
        folder: the pictures.
        transform: picture to array.
    """

    def __init__(self, folder: Pictures, transform: EvaluationTransform) -> None:
        super().__init__()
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
            size = self.transform.image_size
            return np.zeros((3, size, size), dtype=np.float32), BAD_LABEL, index


# diff: paddle's loader needs a remedy; torch enters a batch before it hands it out.
class _ExpectedTasks(dict):
    """Paddle's table of the batches that its workers make, which waits for an entry instead of missing it.

    Paddle's loader hands a batch's indices to a worker before it enters the batch here. Where a quick worker's answer
    comes between, out of its turn, the thread that takes it dies of a KeyError, and the program waits for ever.
    """

    def __missing__(self, number: int) -> tuple:
        while number not in self:
            time.sleep(0.001)
        return self[number]


class _Workers(_DataLoaderIterMultiProcess):
    def _init_thread(self) -> None:
        self._task_infos = _ExpectedTasks(self._task_infos)
        super()._init_thread()


class _WorkersLoader(DataLoader):
    """Paddle's loader, with the iterator above where it reads in processes of its own."""

    def __iter__(self) -> Iterator[Any]:
        return _Workers(self) if self.num_workers else super().__iter__()


class _Loader:
    """What both loaders share: the framework's loader and what is done about pictures that do not decode.

    Args:
        dataset: the dataset, with the pictures in `dataset.folder`.
        batch_sampler: the sampler of addresses.
        workers: processes that read; 0 does it in this one.
        on_bad_image: "refuse" raises `BadImageError` at a picture that does not decode, "skip" lists it.

    Attributes:
        bad_images: the paths of the pictures skipped so far, each once, in order of discovery.

    Raises:
        ValueError: `on_bad_image` is neither word.
    """

    def __init__(self, dataset: Any, batch_sampler: Any, workers: int, on_bad_image: str) -> None:
        if on_bad_image not in ("refuse", "skip"):
            raise ValueError(f"on_bad_image: {on_bad_image!r} is not known; give 'refuse' or 'skip'")
        self.dataset = dataset
        self.batch_sampler = batch_sampler
        self.on_bad_image = on_bad_image
        self.bad_images: list[Path] = []
        self._loader = _WorkersLoader(
            dataset,
            batch_sampler=batch_sampler,
            num_workers=workers,
            worker_init_fn=set_up_worker,
            # diff: batches come on the current device; there is no pin_memory to ask for.
            # diff: a worker that puts tensors into shared memory takes a lock of paddle's, which a thread of the parent
            # (an epoch before that is being cleared away) may have held when the worker was forked: it waits for ever.
            use_shared_memory=False,
        )

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

    def __iter__(self) -> Iterator[tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]]:
        """The chosen epoch's batches of this rank.

        Raises:
            BadImageError: a picture does not decode and is not to be skipped, or none does.
        """
        length = len(self.dataset)
        for addresses, (view1, view2, shown) in zip(self.batch_sampler, self._loader, strict=True):
            for (_, index, *_), instead in zip(addresses, shown.tolist(), strict=True):
                # Where another picture than the one asked for came back, all from the one to the other are bad.
                for offset in range((instead - index) % length if instead >= 0 else length):
                    self._meet_bad_image((index + offset) % length)
                if instead < 0:
                    raise BadImageError(
                        f"{self.dataset.folder.root}: none of its {length} pictures can be read; check the data"
                    )
            yield view1, view2, shown


class EvaluationLoader(_Loader):
    """Batches (images, labels): float32 (n, 3, size, size) and int64 (n,), tensors of the framework."""

    def __iter__(self) -> Iterator[tuple[paddle.Tensor, paddle.Tensor]]:
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
                good = paddle.to_tensor(np.flatnonzero(~bad))
                yield images[good], labels[good]


def build_pretraining_loader(
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
    dataset = PretrainingDataset(ImageFolder(root), build_two_views(image_size, crop_min, seed))
    batch_sampler = PretrainingBatchSampler(len(dataset), batch_size, seed, rank, world_size)
    compiled_kernels()  # here, so that workers inherit them
    return PretrainingLoader(dataset, batch_sampler, workers, on_bad_image)


def build_evaluation_loader(
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
    dataset = EvaluationDataset(folder, evaluation_transform(image_size))
    batch_sampler = EvaluationBatchSampler(len(dataset), batch_size, rank, world_size)
    return EvaluationLoader(dataset, batch_sampler, workers, on_bad_image)
