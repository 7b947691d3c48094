"""Facts about a difference that name its cause: transpose, permutation, shift, factor, offset.

A finding is checked on every element: undoing it leaves at most `_LEFT` of the difference, and values that agree to
`_CLOSE` of the reference's greatest. Nothing here changes a verdict.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

_LARGEST = 1 << 24
_CLOSE = 1e-4
_LEFT = 1e-2
_LONGEST_AXIS = 8192

Finding = dict[str, Any]


def describe_difference(reference: np.ndarray, reproduced: np.ndarray) -> list[Finding]:
    """At most one finding, `{"id", "text", ...}`: the first that explains the difference."""
    if reference.size != reproduced.size or not 2 <= reference.size <= _LARGEST or reference.dtype.kind == "c":
        return []
    with np.errstate(invalid="ignore"):  # of NaNs that signal
        first, second = reference.astype(np.float64), reproduced.astype(np.float64)
    if not (np.isfinite(first).all() and np.isfinite(second).all()) or np.ptp(first) == 0:
        return []
    if first.shape != second.shape:
        return list(itertools.islice(_of_layouts(first, second), 1))
    if (first == second).all():
        return []
    searches = (_of_scale, _of_transposes, _of_axes, _of_order)
    check = _Check(first, second)
    for search in searches:
        for finding in search(check):
            return [finding]
    return []


class _Check:
    """Two float64 arrays of one shape, and whether a candidate for the second explains it."""

    def __init__(self, first: np.ndarray, second: np.ndarray) -> None:
        self.first, self.second = first, second
        self.scale = max(float(np.abs(first).max()), float(np.abs(second).max()))
        self._allowed = min(_CLOSE * self.scale, _LEFT * float(np.abs(first - second).max()))

    def explains(self, candidate: np.ndarray, second: np.ndarray | None = None) -> bool:
        target = self.second if second is None else second
        return candidate.size > 1 and float(np.abs(target - candidate).max()) <= self._allowed


def _of_layouts(first: np.ndarray, second: np.ndarray) -> Iterator[Finding]:
    """The same numbers in another shape: axes exchanged, or only reshaped."""
    scale = float(np.abs(first).max())
    if first.ndim <= 5:
        for axes in itertools.permutations(range(first.ndim)):
            moved = first.transpose(axes)
            if moved.shape == second.shape and np.abs(moved - second).max() <= _CLOSE * scale:
                text = f"it is the reference with its axes in the order {list(axes)}"
                yield {"id": "transpose", "axes": list(axes), "text": text}
    if np.abs(first.reshape(-1) - second.reshape(-1)).max() <= _CLOSE * scale:
        yield {"id": "reshape", "text": f"it is the reference reshaped to {list(second.shape)}"}


def _of_scale(check: _Check) -> Iterator[Finding]:
    first, second = check.first, check.second
    power = float(np.vdot(first, first))
    factor = float(np.vdot(first, second)) / power
    if factor != 0 and check.explains(first * factor):
        yield {"id": "factor", "factor": factor, "text": f"it is the reference times {_named(factor, first.shape)}"}
    offset = float(np.mean(second - first))
    if check.explains(first + offset):
        yield {"id": "offset", "offset": offset, "text": f"it is the reference plus {offset:.6g}"}
    centred = first - first.mean()
    slope = float(np.vdot(centred, second)) / float(np.vdot(centred, centred))
    shift = float(second.mean() - slope * first.mean())
    if first.size > 3 and slope != 0 and check.explains(first * slope + shift):
        text = f"it is the reference times {slope:.6g} plus {shift:.6g}"
        yield {"id": "affine", "factor": slope, "offset": shift, "text": text}


def _named(factor: float, shape: tuple[int, ...]) -> str:
    text = f"{factor:.7g}"
    for count in {*shape, int(np.prod(shape)), 255}:
        if count < 2:
            continue
        for value, name in (
            (1 / count, f"1/{count}"),
            (float(count), f"{count}"),
            (count / (count - 1), f"{count}/{count - 1}"),
            ((count - 1) / count, f"{count - 1}/{count}"),
        ):
            if abs(factor / value - 1) < 1e-6 and name != text:
                return f"{text} = {name}"
    return text


def _of_transposes(check: _Check) -> Iterator[Finding]:
    """Axes of equal extent exchanged, or the numbers laid out with the axes in another order."""
    first, shape = check.first, check.first.shape
    if not 2 <= first.ndim <= 5:
        return
    for axes in itertools.permutations(range(first.ndim)):
        if axes == tuple(range(first.ndim)):
            continue
        moved = first.transpose(axes)
        if moved.shape == shape and check.explains(moved):
            text = f"it is the reference with its axes in the order {list(axes)}"
            yield {"id": "transpose", "axes": list(axes), "text": text}
        elif moved.shape != shape and check.explains(moved.reshape(shape)):
            text = f"it is the reference flattened with its axes in the order {list(axes)}"
            yield {"id": "layout", "axes": list(axes), "text": text}


def _of_axes(check: _Check) -> Iterator[Finding]:
    """Slices along one axis in other positions: reversed, rotated, shifted or permuted."""
    for axis, extent in enumerate(check.first.shape):
        if not 2 <= extent <= _LONGEST_AXIS:
            continue
        if check.explains(np.flip(check.first, axis)):
            yield {"id": "reversal", "axis": axis, "text": f"it is the reference reversed along axis {axis}"}
        yield from _shifts(check, axis, extent)
        order = _matching(check, axis)
        if order is not None and check.explains(np.take(check.first, order, axis)):
            yield {
                "id": "permutation",
                "axis": axis,
                "order": order.tolist(),
                "text": f"it is the reference permuted along axis {axis}: {_runs(order)}",
            }


def _shifts(check: _Check, axis: int, extent: int) -> Iterator[Finding]:
    first, second = np.moveaxis(check.first, axis, 0), np.moveaxis(check.second, axis, 0)
    for step in range(1, min(extent // 2, 16) + 1):
        for sign in (step, -step):
            if check.explains(np.roll(first, sign, 0), second):
                text = f"it is the reference rotated by {sign} along axis {axis}"
                yield {"id": "rotation", "axis": axis, "shift": sign, "text": text}
            elif extent > 2 * step:
                ahead, behind = (first[:-step], second[step:]) if sign > 0 else (first[step:], second[:-step])
                if np.ptp(ahead) > 0 and check.explains(ahead, behind):
                    text = f"it is the reference shifted by {sign} along axis {axis}"
                    yield {"id": "shift", "axis": axis, "shift": sign, "text": text}


def _matching(check: _Check, axis: int) -> np.ndarray | None:
    """For every slice of the second the slice of the first with the nearest sum; None if the order is unchanged."""
    others = tuple(other for other in range(check.first.ndim) if other != axis)
    first, second = check.first.sum(axis=others), check.second.sum(axis=others)
    order = np.empty(len(first), dtype=np.int64)
    order[np.argsort(second, kind="stable")] = np.argsort(first, kind="stable")
    return None if (order == np.arange(len(order))).all() else order


def _runs(order: np.ndarray) -> str:
    """A permutation as blocks: `[64:128, 0:64, 128:192]` says that two thirds have changed places."""
    edges = [0, *(np.flatnonzero(np.diff(order) != 1) + 1).tolist(), len(order)]
    blocks = [(int(order[a]), int(order[b - 1]) + 1) for a, b in itertools.pairwise(edges)]
    shown = ", ".join(f"{a}:{b}" if b - a > 1 else str(a) for a, b in blocks[:12])
    return f"[{shown}{', …' if len(blocks) > 12 else ''}]"


def _of_order(check: _Check) -> Iterator[Finding]:
    """The same numbers, wherever they are."""
    first, second = np.sort(check.first, axis=None), np.sort(check.second, axis=None)
    if check.explains(first, second):
        yield {"id": "order", "text": "it holds the reference's numbers in another order"}
