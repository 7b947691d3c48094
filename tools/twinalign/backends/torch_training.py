"""Trainings in torch, watched from outside, or let go otherwise than their loop says for as long as a block lasts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from twinalign.backends.torch_backend import assign, optimizer_averages
from twinalign.locate.training_curves import Around
from twinalign.patching import family, replaced

_SCALARS = ("lr", "weight_decay")
"""Not the betas: one part in 2^24 of 0.999 moves the second moment by 6e-5, and in float64 paddle moves it by less."""


def held_parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Every parameter that an optimizer was given."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


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

        # Optimizers wrap their class's method once more when they are made; profiling is of no use here.
        step.hooked = True  # type: ignore[attr-defined]
        return step

    with contextlib.ExitStack() as stack:
        for kind in family(torch.optim.Optimizer):
            if "step" in vars(kind):
                stack.enter_context(replaced(kind, "step", watched(vars(kind)["step"])))
        yield


@torch.no_grad()
def norms(tensors: Sequence[torch.Tensor]) -> list[float]:
    """Euclidean norm of each tensor, summed up in float64."""
    if not tensors:
        return []
    found: list[float] = torch.stack([tensor.detach().double().square().sum() for tensor in tensors]).sqrt().tolist()
    return found


@torch.no_grad()
def distance(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """Euclidean distance of two lists of tensors, each pair's elements beside each other."""
    return float(torch.stack([(one.double() - other.double()).square().sum() for one, other in pairs]).sum().sqrt())


def floating_buffers(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Buffers that hold floating-point numbers, by name."""
    return {name: buffer for name, buffer in model.named_buffers() if buffer.is_floating_point()}


def gradient(parameter: torch.Tensor) -> torch.Tensor | None:
    """What the parameter's step is made with, None where no gradient has reached it."""
    return parameter.grad


def load_optimizer_items(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, items: Mapping[tuple[str, str], np.ndarray]
) -> list[str]:
    """Overwrite the moving averages of an optimizer that has stepped; returns what it has and was not given.

    Args:
        model: whose parameters it moves.
        optimizer: with state.
        items: (quantity, parameter) → array, in the names of `optimizer_items`.
    """
    missing = []
    for name, parameter in model.named_parameters():
        for quantity, average in optimizer_averages(optimizer, parameter):
            array = items.get((quantity, name))
            if array is None:
                missing.append(f"{quantity} of {name}")
            else:
                assign(average, array)
    return missing


@contextlib.contextmanager
def moved_scalars(change: float) -> Iterator[None]:
    """Inside the block every step is made with a rate and a decay that are off by a share of themselves."""
    kept: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def before(optimizer: Any) -> None:
        kept[:] = [(group, {k: v for k, v in group.items() if k in _SCALARS}) for group in optimizer.param_groups]
        for group, values in kept:
            group.update({name: value * (1 + change) for name, value in values.items()})

    def after(optimizer: Any) -> None:
        for group, values in kept:
            group.update(values)

    with watching_steps(before, after):
        yield


def stepping(times: Callable[[int], int], rate: float = 1.0) -> Around:
    """Let optimizers step as often as `times` says for the number of the step, at `rate` times their rate.

    What watches a training sees those steps, as it would see those of a loop that makes them.
    """

    @contextlib.contextmanager
    def around(model: Any) -> Iterator[None]:
        numbers: dict[int, int] = {}

        def _counted(original: Callable[..., Any]) -> Callable[..., Any]:
            def step(self: Any, *arguments: Any, **keywords: Any) -> Any:
                number = numbers[id(self)] = numbers.get(id(self), -1) + 1
                rates = [group["lr"] for group in self.param_groups]
                result = None
                for group, before in zip(self.param_groups, rates, strict=True):
                    group["lr"] = before * rate
                for _ in range(times(number)):
                    result = original(self, *arguments, **keywords)
                for group, before in zip(self.param_groups, rates, strict=True):
                    group["lr"] = before
                return result

            # Optimizers wrap their class's method once more when they are made; profiling is of no use here.
            step.hooked = True  # type: ignore[attr-defined]
            return step

        with contextlib.ExitStack() as stack:
            for kind in family(torch.optim.Optimizer):
                if "step" in vars(kind):
                    stack.enter_context(replaced(kind, "step", _counted(vars(kind)["step"])))
            yield

    around.outermost = True  # type: ignore[attr-defined]
    return around


@contextlib.contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Inside the block the model stays in evaluation mode."""
    model.eval()
    with replaced(model, "train", lambda mode=True: model):
        yield


@contextlib.contextmanager
def gradients_kept(model: Any) -> Iterator[None]:
    """Inside the block nothing clears gradients."""
    with (
        replaced(torch.optim.Optimizer, "zero_grad", lambda *_, **__: None),
        replaced(model, "zero_grad", lambda *_, **__: None),
    ):
        yield


def at_rates(rates: Sequence[float]) -> Around:
    """Let every step be made at the rate that stands for it here; groups keep their proportions."""

    @contextlib.contextmanager
    def around(model: Any) -> Iterator[None]:
        kept: list[tuple[dict[str, Any], float]] = []
        numbers: dict[int, int] = {}

        def before(optimizer: Any) -> None:
            number = numbers[id(optimizer)] = numbers.get(id(optimizer), -1) + 1
            kept[:] = [(group, group["lr"]) for group in optimizer.param_groups]
            first = kept[0][1]
            for group, rate in kept:
                wanted = rates[min(number, len(rates) - 1)]
                group["lr"] = wanted * (rate / first if first else 1.0)

        def after(optimizer: Any) -> None:
            for group, rate in kept:
                group["lr"] = rate

        with watching_steps(before, after):
            yield

    return around


def decaying(names: frozenset[str], coefficient: float | None) -> Around:
    """Let steps be made as if some parameters had a weight decay that their optimizer's group does not say.

    Args:
        names: of the parameters.
        coefficient: what is added; None takes away what they have, 0 adds the greatest of all groups.
    """

    @contextlib.contextmanager
    def around(model: Any) -> Iterator[None]:
        chosen = {id(parameter) for name, parameter in model.named_parameters() if name in names}
        moved: list[tuple[torch.Tensor, torch.Tensor, float]] = []

        def before(optimizer: Any) -> None:
            moved.clear()
            greatest = max(group.get("weight_decay", 0.0) for group in optimizer.param_groups)
            for group in optimizer.param_groups:
                own = group.get("weight_decay", 0.0)
                change = -own if coefficient is None else coefficient or (greatest if own != greatest else 0.0)
                decoupled = group.get("decoupled_weight_decay", type(optimizer).__name__ == "AdamW")
                for parameter in group["params"]:
                    if id(parameter) not in chosen or parameter.grad is None or not change:
                        continue
                    if decoupled:
                        moved.append((parameter, parameter.detach().clone(), group["lr"] * change))
                    else:
                        parameter.grad = parameter.grad + change * parameter.detach()

        def after(optimizer: Any) -> None:
            with torch.no_grad():
                for parameter, start, share in moved:
                    parameter.sub_(share * start)

        with watching_steps(before, after):
            yield

    return around
