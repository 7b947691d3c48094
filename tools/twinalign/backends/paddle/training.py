"""Trainings in paddle, watched by hooks in any loop."""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import paddle

from twinalign.backends.optimizer_steps import watching_steps_of


def watching_steps(
    before: Callable[[Any], None],
    after: Callable[[Any], None],
    inside: Callable[[Any], None] | None = None,
) -> AbstractContextManager[None]:
    return watching_steps_of(paddle.optimizer.Optimizer, before, after, inside=inside)


@paddle.no_grad()
def norms(tensors: Sequence[Any]) -> list[float]:
    if not tensors:
        return []
    squares = [tensor.detach().astype("float64").square().sum() for tensor in tensors]
    return np.sqrt(paddle.stack(squares).numpy()).tolist()


@paddle.no_grad()
def distance(pairs: Sequence[tuple[Any, Any]]) -> float:
    squares = [(one.astype("float64") - other.astype("float64")).square().sum() for one, other in pairs]
    return float(np.sqrt(paddle.stack(squares).sum().numpy()))


def following(conventions: Collection[str]) -> AbstractContextManager[None]:
    return nullcontext()  # they are paddle's own
