"""A unit made of one torch module or function: what the engine needs in order to explain it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from twinalign.backends.torch.backend import tensors_in, to_array, to_tensor


@dataclasses.dataclass
class ModuleUnit:
    """One torch module on given inputs, or a function (then `module` is None); a `WrongUnit`.

    Attributes:
        call: the module or function; moved to float64 where it is a module.
        inputs: its inputs; those of floating point get gradients.
        port: the port's values, by the names of `WrongUnit`.
        phase: `"forward"`, `"backward"` or `"state"`.
        training: the mode to run in.
        forced: paths of child layers that return what they returned the first time, whatever they are given.
        recorded: what the forced layers return, call by call; where empty, what they return the first time.
        evaluate: whether `eval.output.N` is wanted besides.
        facts: what is known of the port's layer.
        port_class: the class of the port's layer.
        alone: what that layer stores and the reference's does not.
    """

    call: Callable[..., Any]
    inputs: Sequence[np.ndarray]
    port: Mapping[str, np.ndarray]
    phase: str = "forward"
    training: bool = False
    forced: Sequence[str] = ()
    recorded: dict[str, list[Any]] = dataclasses.field(default_factory=dict)
    evaluate: bool = False
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    port_class: str = ""
    alone: Mapping[str, Sequence[float]] = dataclasses.field(default_factory=dict)
    held: Collection[str] = ()
    reference: Mapping[str, np.ndarray] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self._replaying = bool(self.recorded)
        self._leaves: dict[str, torch.Tensor] = {}
        self._ends: dict[str, torch.Tensor] = {}
        self._values: dict[str, np.ndarray] = {}
        self._calls: dict[str, int] = {}
        if self.module is not None:
            self.module.to(torch.float64)
            for path in self.forced:
                self._force(path, self.module.get_submodule(path))
        self.reference = self.run()
        self._replaying = True

    def weights_alone(self, only_all: bool = False) -> dict[str, torch.Tensor]:
        return {name: torch.tensor(value, dtype=torch.float64) for name, value in self.alone.items()}

    @property
    def children(self) -> list[tuple[str, str]]:
        """The forced child layers, by their paths and the labels of their calls."""
        return [(path, f"{path}#{number}") for path in self.forced for number in range(self._calls.get(path, 0))]

    @property
    def module(self) -> torch.nn.Module | None:
        """The module, None for a function."""
        return self.call if isinstance(self.call, torch.nn.Module) else None

    def run(self, perturbation: float = 0.0) -> dict[str, np.ndarray]:
        """Values of one run, by the names of `WrongUnit`: gradients in the phase backward only, parameters in state."""
        state = [] if self.module is None else [*self.module.parameters(), *self.module.buffers()]
        before = [tensor.detach().clone() for tensor in state]
        try:
            return self._run(perturbation)
        finally:
            with torch.no_grad():
                for tensor, value in zip(state, before, strict=True):
                    tensor.copy_(value)

    def _run(self, perturbation: float) -> dict[str, np.ndarray]:
        self._values, self._leaves, self._ends, self._calls = {}, {}, {}, {}
        if self.module is not None:
            self.module.train(self.training)
        noise = np.random.default_rng(0)
        moved = [
            array * (1.0 + perturbation * noise.standard_normal(array.shape)) if array.dtype.kind == "f" else array
            for array in self.inputs
        ]
        inputs = [to_tensor(array, "float64", "cpu") for array in moved]
        given = [tensor.requires_grad_() if tensor.is_floating_point() else tensor for tensor in inputs]
        # A tensor that is no leaf, so that a unit may work on it in place.
        outputs = tensors_in(self.call(*(tensor.clone() if tensor.requires_grad else tensor for tensor in given)))
        self._values.update({name: to_array(tensor) for name, tensor in self._ends.items()})
        self._values.update({f"output.{at}": to_array(tensor) for at, tensor in enumerate(outputs)})
        self._values.update({f"buffer.{name}": to_array(buffer) for name, buffer in self._buffers()})
        if self.phase == "state" and self.module is not None:
            moved = self.module.named_parameters()
            self._values.update({f"state.{name}": to_array(parameter) for name, parameter in moved})
        if self.phase == "backward":
            self._differentiate(given, outputs)
        if self.evaluate and self.module is not None:
            values, self._values = self._values, {}
            self.module.eval()
            self._calls = {}
            evaluated = tensors_in(self.call(*inputs))
            self._values = {**values, **{f"eval.output.{at}": to_array(x) for at, x in enumerate(evaluated)}}
        return self._values

    def _differentiate(self, given: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        parameters = [] if self.module is None else list(self.module.named_parameters())
        wanted = {f"gradient.input.{at}": tensor for at, tensor in enumerate(given) if tensor.requires_grad}
        wanted |= {f"gradient.parameter.{name}": value for name, value in parameters if value.requires_grad}
        wanted |= self._leaves
        ends = {f"output.{at}": tensor for at, tensor in enumerate(outputs)} | self._ends
        ends = {name: tensor for name, tensor in ends.items() if tensor.requires_grad}
        if not ends:
            return
        seeds = [self._seed(name, tensor) for name, tensor in ends.items()]
        gradients = torch.autograd.grad(list(ends.values()), list(wanted.values()), seeds, allow_unused=True)
        for name, gradient in zip(wanted, gradients, strict=True):
            if gradient is not None:
                self._values[name] = to_array(gradient)

    def _seed(self, name: str, end: torch.Tensor) -> torch.Tensor:
        """The gradient that flows into the unit at this end: random, the same in every run."""
        values = np.random.default_rng(list(name.encode())).standard_normal(tuple(end.shape))
        return to_tensor(values, "float64", "cpu")

    def _buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        return iter(()) if self.module is None else self.module.named_buffers()

    def _force(self, path: str, child: torch.nn.Module) -> None:
        forward = child.forward

        def forced(*args: Any, **kwargs: Any) -> Any:
            number = self._calls.get(path, 0)
            if self._replaying and number == len(self.recorded[path]):  # one call more than the reference makes
                return forward(*args, **kwargs)
            self._calls[path] = number + 1
            for at, tensor in enumerate(tensors_in([args, kwargs])):
                self._ends[f"input.{path}#{number}.{at}"] = tensor
            if not self._replaying:
                returned = forward(*args, **kwargs).detach()
                self.recorded.setdefault(path, []).append(returned)
            leaf = self.recorded[path][number].clone().requires_grad_()
            self._leaves[f"gradient.child.{path}#{number}.0"] = leaf
            return leaf.clone()

        child.forward = forced
