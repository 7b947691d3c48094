"""What a schedule sets and returns, step after step, under examination; and hypotheses that hold of any sequence."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.explain.component import Replaced, explain, fitted
from twinalign.explain.registry import Hypothesis, Variant, register
from twinalign.locate.components import root_mean_square
from twinalign.locate.optimizer_steps import STAGE, ask_schedule, start
from twinalign.stages.context import step_inputs

MOST_SHIFT = 8
_TOLERANCE = 1e-6
RATE = "learning_rate"
Sequenced = Callable[[], np.ndarray] | np.ndarray
"""A value for each step, or what makes them."""


class ScheduleSubject:
    """What hypotheses of the phase optimizer are given when a scheduled value differs.

    Attributes:
        name: of the value, `learning_rate` or as `Case.schedule` returns it.
        port, reference, floors: `values` → the value in each step that both sides answer for.
        sequence: the reference's values, for some steps more than are compared where the schedule answers.
        initial, port_initial: the rates with which the optimizers are built.
        sequenced: how the values come about at present.
    """

    def __init__(
        self, worker: Any, weights: Mapping[str, Any], name: str, port: Sequence[float], port_initial: float
    ) -> None:
        """Ask the reference's schedule again."""
        self.worker, self.name, self.impatient = worker, name, False
        self.case = worker.fresh_case(STAGE)
        _, parameters, optimizer = start(worker, self.case, weights)
        self._parameters = [p for p in parameters.values() if worker.backend.trainable(p)]
        self.initial, self.port_initial = worker.backend.learning_rate(optimizer), port_initial
        self.sequence = np.asarray(self._ask({}, len(port) + MOST_SHIFT + len(port)))
        self.length = min(len(port), len(self.sequence))
        self.port = {"values": np.asarray(port, dtype=np.float64)[: self.length]}
        self.reference = {"values": self.sequence[: self.length]}
        self.floors = {"values": _TOLERANCE * root_mean_square(self.reference["values"])}
        self.sequenced: Sequenced = functools.partial(self._asked, {})

    def run(self) -> dict[str, np.ndarray]:
        """The sequence as it is made at present."""
        values = self.sequenced() if callable(self.sequenced) else self.sequenced
        return {"values": np.asarray(values, dtype=np.float64)[: self.length]}

    def holds_everywhere(self) -> bool:
        """All steps are compared already."""
        return True

    @property
    def steps(self) -> np.ndarray:
        """Numbers of the steps that are compared."""
        return np.arange(self.length)

    def made(self, detail: str, sequenced: Sequenced) -> Replaced:
        """The variant in which the sequence is made in this way."""
        return Replaced(detail, self, {"sequenced": sequenced})

    def with_settings(self, detail: str, settings: Mapping[str, Any]) -> Replaced:
        """The variant in which the case has other values of some attributes."""
        return self.made(detail, functools.partial(self._asked, settings))

    def at(self, steps: Iterable[float]) -> np.ndarray:
        """The reference's values at other steps than those that come one after the other, fractions too."""
        case = self.worker.fresh_case(STAGE)
        optimizer = case.optimizer(self._parameters, "torch")
        found = []
        for step in steps:
            returned = dict(case.schedule(optimizer, step, "torch") or {})
            found.append(self.worker.backend.learning_rate(optimizer) if self.name == RATE else returned[self.name])
        return np.asarray(found, dtype=np.float64)

    def _asked(self, settings: Mapping[str, Any]) -> np.ndarray:
        return np.asarray(self._ask(settings, self.length))

    def _ask(self, settings: Mapping[str, Any], steps: int) -> list[float]:
        case = self.worker.fresh_case(STAGE)
        for name, value in settings.items():
            setattr(case, name, value)
        optimizer = case.optimizer(self._parameters, "torch")
        return ask_schedule(case, optimizer, self.worker.backend, "torch", steps)[self.name]


class ScheduleHypothesis(Hypothesis):
    """A hypothesis about what is scheduled: a subclass defines `of`, which gives the variants."""

    phase = "optimizer"

    def variants(self, subject: Any) -> Iterable[Variant]:
        """None where it is not a schedule that is examined."""
        return self.of(subject) if isinstance(subject, ScheduleSubject) else ()

    def of(self, subject: ScheduleSubject) -> Iterable[Variant]:
        """The ways in which this can hold, the likeliest first."""
        raise NotImplementedError


def explain_schedule(
    worker: Any, weights: Mapping[str, Any], name: str, port: Sequence[float] | None, initial: float
) -> dict[str, Any]:
    """Why the port's values of one name differ; called in the reference's process.

    Args:
        worker: the recorder that calls.
        weights: what `Worker.build_model` takes.
        name: of the scheduled value.
        port: the port's values, None where it returns none of that name.
        initial: the rate with which the port's optimizer is built.

    Returns:
        `explanation`: of `Explanation.to_json`, or None.
    """
    if not port:
        return {"explanation": None}
    with worker.backend.default_dtype("float64"):
        subject = ScheduleSubject(worker, weights, name, port, initial)
        found = explain(subject, None, "optimizer")
    return {"explanation": found.to_json() if found else None}


@register
class ScheduleOffBy(ScheduleHypothesis):
    """Stepped before instead of after the optimizer, counted from 1, resumed at the wrong iteration."""

    id = "schedule_off_by"
    text = "the schedule is off by some steps"
    difference = "lr_auto_step"
    rank = -1

    def of(self, subject: ScheduleSubject) -> Iterator[Variant]:
        """Ahead or behind by some steps; what is behind begins with the first value, or with what there was before."""
        for size in range(1, MOST_SHIFT + 1):
            for shift in (-size, size):
                detail = f"{size} step{'s' if size > 1 else ''} {'behind' if shift < 0 else 'ahead'}"
                steps = subject.steps + shift
                if shift > 0 and steps[-1] < len(subject.sequence):
                    yield subject.made(detail, subject.sequence[steps])
                yield subject.made(detail, functools.partial(subject.at, steps.tolist()))
                if shift < 0:
                    for first in dict.fromkeys([subject.sequence[0], subject.initial, subject.port_initial, 0.0]):
                        yield subject.made(detail, _clamped(subject, steps, float(first)))


def _clamped(subject: ScheduleSubject, steps: np.ndarray, first: float) -> np.ndarray:
    return np.where(steps < 0, first, subject.sequence[np.maximum(steps, 0)])


@register
class ScheduleConstant(ScheduleHypothesis):
    """Nobody steps it."""

    id = "schedule_constant"
    text = "the value is never changed: nothing steps the schedule"
    difference = "lr_auto_step"
    rank = -1

    def of(self, subject: ScheduleSubject) -> Iterator[Variant]:
        """At its first value, at the optimizer's, at its greatest, or at whatever the port has."""
        if subject.length < 2 or np.ptp(subject.reference["values"]) == 0.0:
            return
        named = {
            "its first value": subject.sequence[0],
            "the rate with which the optimizer is built": subject.initial,
            "its greatest value": subject.sequence.max(),
            "its last value": subject.sequence[subject.length - 1],
        }
        for text, value in named.items():
            yield subject.made(f"{text}, {value:.6g}", np.full(subject.length, value))
        own = float(subject.port["values"][0])
        yield subject.made(f"{own:.6g}", np.full(subject.length, own))


@register
class ScheduleFactor(ScheduleHypothesis):
    """A peak that was scaled, or was not."""

    id = "schedule_factor"
    text = "the value is a multiple of what it should be"
    difference = "param_group_lr_multiplier"
    rank = -1

    def of(self, subject: ScheduleSubject) -> Iterator[Variant]:
        """The linear scaling of the batch, or the factor that fits."""
        batch = next((array.shape[0] for array in step_inputs(subject.case).values() if array.ndim), 1)
        for text, factor in (
            (f"{batch}/256, the linear scaling of a batch of {batch}", batch / 256),
            (f"256/{batch}, the linear scaling of a batch of {batch} missing", 256 / batch),
        ):
            yield subject.made(f"times {text}", subject.sequence * factor)

        def variant(factor: float) -> Variant:
            return subject.made(f"times {factor:.6g}", subject.sequence * factor)

        yield from fitted(subject, variant, 1.5)


@register
class SchedulePerEpoch(ScheduleHypothesis):
    """A staircase for a curve."""

    id = "schedule_per_epoch"
    text = "the value moves once an epoch, not every iteration"
    difference = "lr_auto_step"

    def of(self, subject: ScheduleSubject) -> Iterator[Variant]:
        """Epochs of 2 iterations and more."""
        for iterations in range(2, subject.length + 1):
            steps = subject.steps // iterations * iterations
            yield subject.made(f"every {iterations} steps", subject.sequence[steps])


@register
class ScheduleSpeed(ScheduleHypothesis):
    """Lengths in epochs and steps in iterations, or the other way round; stepped twice."""

    id = "schedule_speed"
    text = "the schedule runs at another speed: it is stepped more often, or less, than its length is meant for"
    difference = "lr_auto_step"
    rank = 1

    def of(self, subject: ScheduleSubject) -> Iterator[Variant]:
        """Faster and slower by whole factors."""
        for factor in (2, 3, 4, 5, 8, 10):
            faster, slower = (subject.steps * factor).tolist(), (subject.steps / factor).tolist()
            yield subject.made(f"{factor} times as fast", functools.partial(subject.at, faster))
            yield subject.made(f"{factor} times as slow", functools.partial(subject.at, slower))


@register
class MomentumInverted(ScheduleHypothesis):
    """1 - m for m: the other convention of a moving average."""

    id = "momentum_inverted"
    text = "the momentum is 1 - m for m"

    def of(self, subject: ScheduleSubject) -> Iterator[Variant]:
        """One way, for values between 0 and 1 that are no rate."""
        if _is_momentum(subject):
            yield subject.made("", 1.0 - subject.sequence)


@register
class MomentumReversed(ScheduleHypothesis):
    """Falls where it should rise."""

    id = "momentum_reversed"
    text = "the momentum's schedule runs from its end to its start"

    def of(self, subject: ScheduleSubject) -> Iterator[Variant]:
        """One way, for values between 0 and 1 that are no rate."""
        if _is_momentum(subject):
            yield subject.made("", 1.0 + subject.sequence[0] - subject.sequence)


@register
class MomentumStart(ScheduleHypothesis):
    """0.996 for 0.99."""

    id = "momentum_start"
    text = "the momentum starts from another value on its way to 1"

    def of(self, subject: ScheduleSubject) -> Iterator[Variant]:
        """The start that fits."""
        first = float(subject.sequence[0])
        if not _is_momentum(subject) or first == 1.0:
            return

        def variant(value: float) -> Variant:
            rest = 1.0 - (1.0 - subject.sequence) * (1.0 - value) / (1.0 - first)
            return subject.made(f"{value:.6g} for {first:.6g}", rest)

        yield from fitted(subject, variant, 1.0 - 0.5 * (1.0 - first))


def _is_momentum(subject: ScheduleSubject) -> bool:
    values = subject.sequence
    return subject.name != RATE and bool((values >= 0.0).all() and (values <= 1.0 + 1e-12).all())


@register
class ScheduleSetting(ScheduleHypothesis):
    """A number of the case, read by its schedule, is another one in the port."""

    id = "schedule_setting"
    text = "a setting of the schedule is another one"
    rank = 1

    def of(self, subject: ScheduleSubject) -> Iterator[Variant]:
        """Each number among the case's attributes: none of it, one more or less, multiples, and the one that fits."""
        for name in dir(type(subject.case)):
            value = getattr(subject.case, name)
            if name.startswith("_") or isinstance(value, bool) or not isinstance(value, (int, float)):
                continue
            if name in ("seed", "steps", "data_samples", "float64_train_steps"):
                continue
            neighbours = [value + 1, value - 1] if isinstance(value, int) else []
            for other in dict.fromkeys([0, *neighbours, value * 2, value / 2, value * 10, value / 10]):
                if other != value:
                    yield subject.with_settings(f"{name} is {other:g} for {value:g}", {name: other})
            if isinstance(value, float):

                def variant(other: float, name: str = name, value: float = value) -> Variant:
                    return subject.with_settings(f"{name} is {other:.6g} for {value:g}", {name: other})

                yield from fitted(subject, variant, value * 1.1 or 0.1)
