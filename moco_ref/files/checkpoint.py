"""Checkpoints of a training run: model, optimizer, place in the run, and the options that must not change.

The file is torch's own, `{"epoch", "iteration", "settings", "values", "state_dict", "optimizer"}` and, where an
average is kept, `"model_ema"`: tensors and plain values only, and no pickled code in it is ever run. The official
program's file, without iteration and settings and with `module.` before every key, is read as well. The draws of the
data depend on their address alone and the models have no randomness: a run resumes to the bit without a generator's
state.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from moco_common.files import WRAPPER, CheckpointError, UnreadableError, check_settings, without_prefix, written_beside
from moco_ref.files.weights import read_file
from moco_ref.training.model_average import ModelAverage

SUFFIX = ".pth.tar"


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
    """Write the state before `iteration` of `epoch`, and the average if there is one.

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
    """Put model, a new optimizer and average into the saved state; return the epoch and the iteration to go on with.

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
            if isinstance(error.__context__, OSError):
                raise error.__context__ from error
            raise OSError(f"{path}: cannot be written (no room, or no access)") from error
