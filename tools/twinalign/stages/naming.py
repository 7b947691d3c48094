"""How the tensors of one side are called and laid out on the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from twinalign.convert.plan import Move


@dataclasses.dataclass(frozen=True)
class CanonicalName:
    """How a tensor of this side, or a share of it, is called and laid out on the reference side."""

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
        """Along which `rows` counts, in this side's layout."""
        return 1 - self.axis if self.transposed else self.axis

    def share(self, tensor: Any) -> Any:
        """What is meant of a tensor of this side, an array or of a framework, in this side's layout."""
        return tensor if self.rows is None else _between(tensor, self.rows, self.own_axis)

    def to_reference(self, array: np.ndarray) -> np.ndarray:
        """What is meant of an array of this side, in the reference's layout."""
        array = self.share(array)
        return _reshaped(array.T if self.transposed else array, self.shapes)

    def from_reference(self, array: np.ndarray) -> np.ndarray:
        """The same of the reference's array, in this side's layout."""
        array = array if self.place is None else _between(array, self.place, self.axis)
        return array.T if self.transposed else _reshaped(array, self.shapes and self.shapes[::-1])


def _reshaped(array: np.ndarray, shapes: tuple[tuple[int, ...], tuple[int, ...]] | None) -> np.ndarray:
    """From the first shape to the second; what has neither, as a number that an optimizer keeps, stays as it is."""
    return array.reshape(shapes[1]) if shapes is not None and array.shape == shapes[0] else array


def _between(tensor: Any, ends: tuple[int, int], axis: int) -> Any:
    return tensor[(slice(None),) * axis + (slice(*ends),)]


def names_of_moves(moves: Iterable[Move], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, list[tuple[Any, ...]]]:
    """Key of the port → what it is on the reference side, as a conversion from there has found; for `CanonicalNames`.

    Tensors that the reference does not have are left out. `shapes` are the reference's, by key.
    """
    found = {}
    for move in moves:
        parts, start = [], 0
        for piece in move.pieces:
            rows = (start, start + piece.shape[0]) if len(move.pieces) > 1 else None
            start = rows[1] if rows else 0
            axis = int(piece.transposed)
            transposed = piece.transposed != move.transposed
            both = move.target.shape, shapes[piece.key]
            # Weight norm's magnitude is [n, 1, 1] in torch, [n] in paddle; transposed and packed ones have one shape.
            whole = len(move.pieces) == 1 and piece.rows is None and not transposed
            part = CanonicalName(
                piece.key, transposed, axis, rows, piece.rows, both if whole and both[0] != both[1] else None
            )
            parts.append(dataclasses.astuple(part))
        if parts:
            found[move.target.key] = parts
    return found


class CanonicalNames:
    """What every tensor of this side is on the reference side."""

    def __init__(self, found: Mapping[str, Sequence[Sequence[Any]]] | None = None) -> None:
        """Take what `names_of_moves` returns, or nothing on the reference side, where each tensor is itself."""
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
        return cls(weights.get("canonical"))

    def pairs(self) -> Iterator[tuple[str, CanonicalName]]:
        """Key of this side and what it is on the other; empty on the reference side."""
        return ((key, part) for key, parts in self._parts.items() for part in parts)

    def parts(self, key: str) -> tuple[CanonicalName, ...]:
        """What a tensor of this side is; several where it packs what the reference keeps apart, none where the other
        framework does not have it."""
        # torch's batch norm counts its batches, paddle's does not; nothing reads the count unless momentum is None.
        if key.rpartition(".")[2] == "num_batches_tracked":
            return ()
        return self._parts.get(key, ()) if self._parts else (CanonicalName(key),)

    def to_reference(self, items: Iterable[tuple[str, str, np.ndarray]]) -> Iterator[tuple[str, str, np.ndarray]]:
        """Tensors by the reference's names and in its layout; what it packs is put together, each tensor comes once.

        Args:
            items: label, key of this side, array. Arrays of one label are put together; a part that has none, as a
                frozen parameter has no gradient, is zeros.

        Yields:
            Label, the reference's name, array.
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
        """The tensor of this side, contiguous, made of the reference's by name; None where they do not have it all."""
        parts = self.parts(key)
        if not parts or any(part.name not in given for part in parts):
            return None
        arrays = [part.from_reference(given[part.name]) for part in parts]
        return np.array(arrays[0] if len(arrays) == 1 else np.concatenate(arrays, parts[0].own_axis), order="C")


def _ends(value: Any) -> Any:
    """A pair, which JSON makes a list of, can be compared and hashed as a tuple; so can a pair of shapes."""
    return tuple(map(_ends, value)) if isinstance(value, list) else value
