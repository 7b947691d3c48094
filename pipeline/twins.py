"""What the MoCo v3 cases share: where code and data are, and the views for a training."""

from __future__ import annotations

import contextlib
import importlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from PIL import Image

from lite_data import prepare as lite_data
from moco_common.data.folders import BadImageError, DataFolderError, Pictures, load_image
from moco_common.data.samplers import PretrainingBatchSampler
from moco_common.images.augmentation import view_steps
from twinalign import Case, InputError
from twinalign.case import Steps

_PACKAGE_OF = {"torch": "moco_ref", "paddle": "moco_paddle"}


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """Report a bad folder or picture to the user in one line."""
    try:
        yield
    except (DataFolderError, BadImageError) as error:
        raise InputError(str(error)) from None


def default_data() -> Path:
    """Where lite_data is prepared: in the clone, or in the working directory if twinalign was installed without one."""
    in_a_clone = (lite_data.HERE.parent / "pyproject.toml").is_file()
    return lite_data.HERE if in_a_clone else Path("lite_data").absolute()


def twin(framework: str, module: str) -> Any:
    """A module of the twin that is written in `framework`."""
    return importlib.import_module(f"{_PACKAGE_OF[framework]}.{module}")


class MoCoV3Case(Case):
    """What the three cases share: the data and the folders of the twins' code."""

    code_packages = ("moco_ref", "moco_paddle", "moco_common", "pipeline", "lite_data")
    data = ""
    """A folder of your own images, `train/CLASS/…` and `val/CLASS/…`, or one with `photos/` and `digits/` as lite_data
    prepares them; empty: prepared where it is missing."""

    def prepare(self) -> None:
        """Prepare lite_data if no folder is given; else check the folder."""
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
        """The folder of a split's images."""
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

    def view_steps_of(self, framework: str, folder: Pictures, index: int) -> dict[str, Steps]:
        """From file to array, for every view of the images of a training batch."""
        two_views = twin(framework, "data").build_two_views(self.image_size, seed=self.seed, crop_min=self.crop_min)
        sampler = PretrainingBatchSampler(len(folder), self.batch, self.seed)
        found: dict[str, Steps] = {}
        for place, (epoch, sample) in enumerate(next(itertools.islice(sampler, index, None))):
            path = folder.samples[sample][0]
            with Image.open(path) as image:
                size = image.size
            for view, draws in enumerate(two_views.draws(*size, epoch, sample), start=1):
                steps = view_steps(two_views.crop_and_resize, draws, self.image_size)
                found[f"view{view}.{place}"] = [("load", self.reader(path)), *steps]
        return found

    @staticmethod
    def reader(path: Path) -> Callable[[Any], Any]:
        """The first step, which has no input."""
        return lambda nothing: load_image(path)
