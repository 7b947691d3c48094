"""The name and layout that each tensor of one side has on the other side."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from twinalign.conversion.plan import Move


@dataclasses.dataclass(frozen=True)
class CanonicalName:
    """The reference's name and layout of a tensor of this side, or of some of its rows."""

    name: str
    transposed: bool = False
    axis: int = 0
    """Along which `place` counts, in the reference's layout."""
    rows: tuple[int, int] | None = None
    """The share that is meant, from and to, where this side packs what the reference keeps apart; None: all of it."""
    place: tuple[int, int] | None = None
    """Where it lies in the reference's tensor, which packs what this side keeps apart; None: it is all of that."""
    shapes: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    """That of this side and the reference's, of the same numbers in the same order; None: they are one."""

    @property
    def own_axis(self) -> int:
        return 1 - self.axis if self.transposed else self.axis

    def share(self, tensor: Any) -> Any:
        """The rows that this name stands for, of an array or a framework's tensor in this side's layout."""
        return tensor if self.rows is None else _between(tensor, self.rows, self.own_axis)

    def to_reference(self, array: np.ndarray) -> np.ndarray:
        """Those rows of this side's array, in the reference's layout."""
        array = self.share(array)
        return _reshaped(array.T if self.transposed else array, self.shapes)

    def from_reference(self, array: np.ndarray) -> np.ndarray:
        """The same part of the reference's array, in this side's layout."""
        array = array if self.place is None else _between(array, self.place, self.axis)
        array = _reshaped(array, self.shapes and self.shapes[::-1])
        return array.T if self.transposed else array


def _reshaped(array: np.ndarray, shapes: tuple[tuple[int, ...], tuple[int, ...]] | None) -> np.ndarray:
    """Reshape from the first shape to the second; an array of another shape (an optimizer's number) is unchanged."""
    return array.reshape(shapes[1]) if shapes is not None and array.shape == shapes[0] else array


def _between(tensor: Any, ends: tuple[int, int], axis: int) -> Any:
    return tensor[(slice(None),) * axis + (slice(*ends),)]


def names_of_moves(moves: Iterable[Move], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, list[tuple[Any, ...]]]:
    """Key of the port → its names and layouts on the reference side, as a conversion found them; for `CanonicalNames`.

    Tensors that the reference lacks are left out. `shapes` are the reference's, by key.
    """
    found = {}
    for move in moves:
        parts, start = [], 0
        for piece in move.pieces:
            rows = (start, start + piece.shape[0]) if len(move.pieces) > 1 else None
            start = rows[1] if rows else 0
            axis = int(piece.transposed)
            transposed = piece.transposed != move.transposed
            both = move.target.shape[::-1] if transposed else move.target.shape, shapes[piece.key]
            # Weight norm's magnitude is [n, 1, 1] in torch, [n] in paddle; a Linear may stand for a convolution of a
            # single point. Packed ones have one shape.
            whole = len(move.pieces) == 1 and piece.rows is None
            part = CanonicalName(
                piece.key, transposed, axis, rows, piece.rows, both if whole and both[0] != both[1] else None
            )
            parts.append(dataclasses.astuple(part))
        if parts:
            found[move.target.key] = parts
    return found


class CanonicalNames:
    """The names on the reference side of all tensors of this side."""

    def __init__(
        self,
        found: Mapping[str, Sequence[Sequence[Any]]] | None = None,
        left_out: Sequence[str] = (),
        buffers_there: Sequence[str] = (),
    ) -> None:
        """`found` is what `names_of_moves` returns; without it, as on the reference side, every tensor is itself, but
        for those `left_out`, which the other side lacks. `buffers_there`: keys of parameters of this side that the
        other side holds in buffers.
        """
        self._left_out = frozenset(left_out)
        self.buffers_there = frozenset(buffers_there)
        self._parts = {
            key: tuple(CanonicalName(name, transposed, *map(_ends, more)) for name, transposed, *more in parts)
            for key, parts in (found or {}).items()
        }
        self._lengths: dict[str, int] = {}
        for _, part in self.pairs():
            if part.place is not None:
                self._lengths[part.name] = max(part.place[1], self._lengths.get(part.name, 0))

    @classmethod
    def of(cls, weights: Mapping[str, Any]) -> CanonicalNames:
        """From what a recorder is given of its side's weights."""
        return cls(weights.get("canonical"), weights.get("left_out", ()), weights.get("buffers_there", ()))

    def pairs(self) -> Iterator[tuple[str, CanonicalName]]:
        """Each key of this side with each of its names; empty on the reference side."""
        return ((key, part) for key, parts in self._parts.items() for part in parts)

    def parts(self, key: str) -> tuple[CanonicalName, ...]:
        """Names of a tensor of this side: several if it packs tensors that the reference keeps apart, none if the
        reference lacks it.
        """
        # torch's batch norm counts its batches, paddle's does not; nothing reads the count unless momentum is None.
        if key.rpartition(".")[2] == "num_batches_tracked" or key in self._left_out:
            return ()
        return self._parts.get(key, ()) if self._parts else (CanonicalName(key),)

    def to_reference(self, items: Iterable[tuple[str, str, np.ndarray]]) -> Iterator[tuple[str, str, np.ndarray]]:
        """Yield each tensor of `items` (label, key of this side, array) once, with the reference's name and layout.

        Packed parts of one label are joined; a missing part (a frozen parameter has no gradient) becomes zeros.
        """
        done: set[tuple[str, str]] = set()  # a tensor may have a second key on this side
        waiting: dict[tuple[str, str], dict[CanonicalName, np.ndarray]] = {}
        for label, key, array in items:
            for part in self.parts(key):
                whole = label, part.name
                if whole in done:
                    continue
                made = part.to_reference(array)
                if part.place is not None:
                    pieces = waiting.setdefault(whole, {})
                    pieces.setdefault(part, made)
                    if sum(p.place[1] - p.place[0] for p in pieces if p.place) < self._lengths[part.name]:
                        continue
                    made = self._put_together(waiting.pop(whole))
                done.add(whole)
                yield label, part.name, made
        for (label, name), pieces in waiting.items():
            yield label, name, self._put_together(pieces)

    def _put_together(self, pieces: Mapping[CanonicalName, np.ndarray]) -> np.ndarray:
        (first, array), *_ = pieces.items()
        shape = list(array.shape)
        shape[first.axis] = self._lengths[first.name]
        found = np.zeros(shape, array.dtype)
        for part, values in pieces.items():
            assert part.place is not None
            _between(found, part.place, part.axis)[...] = values
        return found

    def from_reference(self, key: str, given: Mapping[str, np.ndarray]) -> np.ndarray | None:
        """This side's tensor, contiguous, made from the reference's by name; None if one of them is missing."""
        parts = self.parts(key)
        if not parts or any(part.name not in given for part in parts):
            return None
        arrays = [part.from_reference(given[part.name]) for part in parts]
        return np.array(arrays[0] if len(arrays) == 1 else np.concatenate(arrays, parts[0].own_axis), order="C")


def _ends(value: Any) -> Any:
    """Turn the lists that JSON makes of pairs back into tuples, which can be hashed."""
    return tuple(map(_ends, value)) if isinstance(value, list) else value
