"""Runs the reference's counterpart of a wrong unit again on its recorded inputs, unchanged or with a change."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.files.writer import fast_zipfile
from twinalign.recorder.plain_attributes import PlainAttributes
from twinalign.replay.case_run import KeptState, in_evaluation_mode, is_whole, mark_of
from twinalign.replay.code_lines import Print, print_of
from twinalign.replay.layer_calls import FORWARD, LOSS, Call, wrapped
from twinalign.replay.layouts import Layout, layout_by_shape
from twinalign.replay.mask_forms import in_reference_form
from twinalign.replay.moved_inputs import noisy
from twinalign.replay.nested_tensors import put_together, take_apart, unstacked
from twinalign.replay.path_names import child_names
from twinalign.replay.reference_pass import ReferencePass
from twinalign.replay.table_lines import values_of_port
from twinalign.replay.wrong_unit import phase_of, rewriting

PERTURBATION = 1e-12
"""Relative size of the noise that shows how a unit amplifies rounding: a few thousand units in the last place."""
_COPIED_ANEW = 50_000
"""A tensor of so many elements is copied in less time than it takes to see whether a copy has changed."""
_Noise = functools.partial[np.ndarray]
"""`noisy` with its size and generator."""


class RerunUnit:
    """A `WrongUnit` of the reference, from what the port has reported of it and left in a folder."""

    def __init__(self, reference: ReferencePass, report: Mapping[str, Any], folder: Path, phase: str) -> None:
        self.phase = phase
        self.facts: Mapping[str, Any] = report["facts"]
        self.port_class: str = report["layer"]
        self.steps = report["steps"]
        self.functions: Sequence[Mapping[str, Any]] = report["functions"]
        self.constructor: Mapping[str, Any] = report.get("constructor", {})
        self.of_own_weights = bool(report.get("of_own_weights"))
        """Whether both layers have weights, and none of the port's are known to be the reference's."""
        self._report, self._pass, self.backend, self._folder = report, reference, reference.backend, folder
        self._call = reference.stack.calls[report["call"]]
        self._children = [reference.stack.calls[number] for number in report["children"]]
        paths = self._call.path, [child.path for child in self._children]
        self.names = child_names((report["path"], report["child_paths"]), paths) | report["own_names"]
        inside = f"{self._call.path}."
        self.children: Sequence[tuple[str, str]] = [(c.path.removeprefix(inside), c.label) for c in self._children]
        self.other_masks = {(number, place): values for number, place, values in report["other_masks"]}
        self.held: Collection[str] = frozenset()
        self.first: dict[str, np.ndarray] = {}
        """What the first run gave, in which nothing was changed."""
        self._leaves: dict[tuple[int, str], Any] = {}
        self._given: dict[int, tuple[Any, Any, tuple[int, float]]] = {}
        """id of a leaf → the leaf, its copy that code was given, and what tells whether that is as it was."""
        self._kept = KeptState(self.backend)
        names = [name for name in report["differences"] if phase_of(name) == phase]
        self.port: Mapping[str, np.ndarray] = self._load("port", names)
        self.reference: Mapping[str, np.ndarray] = self._load("reference", names)
        layers = dict(self.backend.named_layers(reference.run.model))
        self.module: Any = layers.get(self._call.path)
        self.model: Any = reference.run.model
        self.training = bool(getattr(self.module, "training", reference.run.case.train_mode))
        self._root = self.model if self.module is None else self.module
        self._moves_attributes = True
        """Whether a run changes what the unit keeps beside tensors, as far as known."""
        again = (call for call in reference.stack.calls if call.path == self._call.path)
        self._repeats = [call for call in again if (folder / f"{call.number}.npz").is_file()]
        self._arrays = {call.number: self._stored(f"{call.number}.npz") for call in self._repeats or [self._call]}
        if self.port.keys() - self.reference.keys():
            self.reference = {**self.run(), **self.reference}

    def run(self, perturbation: float = 0.0, everything: bool = False) -> dict[str, np.ndarray]:
        """Run the unit in float64; returns the values to be explained. Matched layers return recorded values."""
        values = self._run_call(self._call, perturbation)
        if everything or any(name.startswith("gradient.parameter.") for name in self.port):
            for call in self._repeats:
                if call is not self._call:
                    more = self._run_call(call, perturbation)
                    for name in [n for n in more if n.startswith("gradient.parameter.") and n in values]:
                        values[name] = values[name] + more[name]
        return {name: value for name, value in values.items() if everything or name in self.port}

    def hold_what_agrees(self) -> None:
        """From now on what does not differ is a part of the unit's values, too, so that no cause may change it.

        Sums over several calls are not judged where other gradients are wrong.
        """
        of_parameters = [name for name in self.port if name.startswith("gradient.parameter.")]
        summed = len(self._repeats) > 1 and len(of_parameters) < len(self.port)
        agreeing = {
            name: value
            for name, value in self.run(everything=True).items()
            if name not in self.port
            and name not in self._report["unknown"]
            and phase_of(name) == self.phase
            and not (summed and name.startswith("gradient.parameter."))
        }
        self.port, self.reference = {**self.port, **agreeing}, {**self.reference, **agreeing}
        self.held = frozenset(agreeing)

    def in_phase(self, phase: str) -> RerunUnit | None:
        """The same unit with what is wrong in another phase, None if nothing is."""
        is_wrong = phase in map(phase_of, self._report["differences"])
        return RerunUnit(self._pass, self._report, self._folder, phase) if is_wrong else None

    @property
    def masks_of_port(self) -> dict[int, Any]:
        """Place of each argument that the port is given as a mask of another kind → the values of both kinds."""
        given = enumerate(self._pass.signatures[self._call.number].again()[0])
        known = ((at, self.other_masks.get((self._call.number, getattr(one, "number", None)))) for at, one in given)
        return {at: values for at, values in known if values is not None}

    def tables(self) -> dict[str, tuple[str, Any]]:
        """Tensors that the port's layer does not store, as `values_of_port` gives them."""
        if self.module is None or not (self._folder / f"{self._call.number}_tables.npz").is_file():
            return {}
        return values_of_port(self.backend, self.module, self._stored(f"{self._call.number}_tables.npz"))

    def weights_alone(self, only_all: bool = False) -> dict[str, Any]:
        """What the port's layer, one of paddle's own, stores and the reference's does not.

        If `only_all`, nothing where the reference's layer stores a part of it.
        """
        name = f"{self._call.number}_alone.npz"
        found = self._stored(name) if (self._folder / name).is_file() else {}
        wanted = not only_all or len(found) >= self._report["stored"]
        return {name: self._tensor(array, False) for name, array in found.items() if wanted}

    def given(self) -> list[Print]:
        """What the unit is handed: its inputs, and what matched layers return."""
        return [print_of(array) for array in self._arrays[self._call.number].values()]

    def intermediates(self) -> list[Print]:
        """Everything that the unit computes in the forward pass, its inputs and its own parameters and buffers."""
        found: list[Print] = []

        def handle(call: Any) -> Any:
            returned = call.run()
            tensors = take_apart(returned, self.backend.is_tensor)[0]
            found.extend(print_of(self.backend.to_array(tensor)) for tensor in tensors)
            return returned

        with rewriting().unchanged(self.module), rewriting().intercepting(self.module, handle):
            self.run()
        own = [self.backend.to_array(tensor) for tensor in self.backend.own_state(self._root).values()]
        return [*self.given(), *map(print_of, own), *found]

    def _load(self, side: str, names: list[str]) -> dict[str, np.ndarray]:
        stored = self._stored(f"{self._call.number}_{side}.npz")
        return {name: stored[name] for name in names if name in stored}

    def _stored(self, name: str) -> dict[str, np.ndarray]:
        with fast_zipfile(), np.load(self._folder / name, allow_pickle=False) as stored:
            return dict(stored)

    def _run_call(self, call: Call, perturbation: float) -> dict[str, np.ndarray]:
        with rewriting().function_runs(False), self._attributes_kept():
            return self._values_of(call, perturbation)

    @contextlib.contextmanager
    def _attributes_kept(self) -> Iterator[None]:
        """Inside the block the unit may count its calls: behind it the count is what it was."""
        if not self._moves_attributes:
            yield
            return
        before = PlainAttributes(self.backend, self._root)
        try:
            yield
        finally:
            self._moves_attributes = before.changed
            if self._moves_attributes:
                before.restore()

    def _values_of(self, call: Call, perturbation: float) -> dict[str, np.ndarray]:
        run, backend = self._pass.run, self.backend
        generator = np.random.default_rng([call.number, int(10 * perturbation)])
        whole = bool(perturbation) and self._is_given_whole(call)  # which takes long where there are many values
        noise = functools.partial(noisy, size=perturbation, generator=generator, whole=whole)
        inputs = [self._leaf(call, f"input.{i}", tensor.differentiable, noise) for i, tensor in enumerate(call.inputs)]
        children = _Children(self, call, noise)
        with self._state(call, noise), backend.default_dtype(run.dtype):
            with wrapped(backend.named_layers(self._root), children.around):
                result = self._invoke(call, [self._copy_of(tensor) for tensor in inputs])
            outputs, _ = take_apart(result, backend.is_tensor)
            if len(outputs) > len(call.outputs):  # those that are compared alone might all be right
                raise ValueError(f"{len(outputs)} tensors are returned in place of {len(call.outputs)}")
            outputs = [self._in_reference_form(f"output.{i}", tensor) for i, tensor in enumerate(outputs)]
            values = {f"output.{i}": tensor for i, tensor in enumerate(outputs)} | children.values
            if self.phase == "backward":
                values = self._gradients(call, inputs, outputs, children, noise)
            found = {name: backend.to_array(tensor) for name, tensor in values.items()}
            if self.phase == "state":
                found |= self._moved_state() | children.found_state
            if any(name.startswith("eval.") for name in self.port):
                found |= self._evaluation(call, inputs)
        self.first = self.first or found
        return found

    def _in_reference_form(self, name: str, tensor: Any) -> Any:
        """What a changed unit returns, in the reference's form where the port returns it in another one, too."""
        known = self.first.get(name)
        if known is None or name not in self._report.get("forms", ()) or known.shape == tuple(tensor.shape):
            return tensor
        form = layout_by_shape(self.backend.to_array(tensor), known)
        return tensor if form is None else form.tensor_to_reference(tensor)

    def _is_given_whole(self, call: Call) -> bool:
        """Whether all that the unit is given is whole numbers, which then have to be moved to show anything."""
        return all(array.dtype.kind != "f" or is_whole(array) for array in self._arrays[call.number].values())

    def _invoke(self, call: Call, inputs: list[Any]) -> Any:
        run = self._pass.run
        arguments, keywords = put_together(self._pass.signatures[call.number].again(), inputs)
        if call.path not in (FORWARD, LOSS):
            return self.module(*arguments, **keywords)
        given = run.inputs()
        with rewriting().function_runs(True):
            if call.path == FORWARD:
                return run.case.forward(run.model, arguments[0], run.framework)
            return run.case.loss(arguments[0], given, run.framework)

    def _tensor(self, array: np.ndarray, differentiable: bool) -> Any:
        made = self.backend.to_tensor(array, self._pass.run.dtype, self._pass.run.device)
        return self.backend.detached(made, differentiable)

    def _leaf(self, call: Call, name: str, differentiable: bool, noise: _Noise) -> Any:
        """A value that the unit is given: code gets copies of it, so that one serves every run without noise."""
        array = self._arrays[call.number][name]
        if size := noise.keywords["size"]:  # the same whatever the order in which a port calls its layers
            drawn = np.random.default_rng([call.number, int(10 * size), *name.encode()])
            return self._tensor(noise(array, generator=drawn), differentiable)
        made = self._leaves.get((call.number, name))
        return self._leaves.setdefault(
            (call.number, name), self._tensor(array, differentiable) if made is None else made
        )

    def _copy_of(self, leaf: Any) -> Any:
        """A copy for code, which may change it in place: torch does not allow that with a leaf.

        A large one serves every run without gradients as long as none has changed it.
        """
        is_kept = self.phase == "forward" and any(leaf is kept for kept in self._leaves.values())
        if not is_kept or math.prod(leaf.shape) <= _COPIED_ANEW:
            return leaf.clone()
        _, copy, before = self._given.get(id(leaf), (leaf, None, None))
        if copy is None or before != mark_of(self.backend, copy):
            copy = leaf.clone()
            self._given[id(leaf)] = leaf, copy, mark_of(self.backend, copy)
        return copy

    def _gradients(
        self,
        call: Call,
        inputs: list[Any],
        outputs: list[Any],
        children: _Children,
        noise: _Noise,
    ) -> dict[str, Any]:
        arrays, backend = self._arrays[call.number], self.backend
        places = {f"seed.output.{call.number}.{i}": tensor for i, tensor in enumerate(outputs)} | children.ends
        ends = {
            place: tensor
            for place, tensor in places.items()
            if place in arrays and backend.differentiable(tensor) and tuple(tensor.shape) == arrays[place].shape
        }
        starts = {f"gradient.input.{i}": tensor for i, tensor in enumerate(inputs)} | children.starts
        starts |= {f"gradient.parameter.{n}": t for n, t in backend.named_parameters(self._root).items()}
        starts = {name: tensor for name, tensor in starts.items() if backend.differentiable(tensor)}
        found: list[Any] = [None] * len(starts)
        if ends and starts:
            seeds = [self._tensor(noise(arrays[place]), False) for place in ends]
            found = backend.gradients(list(ends.values()), list(starts.values()), seeds)
        values = {
            name: tensor * 0 if gradient is None else gradient
            for (name, tensor), gradient in zip(starts.items(), found, strict=True)
        }
        for name, further in self._report["added_up"]:
            # The port has this tensor once, and gives back the sum.
            parts = [values.pop(one) for one in (name, *further) if one in values]
            values |= {name: sum(parts)} if parts else {}
        return values

    def _moved_state(self) -> dict[str, np.ndarray]:
        """The unit's buffers; for code around the layers also the model's state that differs."""
        backend = self.backend
        own = {} if self.module is None else backend.own_state(self.module)
        found = {f"buffer.{name}": backend.to_array(tensor) for name, tensor in own.items()}
        if wanted := [name for name in self.port if name.startswith("state.")]:
            state = backend.state_tensors(self.model)
            found |= {name: backend.to_array(state[name.removeprefix("state.")]) for name in wanted}
        return found

    def _evaluation(self, call: Call, inputs: list[Any]) -> dict[str, np.ndarray]:
        """The same input in evaluation mode, with the buffers that the reference had after the call."""
        state = self.backend.own_state(self.module)
        for name, number in call.state_after.items():
            self.backend.assign(state[name], self._pass.state_store.read(number))
        with in_evaluation_mode(self.module), self.backend.no_grad():
            outputs, _ = take_apart(self._invoke(call, [tensor.clone() for tensor in inputs]), self.backend.is_tensor)
        return {f"eval.output.{i}": self.backend.to_array(tensor) for i, tensor in enumerate(outputs)}

    @contextlib.contextmanager
    def _state(self, call: Call, noise: _Noise) -> Iterator[None]:
        """Inside the block the unit has the parameters and buffers that it had when the call began."""
        backend = self.backend
        tensors = backend.state_tensors(self._root)
        self._kept.keep(tensors)
        own = backend.own_state(self.module) if self.module is not None else {}
        inside = f"{call.path}." if self.module is not None and call.path else ""
        for name, array in self._pass.constants.items():
            if name.startswith(inside):
                backend.assign(tensors[name.removeprefix(inside)], array)
        for name, number in call.state.items():
            backend.assign(own[name], self._pass.state_store.read(number))
        if noise.keywords["size"]:
            for tensor in backend.named_parameters(self._root).values():
                backend.assign(tensor, noise(backend.to_array(tensor), whole=True))
        try:
            yield
        finally:
            self._kept.restore(tensors)


class _Children:
    """The matched layers inside a unit, which return what the reference recorded."""

    def __init__(self, unit: RerunUnit, call: Call, noise: _Noise) -> None:
        self._unit, self._call, self._noise = unit, call, noise
        self._waiting: dict[str, list[Call]] = {}
        for child in unit._children if call is unit._call else []:
            self._waiting.setdefault(child.path, []).append(child)
        self._prefix = f"{call.path}." if unit.module is not None and call.path else ""
        self.values: dict[str, Any] = {}
        self.found_state: dict[str, np.ndarray] = {}
        """Of the state that is to be explained, what was so when the child that holds it was called."""
        self.ends: dict[str, Any] = {}
        self.starts: dict[str, Any] = {}

    def around(self, path: str, layer: Any, forward: Callable[..., Any], arguments: tuple, keywords: dict) -> Any:
        waiting = self._waiting.get(self._prefix + path if path else "")
        if not waiting or (layer is self._unit.module):
            return forward(*self._as_called(self._prefix + path, arguments), **keywords)
        with rewriting().unnoticed():
            return self._recorded(waiting.pop(0), arguments, keywords)

    def _as_called(self, path: str, arguments: tuple) -> tuple:
        """The arguments in the containers in which the reference hands them on, of which a port stacks some."""
        recorded = self._unit._pass
        known = next((call for call in recorded.stack.calls if call.path == path), None)
        if known is None:
            return arguments
        shapes = [one.shape for one in known.inputs]
        return unstacked(arguments, recorded.signatures[known.number].again()[0], shapes, self._unit.backend.is_tensor)

    def _recorded(self, child: Call, arguments: tuple, keywords: dict) -> Any:
        backend = self._unit.backend
        if self._unit.phase == "state":
            self._move_state_of(child)
        form: Layout | None = None
        for i, tensor in enumerate(take_apart((arguments, keywords), backend.is_tensor)[0]):
            name, theirs = f"input.{child.label}.{i}", [one.shape for one in child.inputs[i : i + 1]]
            # A changed line may hand on what it has in another form, in which it wants the result, too.
            if theirs not in ([], [list(tensor.shape)]) and name in self._unit.first:
                form = layout_by_shape(backend.to_array(tensor), self._unit.first[name])
                tensor = tensor if form is None else form.tensor_to_reference(tensor)
            elif (child.number, i) in self._unit.other_masks and name in self._unit.first:
                tensor = in_reference_form(tensor, backend.to_array(tensor), self._unit.first[name])
            self.values[name] = self.ends[f"seed.input.{child.number}.{i}"] = tensor
        outputs = []
        for i, described in enumerate(child.outputs):
            name = f"gradient.child.{child.label}.{i}"
            flows = described.differentiable or name in self._unit.port  # though the reference stops its gradient
            self.starts[name] = tensor = self._unit._leaf(self._call, f"child.{child.number}.{i}", flows, self._noise)
            outputs.append(self._unit._copy_of(tensor))
        if form is not None:
            outputs = [form.tensor_to_port(one) if tuple(one.shape) == form.reference else one for one in outputs]
        return put_together(self._unit._pass.results[child.number], outputs)

    def _move_state_of(self, child: Call) -> None:
        """Give the layers inside the state that the child's call gave them in the reference's pass."""
        unit, backend = self._unit, self._unit.backend
        tensors, inside = backend.state_tensors(unit.model), f"{child.path}." if child.path else ""
        for name in unit.port:
            if name.startswith(f"state.{inside}"):
                self.found_state.setdefault(name, backend.to_array(tensors[name.removeprefix("state.")]))
        called = {child.number}
        for call in unit._pass.stack.calls[child.number :]:
            if call is not child and call.parent not in called:
                break
            called.add(call.number)
            for own, number in call.state_after.items():
                backend.assign(tensors[f"{call.path}.{own}".lstrip(".")], unit._pass.state_store.read(number))
