"""Progress of a run: log lines, a progress bar on a terminal, scalars for TensorBoard."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any


@dataclass(frozen=True)
class StepRecord:
    """The measurements of one training step.

    Attributes:
        epoch, iteration: its place, both from 0.
        loss: of its batch, before the step.
        learning_rate, moco_momentum: used in the step; the momentum is None unless MoCo is trained.
        reader_cost, batch_cost: seconds waited for the batch, and seconds of the whole step with the wait.
    """

    epoch: int
    iteration: int
    loss: float
    learning_rate: float
    moco_momentum: float | None
    reader_cost: float
    batch_cost: float


@dataclass(frozen=True)
class Accuracy:
    """The accuracy of a classifier on a set of pictures.

    Attributes:
        top1, top5: in percent.
        loss: mean cross entropy.
    """

    top1: float
    top5: float
    loss: float


class LogWriter:
    """Prints a line every `print_freq` steps, with costs averaged over the steps since the line before."""

    def __init__(self, iterations: int, epochs: int, batch_size: int, print_freq: int) -> None:
        self.iterations = iterations
        self.epochs = epochs
        self.batch_size = batch_size
        self.print_freq = print_freq
        self.pending: list[StepRecord] = []

    def __call__(self, record: StepRecord) -> None:
        """Take a step's record, and print a line if one is due."""
        self.pending.append(record)
        if record.iteration % self.print_freq == 0 or record.iteration == self.iterations - 1:
            print(self.line(), flush=True)
            self.pending.clear()

    def line(self) -> str:
        """Return the line for the steps since the last one."""
        last = self.pending[-1]
        reader_cost = sum(record.reader_cost for record in self.pending) / len(self.pending)
        batch_cost = sum(record.batch_cost for record in self.pending) / len(self.pending)
        steps_left = (self.epochs - last.epoch) * self.iterations - last.iteration - 1
        return (
            f"[epoch {last.epoch}, iter {last.iteration}] lr: {last.learning_rate:.6g}, loss: {last.loss:.5f}, "
            f"avg_reader_cost: {reader_cost:.5f} sec, avg_batch_cost: {batch_cost:.5f} sec, "
            f"avg_ips: {self.batch_size / batch_cost:.2f} images/sec, "
            f"eta: {timedelta(seconds=round(batch_cost * steps_left))}"
        )


class Reporter:
    """Context that takes the records of a run: log lines, a bar where the output is a terminal, scalars where asked.

    Args:
        iterations, epochs, batch_size, print_freq: as `LogWriter` has them.
        start: epoch and iteration that the run begins with.
        tensorboard: folder for the scalars, None for none.

    Raises:
        ValueError: scalars are asked for and the package tensorboardX is missing.
    """

    def __init__(
        self,
        iterations: int,
        epochs: int,
        batch_size: int,
        print_freq: int,
        start: tuple[int, int] = (0, 0),
        tensorboard: Path | None = None,
    ) -> None:
        self.iterations = iterations
        self.batch_size = batch_size
        self._log = LogWriter(iterations, epochs, batch_size, print_freq)
        self._scalars = _scalar_writer(tensorboard) if tensorboard is not None else None
        self._bar: Any = _bar() if sys.stdout.isatty() else None
        if self._bar is not None:
            done = start[0] * iterations + start[1]
            self._task = self._bar.add_task("training", total=epochs * iterations, completed=done)

    def __enter__(self) -> Reporter:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        if self._scalars is not None:
            self._scalars.close()

    def __call__(self, record: StepRecord) -> None:
        self._log(record)
        if self._bar is not None:
            self._bar.update(self._task, advance=1)
        self.scalars(
            record.epoch * self.iterations + record.iteration,
            {
                "train/loss": record.loss,
                "train/learning_rate": record.learning_rate,
                "train/moco_momentum": record.moco_momentum,
                "speed/reader_cost": record.reader_cost,
                "speed/batch_cost": record.batch_cost,
                "speed/images_per_second": self.batch_size / record.batch_cost,
            },
        )

    def scalars(self, step: int, values: dict[str, float | None]) -> None:
        """Write scalars at a step, where they are asked for; those that are None are left out."""
        if self._scalars is not None:
            for name, value in values.items():
                if value is not None:
                    self._scalars.add_scalar(name, value, step)


def _scalar_writer(folder: Path) -> Any:
    # A writer that needs neither framework.
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        raise ValueError(
            "--tensorboard: the package tensorboardX is missing; pip install 'twinalign[tensorboard]'"
        ) from None
    return SummaryWriter(str(folder))


def _bar() -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    return Progress(*columns, transient=True)
