"""What an optimizer is given and how far it goes: rates, gradients, how they are clipped, parameters, the method."""

import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import numpy as np

from twinalign.causes.component import enter_rows, fitted
from twinalign.causes.optimizer.decay import DECAY, port_coefficients, reference_coefficient
from twinalign.causes.optimizer.groups import of_other_groups
from twinalign.causes.optimizer.subject import OptimizerSubject, listed, step_cause
from twinalign.causes.registry import Variant
from twinalign.replay.changed_steps import Moment, StepChange
from twinalign.replay.port_code import clipping_bounds
from twinalign.replay.usual_recipes import CLIP_NORMS, METHODS, factors
from twinalign.verdict.array_difference import distance


def _times(
    subject: OptimizerSubject, named: list[tuple[str, float]], change: Callable[[float], StepChange], whose: str = ""
) -> Iterator[Variant]:
    """What is made of each named factor, and of the one that fits."""

    def variant(factor: float, text: str = "") -> Variant:
        return subject.variant(f"{whose}times {text or f'{factor:.6g}'}", change=change(factor))

    yield from (variant(factor, text) for text, factor in named)
    yield from fitted(subject, variant, 1.5)


def _at_rate(factor: float, names: Collection[str] | None = None) -> StepChange:
    def settings(moment: Moment) -> dict[str, float]:
        return {"lr": moment.group["lr"] * factor} if names is None or moment.name in names else {}

    return StepChange(settings=settings)


def _with_group_rates(
    subject: OptimizerSubject, rate: Callable[[float, float], float], decays: Iterable[float] = ()
) -> dict[str, StepChange]:
    """Each group at `rate` of its own, which torch takes as it is, and of the optimizer's, which paddle multiplies;
    with one of `decays` as well, where those of the groups have no effect either."""
    rates = [group["lr"] for group in subject.group_of.values()]
    base = subject.make_optimizer().defaults.get("lr")
    if len(set(rates)) < 2 or not base:
        return {}
    first = next(iter(subject.group_of))

    def settings(moment: Moment) -> dict[str, float]:
        # The first group's rate moves with the schedule; what the base would be is in proportion.
        scheduled = subject.settings[moment.step][first]["lr"] / subject.group_of[first]["lr"]
        return {"lr": rate(moment.group["lr"], base * scheduled)}

    def decayed(decay: float, moment: Moment) -> dict[str, float]:
        return {**settings(moment), DECAY: decay}

    found = {"": StepChange(settings=settings)}
    for decay in decays:
        found[f"and all are decayed with {decay:.6g}"] = StepChange(settings=functools.partial(decayed, decay))
    return found


@step_cause()
def parameters_left_out(subject: OptimizerSubject) -> Iterator[Variant]:
    """Some parameters are not updated at all: they are frozen, or were not given to the optimizer."""
    updates = (name.split(".", 2)[1:] for name, array in subject.whole_port.items() if array.any())
    still = set(subject.wrong) - {name for quantity, name in updates if quantity == "update"}
    if not still:
        return

    def take(optimizer: Any, moments: list[Moment]) -> None:
        for moment in moments:
            if moment.name in still:
                moment.parameter.grad = None
        optimizer.step()

    yield subject.changed(listed(sorted(still)), step=take)


def scaled(moment: Moment, factor: float) -> Any:
    """The gradient times a factor."""
    return moment.gradient * factor


def _gradient_multiples(subject: OptimizerSubject) -> Iterator[Variant]:
    named = [*factors(subject.case), *((f"2^{power}, a loss scale", 2.0**power) for power in (15, 16, 10, 8))]
    yield from _times(subject, named, lambda factor: StepChange(gradient=lambda moment: scaled(moment, factor)))


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


@step_cause(rank=1)
def other_optimizer(subject: OptimizerSubject) -> Iterator[Variant]:
    """Another optimizer is used."""
    from twinalign.backends.torch.reference_only.changed_training import make_optimizer

    group, own = next(iter(subject.group_of.values())), type(subject.make_optimizer()).__name__
    methods = [(kind, settings) for kind, settings in METHODS if kind != own or settings]
    decays = dict.fromkeys([float(group.get("weight_decay", 0.0)), 0.0])
    for (kind, settings), decay in itertools.product(methods, decays):
        given = {**settings, "weight_decay": decay}
        made = functools.partial(make_optimizer, kind, lr=group["lr"], **given)
        change = {"make": lambda of, made=made: made(of.trainable()), "settings": lambda _, given=given: given}
        named = ", ".join(f"{key} {value}" for key, value in given.items())
        yield subject.changed(f"{kind} with {named}", **change)


def _bounds(subject: OptimizerSubject) -> Iterable[float]:
    """The bound that the port's optimizer has, or its code, else usual ones."""
    names = "clip_norm", "max", "clip_value"
    known = [float(own) for name in names if isinstance(own := subject.facts.get(name), (int, float))]
    return dict.fromkeys(known or clipping_bounds()) or CLIP_NORMS


def _added(subject: OptimizerSubject) -> tuple[float, ...]:
    """What may be added to a norm before clipping by it: torch and ports that clip by hand as it does add 1e-6."""
    return (0.0,) if "clip" in subject.facts else (1e-6, 0.0)


def _clipped_to(
    subject: OptimizerSubject, bounds: Iterable[float], start: float, unclipped: bool = False
) -> Iterator[Variant]:
    """Gradients clipped by the norm of all of them together, to each bound and to the one that fits from `start`."""
    for added in _added(subject):

        def variant(bound: float, added: float = added) -> Variant:
            def gradient(moment: Moment) -> Any:
                return _to_norm(moment, bound, subject.gradient_norm(moment.step) + added)

            return subject.changed(f"to {bound:.6g}", gradient=gradient, unclipped=unclipped)

        yield from map(variant, bounds)
        yield from fitted(subject, variant, start)


@step_cause()
def gradient_clip_missing(subject: OptimizerSubject) -> Iterator[Variant]:
    """The reference's own clipping of gradients is missing or differs."""
    if subject.clips:
        if "clip" not in subject.facts:
            yield subject.changed("missing", unclipped=True)
        yield from _clipped_to(subject, _bounds(subject), subject.gradient_norm(0) * 0.5, unclipped=True)
        if not subject.scales_gradients_alike:
            yield from (subject.variant(f"by each group's norm, {d}", change=c) for d, c in _to_norm_of_group(subject))


@step_cause(difference="clip_global_norm_formula")
def gradient_clipped(subject: OptimizerSubject) -> Iterator[Variant]:
    """Gradients are clipped by their global norm, and the reference does not clip them."""
    norms = [subject.gradient_norm(step) for step in range(subject.steps)]
    bounds = [bound for bound in _bounds(subject) if bound < max(norms)]
    yield from _clipped_to(subject, bounds, min(norms) * 0.5)


def _to_norm(moment: Moment, bound: float, norm: float) -> Any:
    return scaled(moment, max(bound, 0.0) / max(norm, bound))  # a fitted bound may be negative


def _to_each_bound(subject: OptimizerSubject, clip: Callable[..., Any]) -> Iterator[tuple[str, StepChange]]:
    """Gradients clipped to each likely bound, beside the reference's own clipping if it has one, and in its stead."""
    for bound, added in itertools.product(_bounds(subject), _added(subject)):
        for unclipped in (True, False) if subject.clips else (False,):
            yield f"to {bound:.6g}", StepChange(gradient=functools.partial(clip, bound, added), unclipped=unclipped)


def _to_norm_of_group(subject: OptimizerSubject) -> Iterator[tuple[str, StepChange]]:
    return _to_each_bound(subject, lambda bound, added, moment: _to_norm(
        moment, bound, subject.gradient_norm(moment.step, subject.group_members[moment.name]) + added))  # fmt: skip


def _summed(moment: Moment) -> Any:
    moment.kept["sum"] = moment.gradient + moment.kept.get("sum", 0.0)
    return moment.kept["sum"]


enter_rows("optimizer", OptimizerSubject, "change", (
    ("learning_rate_factor", "the optimizer updates the parameters with a multiple of the learning rate",
     {"difference": "param_group_lr_multiplier"}, lambda s: _times(s, factors(s.case), _at_rate)),
    ("learning_rate_of_some", "some parameters have another learning rate",
     {"difference": "param_group_sticky", "rank": 2},
     lambda s: [*_times(s, [], lambda factor: _at_rate(factor, set(s.wrong)), f"{listed(s.wrong)}: "),
                *of_other_groups(s, "lr", exchanged=False)]),
    ("group_rates_exchanged", "parameter groups have each other's learning rate",
     {"difference": "param_group_lr_multiplier", "rank": 1}, lambda s: of_other_groups(s, "lr", exchanged=True)),
    ("gradient_scaled", "the optimizer is given a multiple of the gradient",
     {"difference": "grad_accumulation", "rank": 1}, _gradient_multiples),
    ("group_rate_ignored",
     "the learning rates of parameter groups have no effect: all parameters use the optimizer's rate",
     {"difference": "param_group_lr_multiplier", "rank": -1}, lambda s: _with_group_rates(
         s, lambda own, base: base, dict.fromkeys([reference_coefficient(s), *port_coefficients(s), 0.0]))),
    ("group_rate_multiplied",
     "the learning rates of parameter groups multiply the optimizer's rate in place of replacing it",
     {"difference": "param_group_lr_multiplier", "rank": -1},
     lambda s: _with_group_rates(s, lambda own, base: own * base)),
    ("gradient_sign", "the gradient's sign is the other one: the parameters climb", {},
     lambda s: {"": StepChange(gradient=lambda moment: scaled(moment, -1.0)),
                "with the decay": StepChange(after=lambda moment: moment.parameter.data.copy_(
                    2 * moment.before - moment.parameter.data))}),
    ("missing_gradient_is_zero",
     "parameters without a gradient are updated as if it were zero: decay and momentum change them",
     {"difference": "clear_grad_vs_none", "rank": 1, "where": lambda s: set(s.judged) - set(s.gradients)},
     lambda s: {"": StepChange(missing_as_zero=True)}),
    ("optimizer_stepped_twice", "every step is taken twice", {},
     lambda s: {"": StepChange(step=lambda optimizer, moments: (optimizer.step(), optimizer.step()))}),
    ("gradient_not_cleared", "gradients of earlier steps are not cleared, and add up",
     {"difference": "grad_accumulation"}, lambda s: {"": StepChange(gradient=_summed)}),
    # This is paddle's ClipGradByNorm, whose name is that of torch's global clipping.
    ("gradient_clipped_each", "every gradient is clipped by its own norm",
     {"difference": "clip_by_norm_value"},
     lambda s: _to_each_bound(s, lambda bound, added, moment: _to_norm(
         moment, bound, moment.gradient.norm().item() + added))),
    ("gradient_clipped_by_value", "gradients are clipped element by element", {"difference": "clip_by_norm_value"},
     lambda s: _to_each_bound(s, lambda bound, _added, moment: moment.gradient.clamp(-bound, bound))),
    ("gradient_clipped_per_group",
     "gradients are clipped by the norm of each parameter group, not of all parameters",
     {"difference": "clip_global_norm_per_group",
      "where": lambda s: len(set(s.group_members.values())) > 1 and (not s.clips or s.scales_gradients_alike)},
     _to_norm_of_group),
))  # fmt: skip
