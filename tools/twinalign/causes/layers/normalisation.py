"""Faults of norms, of their running statistics, and of normalisation to unit length."""

from collections.abc import Callable, Mapping
from typing import Any

from twinalign.backends.torch.reference_only.operations import Change, FunctionCall, Site
from twinalign.causes.layers.changed_calls import (
    Changes,
    Ways,
    as_change,
    changing,
    enter_edits,
    forward,
    state,
    stored,
)
from twinalign.causes.layers.subject import LayerSubject
from twinalign.causes.layers.ways import FLOAT32, given, made, other_axis, small_number

NORMS = ("layer_norm", "batch_norm", "group_norm", "instance_norm")
STATISTICS = ("batch_norm", "instance_norm")
EPSILONS = (1e-5, 1e-6, 0.0, 1e-12, 1e-3, 1e-8, 1e-7, 1e-4)
_AXES = {"each sample by itself": (), "each channel of all samples": (0,), "all channels of a sample at once": (1,),
         "everything at once": (0, 1)}  # fmt: skip
LENGTHS = (1e-12, 1e-8, 1e-6, 1e-5, 1e-10, 1e-7, 1e-4, 1e-3, 0.0)


def _values_and_axes(call: FunctionCall) -> tuple[Any, tuple[int, ...]]:
    """What a norm takes its statistics of, the input or its channels in groups, and along which axes."""
    x = call["input"]
    if call.name == "group_norm":
        return x.reshape(x.shape[0], call["num_groups"], -1), (-1,)
    if call.name == "layer_norm":
        return x, tuple(range(-len(call.get("normalized_shape", (0,))), 0))
    return x, tuple(range(2, x.dim())) if call.name == "instance_norm" else (0, *range(2, x.dim()))


def _along_channels(x: Any) -> tuple[int, ...]:
    """Shape in which a vector with one element a channel is broadcast against `x`."""
    return 1, -1, *(1,) * (x.dim() - 2)


def _affine(call: FunctionCall, x: Any) -> Any:
    """`x` with the weight and bias of a norm's call, along the axes that it has them on."""
    for name, combine in (("weight", x.__class__.__mul__), ("bias", x.__class__.__add__)):
        parameter = call.get(name)
        if parameter is not None:
            last = call.name in ("layer_norm", "rms_norm")
            x = combine(x, parameter if last else parameter.view(_along_channels(x)))
    return x


def _swap_values(call: FunctionCall) -> Any:
    weight, bias = call["weight"], call["bias"]
    return call.run(weight=stored(lambda _: bias)(weight), bias=stored(lambda _: weight)(bias))


@as_change
def written_out(
    call: FunctionCall,
    unbiased: bool = False,
    outside: bool = False,
    centred: bool = True,
    constant: bool = False,
    axes: tuple[int, ...] | None = None,
) -> Any:
    """The change that writes a norm out, its affine parameters included.

    Its deviation is the unbiased one or not, epsilon stands `outside` the root or in it, the mean is subtracted if
    `centred`, no gradient flows through the statistics if they are `constant`, and `axes` are other ones than its own.
    """
    x, epsilon = call["input"], call.get("eps", 1e-5)
    values, own = _values_and_axes(call) if axes is None else (x, axes)
    if axes is not None or constant:
        call.run()  # A batch norm remembers its own statistics all the same.
    if call.name == "batch_norm" and axes is None and not call.get("training", False):
        mean, variance = (call[name].view(_along_channels(x)) for name in ("running_mean", "running_var"))
    else:
        mean = values.mean(own, keepdim=True) if centred else 0.0
        variance = values.var(own, unbiased=unbiased, keepdim=True) if centred else values.square().mean(own, True)
    if constant:
        mean, variance = mean.detach(), variance.detach()
    root = variance.sqrt() + epsilon if outside else (variance + epsilon).sqrt()
    return _affine(call, ((values - mean) / root).reshape(x.shape))


@forward(*NORMS)
def norm_axis(site: Site) -> Changes:
    """The norm's statistics run over other axes."""
    rank = len(site.shape())
    if site.name != "layer_norm":
        for text, first in _AXES.items():
            yield text, written_out(axes=(*first, *range(2, rank)))
        return
    for axes in (*((axis,) for axis in range(rank - 1)), tuple(range(1, rank))):
        if len(site.get("normalized_shape", ())) == 1 and axes != (rank - 1,):
            yield f"{list(axes)} in place of the last", written_out(axes=axes)


def _initial_values(call: FunctionCall, *names: str) -> dict[str, Any]:
    """What running statistics of these names are before anything is loaded."""
    made = {"running_mean": call.torch.zeros_like, "running_var": call.torch.ones_like}
    return {name: made[name](call[name]) for name in names}


@as_change
def _kept(call: FunctionCall, *names: str) -> Any:
    before = {name: call[name].detach().clone() for name in names}
    result = call.run()
    with call.torch.no_grad():
        for name, values in before.items():
            call[name].copy_(values)
    return result


@as_change
def _moved_on(call: FunctionCall, start: Callable[[FunctionCall], Mapping[str, Any]]) -> Any:
    """The change that updates running statistics from other values than they have."""
    given = {name: values.clone() for name, values in start(call).items()}
    with call.torch.no_grad():
        for name, values in given.items():
            call[name].copy_(values)
    return call.run()


@state(*STATISTICS, difference="bn_momentum", float32_constants=True)
def batch_norm_momentum(site: Site, subject: LayerSubject) -> Changes:
    """The running statistics are updated with another momentum."""
    # Paddle's 0.9 is torch's 0.1, so a number that is copied means its complement.
    current = site.get("momentum", 0.1)
    if not isinstance(current, float):
        return
    own = subject.port_numbers.get("momentum")
    values = (1.0 - current, None if own is None else 1.0 - own, own, 0.1, 0.01, 0.001, 0.05, 0.2, 1.0, 0.9, 0.99)
    for value in dict.fromkeys(value for value in values if value is not None):
        if abs(value - current) > 1e-12:
            yield f"{value:g} in place of {current:g}, in torch's convention", changing(momentum=value)


@as_change
def _remembered(call: FunctionCall, of: Callable[[Any, float], Any]) -> Any:
    """The change that moves the running variance towards what is made of the batch's, of so many values a channel."""
    before, momentum = call["running_var"].detach().clone(), call["momentum"]
    result = call.run()
    with call.torch.no_grad():
        batch = (call["running_var"] - (1.0 - momentum) * before) / momentum
        moved = of(batch, call["input"].numel() / call["input"].shape[1])
        call["running_var"].copy_((1.0 - momentum) * before + momentum * moved)
    return result


@forward("normalize")
def normalize_epsilon_form(site: Site) -> Changes:
    """Epsilon enters the normalisation to unit length in another way."""
    # x / (length + eps) and x / sqrt(length² + eps) in place of x / max(length, eps).
    for value in dict.fromkeys((site.get("eps", 1e-12), *LENGTHS[:-1])):
        yield f"{value:g} added to the length", _by_length(value, under_root=False)
        yield f"{value:g} added under the root", _by_length(value, under_root=True)


@as_change
def _by_length(call: FunctionCall, epsilon: float, under_root: bool) -> Any:
    squares = call["input"].square().sum(call.get("dim", 1), keepdim=True)
    return call["input"] / ((squares + epsilon).sqrt() if under_root else squares.sqrt() + epsilon)


@forward("cosine_similarity", difference="cosine_similarity_eps")
def cosine_epsilon_form(call: FunctionCall) -> Any:
    """Cosine similarity bounds the product of the lengths by epsilon, not each length."""
    # Paddle bounds the product of both lengths, torch each length.
    dim, one, two = call.get("dim", 1), call["x1"], call["x2"]
    lengths = one.square().sum(dim).sqrt() * two.square().sum(dim).sqrt()
    return (one * two).sum(dim) / lengths.clamp(min=call.get("eps", 1e-8))


def _both_or_one(change: Callable[..., Change]) -> Ways:
    """The change made with both running statistics, then with each alone."""
    mean, variance = "running_mean", "running_var"
    return made({"": change(mean, variance), "the mean alone": change(mean), "the variance alone": change(variance)})


enter_edits("forward", (
    ("normalize_axis", "vectors are normalised to unit length along another axis", ("normalize", "cosine_similarity"),
     other_axis(lambda rank: 1), {}),
    ("norm_epsilon", "the normalisation's epsilon has another value", (*NORMS, "rms_norm", "add"),
     small_number("eps", 1e-5, *EPSILONS, words=("epsilon", "eps", "variance_epsilon")), FLOAT32),
    ("normalize_epsilon", "the smallest length that normalisation to unit length divides by has another value",
     ("normalize", "cosine_similarity"), small_number("eps", 1e-12, *LENGTHS, words=("epsilon", "eps")), FLOAT32),
    ("clamp_lower", "values are cut off at another lower bound", ("clamp", "clamp_min"),
     small_number("min", 1e-12, *LENGTHS, words=("epsilon", "eps")), FLOAT32),
    ("normalize_power", "the vectors are divided by another norm", ("normalize",),
     made({"the 1-norm": changing(p=1.0), "the greatest element": changing(p=float("inf")),
           "the squared length": lambda call: call["input"] / call["input"].square().sum(call.get("dim", 1), True)}),
     {}),
    ("norm_affine_swapped", "the norm's weight and bias (gamma and beta) are swapped", NORMS,
     lambda site, subject: [("", _swap_values), ("gradients too", lambda call: call.run(
         weight=call["bias"], bias=call["weight"]))][: 2 if subject.backward else 1], {}),
    ("norm_weight_missing", "the norm's weight (gamma) is not applied", (*NORMS, "rms_norm"),
     made({"": lambda call: call.run(weight=call.torch.ones_like(call["weight"])),
           "nor is its bias": changing(weight=None, bias=None)}), {}),
    ("norm_weight_offset", "the norm's weight is taken relative to 1 (1 + weight), or the other way round",
     (*NORMS, "rms_norm"), given("weight", {"1 + weight": lambda w: w + 1.0, "weight - 1": lambda w: w - 1.0}), {}),
    # A negative mean in the place of the variance gives NaN in the port as well.
    ("running_statistics_swapped", "running mean and running variance are swapped", STATISTICS,
     made({"": lambda call: call.run(running_mean=call["running_var"], running_var=call["running_mean"])}), {}),
    # Keys did not match and nothing was raised.
    ("running_statistics_initial", "the running statistics were not loaded and are still 0 and 1", STATISTICS,
     _both_or_one(lambda *names: lambda call: call.run(**_initial_values(call, *names))),
     {"difference": "bn_buffer_names"}),
    ("running_variance_form", "the running variance holds something else", STATISTICS,
     given("running_var", {"its root": lambda v: v.sqrt(), "its square": lambda v: v.square(),
                           "its inverse": lambda v: 1.0 / v, "its inverse root": lambda v: v.rsqrt()}), {}),
    # Both frameworks divide alpha by the size, but not every formula does.
    ("local_response_alpha", "local response normalisation divides alpha by the size, or does not",
     ("local_response_norm",),
     made({"not divided": lambda call: call.run(alpha=call.get("alpha", 1e-4) * call["size"]),
           "divided twice": lambda call: call.run(alpha=call.get("alpha", 1e-4) / call["size"])}),
     {"difference": "local_response_norm"}),
    # The formula is then (x - mean) / (deviation + eps).
    ("norm_epsilon_outside_root", "epsilon is added to the standard deviation, not to the variance", NORMS,
     made({"": written_out(unbiased=False, outside=True)}), {}),
    ("norm_mean_kept", "the norm does not subtract the mean (RMSNorm in place of LayerNorm)",
     ("layer_norm", "group_norm"), made({"": written_out(centred=False)}), {}),
    # std() and var() divide by n - 1 by default.
    ("norm_variance_unbiased", "the norm divides by the unbiased deviation (n - 1)", NORMS,
     made({"": written_out(unbiased=True, outside=False),
           "with epsilon added to the deviation": written_out(unbiased=True, outside=True)}), {}),
    ("norm_mean_subtracted", "the norm subtracts the mean (LayerNorm in place of RMSNorm)", ("rms_norm",),
     made({"": lambda call: call.torch.nn.functional.layer_norm(
         call["input"], call["normalized_shape"], call.get("weight"), None, call.get("eps", 2.0**-52))}), {}),
    ("normalize_missing", "the vectors are not normalised to unit length", ("normalize", "cosine_similarity"),
     made({"": lambda call: call["input"] if call.name == "normalize"
           else (call["x1"] * call["x2"]).sum(call.get("dim", 1))}), {}),
    # By `use_global_stats`, a forgotten `train()` or `eval()`, or a positional argument in the wrong place.
    ("batch_norm_mode", "batch normalisation runs in the other mode", ("batch_norm",),
     lambda site, subject: [("with the running statistics, not the batch's", changing(training=False))]
     if site.get("training", False) else [
         ("with the batch's statistics, not the running ones", changing(training=True)),
         ("with the batch's statistics, which leave the running ones alone",
          changing(training=True, running_mean=None, running_var=None))], {"difference": "bn_affine_track"}),
    ("group_norm_groups", "the group norm has another number of groups", ("group_norm",),
     lambda site, subject: [(f"{n} in place of {site.get('num_groups')}", changing(num_groups=n))
                            for n in range(1, site.shape()[1] + 1)
                            if site.shape()[1] % n == 0 and n != site.get("num_groups")], {}),
))  # fmt: skip

enter_edits("state", (
    # Torch's running variance follows n / (n - 1) times the batch's variance, paddle's the batch's itself.
    ("running_variance_biased", "the running variance follows the biased batch variance", STATISTICS,
     made({"": _remembered(lambda variance, size: variance * (size - 1.0) / size)}),
     {"difference": "bn_running_var_biased", **FLOAT32}),
    ("running_variance_deviation", "the running variance follows the batch's standard deviation", STATISTICS,
     made({"": _remembered(lambda variance, size: variance.sqrt())}), FLOAT32),
    # The layer normalises with the batch's statistics but does not remember them.
    ("running_statistics_frozen", "the running statistics are not updated", STATISTICS, _both_or_one(_kept), FLOAT32),
    # For example by a recomputation's second forward pass.
    ("running_statistics_twice", "the running statistics are updated twice", STATISTICS,
     made({"": lambda call: (call.run(), call.run())[1]}), FLOAT32),
    # In training the next two show only in what the statistics move on from.
    ("running_statistics_initial", "the running statistics were not loaded: they are updated from 0 and 1", STATISTICS,
     _both_or_one(lambda *names: _moved_on(lambda call: _initial_values(call, *names))),
     {"difference": "bn_buffer_names", **FLOAT32}),
    ("running_statistics_swapped", "running mean and running variance are swapped", STATISTICS,
     made({"": _moved_on(lambda call: {"running_mean": call["running_var"], "running_var": call["running_mean"]})}),
     FLOAT32),
))  # fmt: skip
