"""One forward and backward pass of the reference in float64, with the values of every layer call on disk.

Runs in the reference's process. A value is written once, however many calls share it.
"""

import contextlib
import functools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.files.recordings import random_projections, save_npz
from twinalign.patching import replaced
from twinalign.replay.case_run import CaseRun, in_evaluation_mode, moves_of_constants
from twinalign.replay.layer_calls import LOSS, Call, CallStack, Enough, Tensor, wrapped
from twinalign.replay.nested_tensors import places_in, put_together, take_apart
from twinalign.replay.tensor_store import TensorStore
from twinalign.replay.written_objects import Arguments
from twinalign.verdict.array_difference import estimated_scale, quick_root_mean_square, sample_of

_RECENT_GRADIENTS = 16


class ReferencePass:
    """Forward and backward pass of one part of a case; values are kept in a folder."""

    def __init__(self, run: CaseRun, folder: Path) -> None:
        from twinalign.backends.torch.reference_only import graph  # torch is in the reference's process alone

        self._graph = graph
        self.run, self.backend = run, run.backend
        self.store = TensorStore(folder / "values")
        self.state_store = TensorStore(folder / "state")
        self.stack = CallStack()
        self.signatures: dict[int, Arguments] = {}
        """Number of a call → its arguments without tensors, for calling the layer again."""
        self.results: dict[int, Any] = {}
        """Number of a call → skeleton of its result."""
        self.final: dict[str, np.ndarray] = {}
        """What forward and loss return, and what no optimizer moves, named as `port_own.own_forward` names them."""
        self.gradients: dict[str, tuple[int, float]] = {}
        """`input.CALL.I`, `output.CALL.I` → number of the gradient in the store, and its root mean square."""
        self.kept: Collection[int] | None = None
        """Numbers of the calls whose values are kept, with those of the calls that they make, and no gradients but the
        parameters'; None for all."""
        self.last: int | None = None
        """Number of the call behind which the pass ends, if not with the loss."""
        self.moved = False
        """Whether the forward pass has changed the model."""
        self.constants: dict[str, np.ndarray] = {}
        """Parameters that began with one value in all elements, as they are in this pass, if it moves them."""
        self._known: dict[int, tuple[Any, int, int]] = {}
        self._watched: dict[int, list[tuple[Any, Callable[[Any], None]]]] = {}
        """Address of values → aliases there, while they live, and what receives the gradient of each."""
        self._recent: OrderedDict[Any, tuple[Any, int, float]] = OrderedDict()
        self._sums: dict[tuple[str, str], float] = {}
        self._known_values: dict[int, tuple[float, list[float]]] = {}
        self._kept_state: dict[tuple[str, str, float], int] = {}
        self._loss: Any = None
        self._evaluating = False

    def forward(self) -> dict[str, Any]:
        """Run forward and loss; returns the calls, and where the state is stored that the pass has changed."""
        run, layers = self.run, self.backend.named_layers(self.run.model)
        self._sums = {
            (path, name): self.backend.checksum(tensor)
            for path, layer in layers
            for name, tensor in self.backend.own_state(layer).items()
        }
        with self.backend.default_dtype(run.dtype), wrapped(layers, self._around), contextlib.suppress(Enough):
            outputs, self._loss = run.through(self._around)
            if not run.has_loss:
                self._loss = run.stand_in_loss(outputs)
        changed = {}
        for path, layer in layers:
            changed.update({f"{path}.{name}".lstrip("."): n for name, n in self._changed_state(path, layer).items()})
        self.moved = bool(changed or self.constants)
        tensors = self.backend.state_tensors(run.model).items()
        self.final |= {f"state.{n}": self.backend.to_array(t) for n, t in tensors if not self.backend.trainable(t)}
        calls = [call.to_json() for call in self.stack.calls]
        return {"calls": calls, "state": changed, "bytes_written": self.store.bytes_written}

    def move_constants(self, path: Path) -> None:
        """Move parameters that begin with one value, and write by how much to the .npz file `path`."""
        moves, parameters = moves_of_constants(self.run), self.backend.named_parameters(self.run.model)
        self.constants = {name: self.backend.to_array(parameters[name]) + move for name, move in moves.items()}
        for name, array in self.constants.items():
            self.backend.assign(parameters[name], array)
        self.moved = bool(moves)
        save_npz(path, moves)

    def backward(self, kept: Path | None) -> dict[str, Any]:
        """Run backward; returns where the gradients are, and writes those of parameters to the .npz file `kept`."""
        if self.kept is None:
            self.store.restart()  # the port has used every value of the forward pass
        # A forward pass may take gradients itself, such as those of a penalty, which are not those of the loss.
        self.gradients.clear()
        self._recent.clear()
        if self._loss is not None and self.backend.differentiable(self._loss):
            self._loss.backward()
        self._loss = None
        self._known.clear()
        self._watched.clear()
        self._recent.clear()
        parameters = {}
        for name, array in self.backend.gradient_items(self.run.model):
            # Projections suffice: a suspect runs again here, which gives its whole gradients.
            parameters[name] = (list(array.shape), quick_root_mean_square(array), random_projections(array).tolist())
        if kept is not None:
            save_npz(kept, dict(self.backend.gradient_items(self.run.model)))
        self.backend.clear_gradients(self.run.model)
        return {"gradients": self.gradients, "parameters": parameters}

    def _around(self, path: str, layer: Any, forward: Callable[..., Any], arguments: tuple, keywords: dict) -> Any:
        backend = self.backend
        if self._evaluating:  # the layers inside a layer that is evaluated are not called by the model
            return forward(*arguments, **keywords)
        call = self.stack.begin(path, layer)
        call.with_gradients = self._graph.records_gradients()
        tensors, signature = take_apart((arguments, keywords), backend.is_tensor)
        given = self.signatures[call.number] = Arguments(signature, backend.is_tensor, self._detached)
        kept = self.kept is None or call.number in self.kept or call.parent in self.kept
        call.inputs = [self._tensor(tensor, kept) for tensor in tensors]
        buffers = {}
        if layer is not None:
            call.state = self._changed_state(path, layer)
            buffers = self._buffer_sums(layer)
            tensors = [self._watch(call, number, layer, tensor) for number, tensor in enumerate(tensors)]
        elif path == LOSS:
            tensors = [self._watch(call, number, layer, tensor) for number, tensor in enumerate(tensors)]
        arguments, keywords = put_together(signature, tensors)
        try:
            result = forward(*arguments, **keywords)
        finally:
            self.stack.end(call)
        given.settle()
        returned, self.results[call.number] = take_apart(result, backend.is_tensor)
        if self.kept is None and layer is not None and len(backend.all_layers(layer)) == 1:
            returned = [self._graph.of_its_own(tensor, tensors) for tensor in returned]
        call.outputs = [self._tensor(tensor, kept) for tensor in returned]
        places = places_in(self.results[call.number])
        call.places = places if any(places) else []
        if layer is None:
            self.final |= {f"{path}.{number}": backend.to_array(tensor) for number, tensor in enumerate(returned)}
        if len(returned) > 1:
            # One result may be computed from another: its gradient must not include what flows back inside the layer.
            returned = [self._aliased(tensor) for tensor in returned]
        for number, tensor in enumerate(returned):
            if self.kept is None and backend.differentiable(tensor):
                self._graph.on_gradient(tensor, functools.partial(self._receive, f"output.{call.number}.{number}"))
        if buffers:
            self._after_buffers(call, path, layer, buffers)
            call.evaluation = self._evaluated(layer, forward, arguments, keywords)
        if call.number == self.last:
            raise Enough
        return put_together(self.results[call.number], returned)

    def _detached(self, tensor: Any) -> Any:
        return self.backend.detached(tensor, False)

    def _watch(self, call: Call, number: int, layer: Any, tensor: Any) -> Any:
        """Record the gradient that this call alone sends back, where there is one."""
        if self.kept is not None or not self.backend.differentiable(tensor):
            return tensor
        receive: Callable[[Any], None] = functools.partial(self._receive, f"input.{call.number}.{number}")
        if getattr(layer, "inplace", False):
            # An alias that is changed in place loses its hook (a layer that returns what it is given hands one on); the
            # tensor keeps it, but adds the gradients of other uses.
            below = self._graph.below(tensor)
            there = self._watched.get(self._graph.address(tensor), ())
            lost = [kept for made, kept in there if self._graph.below(made()) is below]
            for hook in [*lost, receive]:
                self._graph.on_gradient(below, hook)
            return tensor
        watched = self._aliased(tensor)
        self._graph.on_gradient(watched, receive)
        self._watched.setdefault(self._graph.address(watched), []).append((weakref.ref(watched), receive))
        return watched

    def _aliased(self, tensor: Any) -> Any:
        """An alias of a differentiable tensor, known under the same number."""
        if self.kept is not None or not self.backend.differentiable(tensor):
            return tensor
        made = self._graph.alias(tensor)
        self._known[id(made)] = (weakref.ref(made), self.backend.version(made), self._known[id(tensor)][2])
        return made

    def _tensor(self, tensor: Any, kept: bool = True) -> Tensor:
        """Describe a tensor, and write its values, if they are kept, unless they have been written."""
        dtype = str(tensor.dtype).rpartition(".")[2]
        if not kept:
            return Tensor(None, list(tensor.shape), dtype)
        version = self.backend.version(tensor)
        known = self._known.get(id(tensor))
        differentiable = self.backend.differentiable(tensor)
        if known is not None and known[0]() is tensor and known[1] == version:
            number = known[2]
        else:
            array = self.backend.values_of(tensor)
            number = self.store.add(array)
            self._known_values[number] = estimated_scale(array), sample_of(array)
            self._known[id(tensor)] = (weakref.ref(tensor), version, number)
        return Tensor(number, list(tensor.shape), dtype, differentiable, *self._known_values[number])

    def _receive(self, key: str, gradient: Any) -> None:
        """Keep a gradient; one that several nodes pass on unchanged is written once."""
        key_of_memory = self._graph.storage_key(gradient)
        found = self._recent.get(key_of_memory)
        if found is None:
            # While the last few are held, no other gradient can get their addresses.
            values = self.backend.values_of(gradient)
            self._recent[key_of_memory] = found = (gradient, self.store.add(values), estimated_scale(values))
            if len(self._recent) > _RECENT_GRADIENTS:
                self._recent.popitem(last=False)
        self.gradients[key] = found[1:]

    def _changed_state(self, path: str, layer: Any) -> dict[str, int]:
        """Own parameters and buffers that have changed since the pass began."""
        changed = {}
        for name, tensor in self.backend.own_state(layer).items():
            total = self.backend.checksum(tensor)
            if total != self._sums[path, name]:
                key = (path, name, total)
                if key not in self._kept_state:
                    self._kept_state[key] = self.state_store.add(self.backend.to_array(tensor))
                changed[name] = self._kept_state[key]
        return changed

    def _buffer_sums(self, layer: Any) -> dict[str, float]:
        """Checksums of the buffers of a layer in training mode; a call does not change its own parameters."""
        if not getattr(layer, "training", False):
            return {}
        return {name: self.backend.checksum(tensor) for name, tensor in self.backend.own_buffers(layer).items()}

    def _after_buffers(self, call: Call, path: str, layer: Any, before: Mapping[str, float]) -> None:
        state = self.backend.own_state(layer)
        if any(self.backend.checksum(state[name]) != total for name, total in before.items()):
            call.state_after = {n: k for n, k in self._changed_state(path, layer).items() if n in before}

    def _evaluated(self, layer: Any, forward: Callable[..., Any], arguments: tuple, keywords: dict) -> list[Tensor]:
        """Outputs for the same input in evaluation mode."""
        with in_evaluation_mode(layer), self.backend.no_grad(), replaced(self, "_evaluating", True):
            returned, _ = take_apart(forward(*arguments, **keywords), self.backend.is_tensor)
        return [self._tensor(tensor) for tensor in returned]
