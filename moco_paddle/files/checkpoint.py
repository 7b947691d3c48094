"""Checkpoints of a training run: model, optimizer, place in the run, and the options that must not change.

The file is numpy's own, arrays called `state_dict/KEY`, `optimizer/SLOT/KEY` and, where an average is kept,
`model_ema/KEY` beside a JSON text called `run`, and no pickled code in it is ever run. The draws of the data depend on
their address alone and the models have no randomness: a run resumes to the bit without a generator's state.
"""

# diff: paddle.load runs any code in the pickles that paddle.save writes, hence numpy's container.

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.optimizer import Optimizer

from moco_common.files import CheckpointError, UnreadableError, check_settings, written_beside
from moco_paddle.files.weights import read_file
from moco_paddle.training.model_average import ModelAverage

SUFFIX = ".npz"


def save_checkpoint(
    path: str | Path,
    model: nn.Layer,
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
    progress = {"epoch": epoch, "iteration": iteration, "settings": settings, "values": values}
    arrays = {"run": np.array(json.dumps(progress))}
    for key, value in model.state_dict().items():
        arrays[f"state_dict/{key}"] = value.numpy()
    # diff: paddle's optimizer state goes by names that count the layers built in this process; here it goes by key.
    accumulators = optimizer.state_dict()
    for key, parameter in model.named_parameters():
        for name, value in accumulators.items():
            if name.startswith(f"{parameter.name}_"):
                arrays[f"optimizer/{_slot(name, parameter.name)}/{key}"] = value.numpy()
    if average is not None:
        for key, value in average.state.items():
            arrays[f"model_ema/{key}"] = value.numpy()
    with written_beside(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)


def load_checkpoint(
    path: str | Path,
    model: nn.Layer,
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
        arrays, progress = read_file(path, "state_dict/", "optimizer/", "model_ema/")
        place = progress["epoch"], progress["iteration"]
        saved_settings, saved_values = progress["settings"], progress.get("values", {})
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file; give a checkpoint of this program to --resume") from None
    except UnreadableError as error:
        raise CheckpointError(f"{path}: {error}") from error
    except (OSError, EOFError, KeyError, TypeError, ValueError, AttributeError, zipfile.BadZipFile) as error:
        raise CheckpointError(
            f"{path}: no checkpoint of this program ({type(error).__name__}); give another"
        ) from error
    check_settings(path, saved_settings, settings)
    # diff: paddle reports missing keys where torch raises, and stores its state by key, so that nothing is left for
    # `_belongs_to` to check.
    parameters = _entries(arrays, "state_dict/")
    missing, unexpected = model.set_state_dict(parameters)
    if missing or unexpected:
        raise CheckpointError(f"{path}: {missing} missing, {unexpected} unexpected; give a checkpoint of this model")
    names = {key: parameter.name for key, parameter in model.named_parameters()}
    accumulators = {}
    for name, value in arrays.items():
        if name.startswith("optimizer/"):
            _, slot, key = name.split("/")
            accumulators[f"{names[key]}_{slot}_0"] = paddle.to_tensor(value)
    if accumulators:
        optimizer.set_state_dict(accumulators)
    if average is not None:
        averages = _entries(arrays, "model_ema/")
        if not averages:
            raise CheckpointError(f"{path}: holds no average; resume without --model-ema")
        average.load(averages, saved_values["model_ema_updates"])
    if values is not None:
        values.update(saved_values)
    return place


# diff: numpy's container has no folders, hence prefixes; `write_file` is for torch's own.
def _entries(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _slot(name: str, parameter_name: str) -> str:
    """Return "moment1" for the accumulator "linear_0.w_0_moment1_0" of the parameter "linear_0.w_0"."""
    return name.removeprefix(f"{parameter_name}_").rsplit("_", 1)[0]
