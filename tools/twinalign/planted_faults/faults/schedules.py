"""Schedules of the learning rate that are late, early, scaled or forgotten."""

from collections.abc import Callable
from typing import Any

from twinalign.case.definition import Case
from twinalign.planted_faults.case_contents import CaseContents
from twinalign.planted_faults.catalogue import in_case
from twinalign.planted_faults.fault_sites import CaseSite, Original, through
from twinalign.planted_faults.where_to_plant import component


def _moves(contents: CaseContents) -> bool:
    """Whether the case has a schedule of several steps, over an optimizer whose rate can be set."""
    own = type(contents.case).schedule is not Case.schedule
    return own and isinstance(contents.optimizer._learning_rate, float) and contents.case.steps > 1


SCHEDULE = component("schedule", _moves, needs="backward")


def _steps(site: CaseSite, change: Callable[[int], int]) -> None:
    site.around("schedule", lambda original, optimizer, step, framework: original(optimizer, change(step), framework))


def _rate(site: CaseSite, change: Callable[[float, list[float]], float]) -> None:
    """Set the rate to `change(rate, rates before)` after the schedule has set it.

    The rates before are that with which the optimizer was made and those of the schedule until now.
    """
    seen: list[float] = []

    def run(original: Original, optimizer: Any, step: int, framework: str) -> Any:
        if not seen:
            seen.append(optimizer.get_lr())
        values = original(optimizer, step, framework)
        rate = optimizer.get_lr()
        optimizer.set_lr(float(change(rate, seen)))
        seen.append(rate)
        return values

    site.around("schedule", run)


in_case("schedule", SCHEDULE, "schedule_off_by", id="schedule_late").add(
    "The schedule is one step late", lambda site: _steps(site, lambda step: max(0, step - 1))
)
in_case("schedule", SCHEDULE, "schedule_off_by", id="schedule_early").add(
    "The schedule is one step early", lambda site: _steps(site, lambda step: step + 1)
)
in_case("schedule", SCHEDULE, "schedule_constant", id="schedule_never_steps").add(
    "The schedule stays at its first step", lambda site: _steps(site, lambda step: 0)
)
in_case("schedule", SCHEDULE, "schedule_constant", id="schedule_forgotten").add(
    "The rate stays what the optimizer was made with", lambda site: _rate(site, lambda rate, before: before[0])
)
in_case("schedule", SCHEDULE, "schedule_factor", id="schedule_too_high").add(
    "The rate is a tenth too high", lambda site: _rate(site, lambda rate, before: 1.1 * rate)
)


@in_case("schedule", SCHEDULE, "schedule_floor")
@through(_rate)
def schedule_has_a_floor(site: CaseSite, rate: float, before: list[float]) -> float:
    """The rate decays to a tenth of its peak, not to zero."""
    peak = max(before[1:], default=0.0)
    return 0.1 * peak + 0.9 * rate if rate < peak else rate
