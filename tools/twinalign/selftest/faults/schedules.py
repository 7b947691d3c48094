"""Schedules of the learning rate that are late, early, scaled or forgotten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twinalign.case import Case
from twinalign.selftest.catalogue import in_case
from twinalign.selftest.places import CasePlace, component
from twinalign.selftest.survey import Survey


def _moves(survey: Survey) -> bool:
    """Whether the case has a schedule of several steps, over an optimizer whose rate can be set."""
    own = type(survey.case).schedule is not Case.schedule
    return own and isinstance(survey.optimizer._learning_rate, float) and survey.case.steps > 1


SCHEDULE = component("schedule", _moves, needs="backward")


def _steps(place: CasePlace, change: Callable[[int], int]) -> None:
    place.around("schedule", lambda original, optimizer, step, framework: original(optimizer, change(step), framework))


def _rate(place: CasePlace, change: Callable[[float, float], float]) -> None:
    """Set the rate to `change(rate, rate that the optimizer was made with)` after the schedule has set it."""

    def run(original: Callable[..., Any], optimizer: Any, step: int, framework: str) -> Any:
        initial = vars(optimizer).setdefault("_rate_at_first", optimizer.get_lr())
        values = original(optimizer, step, framework)
        optimizer.set_lr(float(change(optimizer.get_lr(), initial)))
        return values

    place.around("schedule", run)


@in_case("schedule", SCHEDULE, causes=("schedule_shifted",))
def schedule_late(place: CasePlace) -> None:
    """The schedule is one step late."""
    _steps(place, lambda step: max(0, step - 1))


@in_case("schedule", SCHEDULE, causes=("schedule_shifted",))
def schedule_early(place: CasePlace) -> None:
    """The schedule is one step early."""
    _steps(place, lambda step: step + 1)


@in_case("schedule", SCHEDULE, causes=("schedule_constant", "schedule_frozen"))
def schedule_never_steps(place: CasePlace) -> None:
    """The schedule stays at its first step."""
    _steps(place, lambda step: 0)


@in_case("schedule", SCHEDULE, causes=("schedule_constant", "warmup_missing"))
def schedule_forgotten(place: CasePlace) -> None:
    """The rate stays what the optimizer was made with."""
    _rate(place, lambda rate, initial: initial)


@in_case("schedule", SCHEDULE, causes=("schedule_scaled", "learning_rate_factor"))
def schedule_too_high(place: CasePlace) -> None:
    """The rate is a tenth too high."""
    _rate(place, lambda rate, initial: 1.1 * rate)


@in_case("schedule", SCHEDULE, causes=("schedule_floor",))
def schedule_has_a_floor(place: CasePlace) -> None:
    """The rate does not go below a floor."""
    _rate(place, lambda rate, initial: max(rate, 0.6 * initial))
