"""Faults that any code can have: a step left out, done twice, with another factor; tried after the particular ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from twinalign.explain.calls import LAYER, UNIT, Call, Change, Site, TensorFacts
from twinalign.explain.registry import Hypothesis, register
from twinalign.explain.rewrite import Rewrite, any_of
from twinalign.explain.subject import CallVariant, LayerSubject

LAST = 9


@register
class LayerMissing(Rewrite):
    """A child layer of the reference that the port does not call, or calls without using what it returns."""

    id = "layer_missing"
    phase = "forward"
    text = "a layer is left out"
    functions = (LAYER, UNIT)
    rank = 2

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Its input goes on in the place of its output."""
        if site.output.shape == site.shape():
            yield site.arguments["path"] or str(site.arguments["kind"]), lambda call: call["input"]


@register
class StepMissing(Rewrite):
    """Any function whose result has the shape of what it is given."""

    id = "step_missing"
    phase = "forward"
    text = "a step is left out"
    rank = LAST

    def sites(self, subject: LayerSubject) -> list[Site]:
        """Every call of a function that keeps the shape."""
        return [s for s in subject.sites if s.name not in (LAYER, UNIT) and s.shape() == s.output.shape != ()]

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Named by the function."""
        yield site.name, lambda call: call["input"]


@register
class StepTwice(Rewrite):
    """Any function whose result can be given to it once more."""

    id = "step_twice"
    phase = "forward"
    text = "a step is taken twice"
    rank = LAST

    def sites(self, subject: LayerSubject) -> list[Site]:
        """Every call of a function that keeps the shape."""
        return [s for s in subject.sites if s.name not in (LAYER, UNIT) and s.shape() == s.output.shape != ()]

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Named by the function."""
        yield site.name, lambda call: call.run(input=call.result)


@register
class OutputScaled(Hypothesis):
    """One factor for all of an output, fitted and then proven by every element."""

    id = "output_scaled"
    phase = "forward"
    text = "the output is scaled by a factor"
    rank = LAST

    def variants(self, subject: LayerSubject) -> Iterator[CallVariant]:
        """The factor that the largest element of the reference's output gives."""
        port, reference = subject.port.get("output.0"), subject.reference.get("output.0")
        if port is None or reference is None or port.shape != reference.shape or not reference.size:
            return
        worst = np.unravel_index(int(np.argmax(np.abs(reference))), reference.shape)
        factor = float(port[worst] / reference[worst])
        last = final_site(subject)
        if last is not None and np.isfinite(factor):
            yield subject.variant(f"{factor:.9g}", {last.key: scaled(factor)})


def scaled(factor: float) -> Change:
    """The change that multiplies what a call returns."""

    def change(call: Call) -> Any:
        result = call.result
        return tuple(item * factor for item in result) if isinstance(result, tuple) else result * factor

    return change


def final_site(subject: LayerSubject) -> Site | None:
    """The call that returns the unit's output, as far as its shape tells."""
    wanted = subject.reference.get("output.0")
    shape = None if wanted is None else wanted.shape
    return next((site for site in reversed(subject.sites) if site.output.shape == shape), None)


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
            "product": lambda call: call["input"] * call["other"],
            "sum": lambda call: call["input"] + call["other"],
            "quotient": lambda call: call["input"] / call["other"],
            "maximum": lambda call: call.torch.maximum(call["input"], call["other"]),
            "minimum": lambda call: call.torch.minimum(call["input"], call["other"]),
        }
    )
