"""Hypotheses about an optimizer's moments and constants: momentum, betas, bias correction."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from typing import Any

from twinalign.explain.component import fitted
from twinalign.explain.optimizer import Moment, OptimizerSubject, StepChange, StepHypothesis
from twinalign.explain.registry import Variant, register

_MANY_STEPS = 10**9
"""After so many steps a bias correction is 1."""


def has(subject: OptimizerSubject, *names: str) -> bool:
    """Whether the groups of the reference's optimizer hold all of these settings."""
    group = next(iter(subject.group_of.values()), {})
    return all(name in group for name in names)


def present(subject: OptimizerSubject, name: str) -> Any:
    """A setting of the reference's first group."""
    return next(iter(subject.group_of.values()))[name]


def port_numbers(subject: OptimizerSubject, *names: str) -> list[float]:
    """Numbers of these names that the port's optimizer holds."""
    found = [subject.facts.get(name) for name in names]
    return [float(value) for value in found if isinstance(value, (int, float)) and not isinstance(value, bool)]


def setting(subject: OptimizerSubject, name: str, value: Any, detail: str | None = None) -> Variant:
    """The variant in which every group has another value of a setting."""
    text = f"{value:.6g} for {present(subject, name):.6g}" if detail is None else detail
    return subject.changed(text, StepChange(settings=lambda moment: {name: value}))


class OtherValue(StepHypothesis):
    """One setting of the groups has another value."""

    setting: str
    of_port: tuple[str, ...] = ()
    usual: tuple[float, ...] = ()
    is_fitted = True

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        """The port's number, usual ones, and the one that fits."""
        if not has(subject, self.setting):
            return
        now = present(subject, self.setting)
        candidates = dict.fromkeys([*port_numbers(subject, *self.of_port), *self.usual])
        yield from (setting(subject, self.setting, value) for value in candidates if value != now)
        if self.is_fitted:
            yield from fitted(subject, lambda value: setting(subject, self.setting, value), now or 0.5)


@register
class MomentumValue(OtherValue):
    """Momentum, with paddle's default of 0.9 in mind."""

    id = "momentum_value"
    text = "the optimizer's momentum is another one"
    difference = "sgd_momentum_class"
    setting = "momentum"
    of_port = ("momentum", "lars_momentum")
    usual = (0.9, 0.0, 0.99, 0.95, 0.8, 0.5, 0.996, 0.1)


@register
class Smoothing(OtherValue):
    """RMSprop's alpha: 0.99 in torch, 0.95 (called rho) in paddle."""

    id = "rmsprop_smoothing"
    text = "the smoothing constant of the squared gradients is another one"
    difference = "rmsprop_adagrad_adadelta"
    setting = "alpha"
    of_port = ("rho",)
    usual = (0.95, 0.99, 0.9)


@register
class Rho(OtherValue):
    """Adadelta's rho: 0.9 in torch, 0.95 in paddle."""

    id = "adadelta_smoothing"
    text = "the smoothing constant of the squared gradients and updates is another one"
    difference = "rmsprop_adagrad_adadelta"
    setting = "rho"
    of_port = ("rho",)
    usual = (0.95, 0.9)


class _Beta(StepHypothesis):
    """One of Adam's two betas has another value."""

    place: int
    of_port: str
    usual: tuple[float, ...]

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        if not has(subject, "betas"):
            return
        now = present(subject, "betas")

        def variant(value: float) -> Variant:
            betas = (value, now[1]) if self.place == 0 else (now[0], value)
            return setting(subject, "betas", betas, f"{value:.6g} for {now[self.place]:.6g}")

        candidates = dict.fromkeys([*port_numbers(subject, self.of_port), *self.usual])
        yield from (variant(value) for value in candidates if value != now[self.place])
        yield from fitted(subject, variant, 1.0 - 1.5 * (1.0 - now[self.place]))


@register
class FirstBeta(_Beta):
    """Decay of the first moment."""

    id = "adam_beta1"
    text = "the first beta is another one"
    place = 0
    of_port = "beta1"
    usual = (0.9, 0.95, 0.8, 0.5, 0.99, 0.0)


@register
class SecondBeta(_Beta):
    """Decay of the second moment."""

    id = "adam_beta2"
    text = "the second beta is another one"
    place = 1
    of_port = "beta2"
    usual = (0.999, 0.95, 0.98, 0.99, 0.9, 0.9999)


@register
class BothBetas(StepHypothesis):
    """Both betas at once, or exchanged."""

    id = "adam_betas"
    text = "both betas are other ones"
    rank = 1

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        """Exchanged, the port's own, and usual pairs."""
        if not has(subject, "betas"):
            return
        now = tuple(present(subject, "betas"))
        own = port_numbers(subject, "beta1", "beta2")
        for pair in dict.fromkeys([(now[1], now[0]), tuple(own), (0.9, 0.95), (0.9, 0.98), (0.5, 0.999), (0.9, 0.999)]):
            if len(pair) == 2 and pair != now:
                yield setting(subject, "betas", pair, f"{pair[0]:g}, {pair[1]:g} for {now[0]:g}, {now[1]:g}")


@register
class BiasCorrectionMissing(StepHypothesis):
    """Moments as they are: the first steps of Adam are too large or too small."""

    id = "bias_correction_missing"
    text = "the moments are not corrected for their start at zero"

    def of(self, subject: OptimizerSubject) -> Iterable[Variant]:
        """One way, where the reference is of Adam's kind."""
        return [subject.changed("", StepChange(step=_late))] if has(subject, "betas") else []


def _late(optimizer: Any, moments: list[Moment]) -> None:
    """Take a step as if many had been taken before."""
    moments = [moment for moment in moments if moment.gradient is not None]
    if any(not moment.state for moment in moments):
        # The state is made by a step that changes nothing else.
        given = [(moment, moment.parameter.grad) for moment in moments]
        for moment, gradient in given:
            moment.parameter.grad = gradient * 0.0
        optimizer.step()
        for moment, gradient in given:
            moment.parameter.data.copy_(moment.before)
            moment.parameter.grad = gradient
    for moment in moments:
        steps = optimizer.state[moment.parameter]["step"]
        optimizer.state[moment.parameter]["step"] = steps * 0 + _MANY_STEPS
    optimizer.step()


class _Flag(StepHypothesis):
    """A switch of the groups is the other way."""

    setting: str

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        if has(subject, self.setting):
            now = bool(present(subject, self.setting))
            yield setting(subject, self.setting, not now, "not used" if now else "used")


@register
class Nesterov(_Flag):
    """Nesterov's form of momentum."""

    id = "nesterov"
    text = "Nesterov's form of momentum is used on one side only"
    difference = "momentum_equal"
    setting = "nesterov"


@register
class Amsgrad(_Flag):
    """The greatest second moment so far."""

    id = "amsgrad"
    text = "AMSGrad's maximum of the second moments is used on one side only"
    difference = "amsgrad"
    setting = "amsgrad"


@register
class Centered(_Flag):
    """RMSprop's variance."""

    id = "rmsprop_centered"
    text = "RMSprop's centering is used on one side only"
    setting = "centered"


@register
class Dampening(StepHypothesis):
    """torch's dampening, which paddle does not have."""

    id = "dampening"
    text = "the momentum's dampening is another one"
    difference = "momentum_equal"

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        """None; as an average, 1 - momentum; and that in the first step as well."""
        if not has(subject, "dampening"):
            return
        momentum, now = float(present(subject, "momentum")), float(present(subject, "dampening"))
        for value in dict.fromkeys([0.0, momentum, 1.0 - momentum]):
            if value != now:
                yield setting(subject, "dampening", value)
        for value in dict.fromkeys([now, momentum]):
            if value:
                # torch's buffer begins with the first gradient as it is.
                change = StepChange(
                    settings=functools.partial(_dampened_settings, value), gradient=functools.partial(_dampened, value)
                )
                yield subject.changed(f"{value:g}, from the first step on", change)


def _dampened_settings(dampening: float, moment: Moment) -> dict[str, float]:
    return {"dampening": 0.0, "weight_decay": moment.group["weight_decay"] * (1.0 - dampening)}


def _dampened(dampening: float, moment: Moment) -> Any:
    return moment.gradient * (1.0 - dampening)


@register
class RateInsideMomentum(StepHypothesis):
    """v = m v + rate g; w -= v, which differs once the rate moves."""

    id = "rate_inside_momentum"
    text = "the learning rate is multiplied into the momentum buffer, not outside of it"

    def of(self, subject: OptimizerSubject) -> Iterable[Variant]:
        """One way, for optimizers that keep a velocity."""
        if not has(subject, "momentum"):
            return []

        def after(moment: Moment) -> None:
            buffer = next((moment.state[name] for name in ("momentum_buffer", "mu") if name in moment.state), None)
            if buffer is None:
                return
            momentum = moment.group["momentum"]
            plain = buffer - momentum * moment.kept.get("plain", 0.0)
            moment.kept["plain"] = buffer.clone()
            velocity = momentum * moment.kept.get("velocity", 0.0) + moment.group["lr"] * plain
            moment.kept["velocity"] = moment.observed["velocity"] = velocity
            moment.parameter.data.copy_(moment.before - velocity)

        return [subject.changed("", StepChange(after=after))]


@register
class OtherSetting(StepHypothesis):
    """Any number of the groups that has no hypothesis of its own."""

    id = "optimizer_setting"
    text = "a setting of the optimizer is another one"
    rank = 3

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        """The port's number of that name, multiples, and the one that fits."""
        known = {"lr", "weight_decay", "momentum", "eps", "alpha", "rho", "dampening", "initial_lr"}
        for name, now in next(iter(subject.group_of.values()), {}).items():
            if name in known or isinstance(now, bool) or not isinstance(now, (int, float)) or not math.isfinite(now):
                continue

            def variant(value: float, name: str = name, now: float = now) -> Variant:
                return setting(subject, name, value, f"{name} {value:.6g} for {now:.6g}")

            yield from (variant(value) for value in (*port_numbers(subject, name), 10 * now, now / 10) if value != now)
            yield from fitted(subject, variant, now or 0.1)
