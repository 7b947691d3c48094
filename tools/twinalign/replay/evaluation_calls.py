"""What an evaluation gets from the model, so that the port's can go on with what the reference's model returned."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from twinalign.backends.protocol import Backend
from twinalign.replay.nested_tensors import order_by_names, places_in, put_together, take_apart
from twinalign.verdict.array_difference import distance, root_mean_square

_ROUNDING = 1e-6
_MOST_KEPT = 1 << 30


_RUNNING: list[dict[tuple[Any, ...], int]] = []
"""How often the evaluation that runs has given layers the same, by what it gave."""


@contextlib.contextmanager
def on_trial() -> Iterator[None]:
    """What layers are given inside the block is forgotten behind it: what runs in the same way next gets the same."""
    before = [dict(counts) for counts in _RUNNING]
    try:
        yield
    finally:
        for counts, known in zip(_RUNNING, before, strict=True):
            counts.clear()
            counts.update(known)


def is_kept(model: Any) -> bool:
    """Whether the results of a model's layers are kept, so that it need not be copied before it is called."""
    children = model.children() if hasattr(model, "children") else ()
    return any("forward" in vars(child) for child in children)


class EvaluationCalls:
    """The calls of a model's layers that an evaluation makes itself, not those that other layers make.

    On the reference's side they are kept. On the port's side each call that is given what the reference's was returns
    what the reference's returned, so that a wrong model does not show in the numbers of the evaluation.

    Attributes:
        arrays: what was kept: `NAME.CALL.given.NUMBER`, `NAME.CALL.returned.NUMBER`, `NAME.CALL.places` (where each
            stood) and `NAME.CALL.training`.
    """

    def __init__(self, backend: Backend, device: str, name: str, kept: Mapping[str, np.ndarray] | None = None) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self._backend, self._device, self._name, self._kept = backend, device, name, kept
        self._follows, self._is_inside = kept is not None, False
        self._calls = self._size = 0

    @property
    def followed(self) -> bool:
        """Whether every call returned what the reference's did, and there were as many."""
        known = self._kept or {}
        made = [f"{self._name}.{number}.training" in known for number in (self._calls - 1, self._calls)]
        return self._follows and made == [True, False]

    def around(
        self, path: str, layer: Any, forward: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        """A call of a layer, as `layer_calls.wrapped` sends it here."""
        if self._is_inside:
            return forward(*arguments, **keywords)
        self._is_inside = True
        try:
            result = forward(*arguments, **keywords)
        finally:
            self._is_inside = False
        prefix = f"{self._name}.{self._calls}."
        self._calls += 1
        is_tensor, to_array = self._backend.is_tensor, self._backend.to_array
        given = take_apart((arguments, keywords), is_tensor)[0]
        returned, skeleton = take_apart(result, is_tensor)
        here = {f"{prefix}given.{number}": to_array(tensor) for number, tensor in enumerate(given)}
        here[f"{prefix}training"] = np.asarray(layer.training)
        if self._kept is None:
            here |= {f"{prefix}returned.{number}": to_array(tensor) for number, tensor in enumerate(returned)}
            here[f"{prefix}places"] = np.array(places_in(skeleton), str)
            self._keep(here)
            return result
        named = order_by_names(skeleton, self._kept.get(f"{prefix}places", np.empty(0, str)).tolist())
        order = range(len(returned)) if named is None else named
        names = [f"{prefix}returned.{number}" for number in range(len(returned))]
        theirs = [self._kept[name] for name in names if name in self._kept]
        fits = [list(array.shape) for array in theirs] == [list(returned[place].shape) for place in order]
        self._follows &= fits and all(_is_same(self._kept.get(name), array) for name, array in here.items())
        if not self._follows:
            return result
        given_back = {
            place: self._backend.to_tensor(array, "float64", self._device)
            for place, array in zip(order, theirs, strict=True)
        }
        return put_together(skeleton, [given_back[place] for place in range(len(returned))])

    def _keep(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._size += sum(array.nbytes for array in arrays.values())
        if self._size <= _MOST_KEPT:
            self.arrays |= arrays


class KeptResults:
    """What layers have returned in an evaluation, for when it runs again and gives them the same."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._kept: dict[tuple[Any, ...], Any] = {}
        self._size = 0

    def of_run(self, model: Any) -> Callable[..., Any]:
        """Stands around the calls of one run, as `layer_calls.wrapped` wants it; `model` tells models apart.

        Calls that are given the same are told apart by their order: a layer may have changed between them.
        """
        counts: dict[tuple[Any, ...], int] = {}
        _RUNNING[:] = [counts]

        def around(path: str, layer: Any, forward: Callable[..., Any], arguments: tuple, keywords: dict) -> Any:
            tensors, others = take_apart((arguments, keywords), self._backend.is_tensor)
            given = model, path, repr(others), *map(self._print, tensors)
            counts[given] = counts.get(given, 0) + 1
            place = (*given, counts[given])
            if place not in self._kept:
                result = forward(*arguments, **keywords)
                if self._size > _MOST_KEPT:
                    return result
                self._kept[place] = result
                self._size += sum(t.numel() * 8 for t in self._backend.tensors_in(result))
            return self._kept[place]

        return around

    def _print(self, tensor: Any) -> tuple[tuple[int, ...], int]:
        return tuple(tensor.shape), hash(self._backend.to_array(tensor).tobytes())


def _is_same(theirs: np.ndarray | None, ours: np.ndarray) -> bool:
    return theirs is not None and distance(theirs, ours) <= _ROUNDING * root_mean_square(theirs)


def rows_of(output: np.ndarray, rows: np.ndarray | slice, count: int) -> np.ndarray:
    """The chosen of `count` rows; an output that does not have so many, such as a loss beside the scores, as it is."""
    return output[rows] if output.ndim and len(output) == count else output
