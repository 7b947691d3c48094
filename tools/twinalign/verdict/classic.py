"""The verdict of reprod_log 1.0.1, to the digit and with its quirks, because reviewers ask for it.

Read from reprod_log/compare.py (`check_data`, `compute_diff`) and utils.py (`check_print_diff`): mean absolute
difference in the arrays' own precision against one threshold. It passes NaN (no comparison with NaN is true), wraps
unsigned integers, transposes a first array whose reversed shape fits, and broadcasts; so does this, and says so.
"""

import datetime
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from twinalign.verdict.cache_pieces import CHUNK, WORKSPACE, in_memory_order, pieces, sum_pairwise
from twinalign.verdict.results import Classic

THRESHOLD = 1e-6
_WHOLE = 1 << 20
_BUFFER = 8192  # numpy.getbufsize()
_LARGEST_BROADCAST = 1 << 26


def log_lines(classic: Classic) -> list[str]:
    """Lines as `ReprodDiffHelper.report` of reprod_log 1.0.1 writes them to `*_diff.log`."""
    stamp = datetime.datetime.now().strftime("%Y/%m/%d %H:%M:%S")
    return [f"[{stamp}] root INFO: {line}" for line in classic.lines]


def classic_verdict(
    reference: Mapping[str, np.ndarray],
    reproduced: Mapping[str, np.ndarray],
    threshold: float = THRESHOLD,
    known: Mapping[str, Any] = MappingProxyType({}),
) -> Classic:
    """What `ReprodDiffHelper.compare_info(reference, reproduced)` and `.report(diff_threshold=threshold)` would say.

    Means of differences in `known`, numpy scalars by name, are not computed again.
    """
    for name in (*reference, *reproduced):
        if name not in reference or name not in reproduced:
            side = "data2" if name in reference else "data1"
            error = f"AssertionError: {name!r} not found in {side}"
            return Classic(False, threshold, [error, "diff check failed"], error)
    lines: list[str] = []
    passed, quirks = True, []
    for name, first in reference.items():
        mean = known.get(name)
        if mean is None:
            second = reproduced[name]
            if first.shape != second.shape:
                quirks.append(f"{name}: reprod_log transposes or broadcasts {first.shape} against {second.shape}")
            try:
                mean = classic_mean(first, second)
            except (ValueError, TypeError) as exception:
                error = f"{type(exception).__name__}: {name}: {exception}"
                return Classic(False, threshold, [*lines, error, "diff check failed"], error, quirks)
        if mean != mean:
            quirks.append(f"{name}: the mean is NaN, which reprod_log passes")
        good = not mean > threshold
        lines += [f"{name}: ", f"\tmean diff: check passed: {good}, value: {mean}"]
        passed = passed and good
    lines.append("diff check passed" if passed else "diff check failed")
    return Classic(passed, threshold, lines, None, quirks)


def classic_mean(first: np.ndarray, second: np.ndarray) -> Any:
    """`np.abs(first - second).mean()`, a bit-equal numpy scalar, without arrays of the size of the inputs.

    Raises:
        ValueError, TypeError: where reprod_log raises them (shapes that do not broadcast, booleans, empty arrays).
    """
    if first.shape != second.shape:
        if first.T.shape == second.shape:
            first = first.T
        elif np.prod(np.broadcast_shapes(first.shape, second.shape), dtype=float) > _LARGEST_BROADCAST:
            raise ValueError(f"broadcasting {first.shape} and {second.shape} takes more memory than is sensible")
    if 0 in (first.size, second.size):
        raise ValueError("zero-size array to reduction operation maximum which has no identity")
    with np.errstate(all="ignore"):
        same = first.dtype == second.dtype and first.shape == second.shape and first.size > _WHOLE
        if same and first.dtype in (np.float32, np.float64, np.complex64, np.complex128):
            return _in_pieces(first, second)
        if same and (first.dtype.kind in "iu" or first.dtype == np.float16):
            return _in_buffers(first, second)
        return np.abs(first - second).mean()


def classic_means(first: np.ndarray, second: np.ndarray) -> list[Any]:
    """`classic_mean` of each pair of rows, `[rows, elements]`, where both are float32 or both float64; else None.

    Errors of floating point must be ignored by the caller.
    """
    if first.dtype != second.dtype or first.dtype not in (np.float32, np.float64):
        return [None] * len(first)
    difference = WORKSPACE.take("difference", first.dtype, first.shape)
    np.abs(np.subtract(first, second, out=difference), out=difference)
    return [mean_of(total, first.shape[1]) for total in np.add.reduce(difference, axis=1)]


def _in_pieces(first: np.ndarray, second: np.ndarray) -> np.floating:
    (left, right), _ = in_memory_order(first, second)
    buffer = np.empty(CHUNK, left.dtype)
    magnitude = np.empty(CHUNK, left.real.dtype)

    def leaf(start: int, stop: int) -> np.floating:
        difference = np.subtract(left[start:stop], right[start:stop], out=buffer[: stop - start])
        return np.add.reduce(np.abs(difference, out=magnitude[: stop - start]))

    return mean_of(sum_pairwise(left.size, leaf, arrays=(left, right)), left.size)


def _in_buffers(first: np.ndarray, second: np.ndarray) -> np.floating:
    # numpy's mean converts integers to float64 and float16 to float32, buffer by buffer, and adds up the buffers' sums.
    (left, right), _ = in_memory_order(first, second)
    total = np.float32(0) if left.dtype == np.float16 else np.float64(0)
    for piece in pieces(left.size, 8 * _BUFFER, (left, right)):
        total = np.add.reduce(np.abs(left[piece] - right[piece]), dtype=total.dtype, initial=total)
    mean = mean_of(total, left.size)
    return mean.astype(left.dtype) if left.dtype == np.float16 else mean


def mean_of(total: np.floating, count: int) -> np.floating:
    """Sum to mean like numpy's `mean`: divided in float64, rounded to the sum's precision."""
    return total.dtype.type(float(total) / count)
