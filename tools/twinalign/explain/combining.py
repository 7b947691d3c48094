"""Faults of sums: residual connections, learned terms and factors, position embeddings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from twinalign.explain.calls import LAYER, Call, Change, Site
from twinalign.explain.generic import operands
from twinalign.explain.registry import register
from twinalign.explain.rewrite import Rewrite, joined, place_of
from twinalign.explain.subject import CallVariant, LayerSubject

_FACTORS = (0.5, 2.0, math.sqrt(0.5), math.sqrt(2.0), 0.1, 0.9, 0.2, 0.8)
_SOURCES = 12


def is_residual(site: Site) -> bool:
    """Whether a call adds two tensors of one shape, neither of them a parameter, that are no scalars."""
    shapes = operands(site)
    return shapes is not None and shapes[0] == shapes[1] != () and not learned(site)


def learned(site: Site) -> str | None:
    """Name of the parameter or buffer that is one of two operands."""
    return (site.parameter("input") or site.parameter("other")) if site.output.floating else None


@register
class ResidualMissing(Rewrite):
    """One of two tensors of the same shape is not added."""

    id = "residual_missing"
    phase = "forward"
    text = "one side of a sum of two tensors, such as a residual connection, is left out"
    functions = ("add",)

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """The first operand alone, or the second."""
        if is_residual(site):
            yield "the first operand", lambda call: call["other"] * call.get("alpha", 1)
            yield "the second operand", lambda call: call["input"]


@register
class TermMissing(Rewrite):
    """Say one half of a symmetrised loss."""

    id = "term_missing"
    phase = "forward"
    text = "one term of a sum is left out"
    functions = ("add", "sub")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """The first or the second of two tensors, where it is no residual and nothing learned."""
        if operands(site) is not None and not is_residual(site) and not learned(site):
            yield "the first operand", lambda call: call.result - call["input"]
            yield "the second operand", lambda call: call["input"] + 0.0


@register
class ResidualScaled(Rewrite):
    """Either operand, or the sum."""

    id = "residual_scaled"
    phase = "forward"
    text = "one side of a residual sum, or the sum, is scaled"
    float32_constants = True
    functions = ("add",)
    rank = 1

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """By usual factors and by the port's own numbers."""
        if not is_residual(site):
            return
        for factor in dict.fromkeys((*_FACTORS, *subject.port_numbers.values())):
            yield f"the second operand by {factor:.6g}", _weighted(1.0, factor)
            yield f"the first operand by {factor:.6g}", _weighted(factor, 1.0)
            yield f"the sum by {factor:.6g}", _weighted(factor, factor)


def _weighted(first: float, second: float) -> Change:
    return lambda call: call["input"] * first + call["other"] * second


@register
class ResidualSource(Rewrite):
    """The residual path begins behind a norm that it should go round, or before one."""

    id = "residual_source"
    phase = "forward"
    text = "a sum takes one of its sides from another place"
    functions = ("add",)
    rank = 1

    def variants(self, subject: LayerSubject) -> Iterator[CallVariant]:
        """Every earlier tensor of the same shape in the place of either operand."""
        for site in filter(is_residual, subject.named("add")):
            earlier = [s for s in subject.sites if s.position < site.position and s.output.shape == site.output.shape]
            given = [s for s in subject.layers() if s.position < site.position and s.shape() == site.output.shape]
            for source in earlier[-_SOURCES:]:
                for side in ("input", "other"):
                    yield self._between(subject, site, source, side, lambda call: call.result, "result")
            for source in given[-_SOURCES:]:
                for side in ("input", "other"):
                    yield self._between(subject, site, source, side, lambda call: call["input"], "input")

    def _between(
        self,
        subject: LayerSubject,
        site: Site,
        source: Site,
        side: str,
        what: Callable[[Call], Any],
        word: str,
    ) -> CallVariant:
        kept: list[Any] = []

        def keep(call: Call) -> Any:
            kept[:] = [what(call)]
            return call.result

        name = source.arguments["path"] if source.name == LAYER else source.name
        detail = f"the {'first' if side == 'input' else 'second'} operand is the {word} of {name}"
        changes = {source.key: keep, site.key: lambda call: call.run(**{side: kept[0]})}
        return subject.variant(joined(detail, place_of(site, subject.named("add"))), changes)


@register
class LearnedFactorMissing(Rewrite):
    """Layer scale, a gate, a learned temperature."""

    id = "learned_factor_missing"
    phase = "forward"
    text = "a learned factor, such as a layer scale, is left out"
    functions = ("mul", "div")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Named by the parameter."""
        if learned(site) is not None:
            yield str(learned(site)), _other_operand


def _other_operand(call: Call) -> Any:
    return call["other"] if call.name_of(call["input"]) is not None else call["input"]


@register
class LearnedFactorInverted(Rewrite):
    """exp(s), 1 / s or 1 + s for s."""

    id = "learned_factor_form"
    phase = "forward"
    text = "a learned factor enters in another form"
    functions = ("mul", "div")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Each form, named with the parameter."""
        name = learned(site)
        if name is not None:
            side = "other" if site.parameter("other") else "input"
            yield f"1 / {name}", lambda call: call.run(**{side: 1.0 / call[side]})
            yield f"1 + {name}", lambda call: call.run(**{side: 1.0 + call[side]})
            yield f"exp({name})", lambda call: call.run(**{side: call[side].exp()})
            yield f"abs({name})", lambda call: call.run(**{side: call[side].abs()})


@register
class PositionEmbeddingMissing(Rewrite):
    """Or any other learned term."""

    id = "position_embedding_missing"
    phase = "forward"
    text = "a learned or fixed term, such as a position embedding, is not added"
    functions = ("add",)

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Named by the parameter."""
        if learned(site) is not None:
            yield str(learned(site)), _other_operand


class _Position(Rewrite):
    """The table that is added to tokens is changed."""

    functions = ("add",)

    def tables(self, shape: tuple[int, ...]) -> Iterator[tuple[str, Callable[[Any], Any]]]:
        """Ways to change a table of this shape."""
        raise NotImplementedError

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Of an operand that is a parameter or a buffer with an axis of tokens."""
        side = "other" if site.parameter("other") else "input"
        shape = site.shape(side)
        if learned(site) is None or len(shape) < 2:
            return
        for detail, table in self.tables(shape):
            yield detail, _with_table(side, table)


def _with_table(side: str, table: Callable[[Any], Any]) -> Change:
    return lambda call: call.run(**{side: table(call[side])})


@register
class PositionEmbeddingShifted(_Position):
    """By the class token's place, say."""

    id = "position_embedding_shifted"
    phase = "forward"
    text = "the position embedding is shifted along the tokens"

    def tables(self, shape: tuple[int, ...]) -> Iterator[tuple[str, Callable[[Any], Any]]]:
        """Rolled either way; the first row not added, the last row where the first should be."""
        for shift in (1, -1, 2, -2):
            yield f"by {shift}", _rolled(shift)
            yield f"by {shift}, with zeros at the end", _moved(shift)
        yield "and its first row is not added", lambda table: _without_row(table, 0)
        yield "and its last row is not added", lambda table: _without_row(table, table.shape[-2] - 1)


def _rolled(shift: int) -> Callable[[Any], Any]:
    return lambda table: table.roll(shift, -2)


def _moved(shift: int) -> Callable[[Any], Any]:
    def table_of(table: Any) -> Any:
        moved = table.roll(shift, -2)
        at = range(shift) if shift > 0 else range(table.shape[-2] + shift, table.shape[-2])
        for row in at:
            moved = _without_row(moved, row)
        return moved

    return table_of


def _without_row(table: Any, row: int) -> Any:
    keep = table.new_ones(table.shape[-2])
    keep[row] = 0.0
    return table * keep.unsqueeze(-1)


@register
class PositionEmbeddingGrid(_Position):
    """Columns before rows: the table's grid is transposed."""

    id = "position_embedding_grid"
    phase = "forward"
    text = "the position embedding runs over the grid in another order"
    difference = "meshgrid_indexing"

    def tables(self, shape: tuple[int, ...]) -> Iterator[tuple[str, Callable[[Any], Any]]]:
        """Of a square grid, with a class token before it, behind it, or none."""
        tokens = shape[-2]
        for before, behind in ((0, 0), (1, 0), (0, 1), (2, 0)):
            side = math.isqrt(max(tokens - before - behind, 0))
            if side > 1 and side * side == tokens - before - behind:
                yield "rows and columns swapped", _grid(before, side, lambda grid: grid.transpose(0, 1))
                yield "rows backwards", _grid(before, side, lambda grid: grid.flip(0))
                yield "columns backwards", _grid(before, side, lambda grid: grid.flip(1))
        yield "channel halves swapped", lambda table: table.roll(table.shape[-1] // 2, -1)
        yield "sines and cosines interleaved", _interleaved


def _interleaved(table: Any) -> Any:
    width = table.shape[-1]
    return table.reshape(*table.shape[:-1], 2, width // 2).transpose(-2, -1).reshape(table.shape)


def _grid(before: int, side: int, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def table_of(table: Any) -> Any:
        flat = table.reshape(-1, table.shape[-1])
        index = flat.new_tensor(range(side * side)).long().reshape(side, side)
        order = flat.new_tensor(range(len(flat))).long()
        order[before : before + side * side] = before + change(index).reshape(-1)
        return flat.index_select(0, order).reshape(table.shape)

    return table_of


@register
class PositionEmbeddingTwice(_Position):
    """Added again, or with a factor."""

    id = "position_embedding_scaled"
    phase = "forward"
    text = "a learned or fixed term, such as a position embedding, is added with a factor"

    def tables(self, shape: tuple[int, ...]) -> Iterator[tuple[str, Callable[[Any], Any]]]:
        """Twice, half, and the root of the width."""
        for factor in (2.0, 0.5, math.sqrt(shape[-1]), 1.0 / math.sqrt(shape[-1]), -1.0):
            yield f"{factor:.6g}", _times(factor)


def _times(factor: float) -> Callable[[Any], Any]:
    return lambda table: table * factor
