"""Faults of losses: temperature, labels, reduction, smoothing, ignored rows, which loss and its arguments."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

from twinalign.backends.torch.reference_only.operations import FunctionCall, Key, Site
from twinalign.causes.layers.changed_calls import Changes, called, changed_calls, changing, enter_edits, forward
from twinalign.causes.layers.generic import other_constants, tensor_operand, with_constant
from twinalign.causes.layers.subject import CallVariant, LayerSubject
from twinalign.causes.layers.ways import FLOAT32, choice, made, number

SIMPLE = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "binary_cross_entropy_with_logits")
CLASSES = ("cross_entropy", "nll_loss")
LOSSES = (*SIMPLE, *CLASSES, "binary_cross_entropy", "cosine_embedding_loss", "triplet_margin_loss")
_OF_LOGITS = (*LOSSES, "log_softmax", "logsumexp")
"""What takes logits: a number that its arguments depend on may be a temperature, no other."""


@forward(float32_constants=True)
def loss_temperature(subject: LayerSubject) -> Iterator[CallVariant]:
    """The loss's temperature differs."""
    # The temperature is any number that logits are divided by or multiplied with before a loss.
    sites = subject.named("mul", "div")
    yield from changed_calls(subject, sites, lambda site: _other_temperatures(site, subject))
    # Then with the factors behind the loss, which may come from the same attribute.
    numbers = [(site, number, subject.leads_to(site, *_OF_LOGITS)) for site in sites if (number := site.number)]
    for current in dict.fromkeys(number for _, number, before in numbers if before):
        for value in dict.fromkeys((*_temperatures(current), *subject.port_numbers.values())):
            if value not in (0.0, current):
                moved = {
                    site.key: with_constant(value if number == current else number * (value / current))
                    for site, number, before in numbers
                    if number != current or before
                }
                yield subject.variant(f"{value:.6g} in place of {current:.6g}, in the factor of the loss too", moved)


def _other_temperatures(site: Site, subject: LayerSubject) -> Changes:
    if not (number := site.number) or not subject.leads_to(site, *_OF_LOGITS):
        return
    yield "left out", tensor_operand
    yield from other_constants(number, (*_temperatures(number), *subject.port_numbers.values()))


def _temperatures(number: float) -> tuple[float, ...]:
    return 1.0 / number, number**2, 2.0 * number, number / 2.0, number**0.5, 0.07, 0.1, 0.2, 0.5, 1.0


@forward("mul", "div", float32_constants=True)
def loss_factor(site: Site, subject: LayerSubject) -> Changes:
    """The loss's constant factor is left out or differs."""
    # The factor is any number that the loss is multiplied with, such as twice the temperature.
    first = min((other.position for other in subject.named(*LOSSES)), default=math.inf)
    if not (number := site.number) or site.position < first:
        return
    yield f"left out ({number:.6g})", tensor_operand
    yield from other_constants(number, (number / 2.0, number * 2.0, 1.0 / number, number**2, number**0.5))


def _other_reductions(site: Site, subject: LayerSubject) -> Changes:
    of_batch = ("batchmean",) if site.name == "kl_div" else ()
    yield from choice("reduction", "mean", "sum", "mean", *of_batch, "none")(site, subject)
    yield "the sum divided by the batch's size", _over_batch
    yield "the mean divided by the batch's size", lambda call: call.run(reduction="mean") / len(call["input"])


def _over_batch(call: FunctionCall) -> Any:
    return call.run(reduction="sum") / len(call["input"])


@forward(*CLASSES)
def labels_shifted(site: Site) -> Changes:
    """The labels are shifted."""
    # For example labels that count from one, or a rank's offset that is left out or added twice.
    target = site.tensor("target")
    if target is None or target.floating or len(site.shape()) < 2:
        return
    classes, batch = site.shape()[1], site.shape()[0]
    for shift in dict.fromkeys((1, -1, batch, -batch, classes // 2)):
        if shift % classes:
            yield f"by {shift}", lambda call, by=shift: call.run(target=(call["target"] + by) % classes)
    yield "all are class 0", lambda call: call.run(target=call["target"] * 0)
    yield "rows in another order, by one", lambda call: call.run(target=call["target"].roll(1, 0))
    yield "rows in another order, by one back", lambda call: call.run(target=call["target"].roll(-1, 0))
    yield "rows backwards", lambda call: call.run(target=call["target"].flip(0))


def _smoothed_further(call: FunctionCall, share: int) -> Any:
    return call.run(label_smoothing=call.get("label_smoothing", 0.0) * call["input"].shape[1] / share)


@forward("cross_entropy", "log_softmax", difference="cross_entropy_clip")
def cross_entropy_clipped(call: FunctionCall) -> Any:
    """Log-probabilities are cut off at -64."""
    # Paddle's CPU kernel does so where logits are far apart.
    if call.name == "log_softmax":
        return call.result.clamp(min=-64.0)
    clipped = call["input"].log_softmax(1).clamp(min=-64.0)
    options = {name: call[name] for name in ("weight", "ignore_index", "reduction") if call.get(name) is not None}
    return call.torch.nn.functional.nll_loss(clipped, call["target"], **options)


@forward(*CLASSES, difference="ce_ignore_index_negative", rank=-1)
def ignored_rows_counted(call: FunctionCall) -> Any:
    """The mean divides by the number of all rows, ignored ones included."""
    # With a negative `ignore_index`, paddle's mean divides by all rows. It goes first, because `loss_reduction` would
    # reproduce it too.
    if not bool((call["target"] == call.get("ignore_index", -100)).any()):
        raise ValueError("nothing is ignored")
    return call.run(reduction="sum") / call["target"].numel()


def _weighted_rows(call: FunctionCall) -> Any:
    target, weight = call["target"], call["weight"]
    losses = -(target * call["input"].log_softmax(1)).sum(1)
    weights = (target * weight).sum(1)
    return (losses * weights).sum() / weights.sum()


def _other_smoothing(site: Site, subject: LayerSubject) -> Changes:
    one, two = ("smooth_l1_loss", "beta"), ("huber_loss", "delta")
    (_, own), (function, argument) = (one, two) if site.name == "smooth_l1_loss" else (two, one)
    current, other = site.get(own, 1.0), "Huber loss" if function == "huber_loss" else "smooth L1 loss"
    yield f"{other} in place of the other", called(function, **{argument: current})
    for value in subject.candidates(("delta", "beta"), (1.0, 0.5, 0.1, 2.0), current):
        yield f"{own} {value:g} in place of {current:g}", changing(**{own: value})
        yield f"{other} of {value:g}", called(function, **{argument: value})


@forward(rank=1)
def loss_arguments_swapped(subject: LayerSubject) -> Iterator[CallVariant]:
    """Predictions and targets, or two of the outputs that are compared, are swapped."""
    # KL divergence is not symmetric, nor is the gradient of a squared error.
    yield from changed_calls(subject, subject.named(*SIMPLE), _arguments_swapped)
    if subject.module is None and not subject.backward:
        for one, two in itertools.combinations(subject.named("normalize", "linear", "softmax", "log_softmax"), 2):
            if one.name == two.name and one.shape() == two.shape():
                yield _exchanged(subject, one, two)


def _arguments_swapped(site: Site) -> Changes:
    yield "", lambda call: call.run(input=call["target"], target=call["input"])
    if site.name == "kl_div" and not site.get("log_target", False):
        yield "", lambda call: call.run(input=call["target"].log(), target=call["input"].exp())


def _exchanged(subject: LayerSubject, one: Site, two: Site) -> CallVariant:
    """Each of two calls with what the other is given, known from a run before."""
    given: dict[Key, Any] = {}

    def kept(call: FunctionCall) -> Any:
        given[call.key] = call["input"].detach()
        return call.run()

    subject.run(subject.variant("", {one.key: kept, two.key: kept}))
    places = (one.key, two.key), (two.key, one.key)
    detail = f"calls {one.key[1] + 1} and {two.key[1] + 1} of {one.name}"
    return subject.variant(detail, {here: changing(input=given[there]) for here, there in places})


def _other_loss(site: Site, subject: LayerSubject) -> Changes:
    yield from ((f"{name} in place of {site.name}", called(name)) for name in SIMPLE[:4] if name != site.name)
    if site.name == "mse_loss":
        yield "half the squared error", lambda call: call.result / 2.0


enter_edits("forward", (
    # Paddle's smooth_l1_loss is Huber's by default, which is beta times torch's.
    ("smooth_l1_form", "smooth L1 loss and Huber loss are mistaken for each other, or the bound differs",
     ("smooth_l1_loss", "huber_loss"), _other_smoothing, {"difference": "smooth_l1"}),
    ("loss_reduction", "the loss is reduced in another way", LOSSES, _other_reductions, {}),
    ("label_smoothing", "the label smoothing differs", ("cross_entropy",),
     number("label_smoothing", 0.0, 0.0, 0.1, 0.05, 0.2, 0.01, words=("label_smoothing", "smoothing", "epsilon")),
     {"difference": "ce_label_smoothing", **FLOAT32}),
    ("label_smoothing_form",
     "smoothing shares its part among the other classes, not among all, or the other way round", ("cross_entropy",),
     made({"among the others": lambda call: _smoothed_further(call, call["input"].shape[1] - 1),
           "among all": lambda call: _smoothed_further(call, call["input"].shape[1] + 1)}), {}),
    ("ignore_index", "rows of another label are ignored, or none", CLASSES,
     number("ignore_index", -100, -100.0, -1.0, 0.0, 255.0, kind=int), {}),
    ("class_weights", "class weights are applied in another way", CLASSES,
     made({"they are left out": changing(weight=None), "the mean divides by the number of rows": _over_batch,
           "of soft labels once a row": _weighted_rows}, lambda site: site.shape("weight")),
     {"difference": "ce_weight_mean"}),
    ("softmax_before_loss", "the logits go through a softmax or sigmoid before a loss that has its own",
     ("cross_entropy", "binary_cross_entropy_with_logits"),
     lambda site, subject: [("softmax", lambda call: call.run(input=call["input"].softmax(1)))]
     if site.name == "cross_entropy" else [("sigmoid", lambda call: call.run(input=call["input"].sigmoid()))], {}),
    ("loss_swapped", "another loss is used", SIMPLE[:4], _other_loss, {"rank": 1}),
    # Paddle returns [N, 1] for labels of [N, 1]; multiplied by weights of shape [N] that gives [N, N]. It goes first,
    # because `loss_reduction` would reproduce it too.
    ("loss_rows_broadcast", "the losses of the rows have one axis too many and are broadcast", (*CLASSES, *SIMPLE),
     made({"": lambda call: call.result.unsqueeze(-1)}, lambda site: site.get("reduction", "mean") == "none"),
     {"difference": "ce_reduction_none_shape", "rank": -1}),
    # In paddle, [N, 1] against [N] silently gives [N, N].
    ("loss_broadcast", "predictions and targets of different shapes are broadcast against each other", SIMPLE,
     made({"predictions have one axis more": lambda call: call.run(input=call["input"].unsqueeze(-1)),
           "targets have one axis more": lambda call: call.run(target=call["target"].unsqueeze(-1))}),
     {"difference": "mse_l1_broadcast"}),
    ("positive_weight_missing", "the weight of positives is left out", ("binary_cross_entropy_with_logits",),
     made({"": changing(pos_weight=None),
           "taken for the weight of all": lambda call: call.run(pos_weight=None, weight=call["pos_weight"])}),
     {"difference": "bce_logits_pos_weight"}),
    # Paddle's default takes classes from the last axis, torch's from the second.
    ("cross_entropy_axis", "classes are taken from another axis", CLASSES,
     lambda site, subject: [
         (f"{axis} in place of 1", lambda call, axis=axis: call.run(input=call["input"].movedim(axis, 1)))
         for axis in (len(site.shape()) - 1, *range(2, len(site.shape()) - 1), 0) if len(site.shape()) > 2],
     {"difference": "ce_axis"}),
))  # fmt: skip
