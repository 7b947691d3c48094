"""Ways to let a training in torch go otherwise than its loop says, for as long as a block lasts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from twinalign.locate.training_curves import Around


def stepping(times: Callable[[int], int], rate: float = 1.0) -> Around:
    """Let optimizers step as often as `times` says for the number of the step, at `rate` times their rate."""

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
            for kind in _family(torch.optim.Optimizer):
                if "step" in vars(kind):
                    stack.enter_context(attribute(kind, "step", _counted(vars(kind)["step"])))
            yield

    return around


def _family(kind: Any) -> list[Any]:
    return [kind, *(below for child in kind.__subclasses__() for below in _family(child))]


@contextlib.contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Inside the block the model stays in evaluation mode."""
    model.eval()
    with attribute(model, "train", lambda mode=True: model):
        yield


@contextlib.contextmanager
def gradients_kept(model: Any) -> Iterator[None]:
    """Inside the block nothing clears gradients."""
    with (
        attribute(torch.optim.Optimizer, "zero_grad", lambda *_, **__: None),
        attribute(model, "zero_grad", lambda *_, **__: None),
    ):
        yield


@contextlib.contextmanager
def attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Inside the block the class or object has another attribute of its own."""
    had, before = name in vars(owner), vars(owner).get(name)
    (setattr if isinstance(owner, type) else object.__setattr__)(owner, name, value)
    try:
        yield
    finally:
        if had:
            (setattr if isinstance(owner, type) else object.__setattr__)(owner, name, before)
        else:
            (delattr if isinstance(owner, type) else object.__delattr__)(owner, name)
