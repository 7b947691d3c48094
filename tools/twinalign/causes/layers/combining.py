"""Faults of sums: residual connections, learned terms and factors, position embeddings."""

import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from twinalign.backends.torch.reference_only.operations import FunctionCall, Site
from twinalign.causes.layers.activation import activation_of
from twinalign.causes.layers.changed_calls import Changes, Ways, as_change, enter_edits, forward, joined, place_of
from twinalign.causes.layers.edited_program import elsewhere
from twinalign.causes.layers.generic import operands
from twinalign.causes.layers.subject import CallVariant, LayerSubject
from twinalign.causes.layers.ways import given, made, taken_for_input

_FACTORS = (0.5, 2.0, math.sqrt(0.5), math.sqrt(2.0), 0.1, 0.9, 0.2, 0.8)


def is_residual(site: Site) -> bool:
    """Whether a call adds two tensors of one shape, neither of them a parameter, that are no scalars."""
    shapes = operands(site)
    return shapes is not None and shapes[0] == shapes[1] != () and not learned(site)


def learned(site: Site) -> str | None:
    """Name of the parameter or buffer that is one of two operands."""
    return (site.parameter("input") or site.parameter("other")) if site.output.floating else None


@forward("add", rank=1, float32_constants=True)
def residual_scaled(site: Site, subject: LayerSubject) -> Changes:
    """One side of a residual sum, or the sum, is scaled."""
    if not is_residual(site):
        return
    for by in dict.fromkeys((*_FACTORS, *subject.port_numbers.values())):
        words = subject.words_of_factor(by)
        yield f"the second operand by {words}", lambda call, by=by: call["input"] + call["other"] * by
        yield f"the first operand by {words}", lambda call, by=by: call["input"] * by + call["other"]
        yield f"the sum by {words}", lambda call, by=by: (call["input"] + call["other"]) * by


@forward(rank=1)
def residual_source(subject: LayerSubject) -> Iterator[CallVariant]:
    """A sum takes one of its sides from another place."""
    # For example the residual path begins behind a norm, not before it.
    program = subject.program
    for site in filter(is_residual, subject.named("add")):
        for edit in elsewhere(program, site):
            place = place_of(site, subject.named("add"))
            yield CallVariant(joined(edit.detail, place), edit.changes, subject.module, edit.reads)


def _other_operand(call: FunctionCall) -> Any:
    return call["other"] if call.name_of(call["input"]) is not None else call["input"]


def _activated_too(subject: LayerSubject) -> Changes:
    for name in dict.fromkeys(n for n in map(activation_of, subject.sites) if n and "softmax" not in n):
        for side, words in (("input", "first"), ("other", "second")):
            yield f"{name} of the {words} operand", _activated(side, name)


@as_change
def _activated(call: FunctionCall, side: str, name: str) -> Any:
    return call.run(**{side: getattr(call.torch.nn.functional, name)(call[side])})


def _learned_otherwise(site: Site, subject: LayerSubject) -> Changes:
    if (name := learned(site)) is not None:
        forms = {
            f"1 / {name}": lambda factor: 1.0 / factor,
            f"1 + {name}": lambda factor: 1.0 + factor,
            f"exp({name})": lambda factor: factor.exp(),
            f"abs({name})": lambda factor: factor.abs(),
        }
        yield from given("other" if site.parameter("other") else "input", forms)(site, subject)


Tables = Mapping[str, Callable[[Any], Any]]


def _of_table(changes: Callable[[tuple[int, ...]], Tables]) -> Ways:
    """What is done to a parameter or buffer that is added and has an axis of tokens, by its shape."""

    def ways(site: Site, subject: LayerSubject) -> Changes:
        side = "other" if site.parameter("other") else "input"
        if learned(site) is not None and len(shape := site.shape(side)) >= 2:
            yield from given(side, changes(shape))(site, subject)

    return ways


def _shifted(shape: tuple[int, ...]) -> Tables:
    found: dict[str, Callable[[Any], Any]] = {}
    for shift in (1, -1, 2, -2):
        left = range(shift) if shift > 0 else range(shape[-2])[shift:]
        found[f"by {shift}"] = functools.partial(_rolled, shift, ())
        found[f"by {shift}, with zeros at the end"] = functools.partial(_rolled, shift, left)
    found["and its first row is not added"] = functools.partial(_rolled, 0, (0,))
    found["and its last row is not added"] = functools.partial(_rolled, 0, (shape[-2] - 1,))
    return found


def _rolled(shift: int, zero_rows: Iterable[int], table: Any) -> Any:
    keep = table.new_ones(table.shape[-2])
    keep[list(zero_rows)] = 0.0
    return table.roll(shift, -2) * keep.unsqueeze(-1)


def _over_grid(shape: tuple[int, ...]) -> Tables:
    found: dict[str, Callable[[Any], Any]] = {}
    for before, behind in ((0, 0), (1, 0), (0, 1), (2, 0)):  # class tokens
        size = math.isqrt(max(shape[-2] - before - behind, 0))
        if size > 1 and size * size == shape[-2] - before - behind:
            last = ", but for the last token" if behind else ""
            for name, change in _OF_GRID.items():
                found[f"{name}{last}"] = functools.partial(_grid, before, size, change)
    found["channel halves swapped"] = lambda table: table.roll(shape[-1] // 2, -1)
    found["sines and cosines interleaved"] = lambda table: table.unflatten(-1, (2, -1)).transpose(-2, -1).flatten(-2)
    return found


_OF_GRID: Tables = {
    "rows and columns swapped": lambda grid: grid.transpose(0, 1),
    "rows backwards": lambda grid: grid.flip(0),
    "columns backwards": lambda grid: grid.flip(1),
}


def _grid(before: int, size: int, change: Callable[[Any], Any], table: Any) -> Any:
    flat = table.reshape(-1, table.shape[-1])
    index = flat.new_tensor(range(size * size)).long().reshape(size, size)
    order = flat.new_tensor(range(len(flat))).long()
    order[before : before + size * size] = before + change(index).reshape(-1)
    return flat.index_select(0, order).reshape(table.shape)


def _scaled(shape: tuple[int, ...]) -> Tables:
    factors = (2.0, 0.5, math.sqrt(shape[-1]), 1.0 / math.sqrt(shape[-1]), -1.0)
    return {f"{factor:.6g}": functools.partial(operator.mul, factor) for factor in factors}


enter_edits("forward", (
    ("residual_missing", "one side of a sum of two tensors, such as a residual connection, is left out or zero",
     ("add",), made({"the first operand": lambda call: call["other"] * call.get("alpha", 1),
                     "the second operand": taken_for_input}, is_residual), {"drops": True}),
    ("operand_activated", "the activation is applied to one side of a sum of two tensors, too", ("add",),
     lambda site, subject: _activated_too(subject) if is_residual(site) else (), {"rank": 1}),
    ("term_missing", "one term of a sum is left out", ("add", "sub"),
     made({"the first operand": lambda call: call.result - call["input"],
           "the second operand": lambda call: call["input"] + 0},
          lambda site: operands(site) is not None and not is_residual(site) and not learned(site)), {"drops": True}),
    ("learned_factor_missing", "a learned factor, such as a layer scale, is left out", ("mul", "div"),
     lambda site, subject: [(name, _other_operand)] if (name := learned(site)) else (), {}),
    ("learned_factor_form", "a learned factor is applied in another form", ("mul", "div"), _learned_otherwise, {}),
    ("position_embedding_missing", "a learned or fixed term, such as a position embedding, is not added", ("add",),
     lambda site, subject: [(name, _other_operand)] if (name := learned(site)) else (), {}),
    # For example because of the class token.
    ("position_embedding_shifted", "the position embedding is shifted along the tokens", ("add",),
     _of_table(_shifted), {}),
    ("position_embedding_grid", "the position embedding runs over the grid in another order", ("add",),
     _of_table(_over_grid), {"difference": "meshgrid_indexing"}),
    ("position_embedding_scaled", "a learned or fixed term, such as a position embedding, is added with a factor",
     ("add",), _of_table(_scaled), {}),
))  # fmt: skip
