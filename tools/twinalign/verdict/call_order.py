"""Batches that enter models in another order of calls: independent calls of a step have no order."""

from collections.abc import Mapping

import numpy as np

from twinalign.case.moved_values import OF_FLOAT32
from twinalign.files.curve_names import BATCH_RMS, BATCH_SIZE

_SOON = 8
"""Calls of a step, at most, in which one comes later."""


def port_in_order(reference: Mapping[str, np.ndarray], port: Mapping[str, np.ndarray], prefix: str = "") -> dict | None:
    """The port's curves of batches in the reference's order, if each step has the same batches in another order.

    Args:
        reference, port: curves `[calls]` of batches and `[steps]` of the rest, by `prefix` and name.

    Returns:
        The port's two curves of batches; None where the order is the same or the batches are not.
    """
    names = prefix + BATCH_SIZE, prefix + BATCH_RMS
    if any(name not in curves for name in names for curves in (reference, port)):
        return None
    steps = min(
        (len(curve) for name, curve in reference.items() if name.startswith(prefix) and name not in names), default=0
    )
    sizes, values = ([curves[name] for curves in (reference, port)] for name in names)
    if not steps or len({len(curve) for curve in (*sizes, *values)}) > 1 or len(values[0]) % steps:
        return None
    theirs, ours = (curve.reshape(steps, -1) for curve in values)
    places, from_places = (np.argsort(curve, axis=1, kind="stable") for curve in (theirs, ours))
    order = np.empty_like(places)
    np.put_along_axis(order, places, from_places, axis=1)
    if (order == np.arange(order.shape[1])).all():
        return None
    found = {
        name: np.take_along_axis(pair[1].reshape(steps, -1), order, 1).ravel()
        for name, pair in zip(names, (sizes, values), strict=True)
    }
    same = np.array_equal(found[names[0]], sizes[0]) and np.allclose(
        found[names[1]], values[0], rtol=OF_FLOAT32, atol=0.0
    )
    return found if same else None


def part_in_other_order(reference: Mapping[str, np.ndarray], port: Mapping[str, np.ndarray]) -> bool:
    """Whether the first batches that are not the same are the same in another order; curves as for `port_in_order`."""
    theirs, ours = (curves.get(BATCH_RMS, np.zeros(0)) for curves in (reference, port))
    both = min(len(theirs), len(ours))
    apart = np.flatnonzero(~np.isclose(ours[:both], theirs[:both], rtol=OF_FLOAT32, atol=0.0))
    if not len(apart):
        return False
    soon = slice(apart[0], apart[0] + _SOON)
    pairs = (theirs[apart[0]], ours[soon]), (ours[apart[0]], theirs[soon])
    return all(np.isclose(several, one, rtol=OF_FLOAT32, atol=0.0).any() for one, several in pairs)
