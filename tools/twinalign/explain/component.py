"""Proving causes outside of the model: in the optimizer, its schedule, the input pipeline and the metric.

A component is re-run on the reference's side with something changed; the change is the cause where it gives the port's
values down to what rounding leaves.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from twinalign.explain.registry import Hypothesis, Variant, hypotheses
from twinalign.locate.components import distance, root_mean_square
from twinalign.locate.faults import Explanation

SHARE = 1e-6
"""Of a difference that a hypothesis explains, at most this share may remain."""
REDUCTION = 0.02
"""Where the remainder is excused by rounding, the difference must have shrunk at least to this share."""

CLEARLY_LESS = 0.1
"""A later hypothesis is preferred to one that was proven before it if it leaves less than this share of the rest."""


class Component(Protocol):
    """What is examined.

    Attributes:
        impatient: whether a run may leave out values once others are refuted.
    """

    impatient: bool

    @property
    def port(self) -> Mapping[str, np.ndarray]:
        """The port's values by name, which are to be reproduced."""

    @property
    def reference(self) -> Mapping[str, np.ndarray]:
        """The reference's, by the same names."""

    @property
    def floors(self) -> Mapping[str, float]:
        """Of each name, the root mean square of what rounding may leave."""

    def run(self) -> Mapping[str, np.ndarray]:
        """Values of the reference's component under the names of `port`, with whatever is changed at present."""

    def holds_everywhere(self) -> bool:
        """Whether what is changed at present reproduces the port also where `port` does not look."""


@dataclasses.dataclass(frozen=True)
class Replaced:
    """A variant that consists of other values of attributes of the component."""

    detail: str
    component: Any
    values: Mapping[str, Any]

    @contextlib.contextmanager
    def apply(self) -> Iterator[None]:
        """Within the context the component has these values."""
        before = {name: getattr(self.component, name) for name in self.values}
        for name, value in self.values.items():
            setattr(self.component, name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(self.component, name, value)


@dataclasses.dataclass(frozen=True)
class Remainder:
    """What a hypothesis leaves: whether it is proven, and the greatest share of a difference that remains."""

    proven: bool
    share: float


def remainder(component: Component, values: Mapping[str, np.ndarray]) -> Remainder:
    """Judge values by every name of the port, also by those in which the reference is right."""
    found = [_remainder_of(component, name, values.get(name)) for name in component.port]
    return Remainder(all(one.proven for one in found), max((one.share for one in found), default=0.0))


def is_refuted(component: Component, values: Mapping[str, np.ndarray]) -> bool:
    """Whether some of these values, of the port's names, are not the port's, so that the others need not be made."""
    return any(name in component.port and not _remainder_of(component, name, v).proven for name, v in values.items())


def allowed_remainder(before: float, floor: float) -> float:
    """Root mean square that may be left of a difference which is more than its floor."""
    return max(SHARE * before, min(floor, REDUCTION * before))


def _remainder_of(component: Component, name: str, value: np.ndarray | None) -> Remainder:
    port, floor = component.port[name], component.floors.get(name, 0.0)
    before, after = distance(component.reference.get(name), port), distance(value, port)
    if before <= floor:
        return Remainder(after <= floor, 0.0)
    allowed = allowed_remainder(before, floor)
    share = 0.0 if after == 0.0 else after / before if np.isfinite(before) else after
    return Remainder(bool(after <= allowed and np.isfinite(after)), float(share))


def wrong_names(component: Component) -> list[str]:
    """Names in which the port differs by more than rounding."""
    return [
        name
        for name, port in component.port.items()
        if distance(component.reference.get(name), port) > component.floors.get(name, 0.0)
    ]


def explain(component: Component, candidates: Iterable[Hypothesis] | None = None, *phases: str) -> Explanation | None:
    """The first hypothesis that leaves nothing, else the one that leaves least; None where none is proven.

    Nothing is explained where the unmodified re-run does not give the reference's own values: then it proves nothing.
    """
    if not wrong_names(component) or not _repeats(component):
        return None
    best: Explanation | None = None
    for hypothesis in hypotheses(*phases) if candidates is None else candidates:
        for variant in hypothesis.variants(component):
            found = _try(component, hypothesis, variant)
            if found is None:
                continue
            share = found.evidence["remaining_error"]
            if best is None or share < CLEARLY_LESS * best.evidence["remaining_error"]:
                best = found
            if share <= SHARE:
                return best
    return best


def _repeats(component: Component) -> bool:
    values = component.run()
    return all(
        distance(values.get(name), reference)
        <= max(component.floors.get(name, 0.0), 1e-12 * root_mean_square(reference))
        for name, reference in component.reference.items()
        if name in component.port
    )


def _try(component: Component, hypothesis: Hypothesis, variant: Variant) -> Explanation | None:
    component.impatient = True
    try:
        with variant.apply():
            found = remainder(component, component.run())
            if not found.proven or not component.holds_everywhere():
                return None
    except Exception:  # the reference refuses to be made wrong in this way: then it is not what the port does
        return None
    finally:
        component.impatient = False
    text = f"{hypothesis.text} ({variant.detail})" if variant.detail else hypothesis.text
    return Explanation(hypothesis.id, text, evidence={"unexplained_error": 1.0, "remaining_error": found.share})


def fitted(component: Component, make: Callable[[float], Variant], start: float) -> Iterator[Variant]:
    """The variant whose one constant comes closest to the port, from `start` on, where there is one (Gauss-Newton)."""
    value = start
    for _ in range(12):
        step = 1e-4 * abs(value) or 1e-6
        try:
            residual = _residual(component, make(value))
            slope = (_residual(component, make(value + step)) - residual) / step
        except Exception:  # as in _try
            return
        size = float(slope @ slope)
        if not size or not np.isfinite(size):
            return
        change = -float(slope @ residual) / size
        value += change
        if abs(change) <= 1e-13 * abs(value):
            break
    yield make(value)


def _residual(component: Component, variant: Variant) -> np.ndarray:
    with variant.apply():
        values = component.run()
    parts = []
    for name in wrong_names(component):
        port = np.asarray(component.port[name], dtype=np.float64)
        parts.append(((values[name] - port) / (distance(component.reference[name], port) * np.sqrt(port.size))).ravel())
    return np.concatenate(parts)
