"""Backward of the forced pass: every layer and every piece of code between layers gets the reference's gradients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.locate.port import Projected, Unit
from twinalign.locate.running import CaseRun
from twinalign.locate.store import TensorStore
from twinalign.recording import save_npz
from twinalign.stages.naming import CanonicalName


class ForcedBackward:
    """Judges the gradients of the units of a forced pass, and keeps what an explanation needs of the suspects."""

    def __init__(
        self,
        run: CaseRun,
        store: TensorStore,
        seeds: Mapping[str, tuple[int, float]],
        parameter_gradients: Mapping[str, tuple[list[int], float, list[float]]],
        folder: Path,
    ) -> None:
        """Take the reference's gradients: number in the store and root mean square, projections of a parameter's."""
        self.run, self.backend, self.store, self.folder = run, run.backend, store, folder
        self.seeds = seeds
        self.parameter_gradients = {name: Projected(*found) for name, found in parameter_gradients.items()}
        self._gathered: dict[str, np.ndarray] = {}
        self._settled: set[str] = set()
        self._contributors: dict[str, list[Unit]] = {}
        self._parameters = self.backend.named_parameters(run.model)
        self._own_names: dict[str, list[str]] = {}
        """The reference's name of a parameter → what it is made of here."""
        for name in self._parameters:
            for part in self._parts(name):
                self._own_names.setdefault(part.name, []).append(name)
        self._subtrees: dict[str, dict[str, Any]] = {}

    def __call__(self, units: Sequence[Unit]) -> None:
        """Judge every unit, the last call first; gradients are freed as soon as they have been used."""
        calls = Counter(unit.path for unit in units)
        for root in reversed([unit for unit in units if unit.parent is None]):
            self._judge(root, calls)
        self._judge_sums(units)

    def _judge(self, unit: Unit, calls: Mapping[str, int]) -> None:
        starts = {} if unit.differences else self._starts(unit)
        parameters = self._parameters_of(unit)
        found = self._gradients(self._ends(unit), [*(t for t, _ in starts.values()), *parameters.values()])
        for (name, (tensor, place)), gradient in zip(starts.items(), found, strict=False):
            self._judge_start(unit, name, tensor, place, gradient)
        of_parameters = dict(zip(parameters, found[len(starts) :], strict=True))
        # Wrong values have wrong gradients: nothing more is to be learnt from those of a unit that differs already.
        if not unit.differences and calls[unit.path] == 1:
            for theirs in self._own_parameters(unit, of_parameters):
                if self._judge_parameter(unit, theirs, of_parameters):
                    self._settled.update(self._own_names[theirs])
        self._gather(unit, of_parameters, last=not unit.children and calls[unit.path] == 1)
        if unit.differences or (calls[unit.path] > 1 and self._holds_parameters(unit)):
            self._write(unit)
        unit.given = [None] * len(unit.given)
        for child in reversed(unit.children):
            self._judge(child, calls)
        unit.inputs, unit.outputs, unit.handed_on = [], [], []

    def _judge_start(self, unit: Unit, name: str, tensor: Any, place: str, gradient: Any) -> None:
        if gradient is None and place not in self.seeds:
            return
        port = np.zeros(tuple(tensor.shape)) if gradient is None else self._values(gradient)
        theirs = self._seed(place)
        if theirs is None:
            unit.judge(name, port, np.zeros_like(port))
        else:
            unit.judge(name, port, theirs, self.seeds[place][1])

    def _own_parameters(self, unit: Unit, found: Mapping[str, Any]) -> list[str]:
        """Parameters, by the reference's names, whose gradient this unit answers for: those it has used, and those that
        nothing else could use."""
        inside = f"{unit.path}." if unit.layer is not None and unit.path else ""
        below = {name for name in self._parameters if name.startswith(inside)}
        own = [
            name
            for name in self._parameters
            if unit.layer is not None and name in below and (not unit.children or "." not in name.removeprefix(inside))
        ]
        used = [name for name, gradient in found.items() if gradient is not None]
        names = dict.fromkeys(part.name for name in [*used, *own] for part in self._parts(name))
        # One that has parts in other units is judged when all are there, in `_judge_sums`.
        return [name for name in names if below.issuperset(self._own_names[name])]

    def _judge_parameter(self, unit: Unit, name: str, found: Mapping[str, Any]) -> bool:
        """Judge the gradient of a parameter of the reference, from those found here; returns whether it is right."""
        theirs = self.parameter_gradients.get(name)
        port = self._gradient_of(name, found)
        if port is None:
            if theirs is None:
                return True
            port = np.zeros(theirs.shape)
        theirs = theirs or Projected(list(port.shape), 0.0, [0.0])
        return unit.judge_projections(self._label(unit, name), port, theirs).relative <= unit.bound

    def _gradient_of(self, name: str, found: Mapping[str, Any]) -> np.ndarray | None:
        """The gradient of a parameter of the reference, in its layout; None where no part of it has one."""
        own = [key for key in self._own_names[name] if found.get(key) is not None]
        if own == self._own_names[name] == [name] and not self.run.canonical.parts(name):
            return self._values(found[name])  # the reference has no such parameter
        items = ((name, key, self._values(found[key])) for key in own)
        return next((array for _, theirs, array in self.run.canonical.to_reference(items) if theirs == name), None)

    def _parts(self, name: str) -> tuple[CanonicalName, ...]:
        """What a parameter is on the reference side; one that it does not have keeps its name."""
        return self.run.canonical.parts(name) or (CanonicalName(name),)

    @staticmethod
    def _label(unit: Unit, name: str) -> str:
        path = unit.call.path if unit.layer is not None else ""
        return f"gradient.parameter.{name.removeprefix(f'{path}.') if path else name}"

    def _values(self, gradient: Any) -> np.ndarray:
        """A gradient of `_gradients` or a sum of such, to look at."""
        if isinstance(gradient, str):
            seed = self._seed(gradient)
            assert seed is not None
            return seed
        return gradient if isinstance(gradient, np.ndarray) else self.backend.values_of(gradient)

    def _ends(self, unit: Unit) -> list[tuple[Any, str]]:
        """Where the unit's own code ends: its results and its layers' inputs, and the places of their gradients."""
        places = [(tensor, f"output.{unit.call.number}.{i}") for i, tensor in enumerate(unit.outputs)]
        for child in unit.children:
            places += [(tensor, f"input.{child.call.number}.{i}") for i, tensor in enumerate(child.given)]
        ends = []
        for tensor, place in places:
            if tensor is not None and self.backend.differentiable(tensor):
                seed = self._seed(place)
                if seed is not None and list(seed.shape) == list(tensor.shape):
                    ends.append((tensor, place))
        return ends

    def _starts(self, unit: Unit) -> dict[str, tuple[Any, str]]:
        """Where the unit's own code begins: name of the value → tensor and place of its gradient in the reference."""
        starts = {
            f"gradient.input.{i}": (tensor, f"input.{unit.call.number}.{i}") for i, tensor in enumerate(unit.inputs)
        }
        for child in unit.children:
            for i, tensor in enumerate(child.handed_on):
                starts[f"gradient.child.{child.label}.{i}"] = (tensor, f"output.{child.call.number}.{i}")
        return {name: start for name, start in starts.items() if self.backend.differentiable(start[0])}

    def _parameters_of(self, unit: Unit) -> dict[str, Any]:
        """Trainable parameters in the unit's layer, or in the whole model for code that is no layer's."""
        if unit.path not in self._subtrees:
            inside = "" if unit.layer is None or not unit.path else f"{unit.path}."
            self._subtrees[unit.path] = {
                name: tensor
                for name, tensor in self._parameters.items()
                if name.startswith(inside) and self.backend.trainable(tensor)
            }
        return self._subtrees[unit.path]

    def _gradients(self, ends: Sequence[tuple[Any, str]], wanted: Sequence[Any]) -> list[Any | None]:
        """What reaches each wanted tensor from the reference's gradients at the ends: a tensor of the framework, an
        array, or the place of the one gradient that comes as it is."""
        found: list[Any | None] = [None] * len(wanted)
        # What is handed on as it came has no graph in between: paddle gives no gradient for an end that is a start.
        numbers = {id(tensor): number for number, tensor in enumerate(wanted)}
        graph = [(end, place) for end, place in ends if id(end) not in numbers]
        if graph and wanted:
            with self.backend.default_dtype(self.run.dtype):
                seeds = [
                    self.backend.to_tensor(self._seed(place), self.run.dtype, self.run.device) for _, place in graph
                ]
                found = self.backend.gradients([end for end, _ in graph], list(wanted), seeds)
        for end, place in ends:
            if (number := numbers.get(id(end))) is not None:
                before = found[number]
                found[number] = place if before is None else self._values(before) + self._values(place)
        return found

    def _gather(self, unit: Unit, found: Mapping[str, Any], last: bool) -> None:
        """Add up gradients over units; where no unit is left that may add to one (`last`), a right one is not kept."""
        for name, gradient in found.items():
            if gradient is None:
                continue
            if not last or name not in self._settled or name in self._gathered:
                array = np.array(self._values(gradient))
                self._gathered[name] = self._gathered[name] + array if name in self._gathered else array
            self._contributors.setdefault(name, []).append(unit)

    def _judge_sums(self, units: Sequence[Unit]) -> None:
        """Judge the sum of a parameter's gradients over all uses; what one unit lacked may lie in another."""
        for name, own in self._own_names.items():
            contributors = list({id(unit): unit for key in own for unit in self._contributors.get(key, [])}.values())
            if self._settled.issuperset(own) and len(contributors) == 1:
                continue
            owner = max(contributors or self._around(own[0], units), key=lambda unit: len(unit.path), default=None)
            if owner is None or any(k for unit in contributors for k in unit.differences if "gradient.p" not in k):
                continue
            for unit in {id(u): u for u in (owner, *contributors)}.values():
                unit.differences.pop(self._label(unit, name), None)
            self._judge_parameter(owner, name, self._gathered)

    def _around(self, name: str, units: Sequence[Unit]) -> list[Unit]:
        return [
            unit for unit in units if unit.layer is not None and name.startswith(f"{unit.path}." if unit.path else "")
        ]

    def _seed(self, place: str) -> np.ndarray | None:
        found = self.seeds.get(place)
        return None if found is None else self.store.read(found[0])

    def _holds_parameters(self, unit: Unit) -> bool:
        """Whether the sum over several calls may turn out wrong where no single call did; frozen ones count too."""
        return unit.layer is not None and bool(self.backend.own_state(unit.layer))

    def _write(self, unit: Unit) -> None:
        """What the reference needs to run the unit again: inputs, results of its layers, gradients."""
        arrays = {f"input.{i}": self.backend.to_array(tensor) for i, tensor in enumerate(unit.inputs)}
        for child in unit.children:
            for i, tensor in enumerate(child.handed_on):
                arrays[f"child.{child.call.number}.{i}"] = self.backend.to_array(tensor)
        # All of the reference's gradients, those too that have no way to go in the port.
        ends = [f"output.{unit.call.number}.{i}" for i in range(len(unit.call.outputs))]
        ends += [f"input.{child.call.number}.{i}" for child in unit.children for i in range(len(child.call.inputs))]
        for place in ends:
            seed = self._seed(place)
            if seed is not None:
                arrays[f"seed.{place}"] = seed
        save_npz(self.folder / f"{unit.call.number}.npz", arrays)
