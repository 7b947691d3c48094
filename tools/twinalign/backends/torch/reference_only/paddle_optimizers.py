"""Torch's optimizers as a port makes paddle's, so that the port's training loop can run in the reference."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from twinalign.backends.torch.reference_only.paddle_schedules import SCHEDULES, LRScheduler

Pairs = list[tuple[torch.Tensor, torch.Tensor]]
"""Parameters and their gradients."""
Clip = Callable[[Pairs], Pairs]


class ClipGradBase:
    """What ports extend to clip gradients in a way of their own."""

    def __call__(self, pairs: Pairs) -> Pairs:
        return self._dygraph_clip(pairs)

    def _dygraph_clip(self, pairs: Pairs) -> Pairs:
        raise NotImplementedError


class RMSProp(torch.optim.Optimizer):
    """With epsilon inside the root, as paddle's documentation of RMSProp gives it; torch's adds it to the root."""

    def __init__(self, groups: Any, **usual: Any) -> None:
        super().__init__(groups, usual)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, group)

    def _move(self, parameter: torch.Tensor, group: Mapping[str, Any]) -> None:
        state, rho = self.state[parameter], group["rho"]
        for name in ("square", "mean", "velocity") if not state else ():
            state[name] = torch.zeros_like(parameter)
        assert parameter.grad is not None
        gradient = parameter.grad + group["weight_decay"] * parameter
        state["square"] = rho * state["square"] + (1 - rho) * gradient**2
        state["mean"] = rho * state["mean"] + (1 - rho) * gradient
        variance = state["square"] - state["mean"] ** 2 if group["centered"] else state["square"]
        move = group["lr"] * gradient / (variance + group["eps"]).sqrt()
        state["velocity"] = group["momentum"] * state["velocity"] + move
        parameter -= state["velocity"]


def name_of(parameter: torch.Tensor) -> str:
    """One that no other tensor has; torch's have none."""
    return f"parameter_{id(parameter)}"


def _groups(
    parameters: Sequence[Any], weight_decay: Any, is_decayed: Callable[[str], bool] | None = None
) -> list[dict[str, Any]]:
    """Paddle's groups multiply the optimizer's rate by one of their own; AdamW asks by name what decays."""
    given = list(parameters)
    groups: list[Any] = given if given and isinstance(given[0], Mapping) else [{"params": given}]
    found = []
    for group in groups:
        unknown = group.keys() - {"params", "learning_rate", "weight_decay"}
        if unknown:
            raise NotImplementedError(f"a group of parameters with {sorted(unknown)}")
        decay, factor = _number(group.get("weight_decay", weight_decay)), group.get("learning_rate", 1.0)
        for decays in (True, False):
            own = [one for one in group["params"] if decays == (is_decayed is None or is_decayed(name_of(one)))]
            if own or (decays and is_decayed is None):
                found.append({"params": own, "factor": factor, "weight_decay": decay if decays else 0.0})
    return found


def _number(decay: Any) -> float:
    if decay is not None and not isinstance(decay, (int, float)):
        raise NotImplementedError("weight decay that is no number")
    return float(decay or 0.0)


def _made(
    kind: Any,
    learning_rate: Any = 0.001,
    parameters: Sequence[Any] = (),
    weight_decay: Any = None,
    grad_clip: Clip | None = None,
    apply_decay_param_fun: Callable[[str], bool] | None = None,
    **settings: Any,
) -> torch.optim.Optimizer:
    """An optimizer of one of torch's kinds, with paddle's rate, which may be a schedule, and its clipping."""
    rate = learning_rate() if isinstance(learning_rate, LRScheduler) else float(learning_rate)
    optimizer: torch.optim.Optimizer = kind(
        _groups(parameters, weight_decay, apply_decay_param_fun), lr=rate, **settings
    )
    for group in optimizer.param_groups:
        group["lr"] = rate * group["factor"]
    if isinstance(learning_rate, LRScheduler):
        learning_rate.drive(optimizer)
    setattr(optimizer, "_learning_rate", learning_rate)  # noqa: B010 - what paddle's keep it as
    if grad_clip is not None:
        _clip_at_each_step(optimizer, grad_clip)
    return optimizer


def _clip_at_each_step(optimizer: torch.optim.Optimizer, clip: Clip) -> None:
    """Paddle's step clips what it uses, and leaves the gradients themselves as they are."""
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []

    def before(*_: Any) -> None:
        held = [one for group in optimizer.param_groups for one in group["params"] if one.grad is not None]
        kept[:] = [(one, one.grad) for one in held]
        for one, clipped in clip(list(kept)):
            one.grad = clipped

    def after(*_: Any) -> None:
        for one, gradient in kept:
            one.grad = gradient
        kept.clear()

    optimizer.register_step_pre_hook(before)
    optimizer.register_step_post_hook(after)


def _adam(
    kind: Any,
    usual_decay: float | None,
    learning_rate: Any = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    parameters: Sequence[Any] = (),
    weight_decay: Any = None,
    **named: Any,
) -> torch.optim.Optimizer:
    decay = usual_decay if weight_decay is None else weight_decay
    return _made(kind, learning_rate, parameters, decay, betas=(beta1, beta2), eps=epsilon, **named)


def _momentum(
    learning_rate: Any = 0.001,
    momentum: float = 0.9,
    parameters: Sequence[Any] = (),
    use_nesterov: bool = False,
    weight_decay: Any = None,
    **named: Any,
) -> torch.optim.Optimizer:
    named |= {"momentum": momentum, "nesterov": use_nesterov}
    return _made(torch.optim.SGD, learning_rate, parameters, weight_decay, **named)


def _rmsprop(
    learning_rate: Any,
    rho: float = 0.95,
    epsilon: float = 1e-6,
    momentum: float = 0.0,
    centered: bool = False,
    parameters: Sequence[Any] = (),
    weight_decay: Any = None,
    **named: Any,
) -> torch.optim.Optimizer:
    named |= {"rho": rho, "eps": epsilon, "momentum": momentum, "centered": centered}
    return _made(RMSProp, learning_rate, parameters, weight_decay, **named)


def _adagrad(learning_rate: Any, epsilon: float = 1e-6, parameters: Sequence[Any] = (), **named: Any) -> Any:
    return _made(torch.optim.Adagrad, learning_rate, parameters, eps=epsilon, **named)


def _clip_by_value(max: float, min: float | None = None) -> Clip:
    return lambda pairs: [(one, gradient.clamp(-max if min is None else min, max)) for one, gradient in pairs]


def _clip_by_norm(clip_norm: float) -> Clip:
    return lambda pairs: [(one, gradient * (clip_norm / gradient.norm().clamp(clip_norm))) for one, gradient in pairs]


def _clip_by_global_norm(clip_norm: float, group_name: str = "", auto_skip_clip: bool = False) -> Clip:
    def clip(pairs: Pairs) -> Pairs:
        norm = torch.stack([gradient.norm() for _, gradient in pairs]).norm()
        return [(one, gradient * (clip_norm / norm.clamp(clip_norm))) for one, gradient in pairs]

    return clip


OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "Adam": functools.partial(_adam, torch.optim.Adam, None),
    "AdamW": functools.partial(_adam, torch.optim.AdamW, 0.01),
    "Adamax": functools.partial(_adam, torch.optim.Adamax, None),
    "Momentum": _momentum,
    "SGD": functools.partial(_made, torch.optim.SGD),
    "RMSProp": _rmsprop,
    "Adagrad": _adagrad,
    "L2Decay": lambda coeff=0.0: float(coeff),
    "ClipGradByValue": _clip_by_value,
    "ClipGradByNorm": _clip_by_norm,
    "ClipGradByGlobalNorm": _clip_by_global_norm,
    **SCHEDULES,
}
"""What a training is made of, by the names of paddle's classes; what torch has no word for raises an error."""
EXTENDED = {"LRScheduler": LRScheduler, "ClipGradBase": ClipGradBase}
"""Classes of paddle's that ports extend."""
