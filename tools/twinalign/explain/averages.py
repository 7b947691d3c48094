"""Faults of moving averages of parameters, such as a momentum encoder's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from twinalign.explain.calls import Call, Change, Key, Site
from twinalign.explain.registry import Hypothesis, register
from twinalign.explain.subject import CallVariant, LayerSubject

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
            for detail, changes in self.changes(m, self.averaging(subject, m)):
                yield subject.variant(detail, changes)

    def averaging(self, subject: LayerSubject, m: float) -> list[Site]:
        """The calls that weigh by m or by 1 - m."""
        sites = subject.named(*_AVERAGING)
        return [s for s in sites if any(_is(v, m) or _is(v, 1.0 - m) for v in coefficients(s).values())]


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
    """Say the base value where the schedule's is meant, or two moves where one is."""

    id = "ema_momentum"
    text = "the moving average has another coefficient"
    rank = 1

    def changes(self, m: float, sites: list[Site]) -> Iterator[tuple[str, Mapping[Key, Change]]]:
        """Of two moves, of a copy, and usual ones."""
        for other in (m * m, 0.0, 0.99, 0.996, 0.999, 0.9999, 0.9, 0.95, 0.5, 0.98, 0.995):
            if not _is(other, m):
                yield f"{other:g} in place of {m:g}", _with_average(sites, m, other)

    def variants(self, subject: LayerSubject) -> Iterator[CallVariant]:
        """These, and the one that the port's values give where the average has not moved in another way."""
        yield from super().variants(subject)
        for still in AverageNotMoved().variants(subject):
            before = subject.run(still)
            m = float(still.detail.removeprefix("m = "))
            for name, reference in subject.reference.items():
                if name.startswith("state.") and name in before and (moved := reference - before[name]).any():
                    at = np.unravel_index(int(np.argmax(np.abs(moved))), moved.shape)
                    share = float((subject.port[name][at] - before[name][at]) / moved[at])
                    yield subject.variant(
                        f"{1.0 - share * (1.0 - m):.9g} in place of {m:g}",
                        _with_average(self.averaging(subject, m), m, 1.0 - share * (1.0 - m)),
                    )
                    break


def _with_average(sites: list[Site], m: float, other: float) -> Mapping[Key, Change]:
    return {site.key: _with_coefficient(site, _mapped(m, other)) for site in sites}


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


@register
class AverageOfBuffers(_MovingAverage):
    """Running statistics are parameters in paddle, and move with whatever runs over `parameters()`."""

    id = "ema_buffers"
    text = "the moving average covers the running statistics as well"
    difference = "bn_stats_are_parameters"

    def variants(self, subject: LayerSubject) -> Iterator[CallVariant]:
        """Once the last parameter has moved, the statistics move too."""
        for still in AverageNotMoved().variants(subject):
            m = float(still.detail.removeprefix("m = "))
            sites = self.averaging(subject, m)
            pairs = _averaged_buffers(subject, sites, m)
            if pairs:
                last = max(sites, key=lambda site: site.position)
                yield subject.variant(f"m = {m:g}", {last.key: _moving_too(pairs, m)})


def _averaged_buffers(subject: LayerSubject, sites: list[Site], m: float) -> list[tuple[Any, Any]]:
    """Floating-point buffers of the averaged network beside those of the trained one."""
    owned = {name for site in sites for name in (site.parameter("input"), site.parameter("other")) if name}
    averaged = {site.parameter("input") for site in sites if any(_is(v, m) for v in coefficients(site).values())}
    first = next((name for name in sorted(filter(None, averaged))), None)
    buffers = {} if subject.module is None else dict(subject.module.named_buffers())
    for other in sorted(owned - averaged):
        prefix, _, suffix = other.partition(".")
        if first is not None and first.endswith(f".{suffix}"):
            ours = first.removesuffix(suffix)
            pairs = [(name, f"{prefix}.{name.removeprefix(ours)}") for name in buffers if name.startswith(ours)]
            tensors = [(buffers[k], buffers[q]) for k, q in pairs if q in buffers]
            return [(k, q) for k, q in tensors if k.is_floating_point()]
    return []


def _moving_too(pairs: list[tuple[Any, Any]], m: float) -> Change:
    def change(call: Call) -> Any:
        result = call.run()
        for averaged, trained in pairs:
            averaged.mul_(m).add_(trained, alpha=1.0 - m)
        return result

    return change
