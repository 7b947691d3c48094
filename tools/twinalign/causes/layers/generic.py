"""Faults that any code can have: a step left out, done twice, with another factor; tried after the particular ones."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.backends.torch.reference_only.operations import LAYER, UNIT, Change, FunctionCall, Site
from twinalign.causes.layers.activation import activation_of
from twinalign.causes.layers.changed_calls import OPERATORS, Changes, as_change, enter_edits, forward, place_of
from twinalign.causes.layers.subject import NAMES_OF_PHASE, CallVariant, LayerSubject, ValueVariant
from twinalign.causes.registry import Cause, enter
from twinalign.replay.fitting import fitting_number
from twinalign.replay.wrong_unit import paddle_spelling
from twinalign.verdict.array_difference import difference

LAST = 9
_WRITTEN = 1e-6
FLOAT32 = 2e-7
"""Relative: a factor that is kept in float32, and its square."""
_SMALL, _LARGEST, _MOST_COUNTED = 64, 65536, 1000
"""Fractions are made of integers up to the first, factors that are integers reach to the second, n / (n - 1) to the
third: above them such numbers lie so close together that any number is near one."""
_MOST_PLACES = 12
_PATIENCE = 1
"""So many steps towards a number may fail to halve what is left."""
_FEW = 8
"""So few values do not tell the place of a number as well as the number: then it must be one of two digits."""


@forward(UNIT, LAYER, rank=-1)
def layer_missing(site: Site, subject: LayerSubject) -> Changes:
    """A layer is left out."""
    # The port does not call this child layer, or does not use what it returns.
    library = type(site.arguments["module"]).__module__.startswith("torch.") and not subject.named(LAYER)
    unused = site.name == LAYER or library or runs_children(subject)
    if site.output.shape == site.shape() and unused and activation_of(site) is None:
        yield site.arguments["path"] or str(site.arguments["kind"]), lambda call: call["input"]


@forward(UNIT, rank=2, float32_constants=True)
def layer_swapped(site: Site, subject: LayerSubject) -> Changes:
    """Another kind of layer is used."""
    yield from _of_port(site, subject, {})


@forward(UNIT, rank=-1, float32_constants=True)
def layer_with_own_weights(site: Site, subject: LayerSubject) -> Changes:
    """The layer is of another kind or size, with weights of its own."""
    weights = subject.weights_alone(only_all=True)
    if not weights and (alone := subject.weights_alone()).keys() == {"weight"}:  # a bias may be the reference's
        weights = {"bias": getattr(site.arguments["module"], "bias", None), **alone}
    yield from _of_port(site, subject, weights) if weights else ()


def _of_port(site: Site, subject: LayerSubject, weights: Mapping[str, Any]) -> Changes:
    own, facts = site.arguments["module"], subject.unit.facts
    library, _, kind = subject.unit.port_class.rpartition(".")
    # Conv2DTranspose and ConvTranspose2d are one kind; a linear layer's weight lies transposed in paddle.
    shapes = [sorted(w.shape) for w in (weights.get("weight"), own._parameters.get("weight")) if w is not None]
    is_other = sorted(kind.lower()) != sorted(type(own).__name__.lower()) or shapes[1:] != shapes[:-1]
    if library.startswith("paddle.") and is_other:
        detail = f"{kind}({facts['extra_repr']}) in place of {type(own).__name__}({own.extra_repr()})"
        yield detail, lambda call: paddle_spelling().layer(kind, facts, own, weights)(call["input"])


def runs_children(subject: LayerSubject) -> bool:
    """Whether children compute, which they do where they have no partner that the port calls."""
    paths = tuple(f"{site.arguments['path']}." for site in subject.named(LAYER))
    return any(
        name.startswith(paths)
        for site in subject.sites
        for argument in site.arguments
        if (name := site.parameter(argument))
    )


def _scaled_values(subject: LayerSubject) -> Iterator[ValueVariant]:
    # One factor for all wrong values, read off the largest; the proof then checks every element.
    pairs = {name: (subject.port[name], theirs) for name, theirs in subject.reference.items() if name in subject.port}
    sizes = {name: np.abs(theirs).max() for name, (ours, theirs) in pairs.items() if ours.shape == theirs.shape != (0,)}
    if not sizes:
        return
    port, reference = pairs[max(sizes, key=lambda name: sizes[name])]
    worst = np.unravel_index(int(np.argmax(np.abs(reference))), reference.shape)
    factor = float(port[worst] / reference[worst]) if reference[worst] else float("nan")
    if max(port.size for port, _ in pairs.values()) == 1 and not is_written(factor, 2):
        return  # a number is every other one times some factor
    if is_writable(factor):
        words = subject.words_of_factor(factor)
        yield ValueVariant(words, lambda values: {name: value * factor for name, value in values.items()})


enter(Cause("output_scaled", "forward", "the output is scaled by a factor", LayerSubject, _scaled_values, rank=LAST))
enter(Cause("gradient_factor", "backward", "the gradient is scaled by a factor", LayerSubject, _scaled_values, rank=8))


def is_written(value: float, digits: int) -> bool:
    """Whether somebody may have written this number, in so many digits, kept in float32 or not."""
    return np.isfinite(value) and abs(float(f"{value:.{digits - 1}e}") - value) <= _WRITTEN * abs(value)


def is_writable(value: float) -> bool:
    """Whether somebody may have written this factor, kept in float32 or not; one is none.

    It, its square, or the inverse of one of them is an integer, a fraction of small integers, a decimal of four digits
    or n / (n - 1).
    """
    if not 1e-99 < abs(value) < 1e99 or (abs(abs(value) - 1.0) < _WRITTEN and value > 0.0):
        return False
    size = abs(value)
    return any(_is_simple(number) for number in (size, 1.0 / size, size**2, size**-2))


def _is_simple(number: float) -> bool:
    integers = number * np.arange(1, _SMALL + 1)
    near_one = 1.0 / (number - 1.0) if number > 1.0 else 0.0
    return bool(
        abs(float(f"{number:.3e}") - number) <= FLOAT32 * number
        or (abs(np.round(integers) - integers) <= FLOAT32 * integers)[np.round(integers) <= _SMALL].any()
        or (number <= _LARGEST and abs(round(number) - number) <= FLOAT32 * number)
        or (near_one <= _MOST_COUNTED and abs(1.0 + 1.0 / max(round(near_one), 1) - number) <= FLOAT32)
    )


@forward("mul", "div", rank=3, float32_constants=True)
def factor_wrong(site: Site, subject: LayerSubject) -> Changes:
    """A constant factor has another value."""
    if (number := site.number) and 0.0 < number < 1e99:
        usual = (1.0 / number, number**2, number**0.5, 2.0 * number, number / 2.0, number * 10.0, number / 10.0)
        yield from other_constants(number, (*usual, number - 1.0, number + 1.0, *subject.port_numbers.values()))


def other_constants(number: float, values: Iterable[float]) -> Changes:
    """Other numbers, but 0, in the place of the one that a product or quotient has."""
    for value in dict.fromkeys(values):
        if value not in (number, 0.0):
            yield f"{value:.6g} in place of {number:.6g}", with_constant(value)


def tensor_operand(call: FunctionCall) -> Any:
    """The one of two operands that is a tensor, unchanged."""
    return call["other"] if isinstance(call["input"], (int, float)) else call["input"]


@as_change
def with_constant(call: FunctionCall, value: float) -> Any:
    """The change that puts another number in the place of a call's."""
    return call.run(**{"input" if isinstance(call["input"], (int, float)) else "other": value})


def operands(site: Site) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Shapes of both operands where both are tensors."""
    one, two = site.tensor("input"), site.tensor("other")
    return (one.shape, two.shape) if one and two else None


_SIGNS: dict[str, dict[str, Change]] = {
    "add": {"minus in place of plus": lambda call: call["input"] - call["other"] * call.get("alpha", 1),
            "of the first term": lambda call: call["other"] * call.get("alpha", 1) - call["input"]},
    "sub": {"plus in place of minus": lambda call: call["input"] + call["other"] * call.get("alpha", 1),
            "operands of the difference swapped": lambda call: -call.result},
    "neg": {"no minus": lambda call: call["input"]}, "mul": {"of the factor": lambda call: -call.result},
}  # fmt: skip


@as_change
def _doing_something(call: FunctionCall, change: Change) -> Any:
    returned = change(call)
    for side in ("input", "other"):
        operand = call[side]
        if call.torch.is_tensor(operand) and operand.shape == returned.shape and bool((operand == returned).all()):
            raise ValueError("one operand is what is left: then a step is left out, and no other is taken")
    return returned


_OPERATIONS: dict[str, Change] = {
    "*": lambda call: call["input"] * call["other"],
    "+": lambda call: call["input"] + call["other"],
    "/": lambda call: call["input"] / call["other"],
    "maximum": lambda call: call.torch.maximum(call["input"], call["other"]),
    "minimum": lambda call: call.torch.minimum(call["input"], call["other"]),
}


@forward(rank=4, float32_constants=True)
def added_constant(subject: LayerSubject) -> Iterator[CallVariant]:
    """A constant that is added or subtracted has another value."""
    # For example the smoothing of a Dice loss, an offset, the 1 of `1 - x`.
    found: dict[tuple[str, float], list[Site]] = {}
    for site in subject.named("add", "sub"):
        if (number := site.number) is not None:
            found.setdefault((site.name, number), []).append(site)
    alone = [(number, [site]) for (_, number), sites in found.items() for site in sites]
    together = [(number, sites) for (_, number), sites in found.items() if len(sites) > 1]
    for number, sites in [*together, *alone][:_MOST_PLACES]:
        value = _read_off(subject, sites, number)
        if value is None:
            continue
        calls = subject.named(sites[0].name)
        places = dict.fromkeys(place_of(site, calls) for site in sites)
        detail = f"{value:.6g} in place of {number:.6g}, {' and '.join(places)}"
        yield subject.variant(detail, {site.key: with_constant(value) for site in sites})


def _read_off(subject: LayerSubject, sites: Sequence[Site], number: float) -> float | None:
    """The number with which the worst of the wrong values becomes the port's (Gauss-Newton); None where none does."""
    name = _worst(subject)
    if name is None:
        return None
    port = np.asarray(subject.port[name], dtype=np.float64)

    def remaining(value: float) -> np.ndarray:
        variant = subject.variant("", {site.key: with_constant(value) for site in sites})
        return (np.asarray(subject.run(variant)[name], dtype=np.float64) - port).ravel()

    value = fitting_number(remaining, number, _PATIENCE)
    return value if value not in (None, number) and is_written(value, 2 if port.size < _FEW else 4) else None


def _worst(subject: LayerSubject) -> str | None:
    """The name of the value that differs most, for its size."""
    names = [name for name in subject.reference if name.startswith(NAMES_OF_PHASE[subject.unit.phase])]
    shares = {n: difference(subject.port[n], subject.reference[n]).relative for n in names if n in subject.port}
    shares = {name: share for name, share in shares.items() if share and np.isfinite(share)}
    return max(shares, key=lambda name: shares[name]) if shares else None


enter_edits("forward", (
    ("factor_forgotten", "a constant factor is left out", ("mul", "div"),
     lambda site, subject: [(f"{'times' if site.name == 'mul' else 'divided by'} {factor:.6g}", tensor_operand)]
     if (factor := site.number) is not None else (), {"rank": 2}),
    ("layer_twice", "a layer is applied twice", (LAYER, UNIT),
     lambda site, subject: [(site.arguments["path"] or str(site.arguments["kind"]),
                             lambda call: call["module"].forward(call["output"]))]
     if site.output.shape == site.shape() else (), {"rank": 4}),
    ("sign_wrong", "a sign is wrong", tuple(_SIGNS), lambda site, subject: _SIGNS[site.name].items()
     if site.name != "mul" or site.number is not None else (), {"rank": 3}),
    ("operation_swapped", "another arithmetic operation is used", ("add", "sub", "mul", "div", "maximum", "minimum"),
     lambda site, subject: [(f"`{name}` in place of `{OPERATORS.get(site.name, site.name)}`", _doing_something(change))
                            for name, change in _OPERATIONS.items() if name != OPERATORS.get(site.name, site.name)],
     {"rank": 4}),
))  # fmt: skip
