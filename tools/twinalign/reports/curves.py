"""Quantities over steps: for the backward stage from the summary, for the training from its recordings."""

import dataclasses
import math
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from twinalign.errors import InputError
from twinalign.reports.shown_values import number
from twinalign.reports.summary import worst_first

_STEP = re.compile(r"(?:rank0\.)?step(\d+)\.(.+)")  # of several ranks, the first stands for all
# What the backward stage records of each tensor of the model; everything else is a quantity of the step.
_OF_TENSORS = ("gradient.", "parameter.", "buffer.", "moment1.", "moment2.", "velocity.", "state.", "momentum.")
_MOST = 40
"""Most curves on the page; nobody looks at more."""


@dataclasses.dataclass(frozen=True)
class Curve:
    """One quantity of both sides over the same steps."""

    stage: str
    name: str
    steps: list[int]
    reference: list[float]
    port: list[float]
    noise: list[float] | None
    """The difference at each step that rounding explains, if measured."""
    switched: list[float] | None = None
    """Values of the training that changed framework, if there was one."""
    verdict: str = ""
    """Verdict of its tensor, or the worst of its steps; empty if unknown."""
    reason: str = ""
    """Of that verdict."""

    @property
    def differences(self) -> list[float]:
        return [abs(a - b) for a, b in zip(self.reference, self.port, strict=True)]

    @property
    def leaves(self) -> tuple[int, float] | None:
        """The first step at which the difference is above the noise, and the greatest ratio; None if it never is."""
        pairs = zip(self.steps, self.differences, self.noise or (), strict=False)
        above = [(step, difference / noise) for step, difference, noise in pairs if difference > noise > 0]
        return (above[0][0], max(ratio for _, ratio in above)) if above else None


def backward_curves(stage: Mapping[str, Any] | None) -> list[Curve]:
    """Loss, learning rate and the other quantities that the case records at each step."""
    points: dict[str, list[tuple[int, float, float, float | None]]] = {}
    judged: dict[str, list[Mapping[str, Any]]] = {}
    for tensor in (stage or {}).get("tensors", ()):
        found = _STEP.fullmatch(tensor["name"])
        if found is None or tensor.get("shape") not in ([], [1]) or found[2].startswith(_OF_TENSORS):
            continue
        values = [number(tensor.get(key)) for key in ("reference_value", "reproduced_value", "floor_max")]
        if values[0] is not None and values[1] is not None:
            points.setdefault(found[2], []).append((int(found[1]), values[0], values[1], values[2]))
            judged.setdefault(found[2], []).append(tensor)
    curves = []
    for name, of_steps in points.items():
        steps, reference, port, floor = (list(column) for column in zip(*sorted(of_steps), strict=True))
        known = [value for value in floor if value is not None]
        noise = [abs(float(value or 0)) for value in floor] if any(known) else None
        worst = worst_first(judged[name])[0]
        curve = Curve("backward", name, steps, reference, port, noise, None, worst["verdict"], worst["reason"])
        curves.append(curve)
    return curves[:_MOST]


def train_curves(folder: Path, judged: Mapping[str, Mapping[str, Any]] = MappingProxyType({})) -> list[Curve]:
    """Curves of the training, with the effect of a change in the last place on the reference.

    Norms of single tensors are shown only if they diverged; `judged` has the tensors of the stage by name. Raises
    InputError if a recording is missing or broken.
    """
    from twinalign.files.curve_names import BUFFER_NORM, CURVE_PREFIX, REPEAT_PREFIX, WEIGHT_NORM
    from twinalign.files.rank_recordings import arrays_of_rank
    from twinalign.files.recordings import Recording
    from twinalign.verdict.training_comparison import switched_of

    both = (Recording.load(folder / f"train_{side}.npy").arrays for side in ("ref", "paddle"))
    ours, theirs = (arrays_of_rank(arrays, 0) or arrays for arrays in both)
    switched = switched_of(theirs) or switched_of(ours)
    verdicts = {name: tensor["verdict"] for name, tensor in judged.items()}
    curves = []
    for name, array in ours.items():
        other = theirs.get(name)
        if name.removeprefix(CURVE_PREFIX).startswith((WEIGHT_NORM, BUFFER_NORM)) and verdicts.get(name) != "diverged":
            continue
        if not name.startswith(CURVE_PREFIX) or other is None or other.shape != array.shape or not array.size:
            continue
        reference, port = ([float(value) for value in side.reshape(-1)] for side in (array, other))
        repeat = ours.get(REPEAT_PREFIX + name)
        noise = None
        if repeat is not None and repeat.shape == array.shape:
            noise = [abs(float(value) - own) for value, own in zip(repeat.reshape(-1), reference, strict=True)]
        steps = [step for step in range(len(reference)) if math.isfinite(reference[step]) and math.isfinite(port[step])]
        if steps:
            ours_there, theirs_there = ([values[step] for step in steps] for values in (reference, port))
            band = [noise[step] if math.isfinite(noise[step]) else 0.0 for step in steps] if noise else None
            third = switched.get(name)
            crossing = [float(third[step]) for step in steps] if third is not None and len(third) > steps[-1] else None
            if not np.isfinite(crossing or []).all():
                crossing = None
            short = name.removeprefix(CURVE_PREFIX)
            said = [str(judged.get(name, {}).get(key, "")) for key in ("verdict", "reason")]
            curves.append(Curve("train", short, steps, ours_there, theirs_there, band, crossing, *said))
    return curves[:_MOST]


def curves_of(summary: Mapping[str, Any], folder: Path) -> tuple[list[Curve], str | None]:
    """Every curve of a run, and the reason if those of the training are missing."""
    found = backward_curves(summary["stages"].get("backward"))
    if "train" not in summary["stages"]:
        return found, None
    try:
        judged = {tensor["name"]: tensor for tensor in summary["stages"]["train"]["tensors"]}
        return found + train_curves(folder, judged), None
    except (InputError, OSError, ValueError) as error:
        return found, str(error)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A single number of both sides: a metric, or the outcome of a training."""

    stage: str
    name: str
    reference: float
    port: float
    verdict: str
    reason: str


def outcomes_of(summary: Mapping[str, Any]) -> list[Outcome]:
    """Metrics and outcomes that are single numbers."""
    found = []
    for stage in ("metric", "train"):
        for tensor in summary["stages"].get(stage, {}).get("tensors", ()):
            values = [number(tensor.get(key)) for key in ("reference_value", "reproduced_value")]
            if tensor.get("shape") == [] and values[0] is not None and values[1] is not None:
                name = tensor["name"].removeprefix("outcome.")
                found.append(Outcome(stage, name, values[0], values[1], tensor["verdict"], tensor["reason"]))
    return found[:100]
