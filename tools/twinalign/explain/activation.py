"""Faults of activation functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from twinalign.explain.calls import LAYER, UNIT, Call, Change, Site
from twinalign.explain.registry import register
from twinalign.explain.rewrite import Constant, Rewrite, any_of, changing
from twinalign.explain.subject import LayerSubject

ACTIVATIONS = (
    *("relu", "relu6", "gelu", "silu", "hardswish", "hardsigmoid", "mish", "elu", "celu", "selu", "softplus"),
    *("leaky_relu", "prelu", "sigmoid", "tanh", "hardtanh", "softsign", "logsigmoid", "softmax", "log_softmax"),
)
_LAYERS = {name.replace("_", ""): name for name in ACTIVATIONS}

_OTHERS: dict[str, Callable[[Any, Any], Any]] = {
    "ReLU": lambda torch, x: x.relu(),
    "exact GELU": lambda torch, x: torch.nn.functional.gelu(x),
    "tanh GELU": lambda torch, x: torch.nn.functional.gelu(x, approximate="tanh"),
    "x sigmoid(1.702 x), the quick GELU": lambda torch, x: x * torch.sigmoid(1.702 * x),
    "SiLU": lambda torch, x: torch.nn.functional.silu(x),
    "ReLU6": lambda torch, x: x.clamp(0.0, 6.0),
    "hard swish": lambda torch, x: torch.nn.functional.hardswish(x),
    "hard sigmoid": lambda torch, x: torch.nn.functional.hardsigmoid(x),
    "sigmoid": lambda torch, x: x.sigmoid(),
    "tanh": lambda torch, x: x.tanh(),
    "ELU": lambda torch, x: torch.nn.functional.elu(x),
    "SELU": lambda torch, x: torch.nn.functional.selu(x),
    "Mish": lambda torch, x: torch.nn.functional.mish(x),
    "softplus": lambda torch, x: torch.nn.functional.softplus(x),
    "leaky ReLU of slope 0.01": lambda torch, x: torch.nn.functional.leaky_relu(x, 0.01),
    "softsign": lambda torch, x: torch.nn.functional.softsign(x),
    "log-sigmoid": lambda torch, x: torch.nn.functional.logsigmoid(x),
    "hard tanh": lambda torch, x: x.clamp(-1.0, 1.0),
    "square": lambda torch, x: x.square(),
    "absolute value": lambda torch, x: x.abs(),
}


def activation_of(site: Site) -> str | None:
    """Name of the activation that a call is, whether a function's or a child layer's, else None."""
    if site.name in (LAYER, UNIT):
        return _LAYERS.get(str(site.arguments["kind"]).lower())
    return site.name if site.name in ACTIVATIONS else None


@register
class GeluForm(Rewrite):
    """Older paddle takes a string for a true `approximate`."""

    id = "gelu_form"
    phase = "forward"
    text = "GELU is in another form"
    difference = "gelu_approximate"
    functions = ("gelu", LAYER)

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Exact for the approximation by tanh or the other way round, or the quick one."""
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


def _gradient_of(name: str) -> Change:
    def change(call: Call) -> Any:
        other = _OTHERS[name](call.torch, call["input"])
        return call.result.detach() + other - other.detach()

    return change


def _other(name: str) -> Change:
    return lambda call: _OTHERS[name](call.torch, call["input"])


@register
class ActivationSwapped(Rewrite):
    """Each usual activation in the place of each call of one."""

    id = "activation_swapped"
    phase = "forward"
    text = "another activation function is used"
    functions = (*ACTIVATIONS, LAYER)
    rank = 1

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Every other one, named."""
        current = activation_of(site)
        if current in (None, "softmax", "log_softmax"):
            return
        for name in _OTHERS:
            if not (current == "gelu" and "GELU" in name):
                yield f"{name} in place of {current}", _other(name)


@register
class ActivationMissing(Rewrite):
    """The input goes on as it is."""

    id = "activation_missing"
    phase = "forward"
    text = "an activation function is left out"
    functions = (*ACTIVATIONS, LAYER)

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Named by the activation."""
        if activation_of(site) is not None:
            yield str(activation_of(site)), lambda call: call["input"]


@register
class ActivationTwice(Rewrite):
    """Say a softmax before a loss that takes logits."""

    id = "activation_twice"
    phase = "forward"
    text = "an activation function is applied twice"
    functions = ACTIVATIONS
    rank = 1
    ways = any_of({"": lambda call: call.run(input=call.result)})


@register
class LeakySlope(Constant):
    """0.01 is the default of both; 0.1 and 0.2 are common."""

    id = "leaky_slope"
    phase = "forward"
    text = "the leaky ReLU has another slope"
    functions = ("leaky_relu",)
    argument = "negative_slope"
    default = 0.01
    words = ("negative_slope",)
    usual = (0.01, 0.1, 0.2, 0.25, 0.3, 0.02, 0.05, 0.001, 0.0, 1 / 5.5)


@register
class HardActivationSlope(Rewrite):
    """Paddle's constant is 1/6 in seven digits, held in float32."""

    id = "hard_activation_slope"
    phase = "forward"
    text = "the hard sigmoid has another slope or offset"
    float32_constants = True
    difference = "hard_activations"
    functions = ("hardsigmoid", "hardswish")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Paddle's constant, its older slope 0.2, and what the port's attributes say."""
        own = subject.port_numbers.get("slope")
        for slope in (0.16666670143604279, 0.16666671633720398, 0.2, *(() if own is None else (own,))):
            yield f"slope {slope:.9g} in place of 1/6", _hard(slope, site.name == "hardswish")


def _hard(slope: float, times_input: bool) -> Change:
    def change(call: Call) -> Any:
        gate = (call["input"] * slope + 0.5).clamp(0.0, 1.0)
        return call["input"] * gate if times_input else gate

    return change


@register
class EluAlpha(Constant):
    """Of ELU and CELU."""

    id = "elu_alpha"
    phase = "forward"
    text = "the exponential unit has another alpha"
    functions = ("elu", "celu")
    argument = "alpha"
    default = 1.0
    words = ("alpha",)
    usual = (1.0, 0.1, 0.2, 0.5, 0.01, 2.0)


@register
class SoftplusBeta(Constant):
    """Of softplus."""

    id = "softplus_beta"
    phase = "forward"
    text = "softplus has another beta"
    functions = ("softplus",)
    argument = "beta"
    default = 1.0
    words = ("beta",)
    usual = (1.0, 0.5, 2.0, 10.0)


@register
class ClampUpper(Constant):
    """Say 1 for the 6 of ReLU6."""

    id = "clamp_upper"
    phase = "forward"
    text = "values are cut off at another upper bound"
    rank = 2
    functions = ("hardtanh", "clamp", "relu6")
    words = ("max", "max_val")
    usual = (1.0, 6.0, 20.0, 100.0)

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Of the clamp or of ReLU6."""
        name = "max_val" if site.name == "hardtanh" else "max"
        current = 6.0 if site.name == "relu6" else site.get(name, 1.0 if site.name == "hardtanh" else float("inf"))
        for value in subject.candidates(self.words, self.usual, current):
            change = _relu_up_to(value) if site.name == "relu6" else changing(**{name: value})
            yield f"{value:g} in place of {current:g}", change


def _relu_up_to(bound: float) -> Change:
    return lambda call: call["input"].clamp(0.0, bound)


@register
class ParametricSlope(Rewrite):
    """A key that did not match leaves PReLU's slope where it was made."""

    id = "prelu_initial"
    phase = "forward"
    text = "PReLU's slope was not loaded and is still 0.25"
    difference = "prelu_key"
    functions = ("prelu",)
    ways = any_of({"": lambda call: call.run(weight=call.torch.full_like(call["weight"], 0.25))})


@register
class SoftmaxAxis(Rewrite):
    """torch's axis without `dim` is 0 or 1, paddle's the last."""

    id = "softmax_axis"
    phase = "forward"
    text = "softmax runs along another axis"
    difference = "softmax_default_axis"
    functions = ("softmax", "log_softmax")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Each other axis, the last first."""
        rank = len(site.shape())
        current = site.get("dim", 0 if rank in (0, 1, 3) else 1)
        for axis in reversed(range(rank)):
            if axis != current % rank:
                yield f"{axis} in place of {current % rank}", changing(dim=axis)


@register
class SoftmaxKind(Rewrite):
    """Log-softmax for softmax, sigmoid for softmax."""

    id = "softmax_kind"
    phase = "forward"
    text = "softmax, log-softmax or sigmoid stand in for each other"
    functions = ("softmax", "log_softmax", "sigmoid")
    ways = any_of(
        {
            "log-softmax": lambda call: call["input"].log_softmax(call.get("dim", -1)),
            "softmax": lambda call: call["input"].softmax(call.get("dim", -1)),
            "sigmoid": lambda call: call["input"].sigmoid(),
        }
    )


@register
class GatedHalves(Rewrite):
    """GLU and SwiGLU split a tensor in two: one half is the gate."""

    id = "gate_halves_swapped"
    phase = "forward"
    text = "the gate and the gated half are swapped"
    functions = ("glu", "chunk")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """The halves in the other order."""
        if site.name == "glu":
            yield "", lambda call: call.run(input=_halves_swapped(call["input"], call.get("dim", call.get("1", -1))))
        elif site.get("chunks") == 2 and subject.named(*ACTIVATIONS) and subject.named("mul"):
            yield "", lambda call: tuple(reversed(call.result))


def _halves_swapped(x: Any, dim: int) -> Any:
    half = x.shape[dim] // 2
    return x.roll(half, dim)
