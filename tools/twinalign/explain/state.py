"""Faults of running statistics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from twinalign.explain.calls import Call, Change, Site
from twinalign.explain.registry import register
from twinalign.explain.rewrite import Rewrite, any_of, changing
from twinalign.explain.subject import LayerSubject

STATISTICS = ("batch_norm", "instance_norm")


@register
class RunningMomentum(Rewrite):
    """Paddle's 0.9 is torch's 0.1; a number that is copied is inverted."""

    id = "batch_norm_momentum"
    phase = "state"
    text = "the running statistics move with another momentum"
    difference = "bn_momentum"
    functions = STATISTICS
    float32_constants = True  # momentum

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Its complement, what the port's own momentum means in torch, usual values."""
        current = site.get("momentum", 0.1)
        if not isinstance(current, float):
            return
        own = subject.port_numbers.get("momentum")
        values = (1.0 - current, None if own is None else 1.0 - own, own, 0.1, 0.01, 0.001, 0.05, 0.2, 1.0, 0.9, 0.99)
        for value in dict.fromkeys(value for value in values if value is not None):
            if abs(value - current) > 1e-12:
                yield f"{value:g} in place of {current:g}, in torch's convention", changing(momentum=value)


@register
class RunningVarianceBiased(Rewrite):
    """Torch's running variance is n / (n - 1) times the batch's, paddle's is the batch's."""

    id = "running_variance_biased"
    phase = "state"
    text = "the running variance follows the biased batch variance"
    difference = "bn_running_var_biased"
    functions = STATISTICS
    float32_constants = True  # momentum
    ways = any_of({"": lambda call: _biased(call)})


def _biased(call: Call) -> Any:
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


@register
class RunningStatisticsFrozen(Rewrite):
    """The layer normalises with the batch's statistics, yet does not remember them."""

    id = "running_statistics_frozen"
    phase = "state"
    text = "the running statistics do not move"
    functions = STATISTICS
    float32_constants = True  # momentum

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Both, or one."""
        for detail, names in (
            ("", ("running_mean", "running_var")),
            ("the mean alone", ("running_mean",)),
            ("the variance alone", ("running_var",)),
        ):
            yield detail, _kept(names)


def _kept(names: tuple[str, ...]) -> Change:
    def change(call: Call) -> Any:
        before = {name: call[name].detach().clone() for name in names}
        result = call.run()
        with call.torch.no_grad():
            for name, values in before.items():
                call[name].copy_(values)
        return result

    return change


@register
class RunningStatisticsTwice(Rewrite):
    """A forward pass too many, say of a recomputation."""

    id = "running_statistics_twice"
    phase = "state"
    text = "the running statistics move twice"
    functions = STATISTICS
    float32_constants = True  # momentum
    ways = any_of({"": lambda call: (call.run(), call.run())[1]})


@register
class RunningDeviation(Rewrite):
    """The standard deviation is remembered."""

    id = "running_variance_deviation"
    phase = "state"
    text = "the running variance follows the batch's standard deviation"
    functions = STATISTICS
    float32_constants = True  # momentum
    ways = any_of({"": lambda call: _deviation(call)})


def _deviation(call: Call) -> Any:
    before, momentum = call["running_var"].detach().clone(), call["momentum"]
    result = call.run()
    with call.torch.no_grad():
        batch = (call["running_var"] - (1.0 - momentum) * before) / momentum
        call["running_var"].copy_((1.0 - momentum) * before + momentum * batch.sqrt())
    return result


@register
class StatisticsInitialBefore(Rewrite):
    """Keys did not match, nothing was raised; in training only what the statistics move on from shows it."""

    id = "running_statistics_initial"
    phase = "state"
    text = "the running statistics were not loaded and move on from 0 and 1"
    difference = "bn_buffer_names"
    functions = STATISTICS
    float32_constants = True  # momentum
    ways = any_of(
        {
            "": lambda call: _from_other_statistics(call, _zeros(call, "running_mean"), _ones(call, "running_var")),
            "the mean alone": lambda call: _from_other_statistics(call, _zeros(call, "running_mean"), None),
            "the variance alone": lambda call: _from_other_statistics(call, None, _ones(call, "running_var")),
        }
    )


@register
class StatisticsSwappedBefore(Rewrite):
    """Converted into each other's place; in training only what they move on from shows it."""

    id = "running_statistics_swapped"
    phase = "state"
    text = "running mean and running variance are swapped"
    functions = STATISTICS
    float32_constants = True  # momentum
    ways = any_of({"": lambda call: _from_other_statistics(call, call["running_var"], call["running_mean"])})


def _zeros(call: Call, name: str) -> Any:
    return call.torch.zeros_like(call[name])


def _ones(call: Call, name: str) -> Any:
    return call.torch.ones_like(call[name])


def _from_other_statistics(call: Call, mean: Any | None, variance: Any | None) -> Any:
    given = {"running_mean": mean, "running_var": variance}
    given = {name: values.clone() for name, values in given.items() if values is not None}
    with call.torch.no_grad():
        for name, values in given.items():
            call[name].copy_(values)
    return call.run()
