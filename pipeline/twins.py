"""What the cases of both MoCo v3 twins share: where code and data lie, and the views that a training is fed with."""

from __future__ import annotations

import contextlib
import importlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from PIL import Image

from lite_data import prepare as lite_data
from twinalign import Case, InputError
from twinalign.case import Steps

_PACKAGE_OF = {"torch": "moco_ref", "paddle": "moco_paddle"}


@contextlib.contextmanager
def reading(framework: str) -> Iterator[None]:
    """Turn a bad folder or picture into the one line that a user is shown."""
    data = twin(framework, "data")
    try:
        yield
    except (data.DataFolderError, data.BadImageError) as error:
        raise InputError(str(error)) from None


def default_data() -> Path:
    """Where lite_data is prepared: in the clone, or in the working directory where twinalign was installed without."""
    in_a_clone = (lite_data.HERE.parent / "pyproject.toml").is_file()
    return lite_data.HERE if in_a_clone else Path("lite_data").absolute()


def twin(framework: str, module: str) -> Any:
    """A module of the twin that is written in `framework`."""
    return importlib.import_module(f"{_PACKAGE_OF[framework]}.{module}")


class MoCoV3Case(Case):
    """What the three cases share: the data and where the twins' code lies."""

    code_packages = ("moco_ref", "moco_paddle", "pipeline", "lite_data")
    data = ""
    """A folder of one's own images, `train/CLASS/…` and `val/CLASS/…`, or one with `photos/` and `digits/` as lite_data
    prepares them; empty: prepared where it is missing."""

    def prepare(self) -> None:
        """Prepare lite_data where no folder is given; check the given one."""
        if self.data:
            for name in ("photos", "digits"):
                for split in ("train", "val"):
                    if not self.folder(name, split).is_dir():
                        raise InputError(
                            f"--data {self.data}: no folder {split} with your images (a folder a class) in it, nor "
                            f"{name}/{split}; leave --data out to have it made"
                        )
            return
        try:
            lite_data.prepare(default_data())
        except lite_data.InputError as error:
            raise InputError(str(error)) from None

    def folder(self, name: str, split: str) -> Path:
        """Where the images of a split lie."""
        own = Path(self.data) / split
        return own if self.data and own.is_dir() else Path(self.data or default_data()) / name / split

    def data_files(self) -> Iterator[Path]:
        """The images that the stage reads, and their folders."""
        for split in ("train", "val"):
            yield from sorted(self.folder(self.dataset_name, split).rglob("*"))

    dataset_name = "photos"


class Views(MoCoV3Case):
    """Both augmented views of training images, batch by batch, and the steps that make each."""

    batch = 4
    image_size = 224
    crop_min = 0.08

    def views(self, framework: str) -> Iterator[dict[str, Any]]:
        """Batches of both views."""
        data = twin(framework, "data")
        loader = data.build_pretraining_loader(
            self.folder(self.dataset_name, "train"),
            self.batch,
            image_size=self.image_size,
            seed=self.seed,
            crop_min=self.crop_min,
        )
        for views1, views2, indices in loader:
            yield {"view1": views1, "view2": views2, "index": indices}

    def view_steps(self, framework: str, folder: Any, index: int) -> dict[str, Steps]:
        """From file to array, for every view of the images of a training batch."""
        two_views = twin(framework, "augmentation").build_two_views(
            self.image_size, seed=self.seed, crop_min=self.crop_min
        )
        sampler = twin(framework, "sampler").PretrainingBatchSampler(len(folder), self.batch, self.seed)
        found: dict[str, Steps] = {}
        for place, (epoch, sample) in enumerate(next(itertools.islice(sampler, index, None))):
            path = folder.samples[sample][0]
            with Image.open(path) as image:
                size = image.size
            for view, draws in enumerate(two_views.draws(*size, epoch, sample), start=1):
                steps = twin(framework, "augmentation").view_steps(draws, self.image_size)
                found[f"view{view}.{place}"] = [("load", self.reader(framework, path)), *steps]
        return found

    @staticmethod
    def reader(framework: str, path: Path) -> Callable[[Any], Any]:
        """The first step of all: what it is given is nothing."""
        load_image = twin(framework, "data").load_image
        return lambda nothing: load_image(path)
