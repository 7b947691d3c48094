"""Metrics that agree on the case's own samples, and differ on other values; docs/verdict.md, "Metrics elsewhere"."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from twinalign.files.recordings import ELSEWHERE
from twinalign.verdict.precisions import EPSILONS
from twinalign.verdict.tensor_judge import ZERO_FACTOR

_TOLERANCE = 1e-4
"""Relative: what is left of a quotient in float32 is less, and one sample that counts otherwise makes more."""
_OF_ROUNDED_BATCHES = 0.1
"""The same where each side has rounded its batches itself: a sample near a threshold may then count otherwise."""


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
