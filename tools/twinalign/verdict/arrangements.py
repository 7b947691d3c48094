"""In what other arrangement a table has the numbers of another."""

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from twinalign.case.moved_values import rounding_of_table

_MOST_AXES = 4
_MOST_SHIFTS = 64


def rearranged(reference: np.ndarray, port: np.ndarray, shape: Sequence[int]) -> str | None:
    """How the port has the reference's numbers, in words; None if it has others.

    Args:
        reference, port: all elements of both, in one row.
        shape: of the reference's table.
    """
    if reference.size != math.prod(shape) or reference.size != port.size:
        return None
    allowed = rounding_of_table(reference, shape)
    if (np.abs(np.sort(reference) - np.sort(port)) > allowed).any():
        return None
    theirs = reference.reshape(shape)
    found = (text for text, other in _others(theirs) if (np.abs(other.ravel() - port) <= allowed).all())
    return f"the same numbers in another order: {next(found, 'by no rule that is known')}"


def _others(table: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """The table in other arrangements, as the port would have it."""
    for axis, length in enumerate(table.shape):
        where = f" along axis {axis}" if table.ndim > 1 else ""
        moved = np.moveaxis(table, axis, -1)
        for parts in (parts for parts in range(2, length) if length % parts == 0):
            runs = moved.reshape(*moved.shape[:-1], parts, length // parts)
            other = np.moveaxis(runs.swapaxes(-1, -2).reshape(moved.shape), -1, axis)
            yield _of_runs(runs, where), other
        shifts = (sign * shift for shift in range(1, min(length, _MOST_SHIFTS)) for sign in (1, -1))
        yield from ((f"moved by {shift}{where}", np.roll(table, shift, axis)) for shift in shifts if length > 2)
        yield f"reversed{where}", np.flip(table, axis)
    for axes in itertools.permutations(range(table.ndim)) if 1 < table.ndim <= _MOST_AXES else ():
        yield f"with its axes in the order {list(axes)}", table.transpose(axes)


def _of_runs(runs: np.ndarray, where: str) -> str:
    """Words for a table whose runs, as [..., number, length], are gone through across."""
    parts, length = runs.shape[-2:]
    if (runs == runs[..., :1]).all():
        return f"all {parts} values {length} times one behind the other (tile), not each {length} times (repeat){where}"
    if (runs == runs[..., :1, :]).all():
        return f"each of {length} values {parts} times (repeat), not all one behind the other (tile){where}"
    return f"as {length} rows of {parts}, not {parts} rows of {length} (a transposition){where}"
