"""Weights from files into encoders and classifiers; a file with a missing or unexpected key is refused.

Readable files are checkpoints of this package, with or without a `module.` before every key, and the `.safetensors`
that `export` writes. `twinalign convert` converts other files of torch's programs, the official ones included.
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

from moco_common.files import WRAPPER, UnreadableError, WeightsError, check_fit, encoder_weights, without_prefix

TORCH_NAMES = {"_mean": "running_mean", "_variance": "running_var"}
"""What torch calls the statistics of batch norms."""
READ_ERRORS = (OSError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile, SafetensorError)


def read_file(path: str | Path, *prefixes: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays of an `.npz` whose names have one of the prefixes, and the plain values beside them.

    Raises:
        UnreadableError: a part of it does not match its checksum, or it is torch's own file.
        READ_ERRORS: it is not an `.npz`.
    """
    # diff: numpy's own format, as in checkpoint.py; numpy checks the checksums.
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
    model = 'build_moco(arch="ARCH")'
    return f"twinalign convert {path} {target} --ref 'moco_ref:{model}' --paddle 'moco_paddle:{model}'"


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
    """Convert weights from torch's names and layouts to paddle's, without the counts that paddle does not keep."""
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


def load_encoder(model: nn.Layer, path: str | Path, use_average: bool = False) -> dict[str, Any]:
    """Load a file's base encoder into `model`, whose head stays as it is; return the plain values in the file.

    Raises:
        WeightsError: the file cannot be read, or is not of this architecture.
    """
    weights, values = read_weights(path, use_average)
    weights = encoder_weights(weights, model.head_name)
    head = {key: value for key, value in model.state_dict().items() if key.startswith(f"{model.head_name}.")}
    _load(model, {**weights, **head}, path, values)
    return values


def load_classifier(model: nn.Layer, path: str | Path, use_average: bool = False) -> dict[str, Any]:
    """Load a trained classifier, encoder and head, into `model`; return the plain values in the file.

    Raises:
        WeightsError: the file cannot be read, or is not of this architecture and number of classes.
    """
    weights, values = read_weights(path, use_average)
    _load(model, weights, path, values)
    return values


def _load(model: nn.Layer, weights: dict[str, Any], path: str | Path, values: dict[str, Any]) -> None:
    # diff: paddle's batch norms do not count their batches; torch's do, and nothing reads the count.
    own = model.state_dict()
    check_fit(own, weights, path, values)
    model.set_state_dict(weights)
