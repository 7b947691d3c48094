"""Without a model: a layout from the keys and from what the user says about them; nothing ambiguous is guessed."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping

import numpy as np

from twinalign.convert.layout import StateEntry
from twinalign.errors import InputError

# What a user may call a layer, and the class of either framework that it stands for.
CLASSES = {
    "Linear": ("torch.nn.modules.linear.Linear", "paddle.nn.layer.common.Linear"),
    "LinearOutIn": ("torch.nn.modules.linear.Linear", "paddle.compat.nn.Linear"),
    "Embedding": ("torch.nn.modules.sparse.Embedding", "paddle.nn.layer.common.Embedding"),
    "PReLU": ("torch.nn.modules.activation.PReLU", "paddle.nn.layer.activation.PReLU"),
    "BatchNorm": ("torch.nn.modules.batchnorm._BatchNorm", "paddle.nn.layer.norm._BatchNormBase"),
    "InstanceNorm": ("torch.nn.modules.instancenorm._InstanceNorm", "paddle.nn.layer.norm._InstanceNormBase"),
    "MultiHeadAttention": (
        "torch.nn.modules.activation.MultiheadAttention",
        "paddle.nn.layer.transformer.MultiHeadAttention",
    ),
    "Recurrent": ("torch.nn.modules.rnn.RNNBase", "paddle.nn.layer.rnn.RNNBase"),
    "Parameter": ("Parameter", "Parameter"),
}


def explicit_layout(
    framework: str, arrays: Mapping[str, np.ndarray], layers: Mapping[str, str], path: str
) -> list[StateEntry]:
    """A layout for a state dict of which no model is at hand.

    `layers` maps patterns of layer paths (or of whole keys) to the names in `CLASSES`. A batch norm is known by its two
    running statistics; a matrix that no pattern covers is refused with the question that must be answered.
    """
    for pattern, name in layers.items():
        if name not in CLASSES:
            raise InputError(f"--layer {pattern}={name}: no such class; there are {', '.join(CLASSES)}")
    classes = {key: _class_of(framework, key, arrays, layers) for key in arrays}
    unknown = [
        key
        for key, array in arrays.items()
        if classes[key] is None and array.ndim == 2 and array.dtype.kind not in "iub"
    ]
    if unknown:
        shown = ", ".join(f"{key} {list(arrays[key].shape)}" for key in unknown[:12])
        more = f" and {len(unknown) - 12} more" if len(unknown) > 12 else ""
        raise InputError(
            f"{path}: are these weights of Linear layers, of Embeddings, or matrices of the model's own? A Linear's "
            "is transposed, the others are not, and the file does not tell: "
            f"{shown}{more}. Answer with --layer PATTERN=Linear, =Embedding or =Parameter, or give the model with "
            "--ref or --paddle"
        )
    unused = [p for p in layers if not any(_fits(key, p) for key in arrays)]
    if unused:
        raise InputError(f"--layer {unused[0]}={layers[unused[0]]}: no key of {path} fits this pattern")
    return [_entry(framework, key, array, classes[key] or "Parameter") for key, array in arrays.items()]


def _class_of(framework: str, key: str, arrays: Mapping[str, np.ndarray], layers: Mapping[str, str]) -> str | None:
    for pattern, name in layers.items():
        if _fits(key, pattern):
            return name
    owner = key.rpartition(".")[0]
    statistics = ("running_mean", "running_var") if framework == "torch" else ("_mean", "_variance")
    if all((f"{owner}.{name}" if owner else name) in arrays for name in statistics):
        return "BatchNorm"
    leaf = key.rpartition(".")[2]
    if framework == "paddle" and leaf == "_weight":
        return "PReLU"
    return None


def _fits(key: str, pattern: str) -> bool:
    """Whether a pattern names the key, its layer, or a layer above it."""
    steps = key.split(".")
    return any(fnmatch.fnmatchcase(".".join(steps[:count]), pattern) for count in range(1, len(steps) + 1))


def _entry(framework: str, key: str, array: np.ndarray, name: str) -> StateEntry:
    owner, _, leaf = key.rpartition(".")
    kind = CLASSES[name][0 if framework == "torch" else 1]
    tied_to = None
    if name == "MultiHeadAttention":
        owner = re.sub(r"(^|\.)(q|k|v|out)_proj$", "", owner)
    cell = re.fullmatch(r"((?:.*\.)?)(\d+)\.cell(_fw|_bw)?", owner) if name == "Recurrent" else None
    if cell is not None:
        above, depth, direction = cell.groups()
        owner = above.removesuffix(".")
        if not leaf.endswith("_ho"):  # listed by layer as well
            tied_to = f"{above}{leaf}_l{depth}{'_reverse' if direction == '_bw' else ''}"
    return StateEntry(key, tuple(array.shape), array.dtype.name, owner, leaf, (kind,), tied_to=tied_to)
