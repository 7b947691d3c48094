"""Faults of the form of a loss: which one, its bound, its arguments, how its values are put together."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from twinalign.explain.calls import Call, Change, Key, Site
from twinalign.explain.loss import SIMPLE
from twinalign.explain.registry import register
from twinalign.explain.rewrite import Rewrite, any_of, changing
from twinalign.explain.subject import CallVariant, LayerSubject


@register
class SmoothL1Form(Rewrite):
    """Paddle's smooth_l1_loss is Huber's by default: beta times torch's."""

    id = "smooth_l1_form"
    phase = "forward"
    text = "smooth L1 loss and Huber loss stand in for each other, or the bound is another"
    difference = "smooth_l1"
    functions = ("smooth_l1_loss", "huber_loss")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """The other one, and the other one's default bound."""
        name = "beta" if site.name == "smooth_l1_loss" else "delta"
        current = site.get(name, 1.0)
        other = "Huber loss" if name == "beta" else "smooth L1 loss"
        yield f"{other} in place of the other", _huber(current, name == "beta")
        for value in subject.candidates(("delta", "beta"), (1.0, 0.5, 0.1, 2.0), current):
            yield f"{name} {value:g} in place of {current:g}", changing(**{name: value})
            yield f"{other} of {value:g}", _huber(value, name == "beta")


def _huber(bound: float, huber: bool) -> Change:
    def change(call: Call) -> Any:
        functional, reduction = call.torch.nn.functional, call.get("reduction", "mean")
        if huber:
            return functional.huber_loss(call["input"], call["target"], reduction=reduction, delta=bound)
        return functional.smooth_l1_loss(call["input"], call["target"], reduction=reduction, beta=bound)

    return change


@register
class LossSwapped(Rewrite):
    """Absolute for squared error, and the like."""

    id = "loss_swapped"
    phase = "forward"
    text = "another loss is used"
    functions = SIMPLE[:4]
    rank = 1

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Every other loss of two tensors."""
        for name in SIMPLE[:4]:
            if name != site.name:
                yield f"{name} in place of {site.name}", _loss(name)
        if site.name == "mse_loss":
            yield "half the squared error", lambda call: call.result / 2.0


def _loss(name: str) -> Change:
    def change(call: Call) -> Any:
        loss = getattr(call.torch.nn.functional, name)
        return loss(call["input"], call["target"], reduction=call.get("reduction", "mean"))

    return change


@register
class LossBroadcast(Rewrite):
    """[N, 1] against [N] silently makes [N, N] in paddle."""

    id = "loss_broadcast"
    phase = "forward"
    text = "predictions and targets of different shapes are broadcast against each other"
    difference = "mse_l1_broadcast"
    functions = SIMPLE

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """An axis of one more on either side."""
        yield "predictions have one axis more", lambda call: call.run(input=call["input"].unsqueeze(-1))
        yield "targets have one axis more", lambda call: call.run(target=call["target"].unsqueeze(-1))


@register
class LossArgumentsSwapped(Rewrite):
    """KL divergence is not symmetric; a squared error's gradient is not either."""

    id = "loss_arguments_swapped"
    phase = "forward"
    text = "predictions and targets, or two of the outputs that are compared, are swapped"
    functions = SIMPLE
    rank = 1

    def variants(self, subject: LayerSubject) -> Iterator[CallVariant]:
        """Both arguments of a loss; then what two calls of one function are given, as where they name outputs."""
        yield from super().variants(subject)
        if subject.module is None and not subject.backward:
            for one, two in itertools.combinations(subject.named("normalize", "linear", "softmax", "log_softmax"), 2):
                if one.name == two.name and one.shape() == two.shape():
                    yield _exchanged(subject, one, two)

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """As they are; of the divergence with the logarithm moved too."""
        yield "", lambda call: call.run(input=call["target"], target=call["input"])
        if site.name == "kl_div" and not site.get("log_target", False):
            yield "", lambda call: call.run(input=call["target"].log(), target=call["input"].exp())


def _exchanged(subject: LayerSubject, one: Site, two: Site) -> CallVariant:
    """Each of two calls with what the other is given, known from a run before."""
    given: dict[Key, Any] = {}

    def kept(call: Call) -> Any:
        given[call.key] = call["input"].detach()
        return call.run()

    subject.run(subject.variant("", {one.key: kept, two.key: kept}))
    places = (one.key, two.key), (two.key, one.key)
    detail = f"calls {one.key[1] + 1} and {two.key[1] + 1} of {one.name}"
    return subject.variant(detail, {here: changing(input=given[there]) for here, there in places})


@register
class PositiveWeight(Rewrite):
    """Of the binary cross-entropy."""

    id = "positive_weight_missing"
    phase = "forward"
    text = "the weight of positives is left out"
    difference = "bce_logits_pos_weight"
    functions = ("binary_cross_entropy_with_logits",)
    ways = any_of(
        {
            "": changing(pos_weight=None),
            "taken for the weight of all": lambda call: call.run(pos_weight=None, weight=call["pos_weight"]),
        }
    )


@register
class LossRowsBroadcast(Rewrite):
    """Paddle returns [N, 1] for labels of [N, 1]; times weights of [N] that makes [N, N]."""

    id = "loss_rows_broadcast"
    phase = "forward"
    text = "the losses of the rows have an axis too many and are broadcast"
    rank = -1  # a reduction in another way would reproduce it too
    difference = "ce_reduction_none_shape"
    functions = ("cross_entropy", "nll_loss", *SIMPLE)

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Where they are not reduced."""
        if site.get("reduction", "mean") == "none":
            yield "", lambda call: call.result.unsqueeze(-1)
