"""TensorBoard logs of a run's trainings, both sides and both precisions beside each other, written while they train.

`tensorboard --logdir result/tensorboard` shows each quantity of all trainings in one picture. They are written by
tensorboardX, the optional extra `tensorboard`, in the parent: the processes of the frameworks need nothing for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.errors import InputError
from twinalign.files.curve_names import CURVE_PREFIX, REPEAT_PREFIX
from twinalign.files.recordings import Recording
from twinalign.sides import SIDES

_NAMES = {"ref": "reference", "paddle": "port"}


class TensorBoardLogs:
    """Event files below a folder, one sub-folder per training; its name ends with `end`, for example ` seed 3`.

    Raises:
        InputError: tensorboardX is not installed.
    """

    def __init__(self, folder: Path, end: str = "") -> None:
        try:
            import tensorboardX
        except ModuleNotFoundError:
            raise InputError(
                "--tensorboard: tensorboardX is not installed; pip install 'twinalign[tensorboard]', or leave it out"
            ) from None
        self._kind = tensorboardX.SummaryWriter
        self._folder, self._end = folder, end
        self._writers: dict[str, Any] = {}

    def named(self, end: str) -> TensorBoardLogs:
        return TensorBoardLogs(self._folder, end)

    def points(self, side: str, event: Mapping[str, Any]) -> None:
        """Add the values that a recorder process sends during a training; step 1 replaces what an earlier run left."""
        step = event["step"]
        writer = self._writer(self._name(side, event["precision"], event["prefix"]), anew=step == 1)
        for name, value in event["values"].items():
            writer.add_scalar(name, value, step)

    def fill(self, path: Path, side: str, precision: str) -> None:
        """Write the logs of a recording from an earlier run, unless they exist."""
        for prefix, curves in _trainings(Recording.load(path).arrays):
            name = self._name(side, precision, prefix)
            if name in self._writers or any((self._folder / name).glob("events.*")):
                continue
            writer = self._writer(name, anew=False)
            for curve, points in curves.items():
                for step, value in enumerate(points.reshape(-1).tolist(), start=1):
                    writer.add_scalar(curve, value, step)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _name(self, side: str, precision: str, prefix: str) -> str:
        return f"{_NAMES[side]}{' moved' if prefix else ''} {precision}{self._end}"

    def _writer(self, name: str, anew: bool) -> Any:
        if anew and name in self._writers:
            self._writers.pop(name).close()
        if name not in self._writers:
            for old in (self._folder / name).glob("events.out.tfevents.*") if anew else ():
                old.unlink()
            self._writers[name] = self._kind(str(self._folder / name), flush_secs=10)
        return self._writers[name]


def _trainings(arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    for prefix in ("", REPEAT_PREFIX):
        start = prefix + CURVE_PREFIX
        curves = {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
        if curves:
            yield prefix, curves


def fill_logs(logs: TensorBoardLogs, recorder: Any) -> None:
    """Add the reused recordings of the train stage to the logs."""
    for side in SIDES:
        for precision in recorder.dtypes_of("train"):
            path = recorder.recording_path(side, "train", precision)
            if path.exists():
                logs.fill(path, side, precision)
