"""Faults of activation functions."""

import math
from collections.abc import Callable
from typing import Any

from twinalign.backends.torch.reference_only.operations import LAYER, UNIT, Change, FunctionCall, Site
from twinalign.causes.layers.changed_calls import Changes, as_change, called, changing, enter_edits, forward, of_input
from twinalign.causes.layers.subject import LayerSubject
from twinalign.causes.layers.ways import FLOAT32, given, made, number, other_axis, taken_for_input

ACTIVATIONS = (
    *("relu", "relu6", "gelu", "silu", "hardswish", "hardsigmoid", "mish", "elu", "celu", "selu", "softplus"),
    *("leaky_relu", "prelu", "sigmoid", "tanh", "hardtanh", "softsign", "logsigmoid", "softmax", "log_softmax"),
)
_LAYERS = {name.replace("_", ""): name for name in ACTIVATIONS}


def _function(name: str, **options: Any) -> Callable[[Any, Any], Any]:
    return lambda torch, x: getattr(torch.nn.functional, name)(x, **options)


_OTHERS: dict[str, Callable[[Any, Any], Any]] = {
    "ReLU": _function("relu"), "exact GELU": _function("gelu"), "tanh GELU": _function("gelu", approximate="tanh"),
    "x sigmoid(1.702 x), the quick GELU": lambda torch, x: x * torch.sigmoid(1.702 * x),
    "SiLU": _function("silu"), "ReLU6": lambda torch, x: x.clamp(0.0, 6.0), "hard swish": _function("hardswish"),
    "hard sigmoid": _function("hardsigmoid"), "sigmoid": _function("sigmoid"), "tanh": _function("tanh"),
    "ELU": _function("elu"), "SELU": _function("selu"), "Mish": _function("mish"), "softplus": _function("softplus"),
    "leaky ReLU of slope 0.01": _function("leaky_relu"), "softsign": _function("softsign"),
    "log-sigmoid": _function("logsigmoid"), "hard tanh": lambda torch, x: x.clamp(-1.0, 1.0),
    "square": lambda torch, x: x.square(), "absolute value": lambda torch, x: x.abs(),
}  # fmt: skip


def activation_of(site: Site) -> str | None:
    """Name of the activation that a call is, whether a function's or a child layer's, else None."""
    if site.name in (LAYER, UNIT):
        return _LAYERS.get(str(site.arguments["kind"]).lower())
    return site.name if site.name in ACTIVATIONS else None


@forward("gelu", LAYER, difference="gelu_approximate")
def gelu_form(site: Site, subject: LayerSubject) -> Changes:
    """GELU is in another form."""
    # Older paddle takes a string for a true `approximate`.
    if activation_of(site) != "gelu":
        return
    if site.name == LAYER:
        yield "the tanh approximation in place of the exact one", _other("tanh GELU")
        yield "the exact one in place of the tanh approximation", _other("exact GELU")
    elif site.get("approximate", "none") == "none":
        yield "the tanh approximation in place of the exact one", changing(approximate="tanh")
    else:
        yield "the exact one in place of the tanh approximation", changing(approximate="none")
    yield "x sigmoid(1.702 x), the quick one", _other("x sigmoid(1.702 x), the quick GELU")
    if subject.backward:
        for name in ("tanh GELU", "exact GELU"):
            yield f"the gradient is that of the {name}", _gradient_of(name)


@as_change
def _gradient_of(call: FunctionCall, name: str) -> Any:
    other = _OTHERS[name](call.torch, call["input"])
    return call.result.detach() + other - other.detach()


def _other(name: str) -> Change:
    return lambda call: _OTHERS[name](call.torch, call["input"])


@forward(*ACTIVATIONS, LAYER, rank=1)
def activation_swapped(site: Site) -> Changes:
    """Another activation function is used."""
    current = activation_of(site)
    if current in (None, "softmax", "log_softmax"):
        return
    for name in _OTHERS:
        if not (current == "gelu" and "GELU" in name):
            yield f"{name} in place of {current}", _other(name)


_SLOPES = (0.01, 0.1, 0.2, 0.25, 0.3, 0.02, 0.05, 0.001, 0.0, 1 / 5.5)


def _other_slopes(site: Site, subject: LayerSubject) -> Changes:
    if site.name == "leaky_relu":
        yield from number("negative_slope", 0.01, *_SLOPES)(site, subject)
        return
    for slope in subject.candidates(("negative_slope",), _SLOPES, 0.0):
        if slope != 0.01:  # the default, which `activation_swapped` names
            yield f"{slope:g} in place of 0, as ReLU has", called("leaky_relu", negative_slope=slope)


@as_change
def _hard(call: FunctionCall, slope: float, times_input: bool) -> Any:
    gate = (call["input"] * slope + 0.5).clamp(0.0, 1.0)
    return call["input"] * gate if times_input else gate


@forward("hardtanh", "clamp", "relu6", rank=2, float32_constants=True)
def clamp_upper(site: Site, subject: LayerSubject) -> Changes:
    """Values are cut off at another upper bound."""
    name = "max_val" if site.name == "hardtanh" else "max"
    current = 6.0 if site.name == "relu6" else site.get(name, 1.0 if site.name == "hardtanh" else math.inf)
    # A bound that no value reaches does what none does: none is said, unless the port has such a number.
    for value in subject.candidates(("max", "max_val"), (math.inf, 1.0, 6.0, 20.0, 100.0), current):
        change = of_input("clamp", 0.0, value) if site.name == "relu6" else changing(**{name: value})
        yield " in place of ".join("none" if bound == math.inf else f"{bound:g}" for bound in (value, current)), change


@forward("softmax", "log_softmax", "sigmoid")
def softmax_kind(site: Site) -> Changes:
    """Softmax, log-softmax and sigmoid are mistaken for each other."""
    # Over a single element they are 1 and 0 whatever it is: what fits then is a gate that is not used.
    shape, axis = site.shape(), site.get("dim", -1)
    if shape and shape[axis] > 1:
        yield "log-softmax", lambda call: call["input"].log_softmax(call.get("dim", -1))
        yield "softmax", lambda call: call["input"].softmax(call.get("dim", -1))
    yield "sigmoid", lambda call: call["input"].sigmoid()


@forward("glu", "chunk")
def gate_halves_swapped(site: Site, subject: LayerSubject) -> Changes:
    """The two halves, such as a gate and what it gates, are swapped."""
    if site.name == "glu":
        yield "", _halves_swapped
    elif site.get("chunks") == 2 and subject.named(*ACTIVATIONS) and subject.named("mul"):
        yield "", lambda call: tuple(reversed(call.result))


def _halves_swapped(call: FunctionCall) -> Any:
    x, dim = call["input"], call.get("dim", -1)
    return call.run(input=x.roll(x.shape[dim] // 2, dim))


enter_edits("forward", (
    ("activation_twice", "an activation function is applied twice", ACTIVATIONS,
     made({"": lambda call: call.run(input=call.result)}), {"rank": 1}),  # as a softmax before a loss that takes logits
    ("activation_added", "an activation function is applied to what it returns", (UNIT,),
     made({name: lambda call, of=of: of(call.torch, call.result) for name, of in _OTHERS.items()}), {"rank": 3}),
    ("activation_missing", "an activation function is left out", (*ACTIVATIONS, LAYER),
     lambda site, subject: [(name, taken_for_input)] if (name := activation_of(site)) else (), {}),
    ("leaky_slope", "the leaky ReLU has another slope", ("leaky_relu", "relu"), _other_slopes, FLOAT32),
    ("elu_alpha", "the exponential unit has another alpha", ("elu", "celu"),
     number("alpha", 1.0, 1.0, 0.1, 0.2, 0.5, 0.01, 2.0), FLOAT32),
    # Paddle's constant is 1/6 in seven digits, held in float32.
    ("hard_activation_slope", "the hard sigmoid has another slope or offset", ("hardsigmoid", "hardswish"),
     lambda site, subject: [(f"slope {slope:.9g} in place of 1/6", _hard(slope, site.name == "hardswish")) for slope in
                            (0.16666670143604279, 0.16666671633720398, 0.2, subject.port_numbers.get("slope", 0.2))],
     {"difference": "hard_activations", **FLOAT32}),
    ("softplus_beta", "softplus has another beta", ("softplus",), number("beta", 1.0, 1.0, 0.5, 2.0, 10.0), FLOAT32),
    # A key that did not match leaves the slope at its initial value.
    ("prelu_initial", "PReLU's slope was not loaded and is still 0.25", ("prelu",),
     given("weight", {"": lambda slope: slope * 0.0 + 0.25}), {"difference": "prelu_key"}),
    # Without `dim`, torch takes axis 0 or 1 and paddle the last.
    ("softmax_axis", "softmax runs along another axis", ("softmax", "log_softmax"),
     other_axis(lambda rank: 0 if rank in (0, 1, 3) else 1), {"difference": "softmax_default_axis"}),
))  # fmt: skip
