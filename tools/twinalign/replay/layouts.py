"""How the port holds a tensor of the reference in another form, such as `[B, H, W, C]` for `[B, H * W, C]`."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np

_MOST_AXES = 6
_SAMPLES = 4096
_CLOSE = 0.5
"""The right form is at most this far from the port's values, relative to their size, and from other forms' distance:
values in a wrong order are about sqrt(2) away."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """The reference's tensor is split into the axes `refined`, which are permuted by `axes` and joined to `port`."""

    reference: tuple[int, ...]
    refined: tuple[int, ...]
    axes: tuple[int, ...]
    port: tuple[int, ...]

    def to_port(self, array: np.ndarray) -> np.ndarray:
        """The values of an array of the reference's shape in the port's form."""
        return np.ascontiguousarray(array.reshape(self.refined).transpose(self.axes).reshape(self.port))

    def to_reference(self, array: np.ndarray) -> np.ndarray:
        """The values of an array of the port's shape in the reference's form."""
        permuted = array.reshape([self.refined[axis] for axis in self.axes])
        return np.ascontiguousarray(permuted.transpose(np.argsort(self.axes)).reshape(self.reference))


class Layouts:
    """The forms in which a port holds tensors, as its values show them.

    Where values differ too much to show one, as behind a shift that the reference has not, the form is the one in which
    another tensor of these shapes was held.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[tuple[int, ...], tuple[int, ...]], Layout] = {}

    def of(self, port: np.ndarray, reference: np.ndarray) -> Layout | None:
        """The form of one tensor; None where neither its values nor another tensor show it."""
        found, shapes = layout_of(port, reference), (reference.shape, port.shape)
        if found is None:
            return self._seen.get(shapes)
        self._seen[shapes] = found
        return found


def layout_of(port: np.ndarray, reference: np.ndarray) -> Layout | None:
    """The one form, by a reshape and a permutation, in which the port has the reference's values.

    None where the shapes are equal, where no form brings the values near, and where several do equally.
    """
    if port.shape == reference.shape or port.size != reference.size or port.dtype.kind != "f" or not port.size:
        return None
    at = np.unique(np.linspace(0, port.size - 1, _SAMPLES).astype(np.int64))
    ours = port.reshape(-1)[at]
    size = float(np.sqrt(np.mean(ours**2)))
    if not size or not np.isfinite(size):
        return None
    found: dict[bytes, tuple[float, Layout]] = {}
    for layout in _layouts(reference.shape, port.shape):
        theirs = reference.reshape(layout.refined).transpose(layout.axes).flat[at]
        apart = float(np.sqrt(np.mean((ours - theirs) ** 2))) / size
        found.setdefault(theirs.tobytes(), (apart, layout))
    nearest = sorted(found.values(), key=lambda item: item[0])
    if nearest[0][0] > _CLOSE or (len(nearest) > 1 and nearest[0][0] > _CLOSE * nearest[1][0]):
        return None
    return nearest[0][1]


def _layouts(reference: tuple[int, ...], port: tuple[int, ...]) -> Iterator[Layout]:
    """A reshape, then permutations before and behind it."""
    for shape in dict.fromkeys((reference, port)):
        if len(shape) > _MOST_AXES:
            continue
        for axes in itertools.permutations(range(len(shape))):
            refined = shape if shape == reference else tuple(shape[axes.index(place)] for place in range(len(shape)))
            yield Layout(reference, refined, axes, port)
