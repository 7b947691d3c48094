"""Arrays of any size in pieces that fit into the processor's cache.

The pieces are nodes of the tree by which numpy sums pairwise, so sums over them are bit-equal to numpy's.
"""

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from twinalign.files.mapped_memory import STRETCH, release

T = TypeVar("T")

CHUNK = 32768
"""Elements of a piece: a few float32 buffers of this length stay in a level 2 cache."""


def in_memory_order(*arrays: np.ndarray) -> tuple[tuple[np.ndarray, ...], tuple[int, ...]]:
    """Flat arrays, of one shape before, in the order in which numpy iterates over all of them; copies only if needed.

    Also returns the permutation of axes that was applied, for turning flat positions back into indices.
    """
    shape = arrays[0].shape
    order = tuple(range(len(shape)))
    if all(array.flags.c_contiguous for array in arrays):
        return tuple(array.reshape(-1) for array in arrays), order
    # The result of an elementwise operation takes the inputs' common layout (numpy's order "K").
    order = tuple(int(axis) for axis in np.argsort([-abs(stride) for stride in arrays[0].strides], kind="stable"))
    views = tuple(array.transpose(order) for array in arrays)
    return tuple(np.ravel(view) if not view.flags.c_contiguous else view.reshape(-1) for view in views), order


def index_of(position: int, shape: tuple[int, ...], order: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """Index in an array of `shape` of a flat position in `in_memory_order`; C order by default."""
    if order is None:
        order = tuple(range(len(shape)))
    index = [0] * len(shape)
    for axis in reversed(order):  # numpy.unravel_index takes longer than a pass over a small array
        position, index[axis] = divmod(position, shape[axis])
    return tuple(index)


def pieces(size: int, chunk: int = CHUNK, arrays: Sequence[np.ndarray] = ()) -> Iterator[slice]:
    """Slices that cover `range(size)` in order; the memory of flat `arrays` of mapped files is released behind them."""
    behind = _Behind(arrays)
    for start in range(0, size, chunk):
        yield slice(start, min(start + chunk, size))
        behind.read_to(start + chunk)


class _Behind:
    """Releases what was read of flat arrays."""

    def __init__(self, arrays: Sequence[np.ndarray]) -> None:
        self._arrays, self._start = arrays, 0
        self._stretch = STRETCH // max((array.itemsize for array in arrays), default=1)

    def read_to(self, stop: int) -> None:
        if stop - self._start >= self._stretch:
            release(*(array[self._start : stop] for array in self._arrays))
            self._start = stop


def sum_pairwise(size: int, leaf: Callable[[int, int], np.floating], arrays: Sequence[np.ndarray] = ()) -> np.floating:
    """Sum by numpy's tree: `leaf(start, stop)` gives the sum of a piece, nodes are added in the leaves' precision.

    The memory of `arrays` is released behind the leaves, as by `pieces`.

    numpy halves a run of n numbers at n/2 rounded down to a multiple of 8, down to runs of 128
    (numpy/_core/src/umath/loops_utils.h.src, pairwise_sum); a node's sum does not depend on where it lies.
    """
    behind = _Behind(arrays)

    def visit(start: int, count: int) -> np.floating:
        if count <= CHUNK:
            total = leaf(start, start + count)
            behind.read_to(start + count)
            return total
        half = count // 2
        half -= half % 8
        return visit(start, half) + visit(start + half, count - half)

    return visit(0, size)


def rows_of(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Runs of items that have `size` elements each, at most `CHUNK` elements in all, but at least one item."""
    count = max(1, CHUNK // size)
    for start in range(0, len(items), count):
        yield items[start : start + count]


class _Workspace(threading.local):
    """Named buffers of a thread: getting fresh memory takes longer than computing in it."""

    def __init__(self) -> None:
        self._buffers: dict[str, np.ndarray] = {}

    def take(self, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """An array of at most `CHUNK` elements with arbitrary content; valid until the name is taken again."""
        buffer = self._buffers.get(name)
        if buffer is None:
            buffer = self._buffers[name] = np.empty(CHUNK * 8, np.uint8)
        return buffer[: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)


WORKSPACE = _Workspace()


def stacked(arrays: Sequence[np.ndarray], size: int, name: str) -> np.ndarray:
    """C-contiguous arrays of one size and dtype as rows of `[rows, size]`; a copy goes into the workspace."""
    if len(arrays) == 1:
        return arrays[0].reshape(1, size)
    found = WORKSPACE.take(name, arrays[0].dtype, (len(arrays), size))
    np.concatenate(arrays, axis=None, out=found.reshape(-1))
    return found


def as_type(array: np.ndarray, dtype: np.dtype, name: str) -> np.ndarray:
    """The array in another type; a copy goes into the workspace."""
    if array.dtype == dtype:
        return array
    found = WORKSPACE.take(name, dtype, array.shape)
    np.copyto(found, array, casting="unsafe")
    return found


_SAFE_SQUARES = (1e-26, 1e36)
"""Sums of squares in float32 outside of this may have underflown or overflown and are taken again in float64."""
_SHORT = np.dtype(np.int32)
_UNSHARED = 8192
"""OpenBLAS shares longer float64 products among threads, which on busy processors takes milliseconds."""


def dots_of_rows(first: np.ndarray, second: np.ndarray) -> list[float]:
    """Inner product of each pair of rows, bit-equal to `numpy.dot` on runs of 8192; infinite if not finite.

    Both are `[rows, elements]`, float32 or float64.
    """
    if first.dtype == np.float32:
        found = np.matmul(first[:, None, :], second[:, :, None]).reshape(-1).tolist()
        for row, value in enumerate(found):
            if not _SAFE_SQUARES[0] < abs(value) < _SAFE_SQUARES[1]:
                found[row] = dots_of_rows(first[None, row].astype(np.float64), second[None, row].astype(np.float64))[0]
        return found
    total = np.zeros(len(first))
    for at in range(0, first.shape[1], _UNSHARED):
        one, other = first[:, at : at + _UNSHARED], second[:, at : at + _UNSHARED]
        # A stack of products of a row and a column: each is one call of the dot product that `numpy.dot` makes.
        total += np.matmul(one[:, None, :], other[:, :, None]).reshape(-1)
    return [value if math.isfinite(value) else math.inf for value in total.tolist()]


def sums_of_rows(integers: np.ndarray, greatest: int) -> list[float]:
    """Sum of each row of integers in float64, `[rows, elements]`, as `numpy.sum` adds up its buffers of 8192.

    `greatest` is the greatest of them, none of which is negative: sums that fit are taken in 32 bits, where they are
    exact, and four times as fast.
    """
    if greatest * integers.shape[1] < 1 << 31:
        return [float(total) for total in np.add.reduce(integers, axis=1, dtype=_SHORT).tolist()]
    total = np.zeros(len(integers))
    numbers = as_type(integers, np.dtype(np.float64), "sums")
    for at in range(0, integers.shape[1], _UNSHARED):
        total += np.add.reduce(numbers[:, at : at + _UNSHARED], axis=1)
    return total.tolist()
