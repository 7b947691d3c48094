"""Parameters and buffers that change in a forced pass: judged, and given the reference's values."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from twinalign.conversion.canonical_names import CanonicalName
from twinalign.files.reader import read_arrays
from twinalign.replay.case_run import CaseRun
from twinalign.replay.forced_call import SHARED, ForcedCall
from twinalign.replay.tensor_store import TensorStore


class ForcedState:
    """Those of the port's model that the reference's pass changes, or that are buffers."""

    def __init__(self, run: CaseRun, store: TensorStore, moved: Collection[str]) -> None:
        """`moved`: the reference's names of parameters and buffers that its pass changes; `store` has their values."""
        self._run, self._backend, self._store = run, run.backend, store
        self._changing = {
            f"{path}.{name}".lstrip("."): tensor
            for path, layer in self._backend.named_layers(run.model)
            for name, tensor in self._backend.own_state(layer).items()
            if name in self._backend.own_buffers(layer) or self._whole_part(path, name).name in moved
        }
        self._sums = {
            key: self._backend.checksum(tensor)
            for key, tensor in self._changing.items()
            if any(part.rows is None and part.place is None for part in run.canonical.parts(key))
        }
        """By the port's names; a layer's are those after its last call."""
        self._changed_by: dict[str, ForcedCall] = {}
        """By the port's names, whose own code has changed it since."""

    def of(self, unit: ForcedCall) -> dict[str, np.ndarray]:
        """Values of the unit's parameters and buffers that change in the pass, by the port's names."""
        inside = f"{unit.path}." if unit.layer is not None and unit.path else ""
        return {n: self._backend.to_array(tensor) for n, tensor in self._changing.items() if n.startswith(inside)}

    def set(self, values: Mapping[str, np.ndarray]) -> None:
        for name, array in values.items():
            self._backend.assign(self._changing[name], array)

    def entered(self, unit: ForcedCall) -> None:
        """Note what has changed inside the unit since its last call: the code that calls it has done that."""
        inside = f"{unit.path}." if unit.path else ""
        around = set()
        outer = unit.parent
        while outer is not None:
            around.add(id(outer))
            outer = outer.parent
        for key, total in self._sums.items():
            noted = id(self._changed_by.get(key)) in around
            if (
                unit.parent
                and key.startswith(inside)
                and not noted
                and self._backend.checksum(self._changing[key]) != total
            ):
                self._changed_by[key] = unit.parent

    def force(self, unit: ForcedCall, state: Mapping[str, int], after: bool = False) -> None:
        """Judge parameters and buffers that the pass has changed, and give them the reference's values."""
        inside = f"{unit.call.path}." if unit.call.path else ""
        for name, tensor in self._backend.own_state(unit.layer).items():
            part, key = self._whole_part(unit.path, name), f"{unit.path}.{name}".lstrip(".")
            number = state.get(part.name.removeprefix(inside)) if part.name.startswith(inside) else None
            if number is not None:
                reference = self._store.read(number)
            elif not after and key in self._changed_by:
                reference = part.to_reference(self._initial[key])  # the reference has not changed it
            else:
                continue
            owner = unit if after else self._changed_by.pop(key, self._training(unit))
            port = self._backend.to_array(tensor)
            label = f"buffer.{part.name.removeprefix(inside)}" if owner is unit else f"state.{part.name}"
            found = owner.judge(label, part.to_reference(port), reference)
            if found.relative > SHARED:
                self._backend.assign(tensor, part.from_reference(reference))

    def _training(self, unit: ForcedCall) -> ForcedCall:
        """The code around a unit that trains something: what the port lacks there may have changed the unit's state."""
        outer = unit.parent or unit
        while outer.parent is not None and not self._trains(outer.layer):
            outer = outer.parent
        return outer

    def _trains(self, layer: Any) -> bool:
        parameters = {} if layer is None else self._backend.named_parameters(layer)
        return layer is None or any(map(self._backend.trainable, parameters.values()))

    def called(self, unit: ForcedCall) -> None:
        """What its own call has changed is no change by the code around it."""
        for name, tensor in self._backend.own_state(unit.layer).items():
            key = f"{unit.path}.{name}".lstrip(".")
            if key in self._sums:
                self._sums[key] = self._backend.checksum(tensor)

    @functools.cached_property
    def _initial(self) -> Mapping[str, np.ndarray]:
        """The port's weights before the pass."""
        return {key: array.astype(np.float64) for key, array in read_arrays(self._run.weights["path"]).items()}

    def _whole_part(self, path: str, name: str) -> CanonicalName:
        """The reference's name of a layer's tensor; its own name without a single counterpart."""
        key = f"{path}.{name}".lstrip(".")
        parts = [part for part in self._run.canonical.parts(key) if part.rows is None and part.place is None]
        return parts[0] if parts else CanonicalName(key)
