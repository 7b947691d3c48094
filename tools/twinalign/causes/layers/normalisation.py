"""Faults of norms, of their running statistics, and of normalisation to unit length."""

from collections.abc import Callable, Mapping
from typing import Any

from twinalign.backends.torch.reference_only.operations import Change, FunctionCall, Site
from twinalign.causes.layers.changed_calls import Changes, as_change, changing, forward, state, stored
from twinalign.causes.layers.subject import LayerSubject

NORMS = ("layer_norm", "batch_norm", "group_norm", "instance_norm")
STATISTICS = ("batch_norm", "instance_norm")
EPSILONS = (1e-5, 1e-6, 1e-12, 1e-3, 1e-8, 1e-7, 1e-4, 0.0)
LENGTHS = (1e-12, 1e-8, 1e-6, 1e-5, 1e-10, 1e-7, 1e-4, 1e-3, 0.0)


def values_and_axes(call: FunctionCall) -> tuple[Any, tuple[int, ...]]:
    """What a norm takes its statistics of, the input or its channels in groups, and along which axes."""
    x = call["input"]
    if call.name == "group_norm":
        return x.reshape(x.shape[0], call["num_groups"], -1), (-1,)
    if call.name == "layer_norm":
        return x, tuple(range(-len(call.get("normalized_shape", (0,))), 0))
    return x, tuple(range(2, x.dim())) if call.name == "instance_norm" else (0, *range(2, x.dim()))


def along_channels(x: Any) -> tuple[int, ...]:
    """Shape in which a vector with one element a channel is broadcast against `x`."""
    return 1, -1, *(1,) * (x.dim() - 2)


def affine(call: FunctionCall, x: Any) -> Any:
    """`x` with the weight and bias of a norm's call, along the axes that it has them on."""
    for name, combine in (("weight", x.__class__.__mul__), ("bias", x.__class__.__add__)):
        parameter = call.get(name)
        if parameter is not None:
            last = call.name in ("layer_norm", "rms_norm")
            x = combine(x, parameter if last else parameter.view(along_channels(x)))
    return x


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


@as_change
def standardised(call: FunctionCall, unbiased: bool, outside: bool) -> Any:
    """The change that writes a norm out, with its affine parameters, and epsilon inside or outside the root."""
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


def initial_values(call: FunctionCall, *names: str) -> dict[str, Any]:
    """What running statistics of these names are before anything is loaded."""
    made = {"running_mean": call.torch.zeros_like, "running_var": call.torch.ones_like}
    return {name: made[name](call[name]) for name in names}


def initial(*names: str) -> Change:
    """The change that makes the call with running statistics as they are before anything is loaded."""
    return lambda call: call.run(**initial_values(call, *names))


@as_change
def kept(call: FunctionCall, *names: str) -> Any:
    """The change that leaves running statistics as they were."""
    before = {name: call[name].detach().clone() for name in names}
    result = call.run()
    with call.torch.no_grad():
        for name, values in before.items():
            call[name].copy_(values)
    return result


@as_change
def moved_on(call: FunctionCall, start: Callable[[FunctionCall], Mapping[str, Any]]) -> Any:
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


@state(*STATISTICS, difference="bn_running_var_biased", float32_constants=True)
def running_variance_biased(call: FunctionCall) -> Any:
    """The running variance follows the biased batch variance."""
    # Torch's running variance follows n / (n - 1) times the batch's variance, paddle's the batch's itself.
    variance = call["running_var"]
    before = variance.detach().clone()
    result = call.run()
    axis_size = call["input"].numel() / call["input"].shape[1]
    with call.torch.no_grad():
        # What was added is momentum times the unbiased variance; (n - 1) / n of that is what paddle adds.
        momentum = call["momentum"]
        added = variance - (1.0 - momentum) * before
        variance.copy_((1.0 - momentum) * before + added * (axis_size - 1.0) / axis_size)
    return result


@state(*STATISTICS, float32_constants=True)
def running_variance_deviation(call: FunctionCall) -> Any:
    """The running variance follows the batch's standard deviation."""
    before, momentum = call["running_var"].detach().clone(), call["momentum"]
    result = call.run()
    with call.torch.no_grad():
        batch = (call["running_var"] - (1.0 - momentum) * before) / momentum
        call["running_var"].copy_((1.0 - momentum) * before + momentum * batch.sqrt())
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
