"""Walking over arrays of any size in pieces that fit in the processor's cache.

The pieces are nodes of the tree by which numpy sums pairwise, so that a sum put together from them is numpy's own sum
to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

CHUNK = 32768
"""Elements of a piece: a few float32 buffers of this length stay in a level 2 cache."""


def in_memory_order(*arrays: np.ndarray) -> tuple[tuple[np.ndarray, ...], tuple[int, ...]]:
    """Flat views of arrays of one shape in the order in which numpy would walk over all of them.

    Returns:
        The flat arrays (views where the layouts allow it, else copies made piece by piece by `take`), and the
        permutation of axes that was applied, for turning flat positions back into indices.
    """
    shape = arrays[0].shape
    order = tuple(range(len(shape)))
    if all(array.flags.c_contiguous for array in arrays):
        return tuple(array.reshape(-1) for array in arrays), order
    # The result of an elementwise operation takes the inputs' common layout (numpy's order "K").
    order = tuple(int(axis) for axis in np.argsort([-abs(stride) for stride in arrays[0].strides], kind="stable"))
    views = tuple(array.transpose(order) for array in arrays)
    return tuple(np.ravel(view) if not view.flags.c_contiguous else view.reshape(-1) for view in views), order


def index_of(position: int, shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """Index in an array of `shape` of a position in its flat view by `in_memory_order`."""
    permuted = np.unravel_index(position, tuple(shape[axis] for axis in order)) if shape else ()
    index = [0] * len(shape)
    for axis, place in zip(order, permuted, strict=True):
        index[axis] = int(place)
    return tuple(index)


def pieces(size: int, chunk: int = CHUNK) -> Iterator[slice]:
    """Slices that cover `range(size)` in order."""
    for start in range(0, size, chunk):
        yield slice(start, min(start + chunk, size))


def sum_pairwise(size: int, leaf: Callable[[int, int], np.floating], chunk: int = CHUNK) -> np.floating:
    """Sum by numpy's tree: `leaf(start, stop)` gives the sum of a piece, nodes are added in the leaves' precision.

    numpy halves a run of n numbers at n/2 rounded down to a multiple of 8, down to runs of 128
    (numpy/_core/src/umath/loops_utils.h.src, pairwise_sum); a node's sum does not depend on where it lies.
    """

    def visit(start: int, count: int) -> np.floating:
        if count <= chunk:
            return leaf(start, start + count)
        half = count // 2
        half -= half % 8
        return visit(start, half) + visit(start + half, count - half)

    return visit(0, size)
