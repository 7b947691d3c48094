"""How the port holds a tensor of the reference in another form, such as `[B, H, W, C]` for `[B, H * W, C]`."""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

_MOST_AXES = 6
_SAMPLES = 4096
_CLOSE = 0.5
"""The right form is at most this far from the port's values, relative to their size, and from other forms' distance:
values in a wrong order are about sqrt(2) away."""

HIDES, _USUAL = 5e3, 1e4
"""What is less than minus the first is hidden by a mask, which is often minus the second."""


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

    gradient_to_port, gradient_to_reference = to_port, to_reference

    @property
    def keeps_axes(self) -> bool:
        """Whether axes are only permuted, split and joined, so that none is spread over others."""
        permuted = [self.refined[axis] for axis in self.axes]
        joined = zip((self.port, self.reference), (permuted, self.refined), strict=True)
        return all(set(_ends(whole)) <= set(_ends(parts)) for whole, parts in joined)

    def tensor_to_reference(self, tensor: Any) -> Any:
        """`to_reference` of a tensor of torch, whose graph goes on."""
        permuted = tensor.reshape([self.refined[axis] for axis in self.axes])
        return permuted.permute(np.argsort(self.axes).tolist()).reshape(self.reference)

    def tensor_to_port(self, tensor: Any) -> Any:
        """`to_port` of a tensor of torch, whose graph goes on."""
        return tensor.reshape(self.refined).permute(self.axes).reshape(self.port)


@dataclasses.dataclass(frozen=True)
class Repeated:
    """One side repeats, along some axes, what the other has once: positions of each sample, or of all.

    Values of the repeated axes are the same. Which part of a gradient reaches which of them does not matter, so each
    gets an equal one; their sum is what the other side has.
    """

    reference: tuple[int, ...]
    port: tuple[int, ...]

    def to_port(self, array: np.ndarray) -> np.ndarray:
        """The values of an array of the reference's shape in the port's form."""
        return _in_shape(array, self.port)

    def to_reference(self, array: np.ndarray) -> np.ndarray:
        """The values of an array of the port's shape in the reference's form."""
        return _in_shape(array, self.reference)

    def gradient_to_port(self, array: np.ndarray) -> np.ndarray:
        """A gradient of the reference's shape in the port's form."""
        return _shared_out(array, self.port)

    def gradient_to_reference(self, array: np.ndarray) -> np.ndarray:
        """A gradient of the port's shape in the reference's form."""
        return _shared_out(array, self.reference)


@dataclasses.dataclass(frozen=True)
class RepeatedAndJoined:
    """One side repeats what the other has once, and joins the axis with others: a mask for each head of each sample.

    Attributes:
        once, whole: shapes of the side that has it once, and of the other one.
        apart: the shape of the latter before axes are joined.
        axis: along which it repeats, in `apart`.
        port_repeats: whether the port is the side that repeats.
    """

    once: tuple[int, ...]
    apart: tuple[int, ...]
    axis: int
    whole: tuple[int, ...]
    port_repeats: bool

    def _spread(self, array: np.ndarray) -> np.ndarray:
        single = (*self.apart[: self.axis], 1, *self.apart[self.axis + 1 :])
        return np.ascontiguousarray(np.broadcast_to(array.reshape(single), self.apart).reshape(self.whole))

    def _first(self, array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(array.reshape(self.apart).take(0, self.axis).reshape(self.once))

    def _sum(self, array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(array.reshape(self.apart).sum(self.axis).reshape(self.once))

    def to_port(self, array: np.ndarray) -> np.ndarray:
        """The values of an array of the reference's shape in the port's form."""
        return self._spread(array) if self.port_repeats else self._first(array)

    def to_reference(self, array: np.ndarray) -> np.ndarray:
        """The values of an array of the port's shape in the reference's form."""
        return self._first(array) if self.port_repeats else self._spread(array)

    def gradient_to_port(self, array: np.ndarray) -> np.ndarray:
        """A gradient of the reference's shape in the port's form."""
        return self._spread(array) / self.apart[self.axis] if self.port_repeats else self._sum(array)

    def gradient_to_reference(self, array: np.ndarray) -> np.ndarray:
        """A gradient of the port's shape in the reference's form."""
        return self._sum(array) if self.port_repeats else self._spread(array) / self.apart[self.axis]


@dataclasses.dataclass(frozen=True, eq=False)
class Masked:
    """The port has added a mask to what the reference keeps without: a bias that its next user finds masked already.

    A mask of -1e4 leaves the values that it hides to be told; a larger one leaves nothing of them.
    """

    port: np.ndarray
    """The port's tensor."""
    hidden: np.ndarray
    """Where the mask hides, in the port's form."""
    reference: np.ndarray
    """The reference's tensor, in the port's form."""
    inner: Repeated | None
    """The form that it has but for the mask."""

    def to_port(self, array: np.ndarray) -> np.ndarray:
        """The values of an array of the reference's shape in the port's form."""
        return np.where(self.hidden, self.port, array if self.inner is None else self.inner.to_port(array))

    def to_reference(self, array: np.ndarray) -> np.ndarray:
        """The values of an array of the port's shape in the reference's form."""
        there = array[self.hidden]
        left = there + _USUAL if (np.abs(there + _USUAL) < _USUAL / 10).all() else self.reference[self.hidden]
        seen = np.where(self.hidden, 0.0, array)
        seen[self.hidden] = left
        return seen if self.inner is None else self.inner.to_reference(seen)

    def gradient_to_port(self, array: np.ndarray) -> np.ndarray:
        """A gradient of the reference's shape in the port's form."""
        return array if self.inner is None else self.inner.gradient_to_port(array)

    def gradient_to_reference(self, array: np.ndarray) -> np.ndarray:
        """A gradient of the port's shape in the reference's form."""
        return array if self.inner is None else self.inner.gradient_to_reference(array)


PlainForm = Layout | Repeated | RepeatedAndJoined | Masked


def masked(port: np.ndarray, reference: np.ndarray) -> Masked | None:
    """The form of a tensor to which the port has added a mask; None where it hides nothing, or the reference's does."""
    inner = None
    if port.shape != reference.shape:
        axes = (1,) * (port.ndim - reference.ndim) + reference.shape
        if len(axes) != port.ndim or any(one not in (1, many) for one, many in zip(axes, port.shape, strict=True)):
            return None
        inner = Repeated(reference.shape, port.shape)
    theirs = reference if inner is None else inner.to_port(reference)
    hidden = port < -HIDES
    if port.dtype.kind != "f" or not hidden.any() or hidden.all() or np.abs(reference).max() > HIDES / 10:
        return None
    return Masked(port, hidden, theirs, inner)


def repeated(port: np.ndarray, reference: np.ndarray) -> Repeated | None:
    """The form of a tensor that one side has once and the other several times, all of them the same; else None."""
    small, large = sorted((port, reference), key=lambda array: array.size)
    axes = (1,) * (large.ndim - small.ndim) + small.shape
    if small.size == large.size or len(axes) != large.ndim or not small.size:
        return None
    if any(one not in (1, many) for one, many in zip(axes, large.shape, strict=True)):
        return None
    same = np.array_equal(large, np.broadcast_to(_in_shape(large, axes), large.shape))
    return Repeated(reference.shape, port.shape) if same else None


def repeated_and_joined(port: np.ndarray, reference: np.ndarray) -> RepeatedAndJoined | None:
    """The form of a tensor that one side repeats along an axis that it joins with others; None where it does not."""
    once, whole = sorted((port, reference), key=lambda array: array.size)
    if not once.size or whole.size % once.size or once.size == whole.size or once.ndim > _MOST_AXES:
        return None
    times = whole.size // once.size
    ones = [axis for axis, length in enumerate(once.shape) if length == 1]
    shapes = [(axis, (*once.shape[:axis], times, *once.shape[axis + 1 :])) for axis in ones]
    shapes += [(axis, (*once.shape[:axis], times, *once.shape[axis:])) for axis in range(once.ndim)]
    for axis, apart in shapes:
        values = whole.reshape(apart)
        if set(_ends(whole.shape)) <= set(_ends(apart)) and np.array_equal(
            values, np.broadcast_to(values.take([0], axis), apart)
        ):
            return RepeatedAndJoined(once.shape, apart, axis, whole.shape, whole is port)
    return None


def are_repeated(port: np.ndarray, reference: np.ndarray) -> bool:
    """Whether one side has several times what the other has once."""
    return repeated(port, reference) is not None or repeated_and_joined(port, reference) is not None


def _in_shape(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The array repeated to a larger shape, or its first values in a smaller one."""
    if array.size < np.prod(shape):
        return np.ascontiguousarray(np.broadcast_to(array, shape))
    axes = (1,) * (array.ndim - len(shape)) + shape
    return np.ascontiguousarray(array[tuple(slice(0, length) for length in axes)].reshape(shape))


def _shared_out(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The array in equal parts in a larger shape, or summed to a smaller one."""
    if array.size < np.prod(shape):
        return _in_shape(array, shape) * (array.size / np.prod(shape))
    axes = (1,) * (array.ndim - len(shape)) + shape
    summed = tuple(at for at, (many, one) in enumerate(zip(array.shape, axes, strict=True)) if many != one)
    return np.ascontiguousarray(array.sum(axis=summed, keepdims=True).reshape(shape))


class Layouts:
    """The forms in which a port holds tensors, as its values show them.

    Where values differ too much to show one, as behind a shift that the reference has not, the form is the one in which
    another tensor of these shapes was held. Where the shapes differ in axes of length 1 alone, as `[B, C]` and
    `[B, C, 1, 1]` behind a pool, the values are in the same order then. Else it is the one way to join axes that are
    neighbours, as height and width of a map, or to exchange axes, as time and batch, if there is only one.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[tuple[int, ...], tuple[int, ...]], Layout] = {}

    def of(self, port: np.ndarray, reference: np.ndarray) -> PlainForm | None:
        """The form of one tensor; None where neither its values nor another tensor show it."""
        if port.size != reference.size:
            return repeated(port, reference) or repeated_and_joined(port, reference)
        found, shapes = layout_of(port, reference), (reference.shape, port.shape)
        if found is None or not found.keeps_axes:
            # A reshape across axes is no form that layers could work on: values are scattered.
            by_shapes = self._seen.get(shapes) or without_axes_of_one(*shapes) or _joined(*shapes)
            return by_shapes or _permuted(*shapes) or found
        self._seen[shapes] = found
        return found


def without_axes_of_one(reference: tuple[int, ...], port: tuple[int, ...]) -> Layout | None:
    """The form that keeps the order of the values, if both shapes are the same but for axes of length 1."""
    ours, theirs = ([length for length in shape if length != 1] for shape in (port, reference))
    return Layout(reference, reference, tuple(range(len(reference))), port) if ours == theirs else None


def _joined(reference: tuple[int, ...], port: tuple[int, ...]) -> Layout | None:
    """The one form in which the side with fewer axes has joined neighbours of the other's, in their order."""
    large, small = (reference, port) if len(reference) > len(port) else (port, reference)
    found = []
    for axes in itertools.permutations(range(len(large))) if len(small) < len(large) <= _MOST_AXES else ():
        ends = [*itertools.accumulate((large[axis] for axis in axes), operator.mul)]
        joins = [one for one, end in zip(itertools.pairwise(axes), ends, strict=False) if end not in _ends(small)]
        if set(_ends(small)) <= set(ends) and all(after == before + 1 for before, after in joins):
            found.append(axes)
    if len(found) != 1:
        return None
    axes = found[0]
    if large == reference:
        return Layout(reference, reference, axes, port)
    return Layout(reference, tuple(port[axis] for axis in axes), tuple(np.argsort(axes).tolist()), port)


def _permuted(reference: tuple[int, ...], port: tuple[int, ...]) -> Layout | None:
    """The one order of the reference's axes that gives the port's shape; None where two axes are equally long."""
    if sorted(reference) != sorted(port) or len(set(reference)) < len(reference):
        return None
    return Layout(reference, reference, tuple(reference.index(length) for length in port), port)


def _ends(shape: Sequence[int]) -> list[int]:
    return list(itertools.accumulate(shape, operator.mul))


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


def layout_by_shape(port: np.ndarray, reference: np.ndarray) -> Layout | None:
    """The form by the values of the arrays, else the one that their shapes allow; None for arrays of other sizes."""
    found = Layouts().of(port, reference) if port.size == reference.size else None
    return found if isinstance(found, Layout) else None


def _layouts(reference: tuple[int, ...], port: tuple[int, ...]) -> Iterator[Layout]:
    """A reshape, then permutations before and behind it."""
    for shape in dict.fromkeys((reference, port)):
        if len(shape) > _MOST_AXES:
            continue
        for axes in itertools.permutations(range(len(shape))):
            refined = shape if shape == reference else tuple(shape[axes.index(place)] for place in range(len(shape)))
            yield Layout(reference, refined, axes, port)
