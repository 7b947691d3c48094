"""Hypotheses about what an optimizer is given and how far it goes: rates, scaled gradients, parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from twinalign.explain.component import fitted
from twinalign.explain.optimizer import Moment, OptimizerSubject, StepChange, StepHypothesis
from twinalign.explain.registry import Variant, register
from twinalign.locate.components import distance
from twinalign.stages.context import step_inputs


def factors(subject: OptimizerSubject) -> list[tuple[str, float]]:
    """Factors by which rates and gradients go wrong, with what they stand for."""
    batch = next((array.shape[0] for array in step_inputs(subject.case).values() if array.ndim), 1)
    found = [
        ("10", 10.0),
        ("1/10", 0.1),
        ("2", 2.0),
        ("1/2", 0.5),
        ("4", 4.0),
        ("1/4", 0.25),
        ("8", 8.0),
        ("1/8", 0.125),
    ]
    if batch > 1:
        found += [
            (f"{batch}/256, the linear scaling of a batch of {batch}", batch / 256),
            (f"256/{batch}, the linear scaling of a batch of {batch} missing", 256 / batch),
            (f"{batch}, the batch: a sum, not a mean", float(batch)),
            (f"1/{batch}, the batch", 1 / batch),
        ]
    found += [("100", 100.0), ("1/100", 0.01), ("1000", 1000.0), ("1/1000", 0.001)]
    return list({value: (text, value) for text, value in reversed(found)}.values())[::-1]


@register
class RateFactor(StepHypothesis):
    """The rate that reaches the parameters is another one than the optimizer tells."""

    id = "learning_rate_factor"
    text = "the optimizer moves the parameters with a multiple of the learning rate"
    difference = "param_group_lr_multiplier"

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        """Usual factors, and the one that fits; the decoupled decay with it, and without."""

        def variant(factor: float, text: str | None = None) -> Variant:
            change = StepChange(settings=lambda moment: {"lr": moment.group["lr"] * factor})
            return subject.changed(f"times {text or f'{factor:.6g}'}", change)

        yield from (variant(factor, text) for text, factor in factors(subject))
        yield from fitted(subject, variant, 1.5)


class _GroupRates(StepHypothesis):
    """Rates of parameter groups: torch's are absolute, paddle's multiply."""

    rank = -1

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        rates = [group["lr"] for group in subject.group_of.values()]
        defaults = subject.make_optimizer().defaults
        if len(set(rates)) < 2 or not defaults.get("lr"):
            return
        base = defaults["lr"]
        first = next(iter(subject.group_of))

        def settings(moment: Moment) -> dict[str, float]:
            # The first group's rate moves with the schedule; what the base would be is in proportion.
            scheduled = subject.settings[moment.step][first]["lr"] / subject.group_of[first]["lr"]
            return {"lr": self.rate(moment.group["lr"], base * scheduled)}

        yield subject.changed("", StepChange(settings=settings))

    def rate(self, own: float, base: float) -> float:
        """The rate of a group, from its own in torch and the optimizer's."""
        raise NotImplementedError


@register
class GroupRateIgnored(_GroupRates):
    """A group's "lr" is a key that paddle does not know."""

    id = "group_rate_ignored"
    text = "the learning rates of parameter groups have no effect: all parameters have the optimizer's"
    difference = "param_group_lr_multiplier"

    def rate(self, own: float, base: float) -> float:
        """The optimizer's for all."""
        return base


@register
class GroupRateMultiplied(_GroupRates):
    """A group's "learning_rate" multiplies the optimizer's."""

    id = "group_rate_multiplied"
    text = "the learning rates of parameter groups multiply the optimizer's, and are meant to replace it"
    difference = "param_group_lr_multiplier"

    def rate(self, own: float, base: float) -> float:
        """The product."""
        return own * base


@register
class RateOfSome(StepHypothesis):
    """A factor for the wrong parameters only: layer-wise rates that stuck, or are missing."""

    id = "learning_rate_of_some"
    text = "some parameters have another learning rate"
    difference = "param_group_sticky"
    rank = 2

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        """The factor that fits all that are wrong."""
        wrong = set(subject.wrong)
        listed = ", ".join(subject.wrong[:4]) + (" and others" if len(wrong) > 4 else "")

        def variant(factor: float) -> Variant:
            change = StepChange(
                settings=lambda moment: {"lr": moment.group["lr"] * factor} if moment.name in wrong else {}
            )
            return subject.changed(f"{listed}: times {factor:.6g}", change)

        yield from fitted(subject, variant, 1.5)


@register
class ParametersLeftOut(StepHypothesis):
    """Not handed to the optimizer, or frozen."""

    id = "parameters_left_out"
    text = "some parameters are not updated at all: they are frozen, or were not given to the optimizer"

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        """Those whose update is zero in the port and not in the reference."""
        still = {name for name in subject.wrong if not _moves(subject.whole_port, name)}
        if not still:
            return
        listed = ", ".join(sorted(still)[:4]) + (" and others" if len(still) > 4 else "")

        def take(optimizer: Any, moments: list[Moment]) -> None:
            for moment in moments:
                if moment.name in still:
                    moment.parameter.grad = None
            optimizer.step()

        yield subject.changed(listed, StepChange(step=take))


def _moves(values: dict[str, np.ndarray], name: str) -> bool:
    return any(array.any() for key, array in values.items() if key.split(".", 2)[1:] == ["update", name])


def scaled(factor: Callable[[Moment], float]) -> StepChange:
    """Gradients times a factor."""
    return StepChange(gradient=lambda moment: moment.gradient * factor(moment))


@register
class GradientSign(StepHypothesis):
    """Ascent."""

    id = "gradient_sign"
    text = "the gradient's sign is the other one: the parameters climb"

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        """Of the gradient, and of the whole step."""
        yield subject.changed("", scaled(lambda moment: -1.0))
        change = StepChange(after=lambda moment: moment.parameter.data.copy_(2 * moment.before - moment.parameter.data))
        yield subject.changed("with the decay", change)


@register
class GradientScaled(StepHypothesis):
    """A sum for a mean, accumulation without division, a loss scale that stays."""

    id = "gradient_scaled"
    text = "the optimizer is given a multiple of the gradient"
    difference = "grad_accumulation"

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        """Usual factors, loss scales, and the one that fits."""

        def variant(factor: float, text: str | None = None) -> Variant:
            return subject.changed(f"times {text or f'{factor:.6g}'}", scaled(lambda moment: factor))

        yield from (variant(factor, text) for text, factor in factors(subject))
        yield from (variant(2.0**power, f"2^{power}, a loss scale") for power in (15, 16, 10, 8))
        yield from fitted(subject, variant, 1.5)


@register
class MissingGradientIsZero(StepHypothesis):
    """clear_grad fills with zeros, and decay and momentum go on."""

    id = "missing_gradient_is_zero"
    text = "parameters without a gradient are updated as if it were zero: decay and momentum move them"
    difference = "clear_grad_vs_none"
    rank = 1

    def of(self, subject: OptimizerSubject) -> Iterable[Variant]:
        """One way; parameters without a gradient in the reference are looked at for it."""
        if all(name in subject.gradients for name in subject.judged):
            return []
        return [subject.changed("", StepChange(missing_as_zero=True))]


@register
class SteppedTwice(StepHypothesis):
    """The step is taken twice."""

    id = "optimizer_stepped_twice"
    text = "every step is taken twice"

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        """One way."""

        def take(optimizer: Any, moments: list[Moment]) -> None:
            optimizer.step()
            optimizer.step()

        yield subject.changed("", StepChange(step=take))


@register
class GradientsKept(StepHypothesis):
    """Gradients of earlier steps are not cleared."""

    id = "gradient_not_cleared"
    text = "gradients of earlier steps are not cleared, and add up"
    difference = "grad_accumulation"

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        """One way."""

        def gradient(moment: Moment) -> Any:
            moment.kept["sum"] = moment.gradient + moment.kept.get("sum", 0.0)
            return moment.kept["sum"]

        yield subject.changed("", StepChange(gradient=gradient))


@register
class GradientsExchanged(StepHypothesis):
    """State or gradients reach another parameter of the same shape."""

    id = "parameters_exchanged"
    text = "parameters are given the gradients of other parameters of the same shape"
    difference = "optimizer_state_name_keyed"
    rank = 1

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        """The one whose state after the first step is the port's."""
        source: dict[str, str] = {}
        for name in subject.wrong:
            key = next(
                (f"0.{q}.{name}" for q in ("moment1", "velocity") if f"0.{q}.{name}" in subject.whole_port), None
            )
            if key is None:
                return
            quantity = key.split(".", 2)[1]
            port = subject.whole_port[key]
            for other in subject.judged:
                found = subject.whole_reference.get(f"0.{quantity}.{other}")
                same_shape = subject.shape(other) == subject.shape(name)
                if other != name and same_shape and distance(found, port) <= 1e-6 * math.sqrt(np.mean(port**2)):
                    source[name] = other
        if not source:
            return
        listed = ", ".join(f"{name} of {other}" for name, other in list(source.items())[:4])
        change = StepChange(gradient=lambda moment: subject.gradient(source.get(moment.name, moment.name), moment.step))
        yield subject.changed(listed, change)


@register
class OtherOptimizer(StepHypothesis):
    """Another method altogether."""

    id = "other_optimizer"
    text = "it is another optimizer"
    rank = 1

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        """torch's optimizers with the reference's rate and decay, and both momenta."""
        group = next(iter(subject.group_of.values()))
        decay = float(group.get("weight_decay", 0.0))
        for kind, settings in (
            ("SGD", {}),
            ("SGD", {"momentum": 0.9}),
            ("SGD", {"momentum": 0.9, "nesterov": True}),
            ("Adam", {}),
            ("AdamW", {}),
            ("RMSprop", {}),
            ("Adagrad", {}),
            ("NAdam", {}),
            ("RAdam", {}),
            ("Adamax", {}),
        ):
            for coefficient in dict.fromkeys([decay, 0.0]):
                named = ", ".join(f"{key} {value}" for key, value in {**settings, "weight_decay": coefficient}.items())
                given = {**settings, "lr": group["lr"], "weight_decay": coefficient}

                def make(_: OptimizerSubject, kind: str = kind, given: dict[str, Any] = given) -> Any:
                    return subject.backend.make_optimizer(kind, subject.trainable(), **given)

                def settings_of(moment: Moment, given: dict[str, Any] = given) -> dict[str, Any]:
                    return {k: v for k, v in given.items() if k != "lr"}

                yield subject.changed(f"{kind} with {named}", StepChange(make=make, settings=settings_of))
