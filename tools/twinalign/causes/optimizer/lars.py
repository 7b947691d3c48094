"""LARS, whose steps are rescaled to the size of the weights."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from twinalign.causes.component import fitted
from twinalign.causes.optimizer.moments import has, port_numbers, present, setting
from twinalign.causes.optimizer.subject import Moment, OptimizerSubject, step_cause
from twinalign.causes.registry import Variant

TRUST = ("trust_coefficient", "trust_coeff", "eta")


def trust_name(subject: OptimizerSubject) -> str:
    """How the groups of a LARS call its trust coefficient; empty where it is no LARS."""
    return next((name for name in TRUST if has(subject, name, "momentum")), "")


@step_cause(where=trust_name)
def lars_trust_coefficient(subject: OptimizerSubject) -> Iterator[Variant]:
    """The trust coefficient of LARS differs."""
    name = trust_name(subject)
    now = present(subject, name)
    candidates = [*port_numbers(subject, *TRUST, "lars_coeff"), 0.001, 0.02, 0.01, 1.0, 10 * now, now / 10]
    yield from (setting(subject, name, value) for value in dict.fromkeys(candidates) if value != now)
    yield from fitted(subject, lambda value: setting(subject, name, value), now)


class _Sizes(NamedTuple):
    """What a trust ratio may be made of: norms of weight, gradient and decayed gradient, and the group's numbers."""

    weight: float
    gradient: float
    decayed: float
    decay: float
    rate: float


def _sizes(moment: Moment) -> _Sizes:
    decay = float(moment.group.get("weight_decay", 0.0))
    decayed = moment.gradient + decay * moment.before
    weight, gradient, both = (float(tensor.norm()) for tensor in (moment.before, moment.gradient, decayed))
    return _Sizes(weight, gradient, both, decay, float(moment.group["lr"]))


@step_cause(where=trust_name)
def lars_trust_on_one_dimensional(subject: OptimizerSubject) -> Iterator[Variant]:
    """LARS rescales the one-dimensional parameters too, biases and scales of normalisation layers."""
    name = trust_name(subject)

    def gradient(moment: Moment, decayed: bool) -> Any:
        if moment.parameter.ndim > 1:
            return moment.gradient
        own = _sizes(moment)
        size = own.decayed if decayed else own.gradient
        ratio = moment.group[name] * own.weight / size if own.weight > 0 and size > 0 else 1.0
        return (moment.gradient + (own.decay * moment.before if decayed else 0.0)) * ratio

    yield subject.changed("", gradient=lambda moment: gradient(moment, False))
    yield subject.changed("and decays them", gradient=lambda moment: gradient(moment, True))


def _with_ratio(subject: OptimizerSubject, detail: str, ratio: Callable[[float, _Sizes], float]) -> Variant:
    """Another trust ratio, made of the coefficient and the sizes, by a coefficient that gives it in the reference."""
    name = trust_name(subject)

    def settings(moment: Moment) -> dict[str, float]:
        sizes = _sizes(moment)
        if moment.parameter.ndim <= 1 or not sizes.weight > 0 or not sizes.decayed > 0:
            return {}
        return {name: ratio(moment.group[name], sizes) * sizes.decayed / sizes.weight}

    return subject.changed(detail, settings=settings)


@step_cause(where=trust_name)
def lars_trust_missing(subject: OptimizerSubject) -> Iterator[Variant]:
    """The trust ratio of LARS is not applied."""
    yield _with_ratio(subject, "", lambda coefficient, sizes: 1.0)
    yield _with_ratio(subject, "its coefficient is", lambda coefficient, sizes: coefficient)


@step_cause(where=trust_name)
def lars_trust_denominator(subject: OptimizerSubject) -> Iterator[Variant]:
    """The trust ratio of LARS divides by another norm than that of the decayed gradient."""
    # The first is as the paper has it.
    yield _with_ratio(subject, "|g| + wd |w|", lambda c, s: c * s.weight / (s.gradient + s.decay * s.weight))
    yield _with_ratio(subject, "|g|", lambda c, s: c * s.weight / s.gradient)


@step_cause(where=trust_name)
def lars_epsilon(subject: OptimizerSubject) -> Iterator[Variant]:
    """An epsilon is added to the denominator of LARS's trust ratio."""
    candidates = [*port_numbers(subject, "epsilon", "eps", "lars_eps"), 1e-8, 1e-9, 1e-6, 1e-5, 1e-3, 1.0]
    for epsilon in filter(None, dict.fromkeys(candidates)):

        def ratio(coefficient: float, sizes: _Sizes, epsilon: float = epsilon) -> float:
            return coefficient * sizes.weight / (sizes.decayed + epsilon)

        yield _with_ratio(subject, f"{epsilon:g}", ratio)


@step_cause(where=trust_name)
def lars_ratio_clipped(subject: OptimizerSubject) -> Iterator[Variant]:
    """The trust ratio of LARS is limited."""

    def limited(coefficient: float, sizes: _Sizes) -> float:
        return min(coefficient * sizes.weight / sizes.decayed / sizes.rate, 1.0) if sizes.rate else 1.0

    yield _with_ratio(subject, "to 1", lambda coefficient, sizes: limited(coefficient, sizes._replace(rate=1.0)))
    yield _with_ratio(subject, "to the learning rate, as LARC has it", limited)
