"""CIFAR-10 and -100, Oxford Flowers and Pets, read from their published files; nothing is downloaded.

DATA is the folder that the publisher's archive unpacks to, or the folder around it. The training and validation
pictures are the published splits; Flowers' and Pets' training pictures are the publisher's training and validation
ones together, and their test pictures validate, as transfer is reported on them (Kornblith et al., arXiv 1805.08974).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from plain_pickles import read_pickle

from .folders import DataFolderError, ImageFolder, Pictures, split_folder


def read_dictionary(path: Path) -> dict[str, Any]:
    """Read a pickled dictionary, as Python 2 wrote it, that holds nothing but plain containers and arrays.

    Raises:
        DataFolderError: it holds anything else, or is damaged; nothing that it names has been called.
    """
    try:
        content = read_pickle(memoryview(path.read_bytes()))
    except (ValueError, OSError) as error:
        raise DataFolderError(f"{path}: cannot be read ({error}); unpack the publisher's archive anew") from error
    if not isinstance(content, dict):
        raise DataFolderError(f"{path}: holds no dictionary; unpack the publisher's archive anew")
    return content


def present(path: Path, source: str) -> Path:
    """Return the path.

    Raises:
        DataFolderError: there is no such file.
    """
    if not path.exists():
        raise DataFolderError(f"{path}: no such file or folder; it is part of the archives at {source}")
    return path


class Cifar(Pictures):
    """CIFAR-10 or CIFAR-100, in the form for Python (Krizhevsky, 2009): 32 x 32 pixels, 50 000 and 10 000 pictures.

    Args:
        root: the folder of the batches.
        split: "train" or "val"; the latter is the published test set.

    Raises:
        DataFolderError: a file is missing or does not hold what it should.
    """

    SOURCE = "https://www.cs.toronto.edu/~kriz/cifar.html"
    FILES: ClassVar = {"train": [f"data_batch_{number}" for number in range(1, 6)], "val": ["test_batch"]}
    NAMES = "batches.meta", "label_names"
    LABELS = "labels"

    def __init__(self, root: Path, split: str) -> None:
        self.root = root
        file, key = self.NAMES
        names = read_dictionary(present(root / file, self.SOURCE)).get(key)
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise DataFolderError(f"{root / file}: names no classes; unpack the publisher's archive anew")
        self.classes = names
        self.samples = []
        parts = [self._read(present(root / name, self.SOURCE)) for name in self.FILES[split]]
        self.pixels = np.concatenate(parts)

    def _read(self, path: Path) -> np.ndarray:
        """The pictures of a file, (n, 32, 32, 3) uint8; adds them to `samples`."""
        content = read_dictionary(path)
        pixels, labels = content.get("data"), content.get(self.LABELS)
        is_sound = (
            isinstance(pixels, np.ndarray)
            and pixels.dtype == np.uint8
            and isinstance(labels, list)
            and pixels.shape == (len(labels), 3072)
            and all(isinstance(label, int) and 0 <= label < len(self.classes) for label in labels)
        )
        if not is_sound:
            raise DataFolderError(f"{path}: is no batch of pictures with labels; unpack the publisher's archive anew")
        # The index within the file serves as a path.
        self.samples.extend((path / str(place), label) for place, label in enumerate(labels))
        return pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)

    def load(self, index: int) -> Image.Image:
        return Image.fromarray(np.ascontiguousarray(self.pixels[index]))


class Cifar100(Cifar):
    """CIFAR-100 with its hundred fine classes."""

    FILES: ClassVar = {"train": ["train"], "val": ["test"]}
    NAMES = "meta", "fine_label_names"
    LABELS = "fine_labels"


class OxfordFlowers(Pictures):
    """Oxford Flowers, 102 classes (Nilsback and Zisserman, ICVGIP 2008): 2040 and 6149 pictures.

    Classes have no names but their numbers, from 1.

    Args:
        root: the folder that holds `jpg/`, `imagelabels.mat` and `setid.mat`.
        split: "train" or "val".

    Raises:
        DataFolderError: a file is missing or does not hold what it should.
    """

    SOURCE = "https://www.robots.ox.ac.uk/~vgg/data/flowers/102/"
    SETS: ClassVar = {"train": ("trnid", "valid"), "val": ("tstid",)}

    def __init__(self, root: Path, split: str) -> None:
        self.root = root
        labels = self._read(root / "imagelabels.mat", "labels")
        numbers = np.concatenate([self._read(root / "setid.mat", name) for name in self.SETS[split]])
        if labels.min() < 1 or numbers.min() < 1 or numbers.max() > len(labels):
            raise DataFolderError(f"{root}: setid.mat and imagelabels.mat do not belong together; fetch both anew")
        self.classes = [str(number) for number in range(1, int(labels.max()) + 1)]
        folder = present(root / "jpg", self.SOURCE)
        self.samples = [
            (present(folder / f"image_{number:05d}.jpg", self.SOURCE), int(labels[number - 1]) - 1)
            for number in numbers.tolist()
        ]

    def _read(self, path: Path, name: str) -> np.ndarray:
        try:
            from scipy.io import loadmat
        except ImportError:
            missing = "the package scipy, which reads it, is missing; pip install 'twinalign[example]'"
            raise DataFolderError(f"{path}: {missing}") from None
        present(path, self.SOURCE)
        try:
            values = np.asarray(loadmat(path)[name]).ravel()
        # A damaged file can raise nearly anything.
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise DataFolderError(f"{path}: holds no {name} ({reason}); fetch it anew from {self.SOURCE}") from error
        if values.dtype.kind not in "iu" or values.size == 0:
            raise DataFolderError(f"{path}: {name} is no list of whole numbers; fetch it anew from {self.SOURCE}")
        return values.astype(np.int64)


class OxfordPets(Pictures):
    """Oxford-IIIT Pets, 37 breeds (Parkhi et al., CVPR 2012): 3680 and 3669 pictures.

    Args:
        root: the folder that holds `images/` and `annotations/`.
        split: "train" or "val".

    Raises:
        DataFolderError: a file is missing or does not hold what it should.
    """

    SOURCE = "https://www.robots.ox.ac.uk/~vgg/data/pets/"
    FILES: ClassVar = {"train": "trainval.txt", "val": "test.txt"}

    def __init__(self, root: Path, split: str) -> None:
        self.root = root
        folder = present(root / "images", self.SOURCE)
        path = present(root / "annotations" / self.FILES[split], self.SOURCE)
        names: dict[int, str] = {}
        self.samples = []
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if not line.strip() or line.startswith("#"):
                continue
            image, _, rest = line.partition(" ")
            breed = rest.split(" ")[0]
            if not breed.isdecimal() or int(breed) < 1:
                raise DataFolderError(f"{path}: line {number} is not 'PICTURE CLASS …'; unpack the archive anew")
            names.setdefault(int(breed), image.rpartition("_")[0])
            self.samples.append((present(folder / f"{image}.jpg", self.SOURCE), int(breed) - 1))
        if sorted(names) != list(range(1, len(names) + 1)):
            raise DataFolderError(f"{path}: does not have pictures of every class; unpack the archive anew")
        self.classes = [names[number] for number in range(1, len(names) + 1)]


_KNOWN: dict[str, tuple[Callable[[Path, str], Pictures], str, str]] = {
    "cifar10": (Cifar, "cifar-10-batches-py", "data_batch_1"),
    "cifar100": (Cifar100, "cifar-100-python", "meta"),
    "flowers": (OxfordFlowers, "flowers-102", "imagelabels.mat"),
    "pets": (OxfordPets, "oxford-iiit-pet", "annotations"),
}
"""How a data set is read, its usual folder, and a file or folder in it that the others lack."""
DATASETS = ("folder", *_KNOWN)


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where the pictures of both splits lie."""
    what = f"folder with train/ and val/, each with one sub-folder a class, or one of {', '.join(_KNOWN)} as published"
    parser.add_argument("data", type=Path, metavar="DATA", help=what)
    parser.add_argument("--dataset", choices=DATASETS, help="what is in DATA; by default it is recognised")


def open_pictures(root: Path, split: str, dataset: str | None = None) -> Pictures:
    """Return the pictures of a split.

    Args:
        root: a folder with one sub-folder a class, or with `train/` and `val/`, or one of the published data sets.
        split: "train" or "val".
        dataset: one of `DATASETS`; None goes by what is in the folder.

    Raises:
        DataFolderError: the folder does not hold them; the message is one line with the missing file and its source.
    """
    for name, (read, folder, marker) in _KNOWN.items():
        place = root / folder if (root / folder).is_dir() else root
        if dataset == name or (dataset is None and (place / marker).exists()):
            return read(place, split)
    return ImageFolder(split_folder(root, split))
