"""Tables of numbers that a constructor makes and that have no partner, for either side has another arrangement of them.

A table of angles is one for half of a head's width on one side, and that table twice on the other; or it has more
places. Both are rounded to float32, each in its own way, and stay so in float64: models that are right would differ by
more than float64's rounding. So what the port's tables have up to rounding is given the reference's values.
"""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.backends.protocol import Backend
from twinalign.case.moved_values import rounding_of_table
from twinalign.files.reader import read_arrays
from twinalign.files.recordings import save_npz

_LEAST = 8
"""Elements of a table."""
_MOST = 1 << 22
"""Elements of all tables of a model that are looked at."""
_PIECE = 1 << 16
_MOST_COMPARED = 1 << 26
"""Elements that are compared for one axis of a table."""


def share_tables(
    ask: Callable[..., list[str]], layouts: Sequence[Sequence[Mapping[str, Any]]], file: Path, port: dict[str, Any]
) -> None:
    """Let the port take the reference's values of tables without a partner.

    Of two that are exact where models are built in float64, that tells more: one of both has to be rounded.

    Args:
        ask: calls a function in a side's process: side, function, arguments.
        layouts: of both sides, as `describe_state` gives them.
        file: for the reference's tables.
        port: what its side is given: `tables`, the file, if there are any, `paired`, the names with a partner, and
            `rounded`, names of its tables that are rounded to float32 in any case.
    """
    own = {*port.get("own_buffers", ())}  # the port's values differ, as those of another arrangement do
    pairs = {key: [part[0] for part in parts] for key, parts in port["canonical"].items() if key not in own}
    names = [name for parts in pairs.values() for name in parts]
    if not all(_has_tables(layout, known) for layout, known in zip(layouts, (names, pairs), strict=True)):
        return
    if ask("ref", write_tables, paired=names, path=str(file)):
        port["rounded"] = ask("paddle", rounded_tables, paired=list(pairs))
        port["tables"], port["paired"] = str(file), list(pairs)


def _has_tables(layout: Sequence[Mapping[str, Any]], paired: Collection[str]) -> bool:
    kinds = ("float32", "float64")
    return any(one["role"] == "buffer" and one["dtype"] in kinds and one["key"] not in paired for one in layout)


def write_tables(worker: Any, stage: str, paired: Sequence[str], path: str) -> dict[str, Any]:
    """Write the reference's tables into a file, those apart that are rounded in any case; in its process.

    Args:
        paired: names of the tables that have a partner.

    Returns:
        `keys`, their names.
    """
    model = worker.freshly_built(worker.fresh_case(stage), stage)
    tables = tables_of(worker.backend, model, paired)
    rounded = {*rounded_tables(worker, stage, paired)["keys"]} if tables else set()
    arrays = {f"{key in rounded}.{key}": worker.backend.to_array(tensor) for key, tensor in tables.items()}
    save_npz(Path(path), arrays)
    return {"keys": list(arrays)}


def rounded_tables(worker: Any, stage: str, paired: Sequence[str]) -> dict[str, Any]:
    """`keys` of a side's tables that hold float32's numbers where the model is built in float64, or cannot be."""
    case, backend = worker.fresh_case(stage), worker.backend
    own = tables_of(backend, worker.freshly_built(case, stage), paired)
    try:
        with backend.default_dtype("float64"):
            model = worker.construct(case) if own else None
            made = {key: backend.to_array(one) for key, one in tables_of(backend, model, paired).items()} if own else {}
    except Exception:  # a constructor may insist on float32
        return {"keys": list(own)}
    return {"keys": [key for key in own if key not in made or np.array_equal(made[key], made[key].astype(np.float32))]}


def take_tables(backend: Backend, model: Any, given: Mapping[str, Any]) -> None:
    """Give the port's tables the reference's values, as far as they are the same up to rounding.

    `given`: what the port's side is given; nothing is done without `tables`.
    """
    theirs = read_tables(given["tables"]) if "tables" in given else {}
    for key, tensor in tables_of(backend, model, given["paired"]).items() if theirs else ():
        own = backend.to_array(tensor)
        taken = with_values_of(own, [*(theirs[False] if key in given["rounded"] else []), *theirs[True]])
        if taken is not None and not np.array_equal(taken, own, equal_nan=True):
            backend.assign(tensor, taken.astype(own.dtype))


def exact_tables(backend: Backend, model: Any, given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The reference's stored tables without a partner of a model that is built in float64, which its weights round."""
    arrays = read_arrays(Path(given["path"]))
    own = {key: backend.to_array(one) for key, one in backend.floating_buffers(model).items()}
    known = {key: (own[key], arrays[key]) for key in given.get("left_out", ()) if key in own and key in arrays}
    return {key: one for key, (one, other) in known.items() if not differ(one, other)}


def other_tables(worker: Any, stage: str, tables: str, paired: Sequence[str]) -> dict[str, Any]:
    """`keys` of the port's tables that are none of the reference's in another arrangement; in its process."""
    theirs, backend = read_tables(tables), worker.backend
    every = [one for some in theirs.values() for one in some]
    own = tables_of(backend, worker.freshly_built(worker.fresh_case(stage), stage), paired)
    return {"keys": [name for name, one in own.items() if with_values_of(backend.to_array(one), every) is None]}


def read_tables(path: str) -> dict[bool, list[np.ndarray]]:
    """The reference's tables, in float64: those that are rounded in any case, and the others."""
    found: dict[bool, list[np.ndarray]] = {True: [], False: []}
    for key, array in read_arrays(Path(path)).items():
        found[key.startswith("True.")].append(array.astype(np.float64))
    return found


def tables_of(backend: Backend, model: Any, paired: Sequence[str]) -> dict[str, Any]:
    """Buffers, and tensors in attributes, of numbers in float32 or float64, without those of these names."""
    known, found = {*paired}, dict[int, tuple[str, Any]]()
    for path, layer in backend.named_layers(model):
        attributes = {name: value for name, value in vars(layer).items() if backend.is_tensor(value)}
        for name, tensor in (*backend.own_buffers(layer).items(), *attributes.items()):
            key = f"{path}.{name}".removeprefix(".")
            if key not in known and backend.dtype_name(tensor) in ("float32", "float64"):
                found[id(tensor)] = key, tensor
    sizes = itertools.accumulate(int(np.prod(tensor.shape)) for _, tensor in found.values())
    few = [one for one, size in zip(found.values(), sizes, strict=True) if size <= _MOST]
    return {key: tensor for key, tensor in few if np.prod(tensor.shape) >= _LEAST}


def with_values_of(own: np.ndarray, tables: Sequence[np.ndarray]) -> np.ndarray | None:
    """A table with the values of others where all of its vectors along one axis are theirs up to rounding.

    Of vectors of unequal lengths the first elements count, at least half of the table's own.

    Args:
        own: of any shape.
        tables: float64 of any shapes.

    Returns:
        float64; None where they are not.
    """
    own = own.astype(np.float64)
    for axis in sorted(range(own.ndim), key=lambda axis: -own.shape[axis]):
        found = np.moveaxis(own.copy(), axis, -1)  # a view of the copy, which is filled in
        vectors = found.reshape(-1, found.shape[-1])
        allowed = rounding_of_table(own[np.isfinite(own)], own.shape)
        nearest = _nearest(vectors, tables, allowed)
        if nearest is not None:
            for vector, other in zip(vectors, nearest, strict=True):
                vector[: len(other)] = other
            return np.moveaxis(vectors.reshape(found.shape), -1, axis)
    return None


def _nearest(vectors: np.ndarray, tables: Sequence[np.ndarray], allowed: float) -> list[np.ndarray] | None:
    """For each vector the one of the tables that is nearest to it, as far as both go, and that goes farthest.

    None if one vector has none.
    """
    best = [(0, np.inf)] * len(vectors)
    found: list[np.ndarray] = [vectors[0]] * len(vectors)
    for others in (one for table in tables for one in _along_each_axis(table)):
        length = min(others.shape[1], vectors.shape[1])
        if length < 2 or 2 * length < vectors.shape[1] or others.shape[0] * vectors.shape[0] * length > _MOST_COMPARED:
            continue
        for number, vector in enumerate(vectors[:, :length]):
            distances = np.abs(others[:, :length] - vector).max(axis=1)
            at = int(np.argmin(distances))
            if distances[at] <= allowed and (-length, distances[at]) < best[number]:
                best[number], found[number] = (-length, distances[at]), others[at, :length]
    return found if all(length for length, _ in best) else None


def _along_each_axis(table: np.ndarray) -> Iterator[np.ndarray]:
    for axis in range(table.ndim):
        if table.shape[axis] > 1:
            yield np.moveaxis(table, axis, -1).reshape(-1, table.shape[axis])


def differ(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two tables differ by more than rounding in one formula."""
    if one.shape != other.shape:
        return True
    values = other if other.dtype.kind == "f" else np.asarray(other, np.float64)
    allowed = 0.0 if one.dtype.kind in "iub" else rounding_of_table(values[np.isfinite(values)], other.shape)
    # Frozen weights are large, and differ from the first elements on.
    pieces = (slice(start, start + _PIECE) for start in range(0, one.size, _PIECE))
    return any(_elements_differ(one.ravel()[piece], other.ravel()[piece], allowed) for piece in pieces)


def _elements_differ(one: np.ndarray, other: np.ndarray, allowed: float) -> bool:
    first, second = (np.asarray(array, np.float64) for array in (one, other))
    finite = np.isfinite(first) & np.isfinite(second)
    if not np.array_equal(first[~finite], second[~finite], equal_nan=True):
        return True
    return bool((np.abs(first - second)[finite] > allowed).any())
