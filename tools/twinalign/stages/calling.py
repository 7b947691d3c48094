"""Calling a model with named inputs, and giving names to whatever it returns."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np


def call_model(model: Any, inputs: Mapping[str, Any]) -> Any:
    """Pass the inputs by keyword where `forward` has parameters of all their names, else by order."""
    parameters = inspect.signature(model.forward).parameters
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    if takes_any or all(name in parameters for name in inputs):
        return model(**inputs)
    return model(*inputs.values())


def named_values(value: Any, is_tensor: Callable[[Any], bool], prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield `(name, tensor, array or number)` for every leaf of nested tuples, lists, dictionaries and dataclasses.

    Leaves are named by their path, joined with dots; `prefix` is the name of a lone leaf. None is left out.

    Raises:
        TypeError: a leaf that holds no numbers.
    """
    if value is None:
        return
    if is_tensor(value) or isinstance(value, (np.ndarray, np.generic, bool, int, float, complex)):
        yield prefix, value
        return
    if isinstance(value, Mapping):
        items = [(str(key), item) for key, item in value.items()]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    elif isinstance(value, (tuple, list)):
        fields = getattr(value, "_fields", None)
        items = [(fields[i] if fields else str(i), item) for i, item in enumerate(value)]
    else:
        raise TypeError(
            f"{prefix}: {type(value).__name__} is no tensor, array, number, tuple, list or dictionary of them"
        )
    for key, item in items:
        yield from named_values(item, is_tensor, f"{prefix}.{key}" if prefix else key)
