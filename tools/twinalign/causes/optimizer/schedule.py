"""What a schedule sets and returns, step after step, under examination; and causes that any sequence can have."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.causes.component import Component, enter_rows, explain, fitted
from twinalign.causes.registry import Variant, cause
from twinalign.replay.optimizer import STAGE, ask_schedule, start
from twinalign.replay.usual_recipes import batch_size, linear_scaling
from twinalign.verdict.array_difference import root_mean_square

MOST_SHIFT = 8
_TOLERANCE = 1e-6
RATE = "learning_rate"
Sequenced = Callable[[], np.ndarray] | np.ndarray
"""A value for each step, or what makes them."""


class ScheduleSubject(Component):
    """What causes in a schedule are asked about when a scheduled value differs.

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
        self.worker, self.name = worker, name
        self.case = worker.fresh_case(STAGE)
        _, parameters, optimizer = start(worker, self.case, weights)
        self._parameters = [p for p in parameters.values() if worker.backend.trainable(p)]
        self.initial, self.port_initial = worker.backend.learning_rate(optimizer), port_initial
        self.sequence = np.asarray(self._ask({}, len(port) + MOST_SHIFT + len(port)))
        self.length = min(len(port), len(self.sequence))
        self.port = {"values": np.asarray(port, dtype=np.float64)[: self.length]}
        self.reference = {"values": self.sequence[: self.length]}
        self.floors = {"values": _TOLERANCE * root_mean_square(self.reference["values"])}
        self.sequenced: Sequenced = self.asked

    def run(self) -> dict[str, np.ndarray]:
        values = self.sequenced() if callable(self.sequenced) else self.sequenced
        return {"values": np.asarray(values, dtype=np.float64)[: self.length]}

    @property
    def steps(self) -> np.ndarray:
        return np.arange(self.length)

    def at(self, steps: Iterable[float]) -> np.ndarray:
        """The reference's values at other steps than those that come one after the other, fractions too."""
        case = self.worker.fresh_case(STAGE)
        optimizer = case.optimizer(self._parameters, "torch")
        found = []
        for step in steps:
            returned = dict(case.schedule(optimizer, step, "torch") or {})
            found.append(self.worker.backend.learning_rate(optimizer) if self.name == RATE else returned[self.name])
        return np.asarray(found, dtype=np.float64)

    def asked(self, **settings: Any) -> np.ndarray:
        """The reference's values, of a case with other values of some attributes."""
        return np.asarray(self._ask(settings, self.length))

    def _ask(self, settings: Mapping[str, Any], steps: int) -> list[float]:
        case = self.worker.fresh_case(STAGE)
        vars(case).update(settings)
        optimizer = case.optimizer(self._parameters, "torch")
        return ask_schedule(case, optimizer, self.worker.backend, "torch", steps)[self.name]


schedule_cause = functools.partial(cause, "optimizer", ScheduleSubject)
"""Decorator of causes in what is scheduled."""


def explain_schedule(
    worker: Any, weights: Mapping[str, Any], name: str, port: Sequence[float] | None, initial: float
) -> dict[str, Any]:
    """Why the port schedules other values under a name, or None; `initial` is the rate its optimizer is built with."""
    if not port:
        return {"explanation": None}
    with worker.backend.default_dtype("float64"):
        return explain(ScheduleSubject(worker, weights, name, port, initial), "optimizer")


@schedule_cause(difference="lr_auto_step", rank=-1)
def schedule_off_by(subject: ScheduleSubject) -> Iterator[Variant]:
    """The schedule is off by some steps."""
    # What is behind begins with the first value, or with what there was before.
    for size in range(1, MOST_SHIFT + 1):
        for shift in (-size, size):
            detail = f"{size} step{'s' if size > 1 else ''} {'behind' if shift < 0 else 'ahead'}"
            steps = subject.steps + shift
            if shift > 0 and steps[-1] < len(subject.sequence):
                yield subject.variant(detail, sequenced=subject.sequence[steps])
            yield subject.variant(detail, sequenced=functools.partial(subject.at, steps.tolist()))
            if shift < 0:
                later = subject.sequence[np.maximum(steps, 0)]
                for first in dict.fromkeys([subject.sequence[0], subject.initial, subject.port_initial, 0.0]):
                    yield subject.variant(detail, sequenced=np.where(steps < 0, float(first), later))


def _multiples(subject: ScheduleSubject) -> Iterator[Variant]:
    def variant(factor: float, text: str = "") -> Variant:
        return subject.variant(f"times {text or f'{factor:.6g}'}", sequenced=subject.sequence * factor)

    yield from (variant(factor, text) for text, factor in linear_scaling(batch_size(subject.case)))
    yield from fitted(subject, variant, 1.5)


def _constants(subject: ScheduleSubject) -> dict[str, np.ndarray]:
    values = {
        "its first value, ": subject.sequence[0],
        "the rate with which the optimizer is built, ": subject.initial,
        "its greatest value, ": subject.sequence.max(),
        "its last value, ": subject.sequence[subject.length - 1],
        "": float(subject.port["values"][0]),
    }
    changes = subject.length >= 2 and np.ptp(subject.reference["values"]) > 0.0
    return {f"{text}{v:.6g}": np.full(subject.length, v) for text, v in values.items()} if changes else {}


def _at_speeds(subject: ScheduleSubject) -> dict[str, Sequenced]:
    found: dict[str, Sequenced] = {}
    for factor in (2, 3, 4, 5, 8, 10):
        found[f"{factor} times as fast"] = functools.partial(subject.at, (subject.steps * factor).tolist())
        found[f"{factor} times as slow"] = functools.partial(subject.at, (subject.steps / factor).tolist())
    return found


def _is_momentum(subject: ScheduleSubject) -> bool:
    values = subject.sequence
    return subject.name != RATE and bool((values >= 0.0).all() and (values <= 1.0 + 1e-12).all())


def _other_starts(subject: ScheduleSubject) -> Iterator[Variant]:
    first = float(subject.sequence[0])
    if first == 1.0:
        return

    def variant(value: float) -> Variant:
        rest = 1.0 - (1.0 - subject.sequence) * (1.0 - value) / (1.0 - first)
        return subject.variant(f"{value:.6g} for {first:.6g}", sequenced=rest)

    yield from fitted(subject, variant, 1.0 - 0.5 * (1.0 - first))


enter_rows("optimizer", ScheduleSubject, "sequenced", (
    ("momentum_start", "the momentum starts from another value on its way to 1", {"where": _is_momentum},
     _other_starts),
    ("schedule_factor", "the value is a multiple of what it should be",
     {"difference": "param_group_lr_multiplier", "rank": -1}, _multiples),
    ("schedule_constant", "the value is never changed: nothing steps the schedule",
     {"difference": "lr_auto_step", "rank": -1}, _constants),
    ("schedule_per_epoch", "the value moves once an epoch, not every iteration", {"difference": "lr_auto_step"},
     lambda s: {f"every {n} steps": s.sequence[s.steps // n * n] for n in range(2, s.length + 1)}),
    ("schedule_speed",
     "the schedule runs at another speed: it is stepped more often, or less, than its length is meant for",
     {"difference": "lr_auto_step", "rank": 1}, _at_speeds),
    ("momentum_inverted", "the momentum is 1 - m in place of m", {"where": _is_momentum},
     lambda s: {"": 1.0 - s.sequence}),
    ("momentum_reversed", "the momentum's schedule runs from its end to its start", {"where": _is_momentum},
     lambda s: {"": 1.0 + s.sequence[0] - s.sequence}),
))  # fmt: skip


@schedule_cause(rank=1)
def schedule_setting(subject: ScheduleSubject) -> Iterator[Variant]:
    """A setting of the schedule differs."""
    for name in dir(type(subject.case)):
        value = getattr(subject.case, name)
        if name.startswith("_") or isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        if name in ("seed", "steps", "data_samples", "float64_train_steps"):
            continue

        def variant(other: float, name: str = name, value: float = value) -> Variant:
            asked = functools.partial(subject.asked, **{name: other})
            return subject.variant(f"{name} is {other:.6g} for {value:g}", sequenced=asked)

        neighbours = [value + 1, value - 1] if isinstance(value, int) else []
        others = dict.fromkeys([0, *neighbours, value * 2, value / 2, value * 10, value / 10])
        yield from (variant(other) for other in others if other != value)
        if isinstance(value, float):
            yield from fitted(subject, variant, value * 1.1 or 0.1)
