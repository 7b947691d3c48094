"""Warm-ups and cosines of the learning rate that have another form."""

from collections.abc import Callable
from typing import Any

from twinalign.planted_faults.case_contents import CaseContents
from twinalign.planted_faults.catalogue import Registration, in_case
from twinalign.planted_faults.fault_sites import CaseSite, Original
from twinalign.planted_faults.faults.schedules import SCHEDULE
from twinalign.planted_faults.where_to_plant import Find

Rate = Callable[[float], float]
"""The port's own rate at a step, fractions of one too."""
Change = Callable[[float, int, Rate], float]
"""The wrong rate at a step, from the warm-up's number of steps and the port's own rate."""


def _rates(optimizer: Any, schedule: Callable[..., Any]) -> Rate:
    def rate(step: float) -> float:
        schedule(optimizer, step, "paddle")
        return float(optimizer.get_lr())

    return rate


def _warmup(rate: Rate, steps: int) -> int:
    """Number of the step at which the rate is greatest."""
    return max(range(steps), key=lambda step: (rate(step), -step))


def _curved(warmup: int, decay: int = 0) -> Find:
    """The schedule of cases whose rate rises for so many steps or more, and falls for so many after that."""

    def find(contents: CaseContents) -> str | None:
        if SCHEDULE(contents) is None:
            return None
        steps = contents.case.steps
        peak = _warmup(_rates(contents.optimizer, contents.case.schedule), steps)
        return "schedule" if peak >= warmup and steps - peak > decay else None

    return find


def _curve(change: Change) -> Callable[[CaseSite], None]:
    def plant(site: CaseSite) -> None:
        def run(original: Original, optimizer: Any, step: int, framework: str) -> Any:
            rate = _rates(optimizer, original)
            changed = change(step, _warmup(rate, site.case.steps), rate)
            values = original(optimizer, step, framework)
            optimizer.set_lr(float(changed))
            return values

        site.around("schedule", run)

    return plant


def _rate(cause: str, fault: str, least: int = 2) -> Registration:
    """A fault whose function is a `Change`, in cases with so many steps of warm-up, and more of decay."""
    return in_case("schedule", _curved(least, decay=least), cause, id=fault, how=_curve)


_rate("warmup_missing", "warmup_forgotten").add(
    "The rate is at its peak from the first step on, where it should rise",
    lambda step, warmup, rate: rate(max(step, warmup)),
)
_rate("warmup_counts_from_one", "warmup_counts_from_one").add(
    "The warm-up counts its steps from one", lambda step, warmup, rate: rate(step + 1 if step < warmup else step)
)
_rate("warmup_length", "warmup_longer").add(
    "The warm-up takes one step more, and the decay ends later",
    lambda step, warmup, rate: rate(step * warmup / (warmup + 1) if step <= warmup else step - 1),
)
_rate("warmup_start", "warmup_starts_higher").add(
    "The warm-up starts at a tenth of the peak",
    lambda step, warmup, rate: 0.1 * rate(warmup) + 0.9 * rate(step) if step < warmup else rate(step),
)
_rate("cosine_over_whole_run", "cosine_counts_the_warmup").add(
    "The steps of the warm-up count for the cosine as well",
    lambda step, warmup, rate: rate(step if step < warmup else step + warmup),
)
_rate("cosine_missing", "cosine_forgotten", least=1).add(
    "The rate stays at its peak after the warm-up", lambda step, warmup, rate: rate(min(step, warmup))
)
_rate("cosine_length", "cosine_twice_as_long").add(
    "The rate decays half as fast",
    lambda step, warmup, rate: rate(step if step < warmup else warmup + (step - warmup) / 2),
)


@in_case("schedule", _curved(2, decay=2), "schedule_shape")
def decay_is_linear(site: CaseSite) -> None:
    """The rate decays along a line, not along a cosine."""

    def line(step: float, warmup: int, rate: Rate) -> float:
        end = min(range(warmup, 10 * site.case.steps), key=rate)
        return rate(step) if step < warmup else rate(warmup) * (end - step) / (end - warmup)

    _curve(line)(site)


_rate("schedule_per_epoch", "schedule_moves_every_second_step").add(
    "The rate moves every second step only", lambda step, warmup, rate: rate(step // 2 * 2)
)
_rate("schedule_speed", "schedule_twice_as_fast").add(
    "The schedule is stepped twice an iteration", lambda step, warmup, rate: rate(2 * step)
)


def _returns_a_share(contents: CaseContents) -> str | None:
    """Cases whose schedule returns numbers between 0 and 1, such as the momentum of a moving average."""
    if SCHEDULE(contents) is None:
        return None
    values = contents.case.schedule(contents.optimizer, 0, "paddle") or {}
    return "schedule" if any(0.0 < value < 1.0 for value in values.values()) else None


def _momentum(site: CaseSite, change: Callable[[float, float], float]) -> None:
    """Return `change(momentum, momentum of the first step)` for each scheduled momentum."""

    def run(original: Original, optimizer: Any, step: int, framework: str) -> dict[str, float]:
        first = original(optimizer, 0, framework)
        return {name: change(value, first[name]) for name, value in original(optimizer, step, framework).items()}

    site.around("schedule", run)


in_case("schedule", _returns_a_share, "momentum_inverted", id="scheduled_momentum_inverted").add(
    "The scheduled momentum is 1 - m", lambda site: _momentum(site, lambda momentum, first: 1.0 - momentum)
)


def _returns_a_share_for_long(contents: CaseContents) -> str | None:
    """Such cases of many steps: of few, a cosine that runs backwards is the same one shifted by its length."""
    return _returns_a_share(contents) if contents.case.steps > 8 else None


in_case("schedule", _returns_a_share_for_long, "momentum_reversed", id="scheduled_momentum_reversed").add(
    "The scheduled momentum falls from 1 where it should rise to it",
    lambda site: _momentum(site, lambda momentum, first: 1.0 + first - momentum),
)
in_case("schedule", _returns_a_share, "momentum_start", id="scheduled_momentum_starts_lower").add(
    "The scheduled momentum starts twice as far from 1",
    lambda site: _momentum(site, lambda momentum, first: 1.0 - 2.0 * (1.0 - momentum)),
)
