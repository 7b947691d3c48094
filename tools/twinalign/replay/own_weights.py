"""Weights that layers of the port have of their own, where the reference uses a weight of another layer once more."""

from collections.abc import Iterator, Mapping
from typing import Any


def in_place_of(site: Any, alone: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Ways to make a call of the reference with a matrix of the port's own, in either layout, for its own parameter.

    `alone` are the port's tensors that are none of the reference's, by their names.
    """
    argument = "weight" if site.name == "linear" else "other"
    name = site.parameter(argument)
    for key, own in alone.items() if name is not None else ():
        for matrix in (own.T, own) if own.dim() == 2 else ():
            if tuple(matrix.shape) == site.shape(argument):
                yield f"`{key}` in place of `{name}`", lambda call, given=matrix: call.run(**{argument: given})
