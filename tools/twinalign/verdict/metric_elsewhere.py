"""Metrics that are counted: on other values, and on a threshold; docs/verdict.md, "Metrics elsewhere"."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from twinalign.files.recordings import ELSEWHERE
from twinalign.sides import SIDES
from twinalign.verdict.precisions import EPSILONS
from twinalign.verdict.stage_recordings import StageRecordings
from twinalign.verdict.tensor_judge import ZERO_FACTOR

_TOLERANCE = 1e-4
"""Relative: what is left of a quotient in float32 is less, and one sample that counts otherwise makes more."""
_OF_ROUNDED_BATCHES = 0.1
"""The same where each side has rounded its batches itself: a sample near a threshold may then count otherwise."""
_SHARE_SEEN = 0.1
"""Of a difference in float64, what the judged precision shows of it at most where a last bit decides."""


def apart_elsewhere(
    reference: Mapping[str, Any],
    port: Mapping[str, Any],
    judged: Mapping[str, np.ndarray],
    exact: Mapping[str, np.ndarray],
    dtype: str = "float32",
    rounded_batches: bool = False,
) -> Iterator[tuple[str, str]]:
    """Name and reason for each number that differs on other values, by the metadata of both sides' float64 runs.

    What the reference gave in the judged precision and in float64 (`judged`, `exact`) tells what is only rounding, as
    the error of a reconstruction is that is exact but for it. `dtype` is the judged precision.
    """
    finer = ZERO_FACTOR * EPSILONS["float64"] / EPSILONS[dtype]
    share = _OF_ROUNDED_BATCHES if rounded_batches else _TOLERANCE
    told = set[str]()
    for theirs, ours in zip(reference.get(ELSEWHERE, ()), port.get(ELSEWHERE, ()), strict=False):
        for name in theirs.keys() & ours.keys() - told:
            most = max(share * max(abs(theirs[name]), abs(ours[name])), finer * _rounding(name, judged, exact))
            if abs(theirs[name] - ours[name]) > most:
                told.add(name)
                yield (
                    f"{name} on other values",
                    f"{name} is {theirs[name]:.6g} in the reference and {ours[name]:.6g} in the port for other "
                    "weights or the labels of other samples: the metrics differ in what these samples do not show",
                )


def _rounding(name: str, judged: Mapping[str, np.ndarray], exact: Mapping[str, np.ndarray]) -> float:
    if name not in judged or name not in exact:
        return 0.0
    return float(np.abs(judged[name].astype(np.float64) - exact[name]).max(initial=0.0))


def counted_otherwise(recordings: StageRecordings, dtype: str) -> set[str]:
    """Numbers that float64 sets apart by so much that the judged precision would, too, if they had no jumps.

    Two samples with one score, or one on a threshold, count by their last bit.
    """
    found = set()
    low, high = ([recordings.arrays(side, one) or {} for side in SIDES] for one in (dtype, "float64"))
    for name in set.intersection(*map(set, (*low, *high))):
        (theirs, ours), (exact, port) = ([arrays[name] for arrays in pair] for pair in (low, high))
        if theirs.dtype.kind != "f" or len({one.shape for one in (theirs, ours, exact, port)}) > 1:
            continue
        sizes = np.abs(exact).max(initial=0.0)
        apart, seen = np.abs(port - exact), np.abs(ours.astype(np.float64) - theirs)
        clear = apart > ZERO_FACTOR * EPSILONS[dtype] * sizes
        few = apart <= _OF_ROUNDED_BATCHES * sizes
        if clear.any() and (few & (seen <= _SHARE_SEEN * apart))[clear].all():
            found.add(name)
    return found
