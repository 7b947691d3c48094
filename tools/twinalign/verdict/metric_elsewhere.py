"""Metrics that agree on the case's own samples, and differ on other values; docs/verdict.md, "Metrics elsewhere"."""

from collections.abc import Iterator, Mapping
from typing import Any

from twinalign.files.recordings import ELSEWHERE

_TOLERANCE = 1e-4
"""Relative: what is left of a quotient in float32 is less, and one sample that counts otherwise makes more."""


def apart_elsewhere(reference: Mapping[str, Any], port: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Name and reason for each number that differs on other values, by the metadata of both sides' float64 runs."""
    told = set[str]()
    for theirs, ours in zip(reference.get(ELSEWHERE, ()), port.get(ELSEWHERE, ()), strict=False):
        for name in theirs.keys() & ours.keys() - told:
            if abs(theirs[name] - ours[name]) > _TOLERANCE * max(abs(theirs[name]), abs(ours[name])):
                told.add(name)
                yield (
                    f"{name} on other values",
                    f"{name} is {theirs[name]:.6g} in the reference and {ours[name]:.6g} in the port for other "
                    "weights or the labels of other samples: the metrics differ in what these samples do not show",
                )
