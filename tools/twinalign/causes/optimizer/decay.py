"""Weight decay: its coefficient, its form, and which parameters it reaches."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

from twinalign.causes.component import Others, enter_rows, fitted
from twinalign.causes.optimizer.groups import of_other_groups
from twinalign.causes.optimizer.subject import OptimizerSubject, listed, step_cause
from twinalign.causes.registry import Variant
from twinalign.replay.changed_steps import Moment, StepChange
from twinalign.replay.usual_recipes import DECAY_FACTORS, DECAYS, Choice, choices

DECAY = "weight_decay"
_OWN_NAMES = ("weight_decay", "regularization_coeff", "coeff", "lars_weight_decay")


def port_coefficients(subject: OptimizerSubject) -> list[float]:
    """What the port's own optimizer says that its decay is."""
    return [float(subject.facts[name]) for name in _OWN_NAMES if isinstance(subject.facts.get(name), (int, float))]


def reference_coefficient(subject: OptimizerSubject) -> float:
    """The decay of most of the reference's parameters that have one, 0 where none has."""
    found = [float(group.get(DECAY, 0.0)) for group in subject.group_of.values() if group.get(DECAY)]
    return max(found, key=found.count) if found else 0.0


def decoupled(subject: OptimizerSubject) -> bool:
    """Whether the reference's optimizer shrinks the weights beside the gradient, as AdamW does."""
    by_name = "adamw" in type(subject.make_optimizer()).__name__.lower()
    return any(group.get("decoupled_weight_decay", by_name) for group in subject.group_of.values())


def _without(choice: Choice) -> StepChange:
    return StepChange(settings=lambda moment: {DECAY: 0.0} if choice(moment.name) else {})


def _added(coefficient: Callable[[Moment], float], choice: Choice, as_l2: bool) -> StepChange:
    """Decay for those that the reference exempts, by their group or, where its code does it, in their gradient."""

    def gradient(moment: Moment) -> Any:
        return moment.gradient + coefficient(moment) * moment.before if choice(moment.name) else moment.gradient

    if as_l2:
        return StepChange(gradient=gradient)
    return StepChange(settings=lambda moment: {DECAY: coefficient(moment)} if choice(moment.name) else {})


def _additions(subject: OptimizerSubject, choice: Choice, names: str = "") -> list[tuple[str, StepChange]]:
    """Decay as others have it in each step, or as either side tells, by group and by gradient, of like details."""
    greatest = [max((own.get(DECAY, 0.0) for own in of.values()), default=0.0) for of in subject.settings]
    told = filter(None, dict.fromkeys([reference_coefficient(subject), *port_coefficients(subject)]))
    ways: list[tuple[str, Callable[[Moment], float]]] = [
        (f"with {number:g}", functools.partial(lambda own, _: own, number)) for number in told
    ]
    if len(set(greatest)) > 1:
        ways.insert(0, ("as others", lambda moment: greatest[moment.step]))
    return [
        (f"{names} {text}".lstrip(), _added(coefficient, choice, as_l2))
        for text, coefficient in ways
        for as_l2 in (False, True)
    ]


def _extra(chosen: str, subject: OptimizerSubject) -> Others:
    choice = choices(subject.dimensions)[chosen]
    return _additions(subject, choice) if any(choice(n) and n in subject.wrong for n in subject.group_of) else ()


def _on_others(subject: OptimizerSubject) -> Others:
    wrong, names = set(subject.wrong), listed(subject.wrong)
    others = [(f"not {names}", _without(wrong.__contains__)), *_additions(subject, wrong.__contains__, names)]
    return [*others, *of_other_groups(subject, DECAY, False, [0.0, *port_coefficients(subject)])]


_SETS = {
    "one_dimensional": (
        "one-dimensional parameters",
        "the one-dimensional parameters, biases and scales of normalisation layers",
    ),
    "bias": ("biases", "the biases"),
    "norm": ("normalisation layers", "the parameters of normalisation layers"),
    "scale": ("scales of normalisation layers", "the scales of normalisation layers"),
    "weight": ("weights of more than one dimension", "the weights of more than one dimension"),
    "embedding": ("position embeddings and tokens", "position embeddings and tokens"),
}
"""End of the id: key of `choices`, and how the sentence calls the parameters."""

enter_rows("optimizer", OptimizerSubject, "change", [
    (f"decay_missing_on_{end}", f"weight decay leaves out {called}", {},
     functools.partial(lambda chosen, s: {"": _without(choices(s.dimensions)[chosen])}, chosen))
    for end, (chosen, called) in _SETS.items()
])  # fmt: skip
enter_rows("optimizer", OptimizerSubject, "change", [
    (f"decay_on_{end}", f"weight decay reaches {_SETS[end][1]}", {"difference": difference},
     functools.partial(_extra, _SETS[end][0]))
    # paddle calls parameters `linear_0.b_0` where it asks which to decay, so that a condition on the name never holds.
    for end, difference in (("one_dimensional", "adamw_apply_decay_param_fun"), ("bias", "adamw_apply_decay_param_fun"),
                            ("norm", "no_weight_decay_regularizer_priority"), ("embedding", None))
])  # fmt: skip


@step_cause(difference="param_group_decay_override", where=reference_coefficient)
def decay_coefficient(subject: OptimizerSubject) -> Iterator[Variant]:
    """The coefficient of weight decay differs."""
    present = reference_coefficient(subject)

    def variant(coefficient: float) -> Variant:
        share = coefficient / present
        return subject.changed(
            f"{coefficient:.6g} for {present:.6g}",
            settings=lambda moment: {DECAY: moment.group.get(DECAY, 0.0) * share},
        )

    candidates = [*port_coefficients(subject), *(present * factor for factor in DECAY_FACTORS), *DECAYS]
    yield from (variant(value) for value in dict.fromkeys(candidates) if value not in (0.0, present))
    yield from fitted(subject, variant, present * 1.5)


@step_cause(difference="param_group_sticky", where=lambda subject: not reference_coefficient(subject))
def decay_added(subject: OptimizerSubject) -> Iterator[Variant]:
    """Parameters are decayed, and the reference decays none."""
    for as_l2 in (False, True):

        def variant(coefficient: float, as_l2: bool = as_l2) -> Variant:
            return subject.variant(
                f"with {coefficient:.6g}", change=_added(lambda moment: coefficient, lambda name: True, as_l2)
            )

        yield from (variant(value) for value in (*port_coefficients(subject), *DECAYS) if value)
        yield from fitted(subject, variant, 0.01)


def _as_l2(subject: OptimizerSubject) -> dict[str, StepChange]:
    def l2(coefficient: float | None) -> StepChange:
        def gradient(moment: Moment) -> Any:
            own = subject.settings[moment.step][moment.name].get(DECAY, 0.0)
            return moment.gradient + (own if coefficient is None else coefficient) * moment.before

        return StepChange(settings=lambda moment: {DECAY: 0.0}, gradient=gradient)

    others = [value for value in port_coefficients(subject) if value != reference_coefficient(subject)]
    return {"": l2(None), **{f"with {value:g}": l2(value) for value in others}}


def _shrunk(subject: OptimizerSubject, rate: float | None = None, after: bool = False) -> StepChange:
    """Decoupled decay by the coefficients of the reference, at the scheduled rate or at one that is given."""

    def shrink(moment: Moment) -> None:
        own = subject.settings[moment.step][moment.name]
        moment.parameter.data.mul_(1.0 - (own["lr"] if rate is None else rate) * own.get(DECAY, 0.0))

    plain = StepChange(settings=lambda moment: {DECAY: 0.0})
    return dataclasses.replace(plain, after=shrink) if after else dataclasses.replace(plain, before=shrink)


def _without_rate(subject: OptimizerSubject) -> dict[str, StepChange]:
    initial = float(subject.make_optimizer().param_groups[0]["lr"])
    return {"but by 1": _shrunk(subject, rate=1.0), f"but by the initial {initial:g}": _shrunk(subject, rate=initial)}


enter_rows("optimizer", OptimizerSubject, "change", (
    ("decay_on_other_parameters", "weight decay reaches other parameters than in the reference",
     {"difference": "param_group_sticky", "rank": 2}, _on_others),
    ("group_decays_exchanged", "parameter groups have each other's weight decay",
     {"difference": "param_group_decay_override", "rank": 1}, lambda s: of_other_groups(s, DECAY, exchanged=True)),
    ("decay_missing", "no parameter is decayed", {"rank": -1, "where": reference_coefficient},
     lambda s: {"": _without(lambda name: True)}),
    ("decay_as_l2",
     "weight decay is added to the gradient and passes through the moments (Adam), not beside them (AdamW)",
     {"difference": "adam_weight_decay", "where": decoupled}, _as_l2),
    ("decay_decoupled", "weight decay shrinks the weights beside the gradient (AdamW), not through it",
     {"difference": "adam_weight_decay", "where": lambda s: reference_coefficient(s) and not decoupled(s)},
     lambda s: {"": _shrunk(s)}),
    ("decay_without_rate", "the decoupled weight decay is not multiplied by the scheduled learning rate",
     {"rank": 1, "where": decoupled}, _without_rate),
    ("decay_after_step", "the decoupled weight decay comes after the step, not before it",
     {"rank": 1, "where": decoupled}, lambda s: {"": _shrunk(s, after=True)}),
))  # fmt: skip
