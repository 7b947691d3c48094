"""Weights out of files, into encoders and classifiers, strictly: every key is accounted for or the file is refused.

Read are checkpoints of this package, with or without a `module.` before every key. What torch's programs wrote, the
official ones among them, `twinalign convert` turns into one.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from paddle import nn

WRAPPER = "module."
"""What DistributedDataParallel puts before every key."""
ENCODER = "base_encoder."
READ_ERRORS = (OSError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile)


class WeightsError(ValueError):
    """A file that cannot be read or holds another model's weights; the message is one line that names the remedy."""


def read_weights(path: str | Path, use_average: bool = False) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the weights of a file by key, without a wrapper's prefix, and the plain values beside them.

    Args:
        path: `.npz` as this package and `twinalign convert` write it.
        use_average: take the moving average that `--model-ema` kept in place of the weights.

    Raises:
        WeightsError: the file is missing, damaged, holds no weights or no average.
    """
    try:
        # diff: numpy's own format, as in checkpoint.py; a file of torch's is converted before it is read.
        with np.load(path, allow_pickle=False) as file:
            run = json.loads(str(file["run"])) if "run" in file.files else {}
            entry = "model_ema/" if use_average else "state_dict/"
            weights = {name.removeprefix(entry): file[name] for name in file.files if name.startswith(entry)}
    except FileNotFoundError:
        raise WeightsError(f"{path}: no such file") from None
    except (*READ_ERRORS, AttributeError) as error:
        raise WeightsError(
            f"{path}: cannot be read as weights ({type(error).__name__}); give an .npz, `twinalign convert` makes one"
        ) from error
    if use_average and not weights:
        raise WeightsError(f"{path}: holds no average; leave --use-ema out, or train with --model-ema")
    if not weights:
        raise WeightsError(f"{path}: holds no weights by key; give a checkpoint")
    values = {**run.get("settings", {}), **run.get("values", {})}
    values |= {key: run[key] for key in ("arch", "epoch") if key in run}
    return without_prefix(weights, WRAPPER), values


def without_prefix(weights: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Return the weights with the prefix taken off, where every key has it; else as they are."""
    if all(key.startswith(prefix) for key in weights):
        return {key.removeprefix(prefix): value for key, value in weights.items()}
    return weights


def encoder_weights(weights: dict[str, Any], head_name: str) -> dict[str, Any]:
    """Return what the base encoder has below its head, by the encoder's own keys."""
    if any(key.startswith(ENCODER) for key in weights):
        weights = {key.removeprefix(ENCODER): value for key, value in weights.items() if key.startswith(ENCODER)}
    return {key: value for key, value in weights.items() if not key.startswith(f"{head_name}.")}


def load_encoder(model: nn.Layer, path: str | Path, use_average: bool = False) -> dict[str, Any]:
    """Put a file's base encoder into `model`, whose head stays as it is; return the plain values beside the weights.

    Raises:
        WeightsError: the file cannot be read, or is not of this architecture.
    """
    weights, values = read_weights(path, use_average)
    weights = encoder_weights(weights, model.head_name)
    head = {key: value for key, value in model.state_dict().items() if key.startswith(f"{model.head_name}.")}
    _load(model, {**weights, **head}, path, values)
    return values


def load_classifier(model: nn.Layer, path: str | Path, use_average: bool = False) -> dict[str, Any]:
    """Put a trained classifier, encoder and head, into `model`; return the plain values beside the weights.

    Raises:
        WeightsError: the file cannot be read, or is not of this architecture and number of classes.
    """
    weights, values = read_weights(path, use_average)
    _load(model, weights, path, values)
    return values


def number_of_classes(weights: dict[str, Any]) -> int | None:
    """Return how many classes a trained classifier's weights tell apart; None for an encoder without one."""
    bias = weights.get("head.bias", weights.get("fc.bias"))
    return None if bias is None else int(bias.shape[0])


def _load(model: nn.Layer, weights: dict[str, Any], path: str | Path, values: dict[str, Any]) -> None:
    own = model.state_dict()
    problems = [f"no {key}" for key in own if key not in weights]
    problems += [f"{key} that the model lacks" for key in weights if key not in own]
    problems += [
        f"{key} of shape {list(weights[key].shape)} and not {list(own[key].shape)}"
        for key in own
        if key in weights and list(weights[key].shape) != list(own[key].shape)
    ]
    if problems:
        more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
        arch = f", of {values['arch']}" if "arch" in values else ""
        raise WeightsError(f"{path}: other weights than the model's{arch}: {problems[0]}{more}; give the file's --arch")
    model.set_state_dict(weights)
