"""Hypotheses about LARS, whose steps are rescaled to the size of the weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from twinalign.explain.component import fitted
from twinalign.explain.optimizer import Moment, OptimizerSubject, StepChange, StepHypothesis
from twinalign.explain.optimizer_moments import has, port_numbers, present, setting
from twinalign.explain.registry import Variant, register

TRUST = ("trust_coefficient", "trust_coeff", "eta")


def trust_name(subject: OptimizerSubject) -> str | None:
    """How the groups of a LARS call its trust coefficient; None where it is no LARS."""
    return next((name for name in TRUST if has(subject, name, "momentum")), None)


@register
class TrustCoefficient(StepHypothesis):
    """Another trust coefficient."""

    id = "lars_trust_coefficient"
    text = "the trust coefficient of LARS is another one"

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        """The port's own, usual ones, and the one that fits."""
        name = trust_name(subject)
        if name is None:
            return
        now = present(subject, name)
        candidates = [*port_numbers(subject, *TRUST, "lars_coeff"), 0.001, 0.02, 0.01, 1.0, 10 * now, now / 10]
        yield from (setting(subject, name, value) for value in dict.fromkeys(candidates) if value != now)
        yield from fitted(subject, lambda value: setting(subject, name, value), now)


def _norms(moment: Moment) -> tuple[float, float, float, float]:
    """Norms of weight, gradient and both together, and the coefficient of decay."""
    decay = float(moment.group.get("weight_decay", 0.0))
    decayed = moment.gradient + decay * moment.before
    return float(moment.before.norm()), float(moment.gradient.norm()), float(decayed.norm()), decay


@register
class TrustOnOneDimensional(StepHypothesis):
    """LARS's ratio for biases and norms too."""

    id = "lars_trust_on_one_dimensional"
    text = "LARS rescales the one-dimensional parameters too, biases and scales of normalisation layers"

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        """Without decay of them, and with it."""
        name = trust_name(subject)
        if name is None:
            return

        def gradient(moment: Moment, decayed: bool) -> Any:
            if moment.parameter.ndim > 1:
                return moment.gradient
            weight, plain, both, decay = _norms(moment)
            size = both if decayed else plain
            ratio = moment.group[name] * weight / size if weight > 0 and size > 0 else 1.0
            return (moment.gradient + (decay * moment.before if decayed else 0.0)) * ratio

        yield subject.changed("", StepChange(gradient=lambda moment: gradient(moment, False)))
        yield subject.changed("and decays them", StepChange(gradient=lambda moment: gradient(moment, True)))


class _OtherRatio(StepHypothesis):
    """Another trust ratio: the coefficient is set so that the reference's code arrives at it."""

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        name = trust_name(subject)
        if name is not None:
            yield from (
                subject.changed(detail, _ratio_change(name, ratio)) for detail, ratio in self.ratios(subject, name)
            )

    def ratios(self, subject: OptimizerSubject, name: str) -> Iterator[tuple[str, Any]]:
        """What distinguishes it, and the ratio of a moment."""
        raise NotImplementedError


def _ratio_change(name: str, ratio: Any) -> StepChange:
    def settings(moment: Moment) -> dict[str, float]:
        weight, _, both, _ = _norms(moment)
        if moment.parameter.ndim <= 1 or not weight > 0 or not both > 0:
            return {}
        return {name: ratio(moment) * both / weight}

    return StepChange(settings=settings)


@register
class TrustMissing(_OtherRatio):
    """Plain momentum SGD with decay."""

    id = "lars_trust_missing"
    text = "the trust ratio of LARS is not applied"

    def ratios(self, subject: OptimizerSubject, name: str) -> Iterator[tuple[str, Any]]:
        """Ratio 1, or the coefficient alone."""
        yield "", lambda moment: 1.0
        yield "its coefficient is", lambda moment: moment.group[name]


@register
class TrustDenominator(_OtherRatio):
    """The paper's |g| + wd |w|, or |g|, for |g + wd w|."""

    id = "lars_trust_denominator"
    text = "the trust ratio of LARS divides by another norm than that of the decayed gradient"

    def ratios(self, subject: OptimizerSubject, name: str) -> Iterator[tuple[str, Any]]:
        """The paper's sum of norms, and the bare gradient's norm."""

        def summed(moment: Moment) -> float:
            weight, plain, _, decay = _norms(moment)
            return float(moment.group[name] * weight / (plain + decay * weight))

        def bare(moment: Moment) -> float:
            weight, plain, _, _ = _norms(moment)
            return float(moment.group[name] * weight / plain)

        yield "|g| + wd |w|", summed
        yield "|g|", bare


@register
class TrustEpsilon(_OtherRatio):
    """An epsilon in the denominator of the ratio, or another one."""

    id = "lars_epsilon"
    text = "an epsilon is added to the denominator of LARS's trust ratio"

    def ratios(self, subject: OptimizerSubject, name: str) -> Iterator[tuple[str, Any]]:
        """The port's own, and usual ones."""
        candidates = [*port_numbers(subject, "epsilon", "eps", "lars_eps"), 1e-8, 1e-9, 1e-6, 1e-5, 1e-3, 1.0]
        for epsilon in dict.fromkeys(candidates):
            if epsilon:
                yield f"{epsilon:g}", lambda moment, epsilon=epsilon: _with_epsilon(moment, name, epsilon)


def _with_epsilon(moment: Moment, name: str, epsilon: float) -> float:
    weight, _, both, _ = _norms(moment)
    return float(moment.group[name] * weight / (both + epsilon))


@register
class TrustClipped(_OtherRatio):
    """LARC's clipping: never faster than plain SGD."""

    id = "lars_ratio_clipped"
    text = "the trust ratio of LARS is limited"

    def ratios(self, subject: OptimizerSubject, name: str) -> Iterator[tuple[str, Any]]:
        """At 1 (or 1 over the rate, as LARC has it)."""

        def limited(moment: Moment, by_rate: bool) -> float:
            weight, _, both, _ = _norms(moment)
            ratio = moment.group[name] * weight / both
            rate = float(moment.group["lr"]) if by_rate else 1.0
            return float(min(ratio / rate, 1.0)) if rate else 1.0

        yield "to 1", lambda moment: limited(moment, False)
        yield "to the learning rate, as LARC has it", lambda moment: limited(moment, True)
