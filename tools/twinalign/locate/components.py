"""What the search in optimizer, schedule, data and metric is given by the parent, and numbers that say how far off."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twinalign.locate.faults import Explanation

if TYPE_CHECKING:
    from twinalign.recorder.process import RecorderProcess


@dataclasses.dataclass(frozen=True)
class ComponentContext:
    """What is known when the components outside of the model are judged.

    Attributes:
        folder: where recordings and pictures of the search are kept.
        stages: the stages that the case offers.
        weights: stage → side → what a recorder is given of the initial weights (`Worker.build_model`).
        gradients: `.npz` file with the reference's gradients of the first step by reference name, None where the case
            has no loss to differentiate.
        explain: whether causes are looked for.
        curves: side → what the run has recorded of the whole training, by the names of the curves; none is known where
            there was no run.
        searched: the stages that are searched.
        allowances: those that the case names.
    """

    folder: Path
    stages: tuple[str, ...]
    weights: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    gradients: Path | None = None
    explain: bool = True
    curves: Mapping[str, Mapping[str, np.ndarray]] = dataclasses.field(default_factory=dict)
    searched: tuple[str, ...] = ()
    allowances: tuple[str, ...] = ()


def root_mean_square(array: np.ndarray) -> float:
    """Of all elements, 0 where there is none."""
    values = np.asarray(array, dtype=np.float64)
    return float(np.sqrt(np.mean(np.square(values)))) if values.size else 0.0


def distance(one: np.ndarray | None, other: np.ndarray | None) -> float:
    """Root mean square of the difference; infinite where shapes differ, one is missing, or NaN meets a number."""
    if one is None or other is None or one.shape != other.shape:
        return float("inf")
    with np.errstate(invalid="ignore", over="ignore"):
        first, second = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
        same = (first == second) | (np.isnan(first) & np.isnan(second))
        found = root_mean_square(np.where(same, 0.0, first - second))
    return found if np.isfinite(found) else float("inf")


def explanation_of(process: RecorderProcess, function: str, **given: Any) -> Explanation | None:
    """What a function of the reference's process says the cause is: its answer's `explanation`."""
    answer = process.request("call", function=function, **given)["explanation"]
    return Explanation(**answer) if answer else None
