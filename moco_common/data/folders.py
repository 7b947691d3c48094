"""Pictures with labels in folders, and how one is read.

A picture is read as the official recipe reads it (torchvision's `pil_loader`): `Image.open(path).convert("RGB")`. An
EXIF orientation is not applied, a palette is resolved, a grayscale picture gets three equal channels.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from PIL import Image

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
