"""The tensors that a model is called with, by the names of its parameters."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.backends.protocol import Backend
from twinalign.case.calling import named_values
from twinalign.errors import InputError


def named_arguments(
    backend: Backend, model: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Name and tensor or array of everything in a call's arguments that holds numbers."""
    for name, value in _bound(model, arguments, keywords).items():
        for path, leaf in named_values(value, backend.is_tensor, name, {}):
            if backend.is_tensor(leaf) or isinstance(leaf, np.ndarray):
                yield path, leaf


def _bound(model: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Values by parameter in the order of the call, which is that of `replaced_arguments`."""
    try:
        bound = inspect.signature(model.forward).bind(*arguments, **keywords)
    except (TypeError, ValueError):
        return {**{str(place): value for place, value in enumerate(arguments)}, **keywords}
    by_position = list(bound.signature.bind_partial(*arguments).arguments)
    return {**{name: bound.arguments[name] for name in by_position}, **keywords}


def replaced_arguments(
    backend: Backend,
    own: Sequence[str],
    arguments: tuple[Any, ...],
    keywords: Mapping[str, Any],
    given: Mapping[str, Any],
    folder: Path,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A call's arguments with what is `given` in place of its tensors: by name, or by order where no name fits.

    Args:
        own: the names of the call's tensors, as `named_arguments` has them.
        given: arrays, which take the dtypes of what they replace, or tensors, which are taken as they are.
        folder: of the recording that they are from, for messages.

    Raises:
        InputError: the call has tensors of other names, and another number of them.
    """
    named = set(own) <= set(given)  # what one side alone is given, such as a count of tokens, has no place here
    if not named and len(own) != len(given):
        raise InputError(
            f"{folder}: the batch has {', '.join(given)}; this model is given {', '.join(own) or 'no tensor'}"
        )
    by_name = dict(given) if named else dict(zip(own, given.values(), strict=True))
    names = iter(own)

    def replace(value: Any) -> Any:
        if backend.is_tensor(value):
            new = by_name[next(names)]
            return new if backend.is_tensor(new) else backend.to_tensor_like(new, value)
        if isinstance(value, np.ndarray):
            new = by_name[next(names)]
            return backend.to_array(new) if backend.is_tensor(new) else new
        if isinstance(value, dict):
            return {key: replace(item) for key, item in value.items()}
        if isinstance(value, (tuple, list)):
            return type(value)(replace(item) for item in value)
        return value

    return tuple(replace(value) for value in arguments), {key: replace(value) for key, value in keywords.items()}
