"""Parameters and buffers that change in a forced pass: judged, and given the reference's values."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from twinalign.conversion.canonical_names import CanonicalName
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

    def of(self, unit: ForcedCall) -> dict[str, np.ndarray]:
        """Values of the unit's parameters and buffers that change in the pass, by the port's names."""
        inside = f"{unit.path}." if unit.layer is not None and unit.path else ""
        return {n: self._backend.to_array(tensor) for n, tensor in self._changing.items() if n.startswith(inside)}

    def set(self, values: Mapping[str, np.ndarray]) -> None:
        for name, array in values.items():
            self._backend.assign(self._changing[name], array)

    def force(self, unit: ForcedCall, state: Mapping[str, int], after: bool = False) -> None:
        """Judge parameters and buffers that the pass has changed, and give them the reference's values."""
        own = self._backend.own_state(unit.layer)
        names = {self._whole_part(unit.path, name).name: name for name in own}
        owner = unit
        while owner.parent is not None and not after:
            owner = owner.parent
        for theirs, number in state.items():
            full = f"{unit.call.path}.{theirs}".lstrip(".")
            name = names.get(full)
            if name is None:
                continue
            reference = self._store.read(number)
            part = self._whole_part(unit.path, name)
            port = self._backend.to_array(own[name])
            label = f"buffer.{theirs}" if owner is unit else f"state.{full}"
            found = owner.judge(label, part.to_reference(port), reference)
            if found.relative > SHARED:
                self._backend.assign(own[name], part.from_reference(reference))

    def _whole_part(self, path: str, name: str) -> CanonicalName:
        """The reference's name of a layer's tensor; its own name without a single counterpart."""
        key = f"{path}.{name}".lstrip(".")
        parts = [part for part in self._run.canonical.parts(key) if part.rows is None and part.place is None]
        return parts[0] if parts else CanonicalName(key)
