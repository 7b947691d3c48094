"""Faults of losses: temperature, labels, reduction, smoothing, ignored rows, forms."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from twinalign.explain.calls import Call, Change, Site, TensorFacts
from twinalign.explain.generic import constant_of, tensor_operand, with_constant
from twinalign.explain.registry import register
from twinalign.explain.rewrite import Constant, Rewrite, any_of, changing
from twinalign.explain.subject import CallVariant, LayerSubject

SIMPLE = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "binary_cross_entropy_with_logits")
CLASSES = ("cross_entropy", "nll_loss")
LOSSES = (*SIMPLE, *CLASSES, "binary_cross_entropy", "cosine_embedding_loss", "triplet_margin_loss")
_AFTER = (*LOSSES, "log_softmax", "logsumexp", "softmax")


@register
class LossTemperature(Rewrite):
    """A number that logits are divided by or multiplied with before a loss."""

    id = "loss_temperature"
    phase = "forward"
    text = "the loss's temperature is another"
    float32_constants = True
    functions = ("mul", "div")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Left out, inverted, squared, and the port's own numbers."""
        number = constant_of(site)
        last = max((other.position for other in subject.named(*LOSSES, "log_softmax", "logsumexp")), default=-1)
        if not number or site.position > last:
            return
        yield "left out", tensor_operand
        for value in dict.fromkeys((*_temperatures(number), *subject.port_numbers.values())):
            if value not in (0.0, number):
                yield f"{value:.6g} in place of {number:.6g}", with_constant(value)

    def variants(self, subject: LayerSubject) -> Iterator[CallVariant]:
        """Each number by itself, then with the factors behind the loss, as where both come from one attribute."""
        yield from super().variants(subject)
        sites = [(site, number) for site in self.sites(subject) if (number := constant_of(site))]
        last = max((site.position for site in subject.named(*LOSSES, "logsumexp")), default=-1)
        before = [(site, number) for site, number in sites if site.position < last]
        for current in dict.fromkeys(number for _, number in before):
            for value in dict.fromkeys((*_temperatures(current), *subject.port_numbers.values())):
                if value not in (0.0, current):
                    ratio = value / current
                    same = [site for site, number in before if number == current]
                    others = [(site, number) for site, number in sites if number != current]
                    moved = {site.key: with_constant(value) for site in same}
                    moved |= {site.key: with_constant(number * ratio) for site, number in others}
                    yield subject.variant(
                        f"{value:.6g} in place of {current:.6g}, in the factor of the loss too", moved
                    )


def _temperatures(number: float) -> tuple[float, ...]:
    return 1.0 / number, number**2, 2.0 * number, number / 2.0, number**0.5, 0.07, 0.1, 0.2, 0.5, 1.0


@register
class LossFactor(Rewrite):
    """A number that the loss is multiplied with, such as twice the temperature."""

    id = "loss_factor"
    phase = "forward"
    text = "the loss's constant factor is left out or another"
    float32_constants = True
    functions = ("mul", "div")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Left out, halved, doubled, inverted, squared."""
        number = constant_of(site)
        first = min((other.position for other in subject.named(*LOSSES)), default=math.inf)
        if not number or site.position < first:
            return
        yield f"left out ({number:.6g})", tensor_operand
        for value in dict.fromkeys((number / 2.0, number * 2.0, 1.0 / number, number**2, number**0.5)):
            if value != number:
                yield f"{value:.6g} in place of {number:.6g}", with_constant(value)


@register
class LossReduction(Rewrite):
    """A sum for a mean, or a mean over other things."""

    id = "loss_reduction"
    phase = "forward"
    text = "the loss is reduced in another way"
    functions = LOSSES

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Sum, mean, mean over the batch, mean over the last axis then sum, and the other way round."""
        current = site.get("reduction", "mean")
        for name in ("sum", "mean", "batchmean", "none"):
            if name != current and (name != "batchmean" or site.name == "kl_div"):
                yield f"{name} in place of {current}", changing(reduction=name)
        yield "the sum divided by the batch's size", _over_batch
        yield "the mean divided by the batch's size", lambda call: call.run(reduction="mean") / len(call["input"])


def _over_batch(call: Call) -> Any:
    return call.run(reduction="sum") / len(call["input"])


@register
class LabelsShifted(Rewrite):
    """Labels that count from one, a rank's offset left out or added, diagonal off by one."""

    id = "labels_shifted"
    phase = "forward"
    text = "the labels are shifted"
    functions = CLASSES

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """By one or by the batch's size, around the number of classes; or the rows, by one."""
        target = site.get("target")
        if not isinstance(target, TensorFacts) or target.floating or len(site.shape()) < 2:
            return
        classes, batch = site.shape()[1], site.shape()[0]
        for shift in dict.fromkeys((1, -1, batch, -batch, classes // 2)):
            if shift % classes:
                yield f"by {shift}", _labels_moved(shift, classes)
        yield "all are class 0", lambda call: call.run(target=call["target"] * 0)
        yield "rows in another order, by one", lambda call: call.run(target=call["target"].roll(1, 0))
        yield "rows in another order, by one back", lambda call: call.run(target=call["target"].roll(-1, 0))
        yield "rows backwards", lambda call: call.run(target=call["target"].flip(0))


def _labels_moved(shift: int, classes: int) -> Change:
    return lambda call: call.run(target=(call["target"] + shift) % classes)


@register
class LabelSmoothing(Constant):
    """Left out, or another amount."""

    id = "label_smoothing"
    phase = "forward"
    text = "the label smoothing is another"
    difference = "ce_label_smoothing"
    functions = ("cross_entropy",)
    argument = "label_smoothing"
    default = 0.0
    words = ("label_smoothing", "smoothing", "epsilon")
    usual = (0.0, 0.1, 0.05, 0.2, 0.01)


@register
class LabelSmoothingForm(Rewrite):
    """The rest shared among the wrong classes alone."""

    id = "label_smoothing_form"
    phase = "forward"
    text = "smoothing shares its part among the other classes, not among all, or the other way round"
    functions = ("cross_entropy",)
    ways = any_of(
        {
            "among the others": lambda call: _smoothed_further(call, call["input"].shape[1] - 1),
            "among all": lambda call: _smoothed_further(call, call["input"].shape[1] + 1),
        }
    )


def _smoothed_further(call: Call, share: int) -> Any:
    classes = call["input"].shape[1]
    return call.run(label_smoothing=call.get("label_smoothing", 0.0) * classes / share)


@register
class CrossEntropyClipped(Rewrite):
    """Paddle's processor kernel, at logits far apart."""

    id = "cross_entropy_clipped"
    phase = "forward"
    text = "log-probabilities are cut off at -64"
    difference = "cross_entropy_clip"
    functions = ("cross_entropy", "log_softmax")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """In the log-softmax itself, or inside the loss."""
        if site.name == "log_softmax":
            yield "", lambda call: call.result.clamp(min=-64.0)
        else:
            yield "", _clipped


def _clipped(call: Call) -> Any:
    clipped = call["input"].log_softmax(1).clamp(min=-64.0)
    return call.torch.nn.functional.nll_loss(
        clipped,
        call["target"],
        weight=call.get("weight"),
        ignore_index=call.get("ignore_index", -100),
        reduction=call.get("reduction", "mean"),
    )


@register
class IgnoredCounted(Rewrite):
    """With a negative ignore_index paddle's mean divides by all rows."""

    id = "ignored_rows_counted"
    phase = "forward"
    text = "the mean divides by all rows, the ignored ones among them"
    rank = -1  # a reduction in another way would reproduce it too
    difference = "ce_ignore_index_negative"
    functions = CLASSES
    ways = any_of({"": lambda call: _over_all_rows(call)})


def _over_all_rows(call: Call) -> Any:
    if not bool((call["target"] == call.get("ignore_index", -100)).any()):
        raise ValueError("nothing is ignored")
    return call.run(reduction="sum") / call["target"].numel()


@register
class IgnoreIndex(Rewrite):
    """Another index, or none."""

    id = "ignore_index"
    phase = "forward"
    text = "rows of another label are ignored, or none"
    functions = CLASSES

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """The port's own, usual ones, and none."""
        usual = (-100.0, -1.0, 0.0, 255.0)
        for value in subject.candidates(("ignore_index",), usual, float(site.get("ignore_index", -100))):
            yield f"{int(value)} in place of {site.get('ignore_index', -100)}", changing(ignore_index=int(value))


@register
class CrossEntropyAxis(Rewrite):
    """Classes on the last axis by paddle's default, on the second by torch's."""

    id = "cross_entropy_axis"
    phase = "forward"
    text = "classes are taken from another axis"
    difference = "ce_axis"
    functions = CLASSES

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Each other axis."""
        rank = len(site.shape())
        for axis in (rank - 1, *range(2, rank - 1), 0):
            if rank > 2:
                yield f"{axis} in place of 1", _classes_from(axis)


def _classes_from(axis: int) -> Change:
    return lambda call: call.run(input=call["input"].movedim(axis, 1))


@register
class ClassWeights(Rewrite):
    """Weights left out, or a mean that divides by the rows' number, or weights a sample of soft labels."""

    id = "class_weights"
    phase = "forward"
    text = "class weights enter in another way"
    difference = "ce_weight_mean"
    functions = CLASSES

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Where there are any."""
        if site.shape("weight"):
            yield "they are left out", changing(weight=None)
            yield "the mean divides by the number of rows", _over_batch
            yield "of soft labels once a row", _weighted_rows


def _weighted_rows(call: Call) -> Any:
    target, weight = call["target"], call["weight"]
    losses = -(target * call["input"].log_softmax(1)).sum(1)
    weights = (target * weight).sum(1)
    return (losses * weights).sum() / weights.sum()


@register
class SoftmaxBeforeLoss(Rewrite):
    """Probabilities handed to a loss that takes logits."""

    id = "softmax_before_loss"
    phase = "forward"
    text = "the logits go through a softmax or sigmoid before a loss that has its own"
    functions = ("cross_entropy", "binary_cross_entropy_with_logits")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Of the kind that fits the loss."""
        if site.name == "cross_entropy":
            yield "softmax", lambda call: call.run(input=call["input"].softmax(1))
        else:
            yield "sigmoid", lambda call: call.run(input=call["input"].sigmoid())
