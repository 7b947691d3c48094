"""Checkpoints of a training run: model, optimizer, place in the run, and the options that must not change.

The file is torch's own, `{"epoch", "iteration", "settings", "values", "state_dict", "optimizer"}` and, where an
average is kept, `"model_ema"`: tensors and plain values only, and it is read without free unpickling. The official
program's file, without iteration and settings and with `module.` before every key, is read as well. The draws of the
data depend on their address alone (`augmentation.py`) and the models have no randomness, so that no generator's state
is needed to go on bit by bit.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .model_average import ModelAverage
from .weights import WRAPPER, UnreadableError, read_file, without_prefix

SUFFIX = ".pth.tar"


class CheckpointError(ValueError):
    """A checkpoint that cannot be read or belongs to another run; the message is one line that names the remedy."""


def save_checkpoint(
    path: str | Path,
    model: nn.Module,
    optimizer: Optimizer,
    epoch: int,
    iteration: int,
    settings: dict[str, Any],
    values: dict[str, Any] | None = None,
    average: ModelAverage | None = None,
) -> None:
    """Write the state before `iteration` of `epoch`, and the average where there is one.

    `settings` are plain values that a resuming run must share, `values` plain values that it takes over.
    """
    values = dict(values or {})
    if average is not None:
        values["model_ema_updates"] = average.updates
    checkpoint = {
        "epoch": epoch,
        "iteration": iteration,
        "settings": settings,
        "values": values,
        "state_dict": model.state_dict(),
        "optimizer": optimizer.state_dict(),
    }
    if average is not None:
        checkpoint["model_ema"] = average.state
    write_file(checkpoint, path)


def load_checkpoint(
    path: str | Path,
    model: nn.Module,
    optimizer: Optimizer,
    settings: dict[str, Any],
    values: dict[str, Any] | None = None,
    average: ModelAverage | None = None,
) -> tuple[int, int]:
    """Put model, optimizer and average into the saved state; return the epoch and the iteration to go on with.

    The saved values are put into `values`.

    Raises:
        CheckpointError: the file is missing, damaged or no such checkpoint, or it was written under other settings.
    """
    try:
        checkpoint = read_file(path)
        # The official program writes at the end of an epoch alone, records no settings, and wraps the model.
        place = checkpoint["epoch"], checkpoint.get("iteration", 0)
        saved_settings = checkpoint.get("settings", {})
        parameters, optimizer_state = without_prefix(checkpoint["state_dict"], WRAPPER), checkpoint["optimizer"]
        saved_values = checkpoint.get("values", {})
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file; give a checkpoint of this program to --resume") from None
    except UnreadableError as error:
        raise CheckpointError(f"{path}: {error}") from error
    except (RuntimeError, OSError, EOFError, KeyError, TypeError, ValueError, pickle.UnpicklingError) as error:
        raise CheckpointError(
            f"{path}: no checkpoint of this program ({type(error).__name__}); give another"
        ) from error
    check_settings(path, saved_settings, settings)
    try:
        model.load_state_dict(parameters)
    except RuntimeError as error:
        raise CheckpointError(f"{path}: holds another model's weights; resume with the options of its run") from error
    if not _belongs_to(optimizer_state, optimizer):
        raise CheckpointError(f"{path}: holds another optimizer's state; resume with the options of its run")
    optimizer.load_state_dict(optimizer_state)
    if average is not None:
        if "model_ema" not in checkpoint:
            raise CheckpointError(f"{path}: holds no average; resume without --model-ema")
        average.load(checkpoint["model_ema"], saved_values["model_ema_updates"])
    if values is not None:
        values.update(saved_values)
    return place


def _belongs_to(state: dict[str, Any], optimizer: Optimizer) -> bool:
    """Whether an optimizer's saved state is of such an optimizer over such parameters."""
    for group, saved in zip(optimizer.param_groups, state["param_groups"], strict=False):
        if any((name in group) != (name in saved) for name in ("betas", "nesterov", "trust_coefficient")):
            return False
    counts = [[len(group["params"]) for group in groups] for groups in (optimizer.param_groups, state["param_groups"])]
    if counts[0] != counts[1]:
        return False
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return all(
        value.shape == parameters[number].shape
        for number, slots in state["state"].items()
        for value in slots.values()
        if isinstance(value, Tensor) and value.ndim > 0
    )


def check_settings(path: str | Path, saved: dict[str, Any], current: dict[str, Any]) -> None:
    """Refuse to go on under other options; a checkpoint that records none (the official program's) is taken as it is.

    Raises:
        CheckpointError: they differ; the message names the first that does.
    """
    if not saved:
        return
    # Checkpoints of earlier versions do not name their program.
    programs = [settings.get("program") for settings in (saved, current)]
    if None not in programs and programs[0] != programs[1]:
        raise CheckpointError(
            f"{path}: was written by {programs[0]}, this is {programs[1]}; give a checkpoint of {programs[1]}"
        )
    # They record an option as well that may change by now.
    for name in sorted((saved.keys() | current.keys()) - {"program", "on_bad_image"}):
        if saved.get(name) != current.get(name):
            raise CheckpointError(
                f"{path}: was written with {name} = {saved.get(name)!r}, this run has {current.get(name)!r}; "
                "resume with the same options"
            )


def make_output_folder(folder: Path) -> None:
    """Make the folder of a run's checkpoints, where there is none, and make sure before the run that it takes files.

    Raises:
        OSError: it does not; the message is one line.
    """
    probe = folder / f".probe.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise OSError(f"{folder}: cannot be written to ({error.strerror}); give another --output") from error


def write_file(content: Any, path: str | Path) -> None:
    """Write torch's own file, whole or not at all.

    Raises:
        OSError: there is no room, or the folder cannot be written to; the message is one line.
    """
    with written_beside(path) as temporary, open(temporary, "wb") as file:
        try:
            torch.save(content, file)
        except RuntimeError as error:
            # torch has an error of its own for what the file could not take.
            reason = error.__context__ if isinstance(error.__context__, OSError) else "no room, or no access"
            raise OSError(f"{path}: cannot be written ({reason})") from error


@contextmanager
def written_beside(path: str | Path) -> Iterator[Path]:
    """Give a file beside `path` to write to; it takes the place of `path` at the end, and is removed after an error.

    Raises:
        OSError: the folder is missing or cannot be written to; the message is one line.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        temporary.touch()
    except OSError as error:
        raise OSError(f"{path.parent}: cannot be written to ({error.strerror}); make it, or name another") from error
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
