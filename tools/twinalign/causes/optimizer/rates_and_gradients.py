"""What an optimizer is given and how far it goes: rates, gradients, parameters, the method itself."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from twinalign.causes.component import fitted
from twinalign.causes.optimizer.subject import Moment, OptimizerSubject, batch_size, linear_scaling, listed, step_cause
from twinalign.causes.registry import Variant
from twinalign.verdict.array_difference import distance


def factors(subject: OptimizerSubject) -> list[tuple[str, float]]:
    """Factors by which rates and gradients go wrong, with what they stand for."""
    batch = batch_size(subject.case)
    found = [(str(n), float(n)) if up else (f"1/{n}", 1 / n) for n in (10, 2, 4, 8) for up in (True, False)]
    if batch > 1:
        found += linear_scaling(batch)
        found += [(f"{batch}, the batch: a sum, not a mean", float(batch)), (f"1/{batch}, the batch", 1 / batch)]
    found += [("100", 100.0), ("1/100", 0.01), ("1000", 1000.0), ("1/1000", 0.001)]
    return list({value: (text, value) for text, value in reversed(found)}.values())[::-1]


@step_cause(difference="param_group_lr_multiplier")
def learning_rate_factor(subject: OptimizerSubject) -> Iterator[Variant]:
    """The optimizer updates the parameters with a multiple of the learning rate."""

    def variant(factor: float, text: str | None = None) -> Variant:
        return subject.changed(
            f"times {text or f'{factor:.6g}'}", settings=lambda moment: {"lr": moment.group["lr"] * factor}
        )

    yield from (variant(factor, text) for text, factor in factors(subject))
    yield from fitted(subject, variant, 1.5)


def _with_group_rates(subject: OptimizerSubject, rate: Callable[[float, float], float]) -> Iterator[Variant]:
    """Each group at `rate` of its own, which torch takes as it is, and of the optimizer's, which paddle multiplies."""
    rates = [group["lr"] for group in subject.group_of.values()]
    base = subject.make_optimizer().defaults.get("lr")
    if len(set(rates)) < 2 or not base:
        return
    first = next(iter(subject.group_of))

    def settings(moment: Moment) -> dict[str, float]:
        # The first group's rate moves with the schedule; what the base would be is in proportion.
        scheduled = subject.settings[moment.step][first]["lr"] / subject.group_of[first]["lr"]
        return {"lr": rate(moment.group["lr"], base * scheduled)}

    yield subject.changed("", settings=settings)


@step_cause(difference="param_group_lr_multiplier", rank=-1)
def group_rate_ignored(subject: OptimizerSubject) -> Iterator[Variant]:
    """The learning rates of parameter groups have no effect: all parameters use the optimizer's rate."""
    yield from _with_group_rates(subject, lambda own, base: base)


@step_cause(difference="param_group_lr_multiplier", rank=-1)
def group_rate_multiplied(subject: OptimizerSubject) -> Iterator[Variant]:
    """The learning rates of parameter groups multiply the optimizer's rate in place of replacing it."""
    yield from _with_group_rates(subject, lambda own, base: own * base)


@step_cause(difference="param_group_sticky", rank=2)
def learning_rate_of_some(subject: OptimizerSubject) -> Iterator[Variant]:
    """Some parameters have another learning rate."""
    wrong, names = set(subject.wrong), listed(subject.wrong)

    def variant(factor: float) -> Variant:
        return subject.changed(
            f"{names}: times {factor:.6g}",
            settings=lambda moment: {"lr": moment.group["lr"] * factor} if moment.name in wrong else {},
        )

    yield from fitted(subject, variant, 1.5)


@step_cause()
def parameters_left_out(subject: OptimizerSubject) -> Iterator[Variant]:
    """Some parameters are not updated at all: they are frozen, or were not given to the optimizer."""
    still = {name for name in subject.wrong if not _moves(subject.whole_port, name)}
    if not still:
        return

    def take(optimizer: Any, moments: list[Moment]) -> None:
        for moment in moments:
            if moment.name in still:
                moment.parameter.grad = None
        optimizer.step()

    yield subject.changed(listed(sorted(still)), step=take)


def _moves(values: dict[str, np.ndarray], name: str) -> bool:
    return any(array.any() for key, array in values.items() if key.split(".", 2)[1:] == ["update", name])


def scaled(moment: Moment, factor: float) -> Any:
    """The gradient times a factor."""
    return moment.gradient * factor


@step_cause()
def gradient_sign(subject: OptimizerSubject) -> Iterator[Variant]:
    """The gradient's sign is the other one: the parameters climb."""
    yield subject.changed("", gradient=lambda moment: scaled(moment, -1.0))
    yield subject.changed(
        "with the decay", after=lambda moment: moment.parameter.data.copy_(2 * moment.before - moment.parameter.data)
    )


@step_cause(difference="grad_accumulation")
def gradient_scaled(subject: OptimizerSubject) -> Iterator[Variant]:
    """The optimizer is given a multiple of the gradient."""

    def variant(factor: float, text: str | None = None) -> Variant:
        return subject.changed(f"times {text or f'{factor:.6g}'}", gradient=lambda moment: scaled(moment, factor))

    yield from (variant(factor, text) for text, factor in factors(subject))
    yield from (variant(2.0**power, f"2^{power}, a loss scale") for power in (15, 16, 10, 8))
    yield from fitted(subject, variant, 1.5)


@step_cause(difference="clear_grad_vs_none", rank=1)
def missing_gradient_is_zero(subject: OptimizerSubject) -> Iterator[Variant]:
    """Parameters without a gradient are updated as if it were zero: decay and momentum change them."""
    if any(name not in subject.gradients for name in subject.judged):
        yield subject.changed("", missing_as_zero=True)


@step_cause()
def optimizer_stepped_twice(subject: OptimizerSubject) -> Iterator[Variant]:
    """Every step is taken twice."""

    def take(optimizer: Any, moments: list[Moment]) -> None:
        optimizer.step()
        optimizer.step()

    yield subject.changed("", step=take)


@step_cause(difference="grad_accumulation")
def gradient_not_cleared(subject: OptimizerSubject) -> Iterator[Variant]:
    """Gradients of earlier steps are not cleared, and add up."""

    def gradient(moment: Moment) -> Any:
        moment.kept["sum"] = moment.gradient + moment.kept.get("sum", 0.0)
        return moment.kept["sum"]

    yield subject.changed("", gradient=gradient)


@step_cause(difference="optimizer_state_name_keyed", rank=1)
def parameters_exchanged(subject: OptimizerSubject) -> Iterator[Variant]:
    """Parameters are given the gradients of other parameters of the same shape."""
    source: dict[str, str] = {}
    for name in subject.wrong:
        quantity = next((q for q in ("moment1", "velocity") if f"0.{q}.{name}" in subject.whole_port), None)
        if quantity is None:
            return
        port = subject.whole_port[f"0.{quantity}.{name}"]
        for other in subject.judged:
            found = subject.whole_reference.get(f"0.{quantity}.{other}")
            same_shape = subject.shape(other) == subject.shape(name)
            if other != name and same_shape and distance(found, port) <= 1e-6 * math.sqrt(np.mean(port**2)):
                source[name] = other
    if source:
        pairs = ", ".join(f"{name} of {other}" for name, other in list(source.items())[:4])
        yield subject.changed(
            pairs, gradient=lambda moment: subject.gradient(source.get(moment.name, moment.name), moment.step)
        )


_METHODS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("SGD", {}),
    ("SGD", {"momentum": 0.9}),
    ("SGD", {"momentum": 0.9, "nesterov": True}),
    *((name, {}) for name in ("Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "RAdam", "Adamax")),
)


@step_cause(rank=1)
def other_optimizer(subject: OptimizerSubject) -> Iterator[Variant]:
    """Another optimizer is used."""
    group = next(iter(subject.group_of.values()))
    decay = float(group.get("weight_decay", 0.0))
    for kind, settings in _METHODS:
        for coefficient in dict.fromkeys([decay, 0.0]):
            given = {**settings, "weight_decay": coefficient}

            def make(_: OptimizerSubject, kind: str = kind, given: dict[str, Any] = given) -> Any:
                from twinalign.backends.torch.reference_only.changed_training import make_optimizer

                return make_optimizer(kind, subject.trainable(), lr=group["lr"], **given)

            named = ", ".join(f"{key} {value}" for key, value in given.items())
            yield subject.changed(f"{kind} with {named}", make=make, settings=lambda moment, given=given: given)
