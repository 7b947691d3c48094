"""Faults that any code can have: a step left out, done twice, with another factor; tried after the particular ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from twinalign.explain.activation import activation_of
from twinalign.explain.calls import ENTRY, LAYER, UNIT, Call, Change, Site, TensorFacts
from twinalign.explain.registry import Hypothesis, register
from twinalign.explain.rewrite import SIGNS, Rewrite, any_of
from twinalign.explain.subject import LayerSubject, ValueVariant

LAST = 9
_WRITTEN = 1e-6


@register
class LayerMissing(Rewrite):
    """A child layer of the reference that the port does not call, or calls without using what it returns."""

    id = "layer_missing"
    phase = "forward"
    text = "a layer is left out"
    functions = (UNIT, LAYER)
    rank = -1

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Its input goes on in the place of its output; of the unit itself, where the port calls no layer in it."""
        library = type(site.arguments["module"]).__module__.startswith("torch.") and not subject.layers()
        unused = site.name == LAYER or library or runs_children(subject)
        if site.output.shape == site.shape() and unused and activation_of(site) is None:
            yield site.arguments["path"] or str(site.arguments["kind"]), lambda call: call["input"]


@register
class LayerTwice(Rewrite):
    """A child layer, or the unit as a whole, is called on what it has returned."""

    id = "layer_twice"
    phase = "forward"
    text = "a layer is applied twice"
    functions = (LAYER, UNIT)
    rank = 4

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Named by the layer."""
        if site.output.shape == site.shape():
            again = site.arguments["path"] or str(site.arguments["kind"])
            yield again, lambda call: call["module"].forward(call["output"])


@register
class StepMissing(Rewrite):
    """Any function whose result has the shape of what it is given."""

    id = "step_missing"
    phase = "forward"
    text = "a step is left out"
    rank = LAST

    def sites(self, subject: LayerSubject) -> list[Site]:
        """Every call of a function that keeps the shape."""
        return [site for site in subject.sites if _keeps_shape(site) or _keeps_shape(site, "other")]

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Named by the function; of two operands either may be what is left."""
        if _keeps_shape(site):
            yield site.name, lambda call: call["input"]
        if _keeps_shape(site, "other"):
            yield f"{site.name}, its second operand being what is left", lambda call: call["other"]


def _keeps_shape(site: Site, side: str = "input") -> bool:
    return site.name not in (LAYER, UNIT, ENTRY) and site.shape(side) == site.output.shape != ()


@register
class StepTwice(Rewrite):
    """Any function whose result can be given to it once more."""

    id = "step_twice"
    phase = "forward"
    text = "a step is taken twice"
    rank = LAST

    def sites(self, subject: LayerSubject) -> list[Site]:
        """Every call of a function that keeps the shape."""
        return [site for site in subject.sites if _keeps_shape(site)]

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Named by the function."""
        yield site.name, lambda call: call.run(input=call.result)


def runs_children(subject: LayerSubject) -> bool:
    """Whether children compute, which they do where they have no partner that the port calls."""
    paths = tuple(f"{site.arguments['path']}." for site in subject.layers())
    names = [
        value.name for site in subject.sites for value in site.arguments.values() if isinstance(value, TensorFacts)
    ]
    return any(name is not None and name.startswith(paths) for name in names)


@register
class OutputScaled(Hypothesis):
    """One factor for all wrong values, fitted and then proven by every element."""

    id = "output_scaled"
    phase = "forward"
    text = "the output is scaled by a factor"
    rank = LAST

    def variants(self, subject: LayerSubject) -> Iterator[ValueVariant]:
        """The factor that the largest element of the reference gives."""
        yield from scaled_values(subject)


def scaled_values(subject: LayerSubject) -> Iterator[ValueVariant]:
    """All values that are to be explained times one factor, read off the largest of them."""
    pairs = {name: (subject.port[name], theirs) for name, theirs in subject.reference.items() if name in subject.port}
    sizes = {name: np.abs(theirs).max() for name, (ours, theirs) in pairs.items() if ours.shape == theirs.shape != (0,)}
    if not sizes:
        return
    port, reference = pairs[max(sizes, key=lambda name: sizes[name])]
    worst = np.unravel_index(int(np.argmax(np.abs(reference))), reference.shape)
    factor = float(port[worst] / reference[worst]) if reference[worst] else float("nan")
    if max(port.size for port, _ in pairs.values()) == 1 and not is_written(factor, 2):
        return  # a number is every other one times some factor
    if np.isfinite(factor):
        yield ValueVariant(f"{factor:.9g}", lambda values: {name: value * factor for name, value in values.items()})


def is_written(value: float, digits: int) -> bool:
    """Whether somebody may have written this number, in so many digits, kept in float32 or not."""
    return np.isfinite(value) and abs(float(f"{value:.{digits - 1}e}") - value) <= _WRITTEN * abs(value)


@register
class FactorForgotten(Rewrite):
    """A product with, or a quotient by, a number."""

    id = "factor_forgotten"
    phase = "forward"
    text = "a constant factor is left out"
    functions = ("mul", "div")
    rank = 2

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """The tensor as it was."""
        number = constant_of(site)
        if number is not None:
            yield f"{'times' if site.name == 'mul' else 'divided by'} {number:.6g}", tensor_operand


@register
class FactorWrong(Rewrite):
    """The inverse, the square or the root of a factor, or a power of ten off."""

    id = "factor_wrong"
    phase = "forward"
    text = "a constant factor has another value"
    float32_constants = True
    functions = ("mul", "div")
    rank = 3

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Usual confusions first, then numbers of the port's own."""
        number = constant_of(site)
        if not number or number < 0.0:
            return
        usual = (1.0 / number, number**2, number**0.5, 2.0 * number, number / 2.0, number * 10.0, number / 10.0)
        for value in dict.fromkeys((*usual, *subject.port_numbers.values())):
            if value not in (number, 0.0):
                yield f"{value:.6g} in place of {number:.6g}", with_constant(value)


def constant_of(site: Site) -> float | None:
    """The number of a product, quotient, sum or difference of a tensor with a number; None for two tensors."""
    for name in ("other", "input"):
        value = site.arguments.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    return None


def tensor_operand(call: Call) -> Any:
    """The one of two operands that is a tensor, unchanged."""
    return call["other"] if isinstance(call["input"], (int, float)) else call["input"]


def with_constant(value: float) -> Change:
    """The change that puts another number in the place of a call's."""

    def change(call: Call) -> Any:
        return call.run(**{"input" if isinstance(call["input"], (int, float)) else "other": value})

    return change


def operands(site: Site) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Shapes of both operands where both are tensors."""
    one, two = site.arguments.get("input"), site.arguments.get("other")
    if isinstance(one, TensorFacts) and isinstance(two, TensorFacts):
        return one.shape, two.shape
    return None


@register
class SignWrong(Rewrite):
    """A difference for a sum, or the other way round."""

    id = "sign_wrong"
    phase = "forward"
    text = "a sign is wrong"
    functions = ("add", "sub", "neg", "mul")
    rank = 3

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Of the second operand; of a difference also the order."""
        if site.name == "add":
            yield "minus in place of plus", lambda call: call["input"] - call["other"] * call.get("alpha", 1)
        elif site.name == "sub":
            yield "plus in place of minus", lambda call: call["input"] + call["other"] * call.get("alpha", 1)
            yield "operands of the difference swapped", lambda call: -call.result
        elif site.name == "neg":
            yield "no minus", lambda call: call["input"]
        elif constant_of(site) is not None:
            yield "of the factor", lambda call: -call.result


@register
class OperationSwapped(Rewrite):
    """A product for a sum, a quotient for a product."""

    id = "operation_swapped"
    phase = "forward"
    text = "another arithmetic operation is used"
    functions = ("add", "sub", "mul", "div", "maximum", "minimum")
    rank = 4
    ways = any_of(
        {
            "*": lambda call: call["input"] * call["other"],
            "+": lambda call: call["input"] + call["other"],
            "/": lambda call: call["input"] / call["other"],
            "maximum": lambda call: call.torch.maximum(call["input"], call["other"]),
            "minimum": lambda call: call.torch.minimum(call["input"], call["other"]),
        }
    )

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Each of the others."""
        current = SIGNS.get(site.name, site.name)
        for sign, change in self.ways.items():
            if sign != current:
                yield f"`{sign}` in place of `{current}`", change
