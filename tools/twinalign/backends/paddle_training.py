"""Trainings in paddle, watched and changed from outside; `torch_training` holds the same functions for torch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import paddle

from twinalign.backends.paddle_backend import assign, optimizer_averages
from twinalign.backends.paddle_state import named_parameters, tied_keys
from twinalign.patching import family, replaced


def held_parameters(optimizer: Any) -> list[Any]:
    """Every parameter that an optimizer was given."""
    given = optimizer._parameter_list or []
    return [p for item in given for p in (item["params"] if isinstance(item, dict) else [item])]


@contextlib.contextmanager
def watching_steps(before: Callable[[Any], None], after: Callable[[Any], None]) -> Iterator[None]:
    """Call `before(optimizer)` and `after(optimizer)` around every step of every optimizer inside the block."""
    busy: set[int] = set()

    def watched(original: Callable[..., Any]) -> Callable[..., Any]:
        def step(self: Any, *arguments: Any, **keywords: Any) -> Any:
            if id(self) in busy:  # a class's step that calls the one it derives from
                return original(self, *arguments, **keywords)
            busy.add(id(self))
            try:
                before(self)
                result = original(self, *arguments, **keywords)
                after(self)
                return result
            finally:
                busy.discard(id(self))

        return step

    with contextlib.ExitStack() as stack:
        for kind in family(paddle.optimizer.Optimizer):
            if "step" in vars(kind):
                stack.enter_context(replaced(kind, "step", watched(vars(kind)["step"])))
        yield


@paddle.no_grad()
def norms(tensors: Sequence[Any]) -> list[float]:
    """Euclidean norm of each tensor, summed up in float64."""
    if not tensors:
        return []
    squares = [tensor.detach().astype("float64").square().sum() for tensor in tensors]
    return np.sqrt(paddle.stack(squares).numpy()).tolist()


@paddle.no_grad()
def distance(pairs: Sequence[tuple[Any, Any]]) -> float:
    """Euclidean distance of two lists of tensors, each pair's elements beside each other."""
    squares = [(one.astype("float64") - other.astype("float64")).square().sum() for one, other in pairs]
    return float(np.sqrt(paddle.stack(squares).sum().numpy()))


def floating_buffers(model: paddle.nn.Layer) -> dict[str, Any]:
    """Buffers that hold floating-point numbers, by name; the running statistics are among paddle's parameters."""
    known = {*named_parameters(model), *tied_keys(model)}  # an RNN's weights have a second key each
    return {n: t for n, t in model.state_dict().items() if n not in known and t.is_floating_point()}


def gradient(parameter: Any) -> Any:
    """What the parameter's step is made with, None where no gradient has reached it."""
    return parameter.grad


def load_optimizer_items(
    model: paddle.nn.Layer, optimizer: Any, items: Mapping[tuple[str, str], np.ndarray]
) -> list[str]:
    """Overwrite the moving averages of an optimizer that has stepped; returns what it has and was not given.

    Args:
        model: whose parameters it moves.
        optimizer: with state.
        items: (quantity, parameter) → array, in the names of `optimizer_items`.
    """
    missing = []
    for name, parameter in named_parameters(model).items():
        for quantity, average in optimizer_averages(optimizer, parameter):
            array = items.get((quantity, name))
            if array is None:
                missing.append(f"{quantity} of {name}")
            else:
                assign(average, array)
    return missing
