"""Backward of the forced pass: every unit gets the reference's gradients."""

import contextlib
import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.conversion.canonical_names import CanonicalName
from twinalign.files.recordings import save_npz
from twinalign.replay.case_run import CaseRun
from twinalign.replay.code_lines import noting
from twinalign.replay.forced_call import LONGEST_REASON, ForcedCall, Projected
from twinalign.replay.mask_forms import Form
from twinalign.replay.repeated_calls import children_of, ends_of, places_of_repeated
from twinalign.replay.stopped_gradients import StoppedGradients
from twinalign.replay.tensor_store import TensorStore

_WITHOUT_EFFECT = ("gradient.p", "buffer.", "eval.", "state.")
"""How differences are called that change no gradient of a parameter: those of parameters, and what is kept."""


class ForcedBackward:
    """Judges the gradients of a forced pass, and writes what is needed to explain the wrong ones.

    Args:
        seeds: place → number of the reference's gradient in the store, and its root mean square.
        parameter_gradients: parameter → shape, root mean square and projections of the reference's gradient.
        uneven: layers that the two sides call unequally often.
    """

    def __init__(
        self,
        run: CaseRun,
        store: TensorStore,
        seeds: Mapping[str, tuple[int, float]],
        parameter_gradients: Mapping[str, tuple[list[int], float, list[float]]],
        folder: Path,
        uneven: Sequence[str] = (),
    ) -> None:
        self.run, self.backend, self.store, self.folder = run, run.backend, store, folder
        self._uneven = tuple(f"{path}." for path in uneven if path)
        self.seeds = seeds
        self.parameter_gradients = {name: Projected(*found) for name, found in parameter_gradients.items()}
        self._gathered: dict[str, dict[str, np.ndarray]] = {}
        """Parameter → path of a unit → what its own code adds to the gradient."""
        self._settled: set[str] = set()
        self._contributors: dict[str, list[ForcedCall]] = {}
        self._around_wrong: dict[str, list[ForcedCall]] = {}
        """Parameter whose gradient is wrong in a layer → the code around it, which may use it as well."""
        self._parameters = self.backend.named_parameters(run.model)
        self._own_names: dict[str, list[str]] = {}
        """The reference's name of a parameter → the port's parameters that hold parts of it."""
        for name in self._parameters:
            for part in self._parts(name):
                self._own_names.setdefault(part.name, []).append(name)
        self._subtrees: dict[str, dict[str, Any]] = {}
        self._layouts: dict[str, Form] = {}
        self._further: dict[str, list[str]] = {}
        """Place of an input → further places of the same tensor, whose gradients are added to its own."""
        self._stopped = StoppedGradients([])
        self._without_graph: set[str] = set()
        self._whole = True
        self._paths: set[str] = set()
        """Of the layers among the units."""
        self.left_out: dict[str, str] = {}
        """Path of a unit whose gradients cannot be judged → why."""

    def __call__(self, units: Sequence[ForcedCall], state_alone: Sequence[ForcedCall]) -> None:
        """Judge every unit, the last call first, but not those of which the buffers alone are judged.

        Gradients are freed after use. Where the pass did not run to its end, the gradients of parameters are not
        judged: what did not run may add to them.
        """
        calls = Counter(unit.path for unit in units)
        self._whole = all(unit.ended for unit in units)
        self._paths = {unit.path for unit in units if unit.layer is not None}
        self._layouts = {place: layout for unit in (*units, *state_alone) for place, layout in unit.layouts.items()}
        self._further = {
            f"input.{unit.call.number}.{place}": [f"input.{unit.call.number}.{other}" for other in more]
            for unit in units
            for place, more in unit.given_again.items()
        }
        for place, more in (pair for unit in units for pair in places_of_repeated(unit)):
            self._further.setdefault(place, []).extend(more)
        self._stopped = StoppedGradients(units)
        self._stopped.find(units, self._sent_back)
        self._without_graph = {
            f"output.{unit.call.number}.{number}"
            for unit in units
            for number, tensor in enumerate(unit.outputs)
            if not self.backend.differentiable(tensor)
        }
        for root in reversed([unit for unit in units if unit.parent is None]):
            self._judge(root, calls)
        if self._whole:
            self._judge_sums(units)
        for unit in state_alone:
            self._write(unit)

    def _judge(self, unit: ForcedCall, calls: Mapping[str, int]) -> None:
        before = dict(unit.differences)
        try:
            if unit.ended:
                self._judge_alone(unit, calls)
            elif before:
                self._write(unit)
        except Exception as error:  # the user's code has gradients of its own, which can raise anything
            self.left_out[unit.path] = f"its gradient raises {type(error).__name__}: {error}"[:LONGEST_REASON]
            unit.differences = before
            if before:
                self._write(unit)
        unit.given = [None] * len(unit.given)
        for child in reversed(unit.children):
            self._judge(child, calls)
        self._note_uses(unit, calls)
        for done in (*unit.children, *([] if unit.parent else [unit])):
            done.inputs, done.outputs, done.handed_on = [], [], []

    def _sent_back(self, unit: ForcedCall, tensors: list[Any]) -> list[np.ndarray | None]:
        wanted = [tensor for tensor in tensors if self.backend.differentiable(tensor)]
        gradients = self._gradients(self._ends(unit), wanted, again=True)
        found = {id(tensor): one for tensor, one in zip(wanted, gradients, strict=True) if one is not None}
        return [self._values(found[id(tensor)]) if id(tensor) in found else None for tensor in tensors]

    def _note_uses(self, unit: ForcedCall, calls: Mapping[str, int]) -> None:
        """Keep what is needed to judge whether the unit's own code lacks a use of a parameter of its layers.

        A gradient that is stopped there leaves no trace in the port: it is missing in the sum of all uses alone.
        """
        known = dict.fromkeys(part.name for key in self._parameters_of(unit) for part in self._parts(key))
        names = [
            name
            for name in known
            for child in unit.children
            if self._label(child, name) in child.differences or child in self._around_wrong.get(name, ())
        ]
        if not names or not unit.ended or unit.differences or calls[unit.path] != 1:
            return
        for name in dict.fromkeys(names):
            self._around_wrong.setdefault(name, []).append(unit)
        self._write(unit)

    def _judge_alone(self, unit: ForcedCall, calls: Mapping[str, int]) -> None:
        # Wrong values have wrong gradients, so those of a unit that differs already tell nothing.
        right = not unit.differences
        # They are asked for all the same: paddle's PReLU crashes where its weight's gradient alone is wanted.
        starts = self._starts(unit)
        parameters = self._parameters_of(unit)
        # An autograd function of the port's own has code that runs here alone.
        with noting(unit.functions) if right else contextlib.nullcontext():
            found = self._gradients(self._ends(unit), [*(t for t, _ in starts.values()), *parameters.values()])
        for (name, (tensor, place)), gradient in zip(starts.items() if right else (), found, strict=False):
            self._judge_start(unit, name, tensor, place, gradient)
        of_parameters = dict(zip(parameters, found[len(starts) :], strict=True))
        if self._whole and right and calls[unit.path] == 1:
            for theirs in self._own_parameters(unit, of_parameters):
                if self._judge_parameter(unit, theirs, of_parameters):
                    self._settled.update(self._own_names[theirs])
        self._gather(unit, of_parameters, last=not unit.children and calls[unit.path] == 1)
        # The sum over several calls may be wrong where no single call is; frozen parameters count too.
        repeated = calls[unit.path] > 1 and unit.layer is not None
        told = unit.differences or unit.wanted or (repeated and self.backend.own_state(unit.layer))
        if told or (self._whole and any(self._may_answer_for(unit, *found) for found in of_parameters.items())):
            self._write(unit)

    def _may_answer_for(self, unit: ForcedCall, key: str, gradient: Any) -> bool:
        """Whether `_judge_sums` may find wrong, in this unit, the gradient of a parameter that is not settled."""
        holder = key.rpartition(".")[0]
        while holder and holder not in self._paths:
            holder = holder.rpartition(".")[0]
        return key not in self._settled and (gradient is not None or holder == unit.path)

    def _judge_start(self, unit: ForcedCall, name: str, tensor: Any, place: str, gradient: Any) -> None:
        theirs = self._seed(place)
        # What a layer of the port returns without a graph takes no gradient, whatever the code around it sends back.
        if theirs is None and (gradient is None or place in self._without_graph):
            return
        port = np.zeros(tuple(tensor.shape)) if gradient is None else self._values(gradient)
        if theirs is None and self._stopped.take(place, port):
            return
        if theirs is None:
            unit.judge(name, port, np.zeros_like(port))
        else:
            layout = self._layouts.get(place)
            ours = port if layout is None else layout.gradient_to_reference(port)
            theirs = theirs if layout is None else layout.gradient_to_reference(theirs)
            unit.judge(
                name,
                ours,
                theirs,
                self.seeds[place][1] if self.seeds.get(place) and place not in self._further else None,
            )

    def _own_parameters(self, unit: ForcedCall, found: Mapping[str, Any]) -> list[str]:
        """Parameters, by the reference's names, that this unit has used or that nothing else could use."""
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

    def _judge_parameter(self, unit: ForcedCall, name: str, found: Mapping[str, Any]) -> bool:
        """Judge the gradient of a parameter of the reference; returns whether it is right, or not to be judged."""
        if any(own.startswith(self._uneven) for own in self._own_names[name]):
            return True
        theirs = self.parameter_gradients.get(name)
        port = self._gradient_of(name, found)
        if port is None:
            if theirs is None:
                return True
            port = np.zeros(theirs.shape)
        theirs = theirs or Projected(list(port.shape), 0.0, [0.0])
        return unit.judge_projections(self._label(unit, name), port, theirs).relative <= unit.bound

    def _gradient_of(self, name: str, found: Mapping[str, Any]) -> np.ndarray | None:
        """The gradient of a parameter of the reference, in its layout; None if no part of it has one."""
        own = [key for key in self._own_names[name] if found.get(key) is not None]
        if own == self._own_names[name] == [name] and not self.run.canonical.parts(name):
            return self._values(found[name])  # the reference has no such parameter
        items = ((name, key, self._values(found[key])) for key in own)
        return next((array for _, theirs, array in self.run.canonical.to_reference(items) if theirs == name), None)

    def _parts(self, name: str) -> tuple[CanonicalName, ...]:
        """The reference's names of a parameter; its own name if the reference does not have it."""
        return self.run.canonical.parts(name) or (CanonicalName(name),)

    @staticmethod
    def _label(unit: ForcedCall, name: str) -> str:
        path = unit.call.path if unit.layer is not None else ""
        return f"gradient.parameter.{name.removeprefix(f'{path}.') if path else name}"

    def _values(self, gradient: Any) -> np.ndarray:
        """A gradient that `_gradients` returned, or a sum of them, as an array."""
        if isinstance(gradient, str):
            seed = self._seed(gradient)
            assert seed is not None
            return seed
        is_array = isinstance(gradient, (np.ndarray, np.generic))  # a sum of arrays without an axis is no array
        return np.asarray(gradient) if is_array else self.backend.values_of(gradient)

    def _ends(self, unit: ForcedCall) -> list[tuple[Any, str]]:
        """Where the unit's own code ends: its outputs and its layers' inputs, with the names of their gradients."""
        places = [(tensor, f"output.{unit.call.number}.{i}") for i, tensor in enumerate(unit.outputs)]
        for child in unit.children:
            places += [(tensor, f"input.{child.call.number}.{i}") for i, tensor in enumerate(child.given)]
        return [
            (tensor, place)
            for tensor, place in places
            if tensor is not None
            and self.backend.differentiable(tensor)
            and self._shape_of_seed(place) == tuple(tensor.shape)
        ]

    def _starts(self, unit: ForcedCall) -> dict[str, tuple[Any, str]]:
        """Where the unit's own code begins: name of the value → tensor and name of its gradient in the reference.

        What the port alone is given, such as a cache that the reference keeps in an object, has no gradient there.
        """
        starts = {
            f"gradient.input.{i}": (tensor, f"input.{unit.call.number}.{i}")
            for i, tensor in enumerate(unit.inputs[: len(unit.call.inputs)])
        }
        for child in unit.children:
            for i, tensor in enumerate(child.handed_on[: len(child.call.outputs)]):
                starts[f"gradient.child.{child.label}.{i}"] = (tensor, f"output.{child.call.number}.{i}")
        return {name: start for name, start in starts.items() if self.backend.differentiable(start[0])}

    def _parameters_of(self, unit: ForcedCall) -> dict[str, Any]:
        """Trainable parameters in the unit's layer, or in the whole model for code outside layers."""
        if unit.path not in self._subtrees:
            inside = "" if unit.layer is None or not unit.path else f"{unit.path}."
            self._subtrees[unit.path] = {
                name: tensor
                for name, tensor in self._parameters.items()
                if name.startswith(inside) and self.backend.trainable(tensor)
            }
        return self._subtrees[unit.path]

    def _gradients(
        self, ends: Sequence[tuple[Any, str]], wanted: Sequence[Any], again: bool = False
    ) -> list[Any | None]:
        """The gradient of each wanted tensor: a tensor, an array, or the name of a reference's gradient."""
        found: list[Any | None] = [None] * len(wanted)
        # A tensor that is passed on unchanged has no graph: paddle gives no gradient for an end that is also a start.
        numbers = {id(tensor): number for number, tensor in enumerate(wanted)}
        graph = [(end, place) for end, place in ends if id(end) not in numbers]
        if graph and wanted:
            with self.backend.default_dtype(self.run.dtype):
                seeds = [
                    self.backend.to_tensor(self._seed(place), self.run.dtype, self.run.device) for _, place in graph
                ]
                found = self.backend.gradients([end for end, _ in graph], list(wanted), seeds, again)
        for end, place in ends:
            if (number := numbers.get(id(end))) is not None:
                before = found[number]
                found[number] = place if before is None else self._values(before) + self._values(place)
        return found

    def _gather(self, unit: ForcedCall, found: Mapping[str, Any], last: bool) -> None:
        """Add up gradients over units; a right one that no other unit can add to (`last`) is not kept."""
        for name, gradient in found.items():
            if gradient is None:
                continue
            if not last or name not in self._settled or name in self._gathered:
                array, shares = np.array(self._values(gradient)), self._gathered.setdefault(name, {})
                shares[unit.path] = shares[unit.path] + array if unit.path in shares else array
            self._contributors.setdefault(name, []).append(unit)

    def _judge_sums(self, units: Sequence[ForcedCall]) -> None:
        """Judge the sum of a parameter's gradients over all uses: another unit may add what one lacks."""
        sums = {name: sum(shares.values()) for name, shares in self._gathered.items()}
        for name, own in self._own_names.items():
            contributors = list({id(unit): unit for key in own for unit in self._contributors.get(key, [])}.values())
            if self._settled.issuperset(own) and len(contributors) == 1:
                continue
            owner = max(contributors or self._around(own[0], units), key=lambda unit: len(unit.path), default=None)
            if owner is None:
                continue
            more = len(contributors) > 1 or not any("gradient.p" not in key for key in owner.differences)
            for unit in {id(u): u for u in (owner, *contributors)}.values() if more else ():
                unit.differences.pop(self._label(unit, name), None)
            # Where values before are wrong the gradient follows, also that of a parameter that nothing uses then.
            wrong = {key for unit in (owner, *contributors) for key in unit.differences}
            if not all(key.startswith(_WITHOUT_EFFECT) for key in wrong):
                for unit in (owner, *contributors):
                    unit.not_judged.add(self._label(unit, name))
                continue
            if not self._judge_parameter(owner, name, sums) and name in self._around_wrong:
                self._blame_share(name, owner, (owner, *self._around_wrong[name]))

    def _blame_share(self, name: str, owner: ForcedCall, users: Sequence[ForcedCall]) -> None:
        """Let every unit that may use a parameter answer for its own share of a wrong gradient."""
        found = owner.differences[self._label(owner, name)]
        for unit in users:
            shares = {
                key: self._gathered.get(key, {}).get(unit.path, np.zeros(tuple(self._parameters[key].shape)))
                for key in self._own_names[name]
            }
            share = self._gradient_of(name, shares)
            assert share is not None
            unit.differences[self._label(unit, name)], unit.port[self._label(unit, name)] = found, share

    def _around(self, name: str, units: Sequence[ForcedCall]) -> list[ForcedCall]:
        return [
            unit for unit in units if unit.layer is not None and name.startswith(f"{unit.path}." if unit.path else "")
        ]

    def _seed(self, place: str) -> Any:
        """The reference's gradient at a place, in the port's form."""
        places = (place, *self._further.get(place, ()))
        found = [self.store.read(self.seeds[one][0]) for one in places if one in self.seeds]
        if not found:
            return self._stopped.get(place)
        total, layout = functools.reduce(np.add, found), self._layouts.get(place)
        return total if layout is None else layout.gradient_to_port(total)

    def _shape_of_seed(self, place: str) -> tuple[int, ...] | None:
        if place in self.seeds and self._layouts.get(place) is None:
            return self.store.shape(self.seeds[place][0])
        seed = self._seed(place)
        return None if seed is None else seed.shape

    def _write(self, unit: ForcedCall) -> None:
        """Write what the reference needs to run the unit again: inputs, its layers' outputs, gradients."""
        number = unit.call.number
        arrays = {f"input.{i}": self._in_reference_form(t, f"input.{number}.{i}") for i, t in enumerate(unit.inputs)}
        arrays |= {name: array for name, array in unit.lacking.items() if name.startswith("input.")}
        for child, call in children_of(unit):
            number = child.call.number
            for i, tensor in enumerate(child.handed_on):
                arrays[f"child.{call.number}.{i}"] = self._in_reference_form(tensor, f"output.{number}.{i}")
            lacking = ((name.split("."), array) for name, array in child.lacking.items())
            arrays |= {f"child.{call.number}.{i}": array for (end, i), array in lacking if end == "output"}
        # All of the reference's gradients, including those of tensors that are not differentiable in the port.
        for place, more in ends_of(unit):
            if found := [self.store.read(self.seeds[one][0]) for one in (place, *more) if one in self.seeds]:
                arrays[f"seed.{place}"] = functools.reduce(np.add, found)
            elif (stopped := self._stopped.get(place)) is not None:
                layout = self._layouts.get(place)
                arrays[f"seed.{place}"] = stopped if layout is None else layout.gradient_to_reference(stopped)
        save_npz(self.folder / f"{unit.call.number}.npz", arrays)

    def _in_reference_form(self, tensor: Any, place: str) -> np.ndarray:
        array, layout = self.backend.to_array(tensor), self._layouts.get(place)
        return array if layout is None else layout.to_reference(array)
