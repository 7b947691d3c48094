"""A scene made of one torch module or function: what the engine needs in order to explain it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from twinalign.backends.torch_backend import tensors_in, to_array, to_tensor


@dataclasses.dataclass
class ModuleScene:
    """One torch module on given inputs, or a function (then `module` is None); implements `explain.scene.Scene`.

    Attributes:
        call: the module or function; moved to float64 where it is a module.
        inputs: its inputs; those of floating point get gradients.
        port: the port's values, by the names of `Scene`.
        phase: `"forward"`, `"backward"` or `"state"`.
        training: the mode to run in.
        forced: paths of child layers that return what they returned the first time, whatever they are given.
        output_gradients: with respect to the outputs; ones where there are none.
        evaluate: whether `eval.output.N` is wanted besides.
        facts: what is known of the port's layer.
        port_class: the class of the port's layer.
    """

    call: Callable[..., Any]
    inputs: Sequence[np.ndarray]
    port: Mapping[str, np.ndarray]
    phase: str = "forward"
    training: bool = False
    forced: Sequence[str] = ()
    output_gradients: Sequence[np.ndarray] | None = None
    evaluate: bool = False
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    port_class: str = ""
    reference: Mapping[str, np.ndarray] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self._returned: dict[str, list[Any]] = {}
        self._replaying = False
        self._leaves: dict[str, torch.Tensor] = {}
        self._values: dict[str, np.ndarray] = {}
        self._calls: dict[str, int] = {}
        if self.module is not None:
            self.module.to(torch.float64)
            for path in self.forced:
                self._force(path, self.module.get_submodule(path))
        before = {name: value.clone() for name, value in self._buffers()}
        self.reference = self.run()
        self._replaying = True
        for name, buffer in self._buffers():
            buffer.copy_(before[name])

    @property
    def module(self) -> torch.nn.Module | None:
        """The module, None for a function."""
        return self.call if isinstance(self.call, torch.nn.Module) else None

    def run(self) -> dict[str, np.ndarray]:
        """Values of one run, by the names of `Scene`; gradients in the phase backward only."""
        self._values, self._leaves, self._calls = {}, {}, {}
        if self.module is not None:
            self.module.train(self.training)
        inputs = [to_tensor(array, "float64", "cpu") for array in self.inputs]
        given = [tensor.requires_grad_() if tensor.is_floating_point() else tensor for tensor in inputs]
        # A tensor that is no leaf, so that a unit may work on it in place.
        outputs = tensors_in(self.call(*(tensor.clone() if tensor.requires_grad else tensor for tensor in given)))
        self._values.update({f"output.{at}": to_array(tensor) for at, tensor in enumerate(outputs)})
        self._values.update({f"buffer.{name}": to_array(buffer) for name, buffer in self._buffers()})
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
        moving = [at for at, tensor in enumerate(outputs) if tensor.requires_grad]
        if not moving:
            return
        gradients = torch.autograd.grad(
            [outputs[at] for at in moving],
            list(wanted.values()),
            [self._output_gradient(at, outputs[at]) for at in moving],
            allow_unused=True,
        )
        for name, gradient in zip(wanted, gradients, strict=True):
            if gradient is not None:
                self._values[name] = to_array(gradient)

    def _output_gradient(self, at: int, output: torch.Tensor) -> torch.Tensor:
        if self.output_gradients is None:
            return torch.ones_like(output)
        return to_tensor(self.output_gradients[at], "float64", "cpu").reshape(output.shape)

    def _buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        return iter(()) if self.module is None else self.module.named_buffers()

    def _force(self, path: str, child: torch.nn.Module) -> None:
        forward = child.forward

        def forced(*args: Any, **kwargs: Any) -> Any:
            number = self._calls.get(path, 0)
            self._calls[path] = number + 1
            for at, tensor in enumerate(tensors_in([args, kwargs])):
                self._values[f"input.{path}#{number}.{at}"] = to_array(tensor)
            if not self._replaying:
                returned = forward(*args, **kwargs).detach()
                self._returned.setdefault(path, []).append(returned)
            leaf = self._returned[path][number].clone().requires_grad_()
            self._leaves[f"gradient.child.{path}#{number}.0"] = leaf
            return leaf.clone()

        child.forward = forced
