"""Faults of state: running statistics and moving averages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from twinalign.explain.calls import Call, Change, Key, Site
from twinalign.explain.registry import Hypothesis, register
from twinalign.explain.rewrite import Rewrite, any_of, changing
from twinalign.explain.subject import CallVariant, LayerSubject

STATISTICS = ("batch_norm", "instance_norm")


@register
class RunningMomentum(Rewrite):
    """Paddle's 0.9 is torch's 0.1; a number that is copied is inverted."""

    id = "batch_norm_momentum"
    phase = "state"
    text = "the running statistics move with another momentum"
    difference = "bn_momentum"
    functions = STATISTICS

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Its complement, what the port's own momentum means in torch, usual values."""
        current = site.get("momentum", 0.1)
        if not isinstance(current, float):
            return
        own = subject.port_numbers.get("momentum")
        values = (1.0 - current, None if own is None else 1.0 - own, own, 0.1, 0.01, 0.001, 0.05, 0.2, 1.0, 0.9, 0.99)
        for value in dict.fromkeys(value for value in values if value is not None):
            if abs(value - current) > 1e-12:
                yield f"{value:g} in place of {current:g}, in torch's convention", changing(momentum=value)


@register
class RunningVarianceBiased(Rewrite):
    """Torch's running variance is n / (n - 1) times the batch's, paddle's is the batch's."""

    id = "running_variance_biased"
    phase = "state"
    text = "the running variance follows the biased batch variance"
    difference = "bn_running_var_biased"
    functions = STATISTICS
    ways = any_of({"": lambda call: _biased(call)})


def _biased(call: Call) -> Any:
    variance = call["running_var"]
    before = variance.detach().clone()
    result = call.run()
    axis_size = call["input"].numel() / call["input"].shape[1]
    with call.torch.no_grad():
        # What was added is momentum times the unbiased variance; (n - 1) / n of that is what paddle adds.
        momentum = call["momentum"]
        added = variance - (1.0 - momentum) * before
        variance.copy_((1.0 - momentum) * before + added * (axis_size - 1.0) / axis_size)
    return result


@register
class RunningStatisticsFrozen(Rewrite):
    """The layer normalises with the batch's statistics, yet does not remember them."""

    id = "running_statistics_frozen"
    phase = "state"
    text = "the running statistics do not move"
    functions = STATISTICS

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Both, or one."""
        for detail, names in (
            ("", ("running_mean", "running_var")),
            ("the mean alone", ("running_mean",)),
            ("the variance alone", ("running_var",)),
        ):
            yield detail, _kept(names)


def _kept(names: tuple[str, ...]) -> Change:
    def change(call: Call) -> Any:
        before = {name: call[name].detach().clone() for name in names}
        result = call.run()
        with call.torch.no_grad():
            for name, values in before.items():
                call[name].copy_(values)
        return result

    return change


@register
class RunningStatisticsTwice(Rewrite):
    """A forward pass too many, say of a recomputation."""

    id = "running_statistics_twice"
    phase = "state"
    text = "the running statistics move twice"
    functions = STATISTICS
    ways = any_of({"": lambda call: (call.run(), call.run())[1]})


@register
class RunningDeviation(Rewrite):
    """The standard deviation is remembered."""

    id = "running_variance_deviation"
    phase = "state"
    text = "the running variance follows the batch's standard deviation"
    functions = STATISTICS
    ways = any_of({"": lambda call: _deviation(call)})


def _deviation(call: Call) -> Any:
    before, momentum = call["running_var"].detach().clone(), call["momentum"]
    result = call.run()
    with call.torch.no_grad():
        batch = (call["running_var"] - (1.0 - momentum) * before) / momentum
        call["running_var"].copy_((1.0 - momentum) * before + momentum * batch.sqrt())
    return result


_AVERAGING = ("mul", "add", "lerp", "sub")


class _MovingAverage(Hypothesis):
    """Of parameters that the unit's own code moves towards others: `k = m k + (1 - m) q`."""

    phase = "state"

    def changes(self, m: float, sites: list[Site]) -> Iterator[tuple[str, Mapping[Key, Change]]]:
        """Ways to make the calls that move the average, all at once."""
        raise NotImplementedError

    def variants(self, subject: LayerSubject) -> Iterator[CallVariant]:
        """Where a coefficient and its complement occur."""
        if not any(name.startswith("state.") for name in subject.port) and subject.scene.phase == "state":
            return
        sites = subject.named(*_AVERAGING)
        numbers = {round(value, 12) for site in sites for value in coefficients(site).values()}
        pairs = [m for m in sorted(numbers, reverse=True) if 0.5 <= m <= 1.0]
        for m in pairs:
            chosen = [s for s in sites if any(_is(v, m) or _is(v, 1.0 - m) for v in coefficients(s).values())]
            for detail, changes in self.changes(m, chosen):
                yield subject.variant(detail, changes)


def _is(value: float, other: float) -> bool:
    return abs(value - other) < 1e-9


def coefficients(site: Site) -> dict[str, float]:
    """The numbers by which a call weighs its operands."""
    names = {"mul": ("other", "input"), "add": ("alpha",), "sub": ("alpha",), "lerp": ("weight", "2")}[site.name]
    found = {name: site.arguments.get(name) for name in names}
    return {name: float(v) for name, v in found.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}


@register
class AverageInverted(_MovingAverage):
    """0.99 given where 0.01 is meant."""

    id = "ema_inverted"
    text = "the moving average weighs old and new the other way round (m and 1 - m swapped)"
    difference = "ema_update_idioms"

    def changes(self, m: float, sites: list[Site]) -> Iterator[tuple[str, Mapping[Key, Change]]]:
        """Every coefficient's complement."""
        yield f"m = {m:g}", {site.key: _with_coefficient(site, lambda value: 1.0 - value) for site in sites}


@register
class AverageMomentum(_MovingAverage):
    """Say the base value where the schedule's is meant."""

    id = "ema_momentum"
    text = "the moving average has another coefficient"
    rank = 1

    def changes(self, m: float, sites: list[Site]) -> Iterator[tuple[str, Mapping[Key, Change]]]:
        """Usual ones."""
        for other in (0.99, 0.996, 0.999, 0.9999, 0.9, 0.95, 0.5, 0.98, 0.995):
            if not _is(other, m):
                moved = {site.key: _with_coefficient(site, _mapped(m, other)) for site in sites}
                yield f"{other:g} in place of {m:g}", moved


def _mapped(m: float, other: float) -> Any:
    return lambda value: other if _is(value, m) else 1.0 - other


def _with_coefficient(site: Site, change: Any) -> Change:
    replaced = {name: change(value) for name, value in coefficients(site).items()}
    return lambda call: call.run(**replaced)


@register
class AverageNotMoved(_MovingAverage):
    """Assignments to loop variables have no effect in paddle; or the average moves after its use, not before."""

    id = "ema_not_moved"
    text = "the moving average has not moved when it is used: it moves later, or not at all"
    difference = "ema_update_idioms"

    def changes(self, m: float, sites: list[Site]) -> Iterator[tuple[str, Mapping[Key, Change]]]:
        """Every call that moves it left out."""
        yield f"m = {m:g}", {site.key: lambda call: call["input"] for site in sites}


@register
class AverageHalfMoved(_MovingAverage):
    """Scaled by m, the new values never added; or added without scaling."""

    id = "ema_term_missing"
    text = "the moving average lacks one of its two terms"

    def changes(self, m: float, sites: list[Site]) -> Iterator[tuple[str, Mapping[Key, Change]]]:
        """One kind of call left out."""
        for name in {site.name for site in sites}:
            yield name, {site.key: lambda call: call["input"] for site in sites if site.name == name}
