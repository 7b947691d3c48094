"""Faults of normalising layers: epsilon, affine parameters, statistics, axes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from twinalign.explain.calls import Call, Change, Site
from twinalign.explain.registry import register
from twinalign.explain.rewrite import Constant, Rewrite, any_of, changing, stored
from twinalign.explain.subject import LayerSubject

NORMS = ("layer_norm", "batch_norm", "group_norm", "instance_norm")
EPSILONS = (1e-5, 1e-6, 1e-12, 1e-3, 1e-8, 1e-7, 1e-4, 0.0)


@register
class NormEpsilon(Constant):
    """Of layers, and of formulas written out in which a small number is added before a root."""

    id = "norm_epsilon"
    phase = "forward"
    text = "the normalisation's epsilon has another value"
    functions = (*NORMS, "rms_norm", "add")
    argument = "eps"
    default = 1e-5
    words = ("epsilon", "eps", "variance_epsilon")
    usual = EPSILONS

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """The argument of a norm, or the small number that is added."""
        if site.name != "add":
            yield from super().changes(site, subject)
        elif isinstance(current := site.get("other"), float) and 0.0 < current < 1e-2:
            for value in subject.candidates(self.words, self.usual, current):
                yield f"{value:g} in place of {current:g}", changing(other=value)


@register
class NormAffineSwapped(Rewrite):
    """The scale holds the shift's values and the other way round."""

    id = "norm_affine_swapped"
    phase = "forward"
    text = "the norm's weight and bias (gamma and beta) are swapped"
    functions = NORMS

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """The values swapped, or the tensors themselves, which gradients tell apart."""
        yield "", _swap_values
        if subject.backward:
            yield "gradients too", lambda call: call.run(weight=call["bias"], bias=call["weight"])


def _swap_values(call: Call) -> Any:
    weight, bias = call["weight"], call["bias"]
    return call.run(weight=stored(lambda _: bias)(weight), bias=stored(lambda _: weight)(bias))


@register
class NormWeightMissing(Rewrite):
    """The norm does not scale."""

    id = "norm_weight_missing"
    phase = "forward"
    text = "the norm's weight (gamma) is not applied"
    functions = (*NORMS, "rms_norm")
    ways = any_of(
        {
            "": lambda call: call.run(weight=call.torch.ones_like(call["weight"])),
            "nor is its bias": changing(weight=None, bias=None),
        }
    )


@register
class NormWeightOffset(Rewrite):
    """x * (1 + weight), as some models store it."""

    id = "norm_weight_offset"
    phase = "forward"
    text = "the norm's weight is taken relative to 1 (1 + weight), or the other way round"
    functions = (*NORMS, "rms_norm")
    ways = any_of(
        {
            "1 + weight": lambda call: call.run(weight=call["weight"] + 1.0),
            "weight - 1": lambda call: call.run(weight=call["weight"] - 1.0),
        }
    )


@register
class RunningStatisticsSwapped(Rewrite):
    """The mean is where the variance belongs; a negative one gives NaN in the port as well."""

    id = "running_statistics_swapped"
    phase = "forward"
    text = "running mean and running variance are swapped"
    functions = ("batch_norm", "instance_norm")
    ways = any_of({"": lambda call: call.run(running_mean=call["running_var"], running_var=call["running_mean"])})


@register
class RunningStatisticsInitial(Rewrite):
    """Keys did not match, nothing was raised, and the statistics stayed as they were made."""

    id = "running_statistics_initial"
    phase = "forward"
    text = "the running statistics were not loaded and are still 0 and 1"
    difference = "bn_buffer_names"
    functions = ("batch_norm", "instance_norm")
    ways = any_of(
        {
            "": lambda call: call.run(
                running_mean=call.torch.zeros_like(call["running_mean"]),
                running_var=call.torch.ones_like(call["running_var"]),
            ),
            "the mean alone": lambda call: call.run(running_mean=call.torch.zeros_like(call["running_mean"])),
            "the variance alone": lambda call: call.run(running_var=call.torch.ones_like(call["running_var"])),
        }
    )


@register
class RunningVarianceForm(Rewrite):
    """The standard deviation, or its inverse, is stored where the variance belongs."""

    id = "running_variance_form"
    phase = "forward"
    text = "the running variance holds something else"
    functions = ("batch_norm", "instance_norm")
    ways = any_of(
        {
            "its root": lambda call: call.run(running_var=call["running_var"].sqrt()),
            "its square": lambda call: call.run(running_var=call["running_var"].square()),
            "its inverse": lambda call: call.run(running_var=1.0 / call["running_var"]),
            "its inverse root": lambda call: call.run(running_var=call["running_var"].rsqrt()),
        }
    )


@register
class BatchNormMode(Rewrite):
    """`use_global_stats`, a forgotten `train()` or `eval()`, a positional argument in the wrong place."""

    id = "batch_norm_mode"
    phase = "forward"
    text = "batch normalisation runs in the other mode"
    difference = "bn_affine_track"
    functions = ("batch_norm",)

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Running statistics in training, or batch statistics in evaluation, the buffers then moving or not."""
        if site.get("training", False):
            yield "with the running statistics, not the batch's", changing(training=False)
        else:
            yield "with the batch's statistics, not the running ones", changing(training=True)
            without = changing(training=True, running_mean=None, running_var=None)
            yield "with the batch's statistics, which leave the running ones alone", without


@register
class NormEpsilonPlace(Rewrite):
    """(x − mean) / (deviation + eps)."""

    id = "norm_epsilon_outside_root"
    phase = "forward"
    text = "epsilon is added to the standard deviation, not to the variance"
    functions = NORMS
    ways = any_of({"": lambda call: _standardised(call, unbiased=False, outside=True)})


@register
class NormVarianceUnbiased(Rewrite):
    """A variance divided by n − 1, as std() and var() have it by default."""

    id = "norm_variance_unbiased"
    phase = "forward"
    text = "the norm divides by the unbiased deviation (n - 1)"
    functions = NORMS
    ways = any_of(
        {
            "": lambda call: _standardised(call, unbiased=True, outside=False),
            "with epsilon added to the deviation": lambda call: _standardised(call, unbiased=True, outside=True),
        }
    )


def _standardised(call: Call, unbiased: bool, outside: bool) -> Any:
    """The norm of a call written out, with its affine parameters."""
    x, epsilon = call["input"], call.get("eps", 1e-5)
    values = x.reshape(x.shape[0], call["num_groups"], -1) if call.name == "group_norm" else x
    axes = {
        "layer_norm": tuple(range(-len(call.get("normalized_shape", (0,))), 0)),
        "group_norm": (-1,),
        "instance_norm": tuple(range(2, x.dim())),
        "batch_norm": (0, *range(2, x.dim())),
    }[call.name]
    if call.name == "batch_norm" and not call.get("training", False):
        mean, variance = (call[name].view(_along(x)) for name in ("running_mean", "running_var"))
    else:
        mean, variance = values.mean(axes, keepdim=True), values.var(axes, unbiased=unbiased, keepdim=True)
    root = variance.sqrt() + epsilon if outside else (variance + epsilon).sqrt()
    return _affine(call, ((values - mean) / root).reshape(x.shape))


def _along(x: Any) -> tuple[int, ...]:
    return 1, -1, *(1,) * (x.dim() - 2)


def _affine(call: Call, x: Any) -> Any:
    """`x` with the weight and bias of a norm's call, along the axes that it has them on."""
    for name, combine in (("weight", x.__class__.__mul__), ("bias", x.__class__.__add__)):
        parameter = call.get(name)
        if parameter is not None:
            last = call.name in ("layer_norm", "rms_norm")
            x = combine(x, parameter if last else parameter.view(_along(x)))
    return x


@register
class MeanKept(Rewrite):
    """RMSNorm where LayerNorm is meant."""

    id = "norm_mean_kept"
    phase = "forward"
    text = "the norm does not subtract the mean (RMSNorm in place of LayerNorm)"
    functions = ("layer_norm", "group_norm")
    ways = any_of({"": lambda call: _root_mean_square(call)})


def _root_mean_square(call: Call) -> Any:
    x = call["input"]
    values = x.reshape(x.shape[0], call["num_groups"], -1) if call.name == "group_norm" else x
    axes = (-1,) if call.name == "group_norm" else tuple(range(-len(call["normalized_shape"]), 0))
    squares = values.square().mean(axes, keepdim=True)
    return _affine(call, (values / (squares + call.get("eps", 1e-5)).sqrt()).reshape(x.shape))


@register
class MeanSubtracted(Rewrite):
    """LayerNorm where RMSNorm is meant."""

    id = "norm_mean_subtracted"
    phase = "forward"
    text = "the norm subtracts the mean (LayerNorm in place of RMSNorm)"
    functions = ("rms_norm",)
    ways = any_of(
        {
            "": lambda call: call.torch.nn.functional.layer_norm(
                call["input"], call["normalized_shape"], call.get("weight"), None, call.get("eps", 2.0**-52)
            )
        }
    )


@register
class GroupCount(Rewrite):
    """Every divisor of the number of channels is tried."""

    id = "group_norm_groups"
    phase = "forward"
    text = "the group norm has another number of groups"
    functions = ("group_norm",)

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Each other number that divides the channels."""
        channels, current = site.shape()[1], site.get("num_groups")
        for groups in (g for g in range(1, channels + 1) if channels % g == 0 and g != current):
            yield f"{groups} in place of {current}", changing(num_groups=groups)


@register
class NormAxis(Rewrite):
    """Statistics over another axis than the last."""

    id = "norm_axis"
    phase = "forward"
    text = "the norm's statistics run over other axes"
    functions = ("layer_norm", "batch_norm")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Each other axis, and all but the first; of a batch norm, each sample by itself, or all channels at once."""
        rank = len(site.shape())
        if site.name == "batch_norm":
            yield "each sample by itself", _over(tuple(range(2, rank)))
            yield "all channels of a sample at once", _over(tuple(range(1, rank)))
            yield "everything at once", _over(tuple(range(rank)))
            return
        for axes in (*((axis,) for axis in range(rank - 1)), tuple(range(1, rank))):
            if len(site.get("normalized_shape", ())) == 1 and axes != (rank - 1,):
                yield f"{list(axes)} in place of the last", _over(axes)


def _over(axes: tuple[int, ...]) -> Change:
    def change(call: Call) -> Any:
        x = call["input"]
        # A batch norm remembers its own statistics all the same.
        call.run()
        mean, variance = x.mean(axes, keepdim=True), x.var(axes, unbiased=False, keepdim=True)
        return _affine(call, (x - mean) / (variance + call.get("eps", 1e-5)).sqrt())

    return change


@register
class LocalResponseConstant(Rewrite):
    """Alpha is divided by the size in both frameworks, not in every formula."""

    id = "local_response_alpha"
    phase = "forward"
    text = "local response normalisation divides alpha by the size, or does not"
    difference = "local_response_norm"
    functions = ("local_response_norm",)
    ways = any_of(
        {
            "not divided": lambda call: call.run(alpha=call.get("alpha", 1e-4) * call["size"]),
            "divided twice": lambda call: call.run(alpha=call.get("alpha", 1e-4) / call["size"]),
        }
    )
