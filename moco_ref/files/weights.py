"""Weights from files into encoders and classifiers; a file with a missing or unexpected key is refused.

Readable files are checkpoints of this package, those of the official programs (`state_dict` with a `module.` before
every key), the forms that `export` writes, and `.safetensors`.
"""

from __future__ import annotations

import pickle
import zipfile
import zlib
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from moco_common.files import WRAPPER, UnreadableError, WeightsError, check_fit, encoder_weights, without_prefix

READ_ERRORS = (
    RuntimeError,
    OSError,
    EOFError,
    KeyError,
    TypeError,
    ValueError,
    pickle.UnpicklingError,
    SafetensorError,
)


def read_file(path: str | Path) -> Any:
    """Return what torch's own file holds; no pickled code in it is run.

    torch does not check the checksums in its files, and would load a flipped bit.

    Raises:
        UnreadableError: a part of it does not match its checksum.
        READ_ERRORS: it is not a file of torch's.
    """
    with open(path, "rb") as file:
        if zipfile.is_zipfile(file):
            _check_parts(file)
        file.seek(0)
        return torch.load(file, map_location="cpu", weights_only=True)


def _check_parts(file: Any) -> None:
    try:
        with zipfile.ZipFile(file) as archive:
            # torch can be told not to compute checksums, and then writes zeros.
            has_checksums = any(part.CRC for part in archive.infolist())
            damaged = archive.testzip() if has_checksums else None
    except (zipfile.BadZipFile, zlib.error) as error:
        raise UnreadableError(f"is damaged ({error}); give another copy") from error
    if damaged is not None:
        raise UnreadableError(f"is damaged (the checksum of its part {damaged} is wrong); give another copy")


def read_weights(path: str | Path, use_average: bool = False) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the weights of a file by key, without a wrapper's prefix, and the plain values beside them.

    Args:
        path: `.safetensors`, or torch's own format holding `state_dict`, `model` or a bare state dict.
        use_average: take the moving average that `--model-ema` kept in place of the weights.

    Raises:
        WeightsError: the file is missing, damaged, holds no weights or no average.
    """
    try:
        file = load_file(path) if Path(path).suffix == ".safetensors" else read_file(path)
    except FileNotFoundError:
        raise WeightsError(f"{path}: no such file") from None
    except UnreadableError as error:
        raise WeightsError(f"{path}: {error}") from error
    except READ_ERRORS as error:
        raise WeightsError(f"{path}: cannot be read as weights ({type(error).__name__}); give another") from error
    if not isinstance(file, dict):
        raise WeightsError(f"{path}: holds no weights by key; give a checkpoint")
    if use_average and "model_ema" not in file:
        raise WeightsError(f"{path}: holds no average; leave --use-ema out, or train with --model-ema")
    values = {**file.get("settings", {}), **file.get("values", {})}
    values |= {key: file[key] for key in ("arch", "epoch") if key in file}
    entry = "model_ema" if use_average else next((key for key in ("state_dict", "model") if key in file), None)
    weights = file if entry is None else file[entry]
    if not weights or not all(isinstance(value, Tensor) for value in weights.values()):
        raise WeightsError(f"{path}: holds no weights by key; give a checkpoint")
    return without_prefix(weights, WRAPPER), values


def load_encoder(model: nn.Module, path: str | Path, use_average: bool = False) -> dict[str, Any]:
    """Load a file's base encoder into `model`, whose head stays as it is; return the plain values in the file.

    Raises:
        WeightsError: the file cannot be read, or is not of this architecture.
    """
    weights, values = read_weights(path, use_average)
    weights = encoder_weights(weights, model.head_name)
    head = {key: value for key, value in model.state_dict().items() if key.startswith(f"{model.head_name}.")}
    _load(model, {**weights, **head}, path, values)
    return values


def load_classifier(model: nn.Module, path: str | Path, use_average: bool = False) -> dict[str, Any]:
    """Load a trained classifier, encoder and head, into `model`; return the plain values in the file.

    Raises:
        WeightsError: the file cannot be read, or is not of this architecture and number of classes.
    """
    weights, values = read_weights(path, use_average)
    _load(model, weights, path, values)
    return values


def _load(model: nn.Module, weights: dict[str, Any], path: str | Path, values: dict[str, Any]) -> None:
    own = model.state_dict()
    # Batch norms count their batches; nothing reads the count, and what paddle's twin exports has none.
    weights = {key: value for key, value in own.items() if key.endswith(".num_batches_tracked")} | weights
    check_fit(own, weights, path, values)
    model.load_state_dict(weights)
