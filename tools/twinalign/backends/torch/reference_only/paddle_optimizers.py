"""Torch's optimizers as a port makes paddle's, so that the port's training loop can run in the reference."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch


def _groups(parameters: Sequence[Any], rate: float, weight_decay: float | None) -> list[dict[str, Any]]:
    """Paddle's groups multiply the optimizer's rate by one of their own."""
    given = list(parameters)
    groups: list[Any] = given if given and isinstance(given[0], Mapping) else [{"params": given}]
    found = []
    for group in groups:
        unknown = group.keys() - {"params", "learning_rate", "weight_decay"}
        if unknown:
            raise NotImplementedError(f"a group of parameters with {sorted(unknown)}")
        decay = group.get("weight_decay", weight_decay)
        own: dict[str, Any] = {"params": list(group["params"]), "lr": rate * group.get("learning_rate", 1.0)}
        found.append({**own, "weight_decay": _number(decay)})
    return found


def _number(decay: Any) -> float:
    if decay is not None and not isinstance(decay, (int, float)):
        raise NotImplementedError("weight decay that is no number")
    return float(decay or 0.0)


def _adam(
    kind: Any,
    usual_decay: float | None,
    learning_rate: float = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    parameters: Sequence[Any] = (),
    weight_decay: Any = None,
) -> torch.optim.Optimizer:
    groups = _groups(parameters, learning_rate, usual_decay if weight_decay is None else weight_decay)
    made: torch.optim.Optimizer = kind(groups, lr=learning_rate, betas=(beta1, beta2), eps=epsilon)
    return made


def _momentum(
    learning_rate: float = 0.001,
    momentum: float = 0.9,
    parameters: Sequence[Any] = (),
    use_nesterov: bool = False,
    weight_decay: Any = None,
) -> torch.optim.Optimizer:
    groups = _groups(parameters, learning_rate, weight_decay)
    return torch.optim.SGD(groups, lr=learning_rate, momentum=momentum, nesterov=use_nesterov)


def _sgd(learning_rate: float = 0.001, parameters: Sequence[Any] = (), weight_decay: Any = None) -> Any:
    return torch.optim.SGD(_groups(parameters, learning_rate, weight_decay), lr=learning_rate)


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "Adam": functools.partial(_adam, torch.optim.Adam, None),
    "AdamW": functools.partial(_adam, torch.optim.AdamW, 0.01),
    "Momentum": _momentum,
    "SGD": _sgd,
}
"""By the names of paddle's classes; what torch has no word for raises an error."""
