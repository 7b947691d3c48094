"""Weights out of files, into encoders and classifiers, strictly: every key is accounted for or the file is refused.

Read are checkpoints of this package, with or without a `module.` before every key, and the `.safetensors` that `export`
writes. What torch's programs wrote otherwise, the official ones among them, `twinalign convert` turns into one.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from paddle import nn
from safetensors import SafetensorError
from safetensors.numpy import load_file

WRAPPER = "module."
"""What DistributedDataParallel puts before every key."""
ENCODER = "base_encoder."
TORCH_NAMES = {"_mean": "running_mean", "_variance": "running_var"}
"""What torch calls the statistics of batch norms."""
READ_ERRORS = (OSError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile, SafetensorError)


class UnreadableError(ValueError):
    """A file of which this package can say why it does not read it; the message goes after the file's name."""


class WeightsError(ValueError):
    """A file that cannot be read or holds another model's weights; the message is one line that names the remedy."""


def read_file(path: str | Path, *prefixes: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays of an `.npz` whose names have one of the prefixes, and the plain values beside them.

    Raises:
        UnreadableError: a part of it has not the checksum that was written with it, or it is torch's own file.
        READ_ERRORS: it is no `.npz`.
    """
    # diff: numpy's own format, as in checkpoint.py; numpy looks at the checksums.
    try:
        with np.load(path, allow_pickle=False) as file:
            if any(name.endswith("data.pkl") for name in file.files):
                raise UnreadableError(f"is torch's own file, which is converted before it is read: {conversion(path)}")
            run = json.loads(str(file["run"])) if "run" in file.files else {}
            return {name: file[name] for name in file.files if name.startswith(prefixes)}, run
    except zipfile.BadZipFile as error:
        if "CRC" not in str(error):
            raise
        raise UnreadableError(f"is damaged ({error}); give another copy") from error


def conversion(path: str | Path) -> str:
    """Return the command that makes an `.npz` of torch's own file."""
    target = Path(path).with_name(Path(path).name.split(".")[0] + ".npz")
    model = 'builder:build_moco(arch="ARCH")'
    return f"twinalign convert {path} {target} --ref 'moco_ref.{model}' --paddle 'moco_paddle.{model}'"


def read_weights(path: str | Path, use_average: bool = False) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the weights of a file by key, without a wrapper's prefix, and the plain values beside them.

    Args:
        path: `.npz` as this package and `twinalign convert` write it, or `.safetensors` by torch's names as `export`
            writes it.
        use_average: take the moving average that `--model-ema` kept in place of the weights.

    Raises:
        WeightsError: the file is missing, damaged, holds no weights or no average.
    """
    try:
        entry = "model_ema/" if use_average else "state_dict/"
        if Path(path).suffix == ".safetensors":
            weights, run = {} if use_average else from_torch(load_file(path)), {}
        else:
            arrays, run = read_file(path, entry)
            weights = {name.removeprefix(entry): value for name, value in arrays.items()}
    except FileNotFoundError:
        raise WeightsError(f"{path}: no such file") from None
    except UnreadableError as error:
        raise WeightsError(f"{path}: {error}") from error
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


# diff: torch's twin has these names and layouts itself.
def to_torch(weights: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return the weights by torch's names and in torch's layouts."""
    return {_renamed(key, TORCH_NAMES): _turned(value) for key, value in weights.items()}


def from_torch(weights: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return weights that are in torch's names and layouts by paddle's, without what paddle does not count."""
    names = {theirs: own for own, theirs in TORCH_NAMES.items()}
    kept = {key: value for key, value in weights.items() if key.rpartition(".")[2] != "num_batches_tracked"}
    return {_renamed(key, names): _turned(value) for key, value in kept.items()}


def _renamed(key: str, names: dict[str, str]) -> str:
    prefix, dot, name = key.rpartition(".")
    return f"{prefix}{dot}{names.get(name, name)}"


def _turned(value: Any) -> np.ndarray:
    """A Linear weight is [in, out] here and [out, in] there; no architecture has another matrix."""
    array = np.asarray(value)
    return np.ascontiguousarray(array.T if array.ndim == 2 else array)


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
