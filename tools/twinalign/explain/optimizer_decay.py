"""Hypotheses about weight decay: its coefficient, its form, and which parameters it reaches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from twinalign.explain.component import fitted
from twinalign.explain.optimizer import Moment, OptimizerSubject, StepChange, StepHypothesis
from twinalign.explain.registry import Variant, register

DECAY = "weight_decay"
USUAL = (0.01, 0.05, 0.1, 0.3, 0.02, 0.2, 0.5, 1e-3, 1e-4, 5e-4, 4e-5, 5e-5, 1e-5, 1e-6, 1.5e-6)
"""Coefficients that recipes of the field use."""
FACTORS = (10.0, 0.1, 0.5, 2.0, 100.0, 0.01)
_OWN_NAMES = ("weight_decay", "regularization_coeff", "coeff", "lars_weight_decay")


def is_decoupled(group: dict[str, Any], optimizer_class: str) -> bool:
    """Whether the optimizer shrinks the weights beside the gradient, as AdamW does."""
    return bool(group.get("decoupled_weight_decay", "adamw" in optimizer_class.lower()))


def port_coefficients(subject: OptimizerSubject) -> list[float]:
    """What the port's own optimizer says that its decay is."""
    return [float(subject.facts[name]) for name in _OWN_NAMES if isinstance(subject.facts.get(name), (int, float))]


def reference_coefficient(subject: OptimizerSubject) -> float:
    """The decay of most of the reference's parameters that have one, 0 where none has."""
    found = [float(group.get(DECAY, 0.0)) for group in subject.group_of.values() if group.get(DECAY)]
    return max(found, key=found.count) if found else 0.0


def decoupled(subject: OptimizerSubject) -> bool:
    """Whether the reference's decay is decoupled."""
    kind = type(subject.make_optimizer()).__name__
    return any(is_decoupled(group, kind) for group in subject.group_of.values())


Choice = Callable[[str], bool]


def choices(subject: OptimizerSubject) -> dict[str, Choice]:
    """Sets of parameters that recipes treat apart, by what they are called."""
    exempt = ("pos_embed", "position", "cls_token", "class_token", "dist_token", "relative_position")
    return {
        "biases": lambda name: name.rpartition(".")[2] == "bias",
        "one-dimensional parameters": lambda name: subject.dimensions(name) <= 1,
        "scales of normalisation layers": lambda name: subject.dimensions(name) <= 1 and not name.endswith("bias"),
        "normalisation layers": lambda name: "norm" in name.lower() or ".bn" in f".{name.lower()}",
        "position embeddings and tokens": lambda name: any(word in name for word in exempt),
        "weights of more than one dimension": lambda name: subject.dimensions(name) > 1,
    }


def _without(choice: Choice) -> StepChange:
    return StepChange(settings=lambda moment: {DECAY: 0.0} if choice(moment.name) else {})


def _added(coefficient: float, choice: Choice, as_l2: bool) -> StepChange:
    """Decay for those that the reference exempts, by their group or, where its code does it, in their gradient."""
    if as_l2:
        return StepChange(
            gradient=lambda moment: (
                moment.gradient + coefficient * moment.before if choice(moment.name) else moment.gradient
            )
        )
    return StepChange(settings=lambda moment: {DECAY: coefficient} if choice(moment.name) else {})


class _Missing(StepHypothesis):
    """Decay that does not reach some parameters."""

    of_which: str

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        yield subject.changed("", _without(choices(subject)[self.of_which]))


class _Extra(StepHypothesis):
    """Decay that reaches parameters that the reference exempts."""

    of_which: str

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        choice = choices(subject)[self.of_which]
        exempt = [name for name, group in subject.group_of.items() if choice(name) and name in subject.wrong]
        if exempt:
            yield from _additions(subject, choice)


def _additions(subject: OptimizerSubject, choice: Choice) -> Iterator[Variant]:
    for coefficient in dict.fromkeys([reference_coefficient(subject), *port_coefficients(subject)]):
        if coefficient:
            for as_l2 in (False, True):
                yield subject.changed(f"with {coefficient:g}", _added(coefficient, choice, as_l2))


@register
class DecayMissing(StepHypothesis):
    """No decay at all."""

    id = "decay_missing"
    text = "no parameter is decayed"
    rank = -1

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        """One way, where the reference decays."""
        if reference_coefficient(subject):
            yield subject.changed("", _without(lambda name: True))


@register
class DecayMissingOnOneDimensional(_Missing):
    """The usual exemption of biases and norms, where the reference makes none."""

    id = "decay_missing_on_one_dimensional"
    text = "weight decay leaves out the one-dimensional parameters, biases and scales of normalisation layers"
    of_which = "one-dimensional parameters"


@register
class DecayMissingOnBias(_Missing):
    """Biases are exempt."""

    id = "decay_missing_on_bias"
    text = "weight decay leaves out the biases"
    of_which = "biases"


@register
class DecayMissingOnNorm(_Missing):
    """Normalisation layers are exempt."""

    id = "decay_missing_on_norm"
    text = "weight decay leaves out the parameters of normalisation layers"
    of_which = "normalisation layers"


@register
class DecayMissingOnScales(_Missing):
    """Scales of normalisation layers are exempt."""

    id = "decay_missing_on_scale"
    text = "weight decay leaves out the scales of normalisation layers"
    of_which = "scales of normalisation layers"


@register
class DecayMissingOnWeights(_Missing):
    """Weights proper are not decayed."""

    id = "decay_missing_on_weight"
    text = "weight decay leaves out the weights of more than one dimension"
    of_which = "weights of more than one dimension"


@register
class DecayMissingOnEmbeddings(_Missing):
    """Position embeddings and tokens are exempt."""

    id = "decay_missing_on_embedding"
    text = "weight decay leaves out position embeddings and tokens"
    of_which = "position embeddings and tokens"


@register
class DecayOnOneDimensional(_Extra):
    """A condition on the name that never holds: paddle calls parameters `linear_0.b_0` there."""

    id = "decay_on_one_dimensional"
    text = "weight decay reaches the one-dimensional parameters, biases and scales of normalisation layers"
    difference = "adamw_apply_decay_param_fun"
    of_which = "one-dimensional parameters"


@register
class DecayOnBias(_Extra):
    """Biases are decayed."""

    id = "decay_on_bias"
    text = "weight decay reaches the biases"
    difference = "adamw_apply_decay_param_fun"
    of_which = "biases"


@register
class DecayOnNorm(_Extra):
    """Normalisation layers are decayed."""

    id = "decay_on_norm"
    text = "weight decay reaches the parameters of normalisation layers"
    difference = "no_weight_decay_regularizer_priority"
    of_which = "normalisation layers"


@register
class DecayOnEmbeddings(_Extra):
    """Position embeddings and tokens are decayed."""

    id = "decay_on_embedding"
    text = "weight decay reaches position embeddings and tokens"
    of_which = "position embeddings and tokens"


@register
class DecayOnSome(StepHypothesis):
    """Exactly the wrong parameters, whatever they have in common."""

    id = "decay_on_other_parameters"
    text = "weight decay reaches other parameters than in the reference"
    difference = "param_group_sticky"
    rank = 2

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        """Left out of it, or reached by it."""
        wrong = set(subject.wrong)
        listed = ", ".join(subject.wrong[:4]) + (" and others" if len(wrong) > 4 else "")
        yield subject.changed(f"not {listed}", _without(lambda name: name in wrong))
        for variant in _additions(subject, lambda name: name in wrong):
            yield subject.changed(f"{listed} {variant.detail}", variant.values["change"])  # type: ignore[attr-defined]


@register
class DecayCoefficient(StepHypothesis):
    """The same parameters, another number."""

    id = "decay_coefficient"
    text = "the coefficient of weight decay is another one"
    difference = "param_group_decay_override"

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        """The port's own numbers, multiples, the field's usual ones, and the one that fits."""
        present = reference_coefficient(subject)
        if not present:
            return

        def variant(coefficient: float) -> Variant:
            share = coefficient / present
            change = StepChange(settings=lambda moment: {DECAY: moment.group.get(DECAY, 0.0) * share})
            return subject.changed(f"{coefficient:.6g} for {present:.6g}", change)

        candidates = [*port_coefficients(subject), *(present * factor for factor in FACTORS), *USUAL]
        yield from (variant(value) for value in dict.fromkeys(candidates) if value not in (0.0, present))
        yield from fitted(subject, variant, present * 1.5)


@register
class DecayForAll(StepHypothesis):
    """A decay where the reference has none."""

    id = "decay_added"
    text = "parameters are decayed, and the reference decays none"
    difference = "param_group_sticky"

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        """The port's own numbers, the usual ones, and the one that fits, in both forms."""
        if reference_coefficient(subject):
            return
        for as_l2 in (False, True):

            def variant(coefficient: float, as_l2: bool = as_l2) -> Variant:
                return subject.changed(f"with {coefficient:.6g}", _added(coefficient, lambda name: True, as_l2))

            yield from (variant(value) for value in (*port_coefficients(subject), *USUAL) if value)
            yield from fitted(subject, variant, 0.01)


@register
class DecayAsL2(StepHypothesis):
    """Adam's decay for AdamW's."""

    id = "decay_as_l2"
    text = "weight decay is added to the gradient and passes through the moments (Adam), not beside them (AdamW)"
    difference = "adam_weight_decay"

    def of(self, subject: OptimizerSubject) -> Iterable[Variant]:
        """With the reference's coefficients, and with the port's own."""
        if not decoupled(subject):
            return []

        def l2(coefficient: float | None) -> StepChange:
            def gradient(moment: Moment) -> Any:
                own = subject.settings[moment.step][moment.name].get(DECAY, 0.0)
                return moment.gradient + (own if coefficient is None else coefficient) * moment.before

            return StepChange(settings=lambda moment: {DECAY: 0.0}, gradient=gradient)

        own = [value for value in port_coefficients(subject) if value != reference_coefficient(subject)]
        return [subject.changed("", l2(None)), *(subject.changed(f"with {value:g}", l2(value)) for value in own)]


@register
class DecayDecoupled(StepHypothesis):
    """AdamW's decay for L2."""

    id = "decay_decoupled"
    text = "weight decay shrinks the weights beside the gradient (AdamW), not through it"
    difference = "adam_weight_decay"

    def of(self, subject: OptimizerSubject) -> Iterable[Variant]:
        """One way, where the reference's decay is L2."""
        if decoupled(subject) or not reference_coefficient(subject):
            return []

        def shrink(moment: Moment) -> None:
            own = subject.settings[moment.step][moment.name]
            moment.parameter.data.mul_(1.0 - own["lr"] * own.get(DECAY, 0.0))

        return [subject.changed("", StepChange(settings=lambda moment: {DECAY: 0.0}, before=shrink))]


@register
class DecayTimesOtherRate(StepHypothesis):
    """A decoupled decay that the schedule does not reach."""

    id = "decay_without_rate"
    text = "the decoupled weight decay is not multiplied by the scheduled learning rate"
    rank = 1

    def of(self, subject: OptimizerSubject) -> Iterator[Variant]:
        """By nothing, or by the rate that the optimizer was built with."""
        if not decoupled(subject):
            return
        initial = float(subject.make_optimizer().param_groups[0]["lr"])
        for detail, rate in (("but by 1", 1.0), (f"but by the initial {initial:g}", initial)):

            def shrink(moment: Moment, rate: float = rate) -> None:
                own = subject.settings[moment.step][moment.name]
                moment.parameter.data.mul_(1.0 - rate * own.get(DECAY, 0.0))

            yield subject.changed(detail, StepChange(settings=lambda moment: {DECAY: 0.0}, before=shrink))


@register
class DecayAfterStep(StepHypothesis):
    """A decoupled decay of the weights that the step has moved already."""

    id = "decay_after_step"
    text = "the decoupled weight decay comes after the step, not before it"
    rank = 1

    def of(self, subject: OptimizerSubject) -> Iterable[Variant]:
        """One way, where the reference's decay is decoupled."""
        if not decoupled(subject):
            return []

        def shrink(moment: Moment) -> None:
            own = subject.settings[moment.step][moment.name]
            moment.parameter.data.mul_(1.0 - own["lr"] * own.get(DECAY, 0.0))

        return [subject.changed("", StepChange(settings=lambda moment: {DECAY: 0.0}, after=shrink))]
