"""Hypotheses about the epsilon of an optimizer's denominator: its value, and where it is added."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from twinalign.explain.optimizer import Moment, OptimizerSubject, StepChange, StepHypothesis
from twinalign.explain.optimizer_moments import OtherValue, has, port_numbers, present
from twinalign.explain.registry import Variant, register


@register
class AdamEpsilon(OtherValue):
    """Epsilon of the denominator."""

    id = "optimizer_epsilon"
    text = "the epsilon of the optimizer's denominator is another one"
    difference = "rmsprop_adagrad_adadelta"
    setting = "eps"
    of_port = ("epsilon", "eps")
    usual = (1e-8, 1e-6, 1e-5, 1e-7, 1e-10, 1e-9, 1e-4, 1e-3, 1e-12, 1e-15, 1e-16, 0.0)
    is_fitted = False


@register
class EpsilonInsideRoot(StepHypothesis):
    """sqrt(v + eps) for sqrt(v) + eps: paddle's RMSProp, TensorFlow's optimizers."""

    id = "epsilon_inside_root"
    text = "epsilon is added under the square root of the second moment, not to the root"
    difference = "rmsprop_adagrad_adadelta"

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        """With the reference's epsilon, and with the port's own; RMSprop's smoothing may be the port's as well."""
        if not has(subject, "eps") or not (has(subject, "alpha") or has(subject, "betas")):
            return
        now = present(subject, "eps")
        for epsilon in dict.fromkeys([now, *port_numbers(subject, "epsilon"), 1e-6]):
            detail = "" if epsilon == now else f"and is {epsilon:g}"
            if has(subject, "betas"):
                yield subject.changed(detail, StepChange(after=_root_of_adam(epsilon)))
                continue
            yield subject.changed(detail, StepChange(after=_root_of_rmsprop(epsilon)))
            for smoothing in port_numbers(subject, "rho"):
                change = StepChange(settings=functools.partial(_smoothed, smoothing), after=_root_of_rmsprop(epsilon))
                yield subject.changed(f"{detail or 'and'} with the smoothing {smoothing:g}".strip(), change)


def _smoothed(smoothing: float, moment: Moment) -> dict[str, float]:
    return {"alpha": smoothing}


def _root_of_rmsprop(epsilon: float) -> Any:
    def after(moment: Moment) -> None:
        group, state = moment.group, moment.state
        gradient = moment.gradient + group["weight_decay"] * moment.before
        variance = state["square_avg"] - state["grad_avg"] ** 2 if group.get("centered") else state["square_avg"]
        direction = gradient / (variance + epsilon).sqrt()
        if group["momentum"]:
            direction = moment.kept["buffer"] = group["momentum"] * moment.kept.get("buffer", 0.0) + direction
        moment.parameter.data.copy_(moment.before - group["lr"] * direction)

    return after


def _root_of_adam(epsilon: float) -> Any:
    def after(moment: Moment) -> None:
        group, state, steps = moment.group, moment.state, float(moment.state["step"])
        first = state["exp_avg"] / (1.0 - group["betas"][0] ** steps)
        second = state["exp_avg_sq"] / (1.0 - group["betas"][1] ** steps)
        shrunk = moment.before
        if group.get("decoupled_weight_decay"):
            shrunk = shrunk * (1.0 - group["lr"] * group["weight_decay"])
        moment.parameter.data.copy_(shrunk - group["lr"] * first / (second + epsilon).sqrt())

    return after


@register
class EpsilonInMaximum(StepHypothesis):
    """max(beta2 u + eps, |g|) for max(beta2 u, |g| + eps): paddle's Adamax beside torch's."""

    id = "epsilon_in_maximum"
    text = "Adamax adds epsilon to the norm so far, not to the new gradient"
    difference = "rmsprop_adagrad_adadelta"

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        """With the reference's epsilon, and with the port's own."""
        if type(subject.make_optimizer()).__name__ != "Adamax":
            return
        now = present(subject, "eps")
        for epsilon in dict.fromkeys([now, *port_numbers(subject, "epsilon")]):
            detail = "" if epsilon == now else f"and it is {epsilon:g}"
            yield subject.changed(detail, StepChange(after=_norm_of_adamax(epsilon)))


def _norm_of_adamax(epsilon: float) -> Any:
    def after(moment: Moment) -> None:
        group, state = moment.group, moment.state
        gradient = moment.gradient + group["weight_decay"] * moment.before
        norm = (group["betas"][1] * moment.kept.get("norm", gradient * 0.0) + epsilon).maximum(gradient.abs())
        moment.kept["norm"] = moment.observed["infinity_norm"] = norm
        rate = group["lr"] / (1.0 - group["betas"][0] ** float(state["step"]))
        moment.parameter.data.copy_(moment.before - rate * state["exp_avg"] / norm)

    return after
