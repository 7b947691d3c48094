"""Faults that only gradients show: stops, frozen layers, gradients at kinks and ties."""

import contextlib
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.backends.torch.reference_only.operations import ENTRY, GRADIENT_MODE, LAYER, UNIT, FunctionCall, Site
from twinalign.causes.layers.changed_calls import Changes, as_change, backward, changed_calls, nested, where_used
from twinalign.causes.layers.normalisation import written_out
from twinalign.causes.layers.subject import CallVariant, LayerSubject
from twinalign.causes.registry import Variant, Within

_MOST_PLACES = 60
_BOUNDED = ("clamp", "clamp_min", "hardtanh", "relu6", "hardswish", "hardsigmoid")
_KINKED = ("relu", "leaky_relu", "abs", "sqrt", "norm", "vector_norm", "prelu", "elu")
_NO_ARITHMETIC = {"detach", "clone", "to", "requires_grad", "contiguous", GRADIENT_MODE, UNIT}


@backward(difference="stop_gradient_default")
def parameters_frozen(subject: LayerSubject) -> Iterator[CallVariant]:
    """Parameters get no gradient."""
    # paddle's `stop_gradient` is the inverse of torch's `requires_grad`: a value copied as it is freezes the parameter.
    frozen = _without_gradient(subject.reference, subject.port)
    if not frozen:
        return
    changes = where_used(subject, frozen, lambda tensor: tensor.detach())
    where = ", where this code itself uses them" if any("." in name for name in frozen) else ""
    yield subject.variant(", ".join(sorted(frozen)) + where, changes)


def _without_gradient(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> set[str]:
    """Parameters whose gradient is zero in `other` and not in `one`."""
    prefix = "gradient.parameter."
    found = [name for name, values in one.items() if np.any(values) and not np.any(other.get(name, 0.0))]
    return {name.removeprefix(prefix) for name in found if name.startswith(prefix)}


def _computing(subject: LayerSubject) -> list[Site]:
    return [site for site in subject.sites if site.output.floating and site.name not in _NO_ARITHMETIC][:_MOST_PLACES]


@backward(sites=_computing)
def gradient_stopped(site: Site) -> Changes:
    """The gradient is stopped where it should flow."""
    yield f"behind {_place(site)}", lambda call: nested(call.result, lambda tensor: tensor.detach())
    for side in ("input", "other", "weight"):
        if "other" in site.arguments and (tensor := site.tensor(side)) and tensor.floating:
            yield f"at {side} of {_place(site)}", lambda call, side=side: call.run(**{side: call[side].detach()})


def _place(site: Site) -> str:
    if site.name == ENTRY:
        return "what the unit is given"
    return site.arguments["path"] or str(site.arguments["kind"]) if site.name == LAYER else site.name


@backward()
def gradient_not_stopped(subject: LayerSubject) -> Iterator[Variant]:
    """The gradient flows where it should be stopped."""
    frozen = _without_gradient(subject.port, subject.reference)
    if frozen:
        yield Within(
            f"{', '.join(sorted(frozen))} is trained", lambda: _with(subject.module, frozen, "requires_grad", True)
        )
    detached, recorded = lambda call: call["input"], lambda call: call.run(input=True)
    yield from changed_calls(subject, subject.named("detach"), lambda site: [("detach left out", detached)])
    yield from changed_calls(subject, subject.named(GRADIENT_MODE), lambda site: [("no_grad left out", recorded)])


@backward()
def gradient_hook_missing(subject: LayerSubject) -> Iterator[Variant]:
    """A hook that changes a parameter's gradient is left out."""
    named = subject.module.named_parameters() if subject.module is not None else ()  # a loss may be a function
    for name in [name for name, parameter in named if parameter._backward_hooks]:
        yield Within(f"on {name}", functools.partial(_with, subject.module, [name], "_backward_hooks", None))


@contextlib.contextmanager
def _with(module: Any, names: Iterable[str], attribute: str, value: Any) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for parameter in map(module.get_parameter, names):
            stack.callback(setattr, parameter, attribute, getattr(parameter, attribute))
            setattr(parameter, attribute, value)
        yield


@backward("batch_norm", "layer_norm", "group_norm", "instance_norm", "normalize")
def statistics_gradient_stopped(call: FunctionCall) -> Any:
    """No gradient flows through the norm's mean and variance."""
    # The derivative of a norm whose statistics are constants is a scaling.
    x = call["input"]
    if call.name == "normalize":
        return x / (x / call.result).detach()
    return written_out(constant=True)(call)


@backward(sites=lambda subject: [site for site in _computing(subject) if site.shape() == site.output.shape], rank=1)
def straight_through(site: Site) -> Changes:
    """The gradient passes through a step unchanged."""
    yield _place(site), lambda call: call["input"] + (call.result - call["input"]).detach()


@backward("max", "min", "amax", "amin", "max_pool2d", "max_pool1d", "maximum", "minimum", difference="max_grad_ties")
def maximum_ties(site: Site) -> Changes:
    """The gradient of a maximum goes to other elements among equal ones."""
    # Paddle spreads the gradient of max(axis) over equal elements, torch gives it to one.
    if site.name in ("maximum", "minimum"):
        yield "all to the first operand", lambda call: _chosen(call, call["input"], call["other"])
        yield "all to the second operand", lambda call: _chosen(call, call["other"], call["input"])
        return
    if "pool" in site.name:
        yield "to the last of a window", _last_of_window
        return
    for name in ("spread evenly", "the first", "the last", "in full to each"):
        yield name, _tied(name)


def _chosen(call: FunctionCall, one: Any, two: Any) -> Any:
    return call.torch.where(one >= two if call.name == "maximum" else one <= two, one, two)


def _last_of_window(call: FunctionCall) -> Any:
    axes = tuple(range(2, call["input"].dim()))
    return call.run(input=call["input"].flip(axes)).flip(axes)


@as_change
def _tied(call: FunctionCall, kind: str) -> Any:
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


@as_change
def _with_slope(call: FunctionCall, slope: float, ends: Sequence[int] | None = None) -> Any:
    """The same values, but at these ends of the bounds, or at 0, the derivative is `slope`."""
    x, result = call["input"], call.result
    kinks = [0.0] if ends is None else [bound for end in ends if (bound := _bounds(call)[end]) is not None]
    chosen = sum(((x == kink) for kink in kinks), call.torch.zeros_like(x, dtype=call.torch.bool))
    return call.torch.where(chosen, result.detach() + (x - x.detach()) * slope, result)


@backward(*_BOUNDED, *_KINKED, difference="grad_at_kinks")
def gradient_at_kink(site: Site) -> Changes:
    """The derivative at a kink differs."""
    # The frameworks differ for leaky_relu at 0 and clamp at its bounds; hand-written code may differ elsewhere.
    if site.name in _BOUNDED:
        for slope in (1.0, 0.0, 0.5):
            for detail, ends in (("bounds", (0, 1)), ("lower bound", (0,)), ("upper bound", (1,))):
                yield f"{slope:g} at the {detail}", _with_slope(slope, ends)
    if site.name in ("norm", "vector_norm"):
        yield "NaN for a vector of zeros", _nan_at_zero
        return
    for slope in (1.0, 0.0, 0.5, -1.0, float("nan"), float("inf")):
        yield f"{slope:g} at 0", _with_slope(slope)


def _bounds(call: FunctionCall) -> tuple[float | None, float | None]:
    known = {"relu6": (0.0, 6.0), "hardswish": (-3.0, 3.0), "hardsigmoid": (-3.0, 3.0)}
    if call.name in known:
        return known[call.name]
    names = ("min_val", "max_val") if call.name == "hardtanh" else ("min", "max")
    default = (-1.0, 1.0) if call.name == "hardtanh" else (None, None)
    return call.get(names[0], default[0]), call.get(names[1], default[1])


def _nan_at_zero(call: FunctionCall) -> Any:
    x, result = call["input"], call.result
    dim = call.get("dim", tuple(range(x.dim())))
    root = x.square().sum(dim, keepdim=call.get("keepdim", False)).sqrt()
    return result.detach() + root - root.detach()


@backward("std", difference="grad_at_kinks")
def deviation_of_constant(call: FunctionCall) -> Any:
    """The derivative of a standard deviation of equal values is NaN."""
    # The gradient of std at equal values is NaN in paddle and zero in torch.
    options = {name: call[name] for name in ("dim", "unbiased", "keepdim", "correction") if name in call.arguments}
    return call["input"].var(**options).sqrt()


@backward("prod", difference="grad_at_kinks")
def product_with_zero(call: FunctionCall) -> Any:
    """The derivative of a product that contains a zero is NaN."""
    # Paddle divides the product by each factor to get the derivative.
    x, result = call["input"], call.result
    dim = call.get("dim", tuple(range(x.dim())))
    kept = x.prod() if call.get("dim") is None else x.prod(dim, keepdim=True)
    moving = ((x - x.detach()) * (kept / x).detach()).sum(dim, keepdim=call.get("keepdim", False))
    return result.detach() + moving
