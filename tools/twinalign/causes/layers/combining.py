"""Faults of sums: residual connections, learned terms and factors, position embeddings."""

import functools
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

from twinalign.backends.torch.reference_only.operations import LAYER, Change, FunctionCall, Key, Site
from twinalign.causes.layers.changed_calls import Changes, as_change, enter_edits, forward, joined, place_of
from twinalign.causes.layers.generic import operands
from twinalign.causes.layers.subject import CallVariant, LayerSubject
from twinalign.causes.layers.ways import made, taken_for_input

_FACTORS = (0.5, 2.0, math.sqrt(0.5), math.sqrt(2.0), 0.1, 0.9, 0.2, 0.8)
_SOURCES = 12


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
    for factor in dict.fromkeys((*_FACTORS, *subject.port_numbers.values())):
        yield f"the second operand by {factor:.6g}", _weighted(1.0, factor)
        yield f"the first operand by {factor:.6g}", _weighted(factor, 1.0)
        yield f"the sum by {factor:.6g}", _weighted(factor, factor)


def _weighted(first: float, second: float) -> Change:
    return lambda call: call["input"] * first + call["other"] * second


@forward(rank=1)
def residual_source(subject: LayerSubject) -> Iterator[CallVariant]:
    """A sum takes one of its sides from another place."""
    # For example the residual path begins behind a norm, not before it.
    for site in filter(is_residual, subject.named("add")):
        earlier = [s for s in subject.sites if s.position < site.position and s.output.shape == site.output.shape]
        given = [s for s in subject.layers() if s.position < site.position and s.shape() == site.output.shape]
        for sources, kept in ((earlier, "result"), (given, "input")):
            for source in sources[-_SOURCES:]:
                for side in ("input", "other"):
                    yield _taken_from(subject, site, source, side, kept)


def _taken_from(subject: LayerSubject, site: Site, source: Site, side: str, kept: str) -> CallVariant:
    """One side of a sum is the result or the input of an earlier call."""
    found: list[Any] = []

    def keep(call: FunctionCall) -> Any:
        found[:] = [call.result if kept == "result" else call["input"]]
        return call.result

    name = source.arguments["path"] if source.name == LAYER else source.name
    detail = f"the {'first' if side == 'input' else 'second'} operand is the {kept} of {name}"
    changes: dict[Key, Change] = {source.key: keep, site.key: lambda call: call.run(**{side: found[0]})}
    return subject.variant(joined(detail, place_of(site, subject.named("add"))), changes)


def _other_operand(call: FunctionCall) -> Any:
    return call["other"] if call.name_of(call["input"]) is not None else call["input"]


@forward("mul", "div")
def learned_factor_form(site: Site) -> Changes:
    """A learned factor is applied in another form."""
    name = learned(site)
    if name is not None:
        side = "other" if site.parameter("other") else "input"
        yield f"1 / {name}", lambda call: call.run(**{side: 1.0 / call[side]})
        yield f"1 + {name}", lambda call: call.run(**{side: 1.0 + call[side]})
        yield f"exp({name})", lambda call: call.run(**{side: call[side].exp()})
        yield f"abs({name})", lambda call: call.run(**{side: call[side].abs()})


def _table(site: Site) -> tuple[str, tuple[int, ...]]:
    """Which operand is a parameter or a buffer with an axis of tokens, and its shape; an empty shape for none."""
    side = "other" if site.parameter("other") else "input"
    shape = site.shape(side)
    return side, shape if learned(site) is not None and len(shape) >= 2 else ()


def _with_table(side: str, table: Callable[[Any], Any]) -> Change:
    return lambda call: call.run(**{side: table(call[side])})


@forward("add")
def position_embedding_shifted(site: Site) -> Changes:
    """The position embedding is shifted along the tokens."""
    # For example because of the class token.
    side, shape = _table(site)
    if shape:
        for shift in (1, -1, 2, -2):
            yield f"by {shift}", _rolled(side, shift, False)
            yield f"by {shift}, with zeros at the end", _rolled(side, shift, True)
        yield "and its first row is not added", _with_table(side, lambda table: _without_row(table, 0))
        yield "and its last row is not added", _with_table(side, lambda table: _without_row(table, shape[-2] - 1))


@as_change
def _rolled(call: FunctionCall, side: str, shift: int, zeros: bool) -> Any:
    table = call[side].roll(shift, -2)
    rows = call[side].shape[-2]
    for row in range(rows)[:shift] if shift > 0 else range(rows)[shift:]:
        table = _without_row(table, row) if zeros else table
    return call.run(**{side: table})


def _without_row(table: Any, row: int) -> Any:
    keep = table.new_ones(table.shape[-2])
    keep[row] = 0.0
    return table * keep.unsqueeze(-1)


@forward("add", difference="meshgrid_indexing")
def position_embedding_grid(site: Site) -> Changes:
    """The position embedding runs over the grid in another order."""
    side, shape = _table(site)
    if not shape:
        return
    for before, behind in ((0, 0), (1, 0), (0, 1), (2, 0)):  # class tokens
        size = math.isqrt(max(shape[-2] - before - behind, 0))
        if size > 1 and size * size == shape[-2] - before - behind:
            yield "rows and columns swapped", _grid(side, before, size, lambda grid: grid.transpose(0, 1))
            yield "rows backwards", _grid(side, before, size, lambda grid: grid.flip(0))
            yield "columns backwards", _grid(side, before, size, lambda grid: grid.flip(1))
    yield "channel halves swapped", _with_table(side, lambda table: table.roll(shape[-1] // 2, -1))
    yield "sines and cosines interleaved", _with_table(side, _interleaved)


def _interleaved(table: Any) -> Any:
    width = table.shape[-1]
    return table.reshape(*table.shape[:-1], 2, width // 2).transpose(-2, -1).reshape(table.shape)


@as_change
def _grid(call: FunctionCall, side: str, before: int, size: int, change: Callable[[Any], Any]) -> Any:
    flat = call[side].reshape(-1, call[side].shape[-1])
    index = flat.new_tensor(range(size * size)).long().reshape(size, size)
    order = flat.new_tensor(range(len(flat))).long()
    order[before : before + size * size] = before + change(index).reshape(-1)
    return call.run(**{side: flat.index_select(0, order).reshape(call[side].shape)})


@forward("add")
def position_embedding_scaled(site: Site) -> Changes:
    """A learned or fixed term, such as a position embedding, is added with a factor."""
    side, shape = _table(site)
    if shape:
        for factor in (2.0, 0.5, math.sqrt(shape[-1]), 1.0 / math.sqrt(shape[-1]), -1.0):
            yield f"{factor:.6g}", _with_table(side, functools.partial(operator.mul, factor))


enter_edits("forward", (
    ("residual_missing", "one side of a sum of two tensors, such as a residual connection, is left out", ("add",),
     made({"the first operand": lambda call: call["other"] * call.get("alpha", 1),
           "the second operand": taken_for_input}, is_residual), {}),
    ("term_missing", "one term of a sum is left out", ("add", "sub"),
     made({"the first operand": lambda call: call.result - call["input"],
           "the second operand": lambda call: call["input"] + 0.0},
          lambda site: operands(site) is not None and not is_residual(site) and not learned(site)), {}),
    ("learned_factor_missing", "a learned factor, such as a layer scale, is left out", ("mul", "div"),
     lambda site, subject: [(name, _other_operand)] if (name := learned(site)) else (), {}),
    ("position_embedding_missing", "a learned or fixed term, such as a position embedding, is not added", ("add",),
     lambda site, subject: [(name, _other_operand)] if (name := learned(site)) else (), {}),
))  # fmt: skip
