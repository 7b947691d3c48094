"""The reference's training, whose first steps can be taken again in float64 with something changed."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from twinalign.causes.component import Component, allowed_remainder, explain, wrong_names
from twinalign.causes.registry import cause
from twinalign.files.curve_names import GRADIENT_NORM, WEIGHT_NORM
from twinalign.patching import Around
from twinalign.replay.training import Curves, floors_of, read_curves, train
from twinalign.verdict.array_difference import distance


class _RefutedError(Exception):
    """A curve is not the port's."""


class TrainingSubject(Component):
    """The first steps of the reference's training.

    Attributes:
        port, reference, floors: name of a curve → one value for each step.
        around: takes the model and returns the context in which it trains.
        finish: changes the curves.
        axes: parameter or buffer of the reference → its number of axes.
    """

    def __init__(self, worker: Any, weights: Mapping[str, Any], reference: str, port: str) -> None:
        self.reference, moved = read_curves(reference)
        self.port, _ = read_curves(port)
        self.floors = floors_of(self.reference, moved)
        self.around: Around | None = None
        self.finish: Callable[[Curves], Curves] | None = None
        self._worker, self._weights = worker, weights
        with np.load(weights["path"], allow_pickle=False) as stored:
            self.axes = {name: stored[name].ndim for name in stored}

    def run(self) -> Curves:
        patient = not self.impatient or self.finish
        try:
            on_step = (lambda step, values: None) if patient else self._refute
            curves = train(self._worker, self._weights, begin=self.around, on_step=on_step)
        except _RefutedError:
            return {}
        return self.finish(curves) if self.finish else curves

    def _refute(self, step: int, values: Mapping[str, float]) -> None:
        """Stop a training whose curves already differ too much from the port's."""
        for name, allowed in self._allowed.items():
            port = self.port[name]
            if name in values and step <= len(port) and abs(values[name] - port[step - 1]) > allowed * len(port) ** 0.5:
                raise _RefutedError

    @functools.cached_property
    def _allowed(self) -> dict[str, float]:
        """Root mean square that may remain of each curve that has a value for each step."""
        found = {}
        for name, port in self.port.items():
            if len(port) == len(self.port.get(GRADIENT_NORM, ())):
                before, floor = distance(self.reference.get(name), port), self.floors.get(name, 0.0)
                found[name] = floor if before <= floor else allowed_remainder(before, floor)
        return found

    @functools.cached_property
    def first_to_part(self) -> frozenset[str]:
        """Parameters whose norms differ in the first step in which any does: their updates are wrong."""
        apart: dict[str, int] = {}
        for name in wrong_names(self):
            ours, theirs = self.port[name], self.reference.get(name)
            if not name.startswith(WEIGHT_NORM) or theirs is None or theirs.shape != ours.shape:
                continue
            steps = np.flatnonzero(np.abs(ours - theirs) > self.floors.get(name, 0.0))
            if len(steps):
                apart[name.removeprefix(WEIGHT_NORM)] = int(steps[0])
        return frozenset(name for name, step in apart.items() if step == min(apart.values()))


train_cause = functools.partial(cause, "train", TrainingSubject)
"""Decorator of causes in a training."""


def explain_training(worker: Any, weights: Mapping[str, Any], reference: str, port: str) -> dict[str, Any]:
    """Why the port's curves differ from the reference's, from files of `record_curves`."""
    return explain(TrainingSubject(worker, weights, reference, port), "train")
