"""Faults of moving averages of parameters, such as a momentum encoder's."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from twinalign.backends.torch.reference_only.operations import Change, FunctionCall, Key, Site
from twinalign.causes.layers.changed_calls import as_change, changing, state
from twinalign.causes.layers.subject import CallVariant, LayerSubject

_AVERAGING = ("mul", "add", "lerp", "sub")


def _averages(subject: LayerSubject) -> Iterator[tuple[float, list[Site]]]:
    """Each m of `k = m k + (1 - m) q` in the unit's own code, and the calls that weigh by m or by 1 - m."""
    if subject.unit.phase == "state" and not any(name.startswith("state.") for name in subject.port):
        return
    sites = subject.named(*_AVERAGING)
    numbers = {round(value, 12) for site in sites for value in coefficients(site).values()}
    for m in sorted(numbers, reverse=True):
        if 0.5 <= m <= 1.0:
            yield m, [s for s in sites if any(_is(v, m) or _is(v, 1.0 - m) for v in coefficients(s).values())]


def _is(value: float, other: float) -> bool:
    return abs(value - other) < 1e-9


def coefficients(site: Site) -> dict[str, float]:
    """The numbers by which a call weighs its operands."""
    names = {"mul": ("other", "input"), "add": ("alpha",), "sub": ("alpha",), "lerp": ("weight", "2")}[site.name]
    found = {name: site.arguments.get(name) for name in names}
    return {name: float(v) for name, v in found.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}


def _with_coefficients(sites: list[Site], change: Callable[[float], float]) -> Mapping[Key, Change]:
    """Each call with other numbers in the place of those by which it weighs."""
    return {site.key: changing(**{name: change(v) for name, v in coefficients(site).items()}) for site in sites}


def _with_average(sites: list[Site], m: float, other: float) -> Mapping[Key, Change]:
    return _with_coefficients(sites, lambda value: other if _is(value, m) else 1.0 - other)


def _left_out(sites: list[Site]) -> Mapping[Key, Change]:
    return {site.key: lambda call: call["input"] for site in sites}


@state(difference="ema_update_idioms")
def ema_inverted(subject: LayerSubject) -> Iterator[CallVariant]:
    """The moving average weighs old and new the other way round (m and 1 - m swapped)."""
    # For example 0.99 given where 0.01 is meant.
    for m, sites in _averages(subject):
        yield subject.variant(f"m = {m:g}", _with_coefficients(sites, lambda value: 1.0 - value))


@state(rank=1)
def ema_momentum(subject: LayerSubject) -> Iterator[CallVariant]:
    """The moving average has another coefficient."""
    # For example the base value in place of the schedule's, or two updates in place of one.
    for m, sites in _averages(subject):
        for other in (m * m, 0.0, 0.99, 0.996, 0.999, 0.9999, 0.9, 0.95, 0.5, 0.98, 0.995):
            if not _is(other, m):
                copied = ", a copy, as a first update may be" if other == 0.0 else ""
                yield subject.variant(f"{other:g} in place of {m:g}{copied}", _with_average(sites, m, other))
    # Then the coefficient that the port's values give, read off what has moved most.
    for m, sites in _averages(subject):
        before = subject.run(subject.variant("", _left_out(sites)))
        for name, reference in subject.reference.items():
            if name.startswith("state.") and name in before and (moved := reference - before[name]).any():
                at = np.unravel_index(int(np.argmax(np.abs(moved))), moved.shape)
                share = float((subject.port[name][at] - before[name][at]) / moved[at])
                other = 1.0 - share * (1.0 - m)
                yield subject.variant(f"{other:.9g} in place of {m:g}", _with_average(sites, m, other))
                break


@state(difference="ema_update_idioms")
def ema_not_moved(subject: LayerSubject) -> Iterator[CallVariant]:
    """The moving average is not updated before it is used: it is updated later, or not at all."""
    # An assignment to a loop variable has no effect; or the average moves after its use, not before.
    for m, sites in _averages(subject):
        yield subject.variant(f"m = {m:g}", _left_out(sites))


@state()
def ema_term_missing(subject: LayerSubject) -> Iterator[CallVariant]:
    """The moving average lacks one of its two terms."""
    # The old values are scaled and nothing is added, or the new ones are added without scaling.
    for _, sites in _averages(subject):
        for name in dict.fromkeys(site.name for site in sites):
            yield subject.variant(name, _left_out([site for site in sites if site.name == name]))


@state(difference="bn_stats_are_parameters")
def ema_buffers(subject: LayerSubject) -> Iterator[CallVariant]:
    """The moving average covers the running statistics as well."""
    # Running statistics are parameters in paddle, so a loop over `parameters()` moves them too.
    for m, sites in _averages(subject):
        if pairs := _averaged_buffers(subject, sites, m):
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


@as_change
def _moving_too(call: FunctionCall, pairs: list[tuple[Any, Any]], m: float) -> Any:
    result = call.run()
    with call.torch.no_grad():
        for averaged, trained in pairs:
            averaged.mul_(m).add_(trained, alpha=1.0 - m)
    return result
