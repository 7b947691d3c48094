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


def _rate(place: CasePlace, change: Callable[[float, list[float]], float]) -> None:
    """Set the rate to `change(rate, rates before)` after the schedule has set it.

    The rates before are that with which the optimizer was made and those of the schedule until now.
    """
    seen: list[float] = []

    def run(original: Callable[..., Any], optimizer: Any, step: int, framework: str) -> Any:
        if not seen:
            seen.append(optimizer.get_lr())
        values = original(optimizer, step, framework)
        rate = optimizer.get_lr()
        optimizer.set_lr(float(change(rate, seen)))
        seen.append(rate)
        return values

    place.around("schedule", run)


@in_case("schedule", SCHEDULE, causes=("schedule_off_by",))
def schedule_late(place: CasePlace) -> None:
    """The schedule is one step late."""
    _steps(place, lambda step: max(0, step - 1))


@in_case("schedule", SCHEDULE, causes=("schedule_off_by",))
def schedule_early(place: CasePlace) -> None:
    """The schedule is one step early."""
    _steps(place, lambda step: step + 1)


@in_case("schedule", SCHEDULE, causes=("schedule_constant",))
def schedule_never_steps(place: CasePlace) -> None:
    """The schedule stays at its first step."""
    _steps(place, lambda step: 0)


@in_case("schedule", SCHEDULE, causes=("schedule_constant",))
def schedule_forgotten(place: CasePlace) -> None:
    """The rate stays what the optimizer was made with."""
    _rate(place, lambda rate, before: before[0])


@in_case("schedule", SCHEDULE, causes=("schedule_factor",))
def schedule_too_high(place: CasePlace) -> None:
    """The rate is a tenth too high."""
    _rate(place, lambda rate, before: 1.1 * rate)


@in_case("schedule", SCHEDULE, causes=("schedule_floor",))
def schedule_has_a_floor(place: CasePlace) -> None:
    """The rate decays to a tenth of its peak, not to zero."""

    def lifted(rate: float, before: list[float]) -> float:
        peak = max(before[1:], default=0.0)
        return 0.1 * peak + 0.9 * rate if rate < peak else rate

    _rate(place, lifted)
