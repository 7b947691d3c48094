"""Faults that only gradients show: stops, frozen layers, gradients at kinks and ties."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from twinalign.explain.calls import ENTRY, GRADIENT_MODE, LAYER, UNIT, Call, Change, Site, TensorFacts
from twinalign.explain.generic import scaled_values
from twinalign.explain.registry import Hypothesis, register
from twinalign.explain.rewrite import Rewrite, any_of
from twinalign.explain.subject import CallVariant, LayerSubject, ValueVariant

_MOST_PLACES = 60
_NO_ARITHMETIC = {"detach", "clone", "to", "requires_grad", "contiguous", GRADIENT_MODE, UNIT}


@register
class ParametersFrozen(Hypothesis):
    """`stop_gradient` is the inverse of `requires_grad`; an inverted boolean freezes."""

    id = "parameters_frozen"
    phase = "backward"
    text = "parameters get no gradient"
    difference = "stop_gradient_default"

    def variants(self, subject: LayerSubject) -> Iterator[CallVariant]:
        """Those whose gradient is zero in the port and not in the reference."""
        prefix = "gradient.parameter."
        frozen = {
            name.removeprefix(prefix)
            for name, theirs in subject.reference.items()
            if name.startswith(prefix) and np.any(theirs) and not np.any(subject.port.get(name, 0.0))
        }
        if not frozen:
            return
        changes = {}
        for site in subject.sites:
            names = [name for name, value in site.arguments.items() if _any_named(value, frozen)]
            if names:
                changes[site.key] = _detached_arguments(names, frozen)
        yield subject.variant(", ".join(sorted(frozen)), changes)


def _any_named(value: Any, names: set[str]) -> bool:
    if isinstance(value, (tuple, list)):
        return any(_any_named(item, names) for item in value)
    return isinstance(value, TensorFacts) and value.name in names


def _detached_arguments(arguments: list[str], names: set[str]) -> Change:
    def detached(call: Call, value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return type(value)(detached(call, item) for item in value)
        return value.detach() if call.name_of(value) in names else value

    return lambda call: call.run(**{name: detached(call, call[name]) for name in arguments})


@register
class GradientStopped(Rewrite):
    """A `detach` or `stop_gradient` that the reference does not have."""

    id = "gradient_stopped"
    phase = "backward"
    text = "the gradient is stopped where it should flow"

    def sites(self, subject: LayerSubject) -> list[Site]:
        """Every call that returns numbers."""
        found = [site for site in subject.sites if site.output.floating and site.name not in _NO_ARITHMETIC]
        return found[:_MOST_PLACES]

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Behind the call; where it has two operands, before either."""
        yield f"behind {_place(site)}", _detached
        for side in ("input", "other", "weight"):
            value = site.arguments.get(side)
            if isinstance(value, TensorFacts) and value.floating and "other" in site.arguments:
                yield f"at {side} of {_place(site)}", _detached_argument(side)


def _place(site: Site) -> str:
    if site.name == ENTRY:
        return "what the unit is given"
    return site.arguments["path"] or str(site.arguments["kind"]) if site.name == LAYER else site.name


def _detached(call: Call) -> Any:
    return _map(call.result, lambda tensor: tensor.detach())


def _map(value: Any, change: Callable[[Any], Any]) -> Any:
    return tuple(_map(item, change) for item in value) if isinstance(value, (tuple, list)) else change(value)


def _detached_argument(side: str) -> Change:
    return lambda call: call.run(**{side: call[side].detach()})


@register
class GradientNotStopped(Rewrite):
    """A `detach` or `no_grad` of the reference that the port does not have."""

    id = "gradient_not_stopped"
    phase = "backward"
    text = "the gradient flows where it should be stopped"
    functions = ("detach", GRADIENT_MODE)

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """The call left out."""
        if site.name == "detach":
            yield "detach left out", lambda call: call["input"]
        else:
            yield "no_grad left out", lambda call: call.run(input=True)

    def variants(self, subject: LayerSubject) -> Iterator[Any]:
        """Parameters that are frozen in the reference alone, then calls."""
        prefix = "gradient.parameter."
        frozen = [
            name.removeprefix(prefix)
            for name, ours in subject.port.items()
            if name.startswith(prefix) and np.any(ours) and not np.any(subject.reference.get(name, 0.0))
        ]
        if frozen:
            yield Unfrozen(f"{', '.join(sorted(frozen))} is trained", tuple(frozen), subject.module)
        yield from super().variants(subject)


@dataclasses.dataclass(frozen=True)
class Unfrozen:
    """The unit with some of its frozen parameters trained."""

    detail: str
    names: tuple[str, ...]
    module: Any

    @contextlib.contextmanager
    def apply(self) -> Iterator[None]:
        """Let these parameters have gradients."""
        parameters = [self.module.get_parameter(name) for name in self.names]
        before = [parameter.requires_grad for parameter in parameters]
        for parameter in parameters:
            parameter.requires_grad_(True)
        try:
            yield
        finally:
            for parameter, trained in zip(parameters, before, strict=True):
                parameter.requires_grad_(trained)


@register
class StatisticsStopped(Rewrite):
    """Mean and variance taken for constants."""

    id = "statistics_gradient_stopped"
    phase = "backward"
    text = "no gradient flows through the norm's mean and variance"
    functions = ("batch_norm", "layer_norm", "group_norm", "instance_norm", "normalize")
    ways = any_of({"": lambda call: _constant_statistics(call)})


def _constant_statistics(call: Call) -> Any:
    """The derivative of a norm whose statistics are constants is a scaling, read off two points of each channel."""
    x = call["input"]
    if call.name == "normalize":
        return x / (x / call.result).detach()
    axes, along = {
        "batch_norm": ((0, *range(2, x.dim())), (1, -1, *(1,) * (x.dim() - 2))),
        "layer_norm": (tuple(range(-len(call.get("normalized_shape", (0,))), 0)), None),
        "group_norm": ((-1,), (1, -1, *(1,) * (x.dim() - 2))),
        "instance_norm": (tuple(range(2, x.dim())), (1, -1, *(1,) * (x.dim() - 2))),
    }[call.name]
    values = x.reshape(x.shape[0], call["num_groups"], -1) if call.name == "group_norm" else x
    mean = values.mean(axes, keepdim=True).detach()
    variance = values.var(axes, unbiased=False, keepdim=True).detach()
    normalised = ((values - mean) / (variance + call.get("eps", 1e-5)).sqrt()).reshape(x.shape)
    call.run()
    for name in ("weight", "bias"):
        parameter = call.get(name)
        if parameter is not None:
            parameter = parameter if along is None else parameter.view(along)
            normalised = normalised * parameter if name == "weight" else normalised + parameter
    return normalised


@register
class GradientFactor(Hypothesis):
    """One factor for all of a unit's gradients that are wrong, fitted and then proven by every element."""

    id = "gradient_factor"
    phase = "backward"
    text = "the gradient is scaled by a factor"
    rank = 8

    def variants(self, subject: LayerSubject) -> Iterator[ValueVariant]:
        """The factor that the largest gradient gives."""
        yield from scaled_values(subject)


@register
class StraightThrough(Rewrite):
    """The gradient of a step is passed on as if the step were not there."""

    id = "straight_through"
    phase = "backward"
    text = "the gradient passes through a step unchanged"
    rank = 1

    def sites(self, subject: LayerSubject) -> list[Site]:
        """Every call of one tensor that keeps the shape."""
        kept = [site for site in subject.sites if site.shape() == site.output.shape and site.name not in _NO_ARITHMETIC]
        return kept[:_MOST_PLACES]

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Named by the step."""
        yield _place(site), lambda call: call["input"] + (call.result - call["input"]).detach()


@register
class MaximumTies(Rewrite):
    """Paddle spreads the gradient of max(axis) over equal elements, torch gives it to one."""

    id = "maximum_ties"
    phase = "backward"
    text = "the gradient of a maximum goes to other ones of equal elements"
    difference = "max_grad_ties"
    functions = ("max", "min", "amax", "amin", "max_pool2d", "max_pool1d", "maximum", "minimum")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Spread evenly, all to the last, all to the first, or in full to each."""
        if site.name in ("maximum", "minimum"):
            yield "all to the first operand", lambda call: _chosen(call, first=True)
            yield "all to the second operand", lambda call: _chosen(call, first=False)
            return
        if "pool" in site.name:
            yield "to the last of a window", _last_of_window
            return
        for name in ("spread evenly", "the first", "the last", "in full to each"):
            yield name, _tied(name)


def _chosen(call: Call, first: bool) -> Any:
    one, two = (call["input"], call["other"]) if first else (call["other"], call["input"])
    take = one >= two if call.name == "maximum" else one <= two
    return call.torch.where(take, one, two)


def _last_of_window(call: Call) -> Any:
    axes = tuple(range(2, call["input"].dim()))
    return call.run(input=call["input"].flip(axes)).flip(axes)


def _tied(kind: str) -> Change:
    def change(call: Call) -> Any:
        x, result = call["input"], call.result
        values = result[0] if isinstance(result, tuple) else result
        dim = call.get("dim")
        axes = tuple(range(x.dim())) if dim is None else dim
        least = call.name in ("min", "amin")
        best = (x.amin if least else x.amax)(dim=axes, keepdim=True)
        equal = (x == best).to(x.dtype)
        if kind == "spread evenly":
            weights = equal / equal.sum(axes, keepdim=True)
        elif kind == "in full to each":
            weights = equal
        else:
            if dim is None:
                raise ValueError("no axis")
            count = equal.cumsum(dim)
            wanted = 1.0 if kind == "the first" else count.amax(dim, keepdim=True)
            weights = equal * (count == wanted).to(x.dtype)
        moving = (x * weights.detach()).sum(axes, keepdim=call.get("keepdim", False))
        chosen = values.detach() + moving - moving.detach()
        return type(result)((chosen, result[1])) if isinstance(result, tuple) else chosen

    return change


def _where(condition: Callable[[Any, Call], Any], slope: float | Callable[[Call], Any]) -> Change:
    """The same values, but at some elements the derivative is `slope`."""

    def change(call: Call) -> Any:
        x, result = call["input"], call.result
        at = condition(x, call)
        factor = slope(call) if callable(slope) else slope
        return call.torch.where(at, result.detach() + (x - x.detach()) * factor, result)

    return change


def _zero(x: Any, call: Call) -> Any:
    return x == 0.0


@register
class GradientAtKink(Rewrite):
    """Subgradients differ: leaky_relu at 0, clamp at its bounds, and by hand others."""

    id = "gradient_at_kink"
    phase = "backward"
    text = "the derivative at a kink is another"
    difference = "grad_at_kinks"
    functions = (
        *("relu", "leaky_relu", "abs", "relu6", "hardtanh", "clamp", "clamp_min", "sqrt", "norm", "vector_norm"),
        *("prelu", "elu", "hardswish", "hardsigmoid"),
    )

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """At 0, or at the bounds of a clamp."""
        if site.name in ("clamp", "clamp_min", "hardtanh", "relu6", "hardswish", "hardsigmoid"):
            for slope in (1.0, 0.0, 0.5):
                yield f"{slope:g} at the bounds", _where(_at_bounds, slope)
                yield f"{slope:g} at the lower bound", _where(_at_lower, slope)
                yield f"{slope:g} at the upper bound", _where(_at_upper, slope)
        if site.name in ("norm", "vector_norm"):
            yield "NaN for a vector of zeros", _nan_at_zero
            return
        for slope in (1.0, 0.0, 0.5, -1.0, float("nan"), float("inf")):
            yield f"{slope:g} at 0", _where(_zero, slope)


def _bounds(call: Call) -> tuple[float | None, float | None]:
    known = {"relu6": (0.0, 6.0), "hardswish": (-3.0, 3.0), "hardsigmoid": (-3.0, 3.0)}
    if call.name in known:
        return known[call.name]
    names = ("min_val", "max_val") if call.name == "hardtanh" else ("min", "max")
    default = (-1.0, 1.0) if call.name == "hardtanh" else (None, None)
    return call.get(names[0], default[0]), call.get(names[1], default[1])


def _at_lower(x: Any, call: Call) -> Any:
    low = _bounds(call)[0]
    return call.torch.zeros_like(x, dtype=call.torch.bool) if low is None else x == low


def _at_upper(x: Any, call: Call) -> Any:
    high = _bounds(call)[1]
    return call.torch.zeros_like(x, dtype=call.torch.bool) if high is None else x == high


def _at_bounds(x: Any, call: Call) -> Any:
    return _at_lower(x, call) | _at_upper(x, call)


def _nan_at_zero(call: Call) -> Any:
    x, result = call["input"], call.result
    dim = call.get("dim", tuple(range(x.dim())))
    root = x.square().sum(dim, keepdim=call.get("keepdim", False)).sqrt()
    return result.detach() + root - root.detach()


@register
class DeviationOfConstant(Rewrite):
    """Paddle's std of equal values has NaN for a gradient, torch's has zero."""

    id = "deviation_of_constant"
    phase = "backward"
    text = "the derivative of a standard deviation of equal values is NaN"
    difference = "grad_at_kinks"
    functions = ("std",)
    ways = any_of({"": lambda call: _rooted_variance(call)})


def _rooted_variance(call: Call) -> Any:
    options = {name: call[name] for name in ("dim", "unbiased", "keepdim", "correction") if name in call.arguments}
    return call["input"].var(**options).sqrt()


@register
class ProductWithZero(Rewrite):
    """Paddle divides the product by each factor."""

    id = "product_with_zero"
    phase = "backward"
    text = "the derivative of a product that contains a zero is NaN"
    difference = "grad_at_kinks"
    functions = ("prod",)
    ways = any_of({"": lambda call: _divided_product(call)})


def _divided_product(call: Call) -> Any:
    x, result = call["input"], call.result
    dim = call.get("dim", tuple(range(x.dim())))
    kept = x.prod() if call.get("dim") is None else x.prod(dim, keepdim=True)
    moving = ((x - x.detach()) * (kept / x).detach()).sum(dim, keepdim=call.get("keepdim", False))
    return result.detach() + moving
