"""Derive a layout without a model, from the keys and the user's --layer options; nothing ambiguous is guessed."""

import fnmatch
import re
from collections.abc import Mapping

import numpy as np

from twinalign.backends.state_layout import StateEntry
from twinalign.conversion import layer_rules as layer_rules  # registers the rules
from twinalign.conversion import storage
from twinalign.errors import InputError

LAYER_KINDS = {
    "Linear": "linear",
    "LinearOutIn": "linear",
    "Embedding": "embedding",
    "PReLU": "prelu",
    "BatchNorm": "batch norm",
    "InstanceNorm": "instance norm",
    "MultiHeadAttention": "multi-head attention",
    "Recurrent": "recurrent",
    "Parameter": storage.RAW,
}
"""Names that --layer accepts → kinds of layers."""


def layout_from_keys(
    framework: str, arrays: Mapping[str, np.ndarray], layers: Mapping[str, str], path: str
) -> list[StateEntry]:
    """The layout of a state dict whose model is not available.

    `layers` maps patterns of layer paths (or of whole keys) to the names in `LAYER_KINDS`. A batch norm is recognised
    by its two running statistics; a matrix that no pattern covers is refused, with the question that must be answered.
    """
    for pattern, name in layers.items():
        if name not in LAYER_KINDS:
            raise InputError(f"--layer {pattern}={name}: no such class; there are {', '.join(LAYER_KINDS)}")
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
    bases = storage.framework_class(framework, LAYER_KINDS[name]) or ("Parameter",)
    if framework == "paddle" and name == "LinearOutIn":
        bases = ("paddle.compat.nn.Linear",)
    tied_to = None
    if name == "MultiHeadAttention":
        owner = re.sub(r"(^|\.)(q|k|v|out)_proj$", "", owner)
    cell = re.fullmatch(r"((?:.*\.)?)(\d+)\.cell(_fw|_bw)?", owner) if name == "Recurrent" else None
    if cell is not None:
        above, depth, direction = cell.groups()
        owner = above.removesuffix(".")
        if not leaf.endswith("_ho"):  # listed by layer as well
            tied_to = f"{above}{leaf}_l{depth}{'_reverse' if direction == '_bw' else ''}"
    return StateEntry(key, tuple(array.shape), array.dtype.name, owner, leaf, bases, tied_to=tied_to)
