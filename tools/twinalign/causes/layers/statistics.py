"""Faults of running statistics."""

from collections.abc import Mapping
from typing import Any

from twinalign.backends.torch.reference_only.operations import FunctionCall, Site
from twinalign.causes.layers.changed_calls import Changes, as_change, changing, state
from twinalign.causes.layers.normalisation import initial_statistics
from twinalign.causes.layers.subject import LayerSubject

STATISTICS = ("batch_norm", "instance_norm")


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
def running_statistics_frozen() -> Changes:
    """The running statistics are not updated."""
    # The layer normalises with the batch's statistics but does not remember them.
    yield "", _kept(("running_mean", "running_var"))
    yield "the mean alone", _kept(("running_mean",))
    yield "the variance alone", _kept(("running_var",))


@as_change
def _kept(call: FunctionCall, names: tuple[str, ...]) -> Any:
    before = {name: call[name].detach().clone() for name in names}
    result = call.run()
    with call.torch.no_grad():
        for name, values in before.items():
            call[name].copy_(values)
    return result


@state(*STATISTICS, float32_constants=True)
def running_statistics_twice(call: FunctionCall) -> Any:
    """The running statistics are updated twice."""
    # For example by a recomputation's second forward pass.
    return (call.run(), call.run())[1]


@state(*STATISTICS, float32_constants=True)
def running_variance_deviation(call: FunctionCall) -> Any:
    """The running variance follows the batch's standard deviation."""
    before, momentum = call["running_var"].detach().clone(), call["momentum"]
    result = call.run()
    with call.torch.no_grad():
        batch = (call["running_var"] - (1.0 - momentum) * before) / momentum
        call["running_var"].copy_((1.0 - momentum) * before + momentum * batch.sqrt())
    return result


@state(*STATISTICS, difference="bn_buffer_names", float32_constants=True)
def running_statistics_initial() -> Changes:
    """The running statistics were not loaded: they are updated from 0 and 1."""
    # In training this shows only in what the statistics move on from.
    yield "", lambda call: _moved_on_from(call, initial_statistics(call, "running_mean", "running_var"))
    yield "the mean alone", lambda call: _moved_on_from(call, initial_statistics(call, "running_mean"))
    yield "the variance alone", lambda call: _moved_on_from(call, initial_statistics(call, "running_var"))


@state(*STATISTICS, float32_constants=True)
def running_statistics_swapped(call: FunctionCall) -> Any:
    """Running mean and running variance are swapped."""
    # In training this shows only in what the statistics move on from.
    return _moved_on_from(call, {"running_mean": call["running_var"], "running_var": call["running_mean"]})


def _moved_on_from(call: FunctionCall, statistics: Mapping[str, Any]) -> Any:
    given = {name: values.clone() for name, values in statistics.items()}
    with call.torch.no_grad():
        for name, values in given.items():
            call[name].copy_(values)
    return call.run()
