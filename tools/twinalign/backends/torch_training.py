"""Ways to let a training in torch go otherwise than its loop says, for as long as a block lasts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from twinalign.locate.training_curves import Around
from twinalign.patching import family, replaced


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
            for kind in family(torch.optim.Optimizer):
                if "step" in vars(kind):
                    stack.enter_context(replaced(kind, "step", _counted(vars(kind)["step"])))
            yield

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
