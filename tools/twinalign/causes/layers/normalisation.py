"""Faults of normalising layers: epsilon, affine parameters, statistics, axes."""

from typing import Any

from twinalign.backends.torch.reference_only.operations import FunctionCall, Site
from twinalign.causes.layers.changed_calls import Changes, as_change, changing, forward, other_values, stored
from twinalign.causes.layers.norm_formulas import affine, along_channels, values_and_axes
from twinalign.causes.layers.subject import LayerSubject

NORMS = ("layer_norm", "batch_norm", "group_norm", "instance_norm")
EPSILONS = (1e-5, 1e-6, 1e-12, 1e-3, 1e-8, 1e-7, 1e-4, 0.0)


@forward(*NORMS, "rms_norm", "add", float32_constants=True)
def norm_epsilon(site: Site, subject: LayerSubject) -> Changes:
    """The normalisation's epsilon has another value."""
    # In formulas that are written out, it is the small number that is added before a root.
    argument = "other" if site.name == "add" else "eps"
    if argument == "eps" or is_small(site.get("other")):
        words = ("epsilon", "eps", "variance_epsilon")
        yield from other_values(site, subject, argument, default=1e-5, words=words, usual=EPSILONS)


def is_small(value: Any) -> bool:
    """Whether an argument is a number that guards a division or a root."""
    return isinstance(value, float) and 0.0 < value < 1e-2


@forward(*NORMS)
def norm_affine_swapped(subject: LayerSubject) -> Changes:
    """The norm's weight and bias (gamma and beta) are swapped."""
    yield "", _swap_values
    if subject.backward:
        yield "gradients too", lambda call: call.run(weight=call["bias"], bias=call["weight"])


def _swap_values(call: FunctionCall) -> Any:
    weight, bias = call["weight"], call["bias"]
    return call.run(weight=stored(lambda _: bias)(weight), bias=stored(lambda _: weight)(bias))


@forward(*NORMS, "rms_norm")
def norm_weight_missing() -> Changes:
    """The norm's weight (gamma) is not applied."""
    yield "", lambda call: call.run(weight=call.torch.ones_like(call["weight"]))
    yield "nor is its bias", changing(weight=None, bias=None)


@forward(*NORMS, "rms_norm")
def norm_weight_offset() -> Changes:
    """The norm's weight is taken relative to 1 (1 + weight), or the other way round."""
    yield "1 + weight", lambda call: call.run(weight=call["weight"] + 1.0)
    yield "weight - 1", lambda call: call.run(weight=call["weight"] - 1.0)


@forward("batch_norm", "instance_norm")
def running_statistics_swapped(call: FunctionCall) -> Any:
    """Running mean and running variance are swapped."""
    # A negative mean in the place of the variance gives NaN in the port as well.
    return call.run(running_mean=call["running_var"], running_var=call["running_mean"])


@forward("batch_norm", "instance_norm", difference="bn_buffer_names")
def running_statistics_initial() -> Changes:
    """The running statistics were not loaded and are still 0 and 1."""
    # Keys did not match and nothing was raised.
    yield "", lambda call: call.run(**initial_statistics(call, "running_mean", "running_var"))
    yield "the mean alone", lambda call: call.run(**initial_statistics(call, "running_mean"))
    yield "the variance alone", lambda call: call.run(**initial_statistics(call, "running_var"))


def initial_statistics(call: FunctionCall, *names: str) -> dict[str, Any]:
    """What running statistics of these names are before anything is loaded."""
    made = {"running_mean": call.torch.zeros_like, "running_var": call.torch.ones_like}
    return {name: made[name](call[name]) for name in names}


@forward("batch_norm", "instance_norm")
def running_variance_form() -> Changes:
    """The running variance holds something else."""
    yield "its root", lambda call: call.run(running_var=call["running_var"].sqrt())
    yield "its square", lambda call: call.run(running_var=call["running_var"].square())
    yield "its inverse", lambda call: call.run(running_var=1.0 / call["running_var"])
    yield "its inverse root", lambda call: call.run(running_var=call["running_var"].rsqrt())


@forward("batch_norm", difference="bn_affine_track")
def batch_norm_mode(site: Site) -> Changes:
    """Batch normalisation runs in the other mode."""
    # By `use_global_stats`, a forgotten `train()` or `eval()`, or a positional argument in the wrong place.
    if site.get("training", False):
        yield "with the running statistics, not the batch's", changing(training=False)
    else:
        yield "with the batch's statistics, not the running ones", changing(training=True)
        without = changing(training=True, running_mean=None, running_var=None)
        yield "with the batch's statistics, which leave the running ones alone", without


@forward(*NORMS)
def norm_epsilon_outside_root(call: FunctionCall) -> Any:
    """Epsilon is added to the standard deviation, not to the variance."""
    # The formula is then (x - mean) / (deviation + eps).
    return _standardised(call, unbiased=False, outside=True)


@forward(*NORMS)
def norm_variance_unbiased() -> Changes:
    """The norm divides by the unbiased deviation (n - 1)."""
    # std() and var() divide by n - 1 by default.
    yield "", lambda call: _standardised(call, unbiased=True, outside=False)
    yield "with epsilon added to the deviation", lambda call: _standardised(call, unbiased=True, outside=True)


def _standardised(call: FunctionCall, unbiased: bool, outside: bool) -> Any:
    """The norm of a call written out, with its affine parameters."""
    x, epsilon = call["input"], call.get("eps", 1e-5)
    values, axes = values_and_axes(call)
    if call.name == "batch_norm" and not call.get("training", False):
        mean, variance = (call[name].view(along_channels(x)) for name in ("running_mean", "running_var"))
    else:
        mean, variance = values.mean(axes, keepdim=True), values.var(axes, unbiased=unbiased, keepdim=True)
    root = variance.sqrt() + epsilon if outside else (variance + epsilon).sqrt()
    return affine(call, ((values - mean) / root).reshape(x.shape))


@forward("layer_norm", "group_norm")
def norm_mean_kept(call: FunctionCall) -> Any:
    """The norm does not subtract the mean (RMSNorm in place of LayerNorm)."""
    values, axes = values_and_axes(call)
    squares = values.square().mean(axes, keepdim=True)
    return affine(call, (values / (squares + call.get("eps", 1e-5)).sqrt()).reshape(call["input"].shape))


@forward("rms_norm")
def norm_mean_subtracted(call: FunctionCall) -> Any:
    """The norm subtracts the mean (LayerNorm in place of RMSNorm)."""
    layer_norm, epsilon = call.torch.nn.functional.layer_norm, call.get("eps", 2.0**-52)
    return layer_norm(call["input"], call["normalized_shape"], call.get("weight"), None, epsilon)


@forward("group_norm")
def group_norm_groups(site: Site) -> Changes:
    """The group norm has another number of groups."""
    channels, current = site.shape()[1], site.get("num_groups")
    for groups in (g for g in range(1, channels + 1) if channels % g == 0 and g != current):
        yield f"{groups} in place of {current}", changing(num_groups=groups)


@forward("layer_norm", "batch_norm")
def norm_axis(site: Site) -> Changes:
    """The norm's statistics run over other axes."""
    rank = len(site.shape())
    if site.name == "batch_norm":
        yield "each sample by itself", _over(tuple(range(2, rank)))
        yield "all channels of a sample at once", _over(tuple(range(1, rank)))
        yield "everything at once", _over(tuple(range(rank)))
        return
    for axes in (*((axis,) for axis in range(rank - 1)), tuple(range(1, rank))):
        if len(site.get("normalized_shape", ())) == 1 and axes != (rank - 1,):
            yield f"{list(axes)} in place of the last", _over(axes)


@as_change
def _over(call: FunctionCall, axes: tuple[int, ...]) -> Any:
    x = call["input"]
    # A batch norm remembers its own statistics all the same.
    call.run()
    mean, variance = x.mean(axes, keepdim=True), x.var(axes, unbiased=False, keepdim=True)
    return affine(call, (x - mean) / (variance + call.get("eps", 1e-5)).sqrt())


@forward("local_response_norm", difference="local_response_norm")
def local_response_alpha() -> Changes:
    """Local response normalisation divides alpha by the size, or does not."""
    # Both frameworks divide alpha by the size, but not every formula does.
    yield "not divided", lambda call: call.run(alpha=call.get("alpha", 1e-4) * call["size"])
    yield "divided twice", lambda call: call.run(alpha=call.get("alpha", 1e-4) / call["size"])
