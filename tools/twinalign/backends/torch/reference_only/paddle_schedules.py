"""Paddle's schedules of the learning rate, so that the port's training loop can run in the reference.

Each is the rate as a formula of the number of steps, as paddle's documentation of the class gives it.
"""

import functools
import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import torch

Rate = Callable[[float, int], float]
"""Of the first rate and the number of steps, 0 at first."""


class LRScheduler:
    """A rate that `step` moves on; called, it gives the present one. A port's own schedules give it by `get_lr`.

    Attributes:
        base_lr, last_lr, last_epoch: as paddle names the first rate, the present one and the number of steps.
    """

    def __init__(self, learning_rate: float = 0.1, last_epoch: int = -1, verbose: bool = False) -> None:
        self.base_lr = float(learning_rate)
        self._optimizers: list[torch.optim.Optimizer] = []
        self.last_epoch = last_epoch
        self.step()

    def __call__(self) -> float:
        return self.last_lr

    def get_lr(self) -> float:
        raise NotImplementedError

    def step(self, epoch: int | None = None) -> None:
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self._set(self.get_lr())

    def drive(self, optimizer: torch.optim.Optimizer) -> None:
        """Set the rate of each of its groups, as a multiple of its own, from now on."""
        self._optimizers.append(optimizer)
        self._set(self.last_lr)

    def _set(self, rate: float) -> None:
        self.last_lr = rate
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * group["factor"]


class Schedule(LRScheduler):
    """One of paddle's own, by its formula."""

    def __init__(self, learning_rate: float, rate: Rate) -> None:
        self._rate = rate
        super().__init__(learning_rate)

    def get_lr(self) -> float:
        return self._rate(self.base_lr, self.last_epoch)


class _OnPlateau(Schedule):
    """Torch's own, which is given the metric at each step."""

    def __init__(self, learning_rate: float, **given: Any) -> None:
        self._watched = torch.optim.SGD([torch.zeros(1)], lr=float(learning_rate))
        usual = {"epsilon": "eps"}
        named = {usual.get(key, key): value for key, value in given.items() if key not in ("verbose", "last_epoch")}
        self._plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(self._watched, **named)
        super().__init__(learning_rate, lambda base, epoch: float(self._watched.param_groups[0]["lr"]))

    def step(self, metrics: Any = None, epoch: int | None = None) -> None:  # type: ignore[override]
        if metrics is not None:
            self._plateau.step(float(metrics))
        super().step(epoch)


def _made(learning_rate: float, *given: Any, formula: Callable[..., Rate], **named: Any) -> Schedule:
    named = {key: value for key, value in named.items() if key not in ("last_epoch", "verbose")}
    return Schedule(learning_rate, formula(*given, **named))


def _piecewise(boundaries: Sequence[int], values: Sequence[float], **_: Any) -> Schedule:
    return Schedule(values[0], lambda base, epoch: float(values[bisect_right(boundaries, epoch)]))


def _noam(d_model: int, warmup_steps: int, learning_rate: float = 1.0, **_: Any) -> Schedule:
    def rate(base: float, epoch: int) -> float:
        falling = 1.0 if epoch == 0 else epoch**-0.5
        return float(base * d_model**-0.5 * min(falling, warmup_steps**-1.5 * epoch))

    return Schedule(learning_rate, rate)


def _warmup(learning_rate: Any, warmup_steps: int, start_lr: float, end_lr: float, **_: Any) -> Schedule:
    def rate(base: float, epoch: int) -> float:
        if epoch < warmup_steps:
            return (end_lr - start_lr) * epoch / warmup_steps + start_lr
        if not isinstance(learning_rate, LRScheduler):
            return base
        learning_rate.step(epoch - warmup_steps)
        return learning_rate()

    return Schedule(end_lr if isinstance(learning_rate, LRScheduler) else learning_rate, rate)


def _step(step_size: int, gamma: float = 0.1) -> Rate:
    return lambda base, epoch: base * gamma ** (epoch // step_size)


def _milestones(milestones: Sequence[int], gamma: float = 0.1) -> Rate:
    return lambda base, epoch: base * gamma ** bisect_right(milestones, epoch)


def _exponential(gamma: float) -> Rate:
    return lambda base, epoch: base * gamma**epoch


def _natural(gamma: float) -> Rate:
    return lambda base, epoch: base * math.exp(-gamma * epoch)


def _inverse_time(gamma: float) -> Rate:
    return lambda base, epoch: base / (1 + gamma * epoch)


def _polynomial(decay_steps: int, end_lr: float = 0.0001, power: float = 1.0, cycle: bool = False) -> Rate:
    def rate(base: float, epoch: int) -> float:
        steps = decay_steps * max(math.ceil(epoch / decay_steps), 1) if cycle else decay_steps
        return float((base - end_lr) * (1 - min(epoch, steps) / steps) ** power + end_lr)

    return rate


def _cosine(T_max: int, eta_min: float = 0.0) -> Rate:  # noqa: N803 - paddle's name
    return lambda base, epoch: eta_min + (base - eta_min) * (1 + math.cos(math.pi * epoch / T_max)) / 2


def _lambda(lr_lambda: Callable[[int], float]) -> Rate:
    return lambda base, epoch: base * lr_lambda(epoch)


def _products(lr_lambda: Callable[[int], float]) -> Rate:
    return lambda base, epoch: base * math.prod(lr_lambda(one) for one in range(1, epoch + 1))


def _linear(total_steps: int, start_factor: float = 1.0 / 3, end_factor: float = 1.0) -> Rate:
    return lambda base, epoch: (
        base * (start_factor + (end_factor - start_factor) * min(epoch, total_steps) / total_steps)
    )


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    **{
        name: functools.partial(_made, formula=formula)
        for name, formula in (
            ("StepDecay", _step), ("MultiStepDecay", _milestones), ("ExponentialDecay", _exponential),
            ("NaturalExpDecay", _natural), ("InverseTimeDecay", _inverse_time), ("PolynomialDecay", _polynomial),
            ("CosineAnnealingDecay", _cosine), ("LambdaDecay", _lambda), ("MultiplicativeDecay", _products),
            ("LinearLR", _linear),
        )
    },
    "PiecewiseDecay": _piecewise, "NoamDecay": _noam, "LinearWarmup": _warmup, "ReduceOnPlateau": _OnPlateau,
}  # fmt: skip
"""By the names of paddle's classes."""
