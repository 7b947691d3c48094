"""Trainings that can be stopped and continued: the case saves its own state, the curves are saved beside it."""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.errors import InputError, unwritten
from twinalign.files.freshness import is_fresh
from twinalign.files.recordings import read_metadata, save_npz, write_json

_STATE = "state"
_CURVES = "curves.npz"
_METADATA = "made_by"
_LEAST_FREE = 1 << 20
"""Bytes: a disk with less is full, for a checkpoint."""


@dataclasses.dataclass(frozen=True)
class CheckpointPlace:
    """The folder of one training's checkpoints, and what they must have been made by.

    Attributes:
        folder: of the newest checkpoint; while one is written, folders with other suffixes are beside it.
        made_by: returns the metadata that a recording made now would have.
    """

    folder: Path
    made_by: Callable[[], Mapping[str, Any]]

    def newest(self) -> Path | None:
        """The folder of a checkpoint that is up to date with code, data and weights; None without one."""
        now = self.made_by()
        for folder in (self.folder, self._beside("old")):
            then = read_metadata(folder / _METADATA)
            if is_fresh(then, now["identity"]) and then.get("weights_sha256") == now["weights_sha256"]:
                return folder
        return None

    def write(self, save: Callable[[Path], Any], curves: Mapping[str, np.ndarray]) -> None:
        """Let `save` write the state, add the curves, and replace the previous checkpoint."""
        new, old = self._beside("new"), self._beside("old")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        try:
            save(new / _STATE)
        except Exception:
            if shutil.disk_usage(new).free < _LEAST_FREE:  # torch.save raises a RuntimeError that does not say so
                raise unwritten(OSError(errno.ENOSPC, ""), new / _STATE) from None
            raise
        save_npz(new / _CURVES, curves)
        write_json(new / f"{_METADATA}.json", dict(self.made_by()))
        shutil.rmtree(old, ignore_errors=True)
        if self.folder.exists():
            os.replace(self.folder, old)
        os.replace(new, self.folder)
        shutil.rmtree(old, ignore_errors=True)

    def remove(self) -> None:
        """Remove all checkpoints: the recording is complete."""
        for folder in (self.folder, self._beside("new"), self._beside("old")):
            shutil.rmtree(folder, ignore_errors=True)

    def below(self, name: str) -> CheckpointPlace:
        """The place for another training of the same recording."""
        return dataclasses.replace(self, folder=self.folder.with_name(f"{self.folder.name}_{name}"))

    def _beside(self, end: str) -> Path:
        return self.folder.with_name(f"{self.folder.name}.{end}")


_CALL = 'call record("loss", float(loss)) once a step'


class TrainingRecord:
    """The `record` of `Case.train`: a function of name and value that can also save a checkpoint.

    Attributes:
        told: name → the values so far.
    """

    def __init__(self, place: CheckpointPlace | None = None) -> None:
        self.told: dict[str, list[float]] = {}
        self._place = place
        self._others: Callable[[], Mapping[str, list[float]]] = dict
        self._take: Callable[[Mapping[str, list[float]]], None] = lambda curves: None

    def __call__(self, name: str, value: Any) -> None:
        """Record the next point of a curve; raises InputError for another call than `record("loss", 0.5)`."""
        if not isinstance(name, str):
            raise InputError(f"record({name!r}, …): the name of a curve comes first; {_CALL}")
        try:
            self.told.setdefault(name, []).append(float(value))
        except (TypeError, ValueError):
            raise InputError(
                f"record({name!r}, {type(value).__name__}): the value must be one number; {_CALL}"
            ) from None

    def beside(
        self, others: Callable[[], Mapping[str, list[float]]], take: Callable[[Mapping[str, list[float]]], None]
    ) -> None:
        """Also save the curves of `others` in checkpoints; on resuming, `take` gets them back."""
        self._others, self._take = others, take

    def checkpoint(self, save: Callable[[Path], Any]) -> None:
        """Save the state of the training, so that a stopped run can continue from here.

        Args:
            save: writes model, optimizer and position to the given path, which has no suffix and may become a file, a
                folder, or the stem of several files.
        """
        if self._place is not None:
            curves = {f"told/{name}": np.asarray(points) for name, points in self.told.items()}
            curves |= {f"seen/{name}": np.asarray(points) for name, points in self._others().items()}
            self._place.write(save, curves)

    def resume(self) -> Path | None:
        """The path that `checkpoint` gave to `save` in a stopped run; the curves up to there are restored.

        None if there is no checkpoint: then the training begins with its first step.
        """
        folder = self._place.newest() if self._place is not None else None
        if folder is None:
            return None
        with np.load(folder / _CURVES, allow_pickle=False) as stored:
            curves = {name: stored[name].tolist() for name in stored}
        self.told = {n.removeprefix("told/"): points for n, points in curves.items() if n.startswith("told/")}
        self._take({n.removeprefix("seen/"): points for n, points in curves.items() if n.startswith("seen/")})
        return folder / _STATE
