"""Trainings that can be stopped and continued: the case keeps its own state, the curves so far are kept beside it."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.freshness import is_fresh
from twinalign.recording import read_metadata, save_npz, write_json

_STATE = "state"
_CURVES = "curves.npz"
_METADATA = "made_by"


@dataclasses.dataclass(frozen=True)
class CheckpointPlace:
    """Where the checkpoints of one training lie, and what they must have been made by.

    Attributes:
        folder: of the newest checkpoint; empty folders of other names are beside it while one is written.
        made_by: gives the metadata that a recording of now would have.
    """

    folder: Path
    made_by: Callable[[], Mapping[str, Any]]

    def newest(self) -> Path | None:
        """The folder of a checkpoint that still stands for code, data and weights; None where there is none."""
        now = self.made_by()
        for folder in (self.folder, self._beside("old")):
            then = read_metadata(folder / _METADATA)
            if is_fresh(then, now["identity"]) and then.get("weights_sha256") == now["weights_sha256"]:
                return folder
        return None

    def write(self, save: Callable[[Path], Any], curves: Mapping[str, np.ndarray]) -> None:
        """Let `save` write the state, add the curves, and put both in the place of the checkpoint before."""
        new, old = self._beside("new"), self._beside("old")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        save(new / _STATE)
        save_npz(new / _CURVES, curves)
        write_json(new / f"{_METADATA}.json", dict(self.made_by()))
        shutil.rmtree(old, ignore_errors=True)
        if self.folder.exists():
            os.replace(self.folder, old)
        os.replace(new, self.folder)
        shutil.rmtree(old, ignore_errors=True)

    def remove(self) -> None:
        """Once the recording is written, nothing is to be continued."""
        for folder in (self.folder, self._beside("new"), self._beside("old")):
            shutil.rmtree(folder, ignore_errors=True)

    def below(self, name: str) -> CheckpointPlace:
        """The place of another training of the same recording."""
        return dataclasses.replace(self, folder=self.folder.with_name(f"{self.folder.name}_{name}"))

    def _beside(self, end: str) -> Path:
        return self.folder.with_name(f"{self.folder.name}.{end}")


class TrainingRecord:
    """What `Case.train` is given as `record`: a function of name and value, which can also keep a checkpoint.

    Attributes:
        told: name → the values so far.
    """

    def __init__(self, place: CheckpointPlace | None = None) -> None:
        self.told: dict[str, list[float]] = {}
        self._place = place
        self._others: Callable[[], Mapping[str, list[float]]] = dict
        self._take: Callable[[Mapping[str, list[float]]], None] = lambda curves: None

    def __call__(self, name: str, value: Any) -> None:
        """Record the next point of a curve."""
        self.told.setdefault(name, []).append(float(value))

    def beside(
        self, others: Callable[[], Mapping[str, list[float]]], take: Callable[[Mapping[str, list[float]]], None]
    ) -> None:
        """Keep further curves in checkpoints: `others` gives them, `take` is given them back."""
        self._others, self._take = others, take

    def checkpoint(self, save: Callable[[Path], Any]) -> None:
        """Keep the state of the training, so that a run which is stopped can go on from here.

        Args:
            save: given a path, writes model, optimizer and place to it; the path has no suffix, and may become a file,
                a folder, or the stem of several files.
        """
        if self._place is not None:
            curves = {f"told/{name}": np.asarray(points) for name, points in self.told.items()}
            curves |= {f"seen/{name}": np.asarray(points) for name, points in self._others().items()}
            self._place.write(save, curves)

    def resume(self) -> Path | None:
        """The path that `checkpoint` gave to `save` in a run that was stopped; the curves up to there are back.

        None where there is nothing to go on from: then the training begins with its first step.
        """
        folder = self._place.newest() if self._place is not None else None
        if folder is None:
            return None
        with np.load(folder / _CURVES, allow_pickle=False) as stored:
            curves = {name: stored[name].tolist() for name in stored}
        self.told = {n.removeprefix("told/"): points for n, points in curves.items() if n.startswith("told/")}
        self._take({n.removeprefix("seen/"): points for n, points in curves.items() if n.startswith("seen/")})
        return folder / _STATE
