"""Call a model with named inputs, and name the values that it returns."""

import copy
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np


def call_model(model: Any, inputs: Mapping[str, Any]) -> Any:
    """Pass the inputs by keyword if `forward` has parameters of all their names, if not by order.

    Of more inputs than `forward` has parameters (labels for the loss), those of its names are passed, or the first.
    """
    parameters = inspect.signature(model.forward).parameters
    kinds = [parameter.kind for parameter in parameters.values()]
    named = {name: value for name, value in inputs.items() if name in parameters}
    if inspect.Parameter.VAR_KEYWORD in kinds or len(named) == len(inputs):
        return model(**inputs)
    if inspect.Parameter.VAR_POSITIONAL in kinds or len(inputs) <= len(parameters):
        return model(*inputs.values())
    return model(**named) if named else model(*list(inputs.values())[: len(parameters)])


def named_values(
    value: Any, is_tensor: Callable[[Any], bool], prefix: str, left_out: dict[str, str] | None = None
) -> Iterator[tuple[str, Any]]:
    """Yield `(name, tensor, array or number)` for every leaf of nested tuples, lists, dictionaries and dataclasses.

    Leaves are named by their path, joined with dots; a single leaf is named `prefix`. None is left out. A leaf that
    holds no numbers is put into `left_out`, its class by its name.

    Raises:
        TypeError: a leaf that holds no numbers, if there is no `left_out`.
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
    elif left_out is not None:
        left_out[prefix] = type(value).__name__
        return
    else:
        raise TypeError(
            f"{prefix}: {type(value).__name__} is not a tensor, array, number, tuple, list or dictionary of them"
        )
    for key, item in items:
        yield from named_values(item, is_tensor, f"{prefix}.{key}" if prefix else key, left_out)


def on_cpu(value: Any) -> Any:
    """The same tensors on the CPU, where `.numpy()` works in both frameworks, in the same tuples, lists, dictionaries
    and dataclasses."""
    if hasattr(value, "cpu"):
        return value.cpu()
    if isinstance(value, Mapping):
        moved: Any = copy.copy(value)
        for key, item in value.items():
            moved[key] = on_cpu(item)
        return moved
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(on_cpu, value))
    if isinstance(value, (tuple, list)):
        return type(value)(map(on_cpu, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(
            value, **{field.name: on_cpu(getattr(value, field.name)) for field in dataclasses.fields(value)}
        )
    return value
