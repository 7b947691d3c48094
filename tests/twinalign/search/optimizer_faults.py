"""Optimizers and schedules that are wrong by paddle's own means, or written out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
import torch
from optimizer_case import DECAY, RATE, Steps
from optimizer_case import cosine as cosine_rate

import moco_paddle
from moco_ref import LARS

BETAS = (0.9, 0.999)


def exempt_groups(parameters: list[torch.nn.Parameter]) -> list[dict[str, Any]]:
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": DECAY},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]


class Clipped(torch.optim.AdamW):
    """The reference that clips: what a user writes around torch's step."""

    def step(self) -> None:  # type: ignore[override]
        torch.nn.utils.clip_grad_norm_([p for g in self.param_groups for p in g["params"]], 0.5)
        super().step()


def hooked(parameters: list[torch.nn.Parameter]) -> Any:
    """The reference that clips in a hook before torch's step."""
    made = torch.optim.AdamW(parameters, RATE, weight_decay=DECAY)

    def clip(*_: Any) -> None:
        torch.nn.utils.clip_grad_norm_(parameters, 0.5)

    made.register_step_pre_hook(clip)
    return made


def by_value(parameters: list[torch.nn.Parameter]) -> Any:
    """The reference that clips each element, with two groups."""
    made = torch.optim.AdamW([{"params": parameters[:3]}, {"params": parameters[3:]}], RATE, weight_decay=DECAY)
    made.register_step_pre_hook(lambda *_: torch.nn.utils.clip_grad_value_(parameters, 0.3))
    return made


REFERENCES: dict[str, Callable[[list[torch.nn.Parameter]], Any]] = {
    "adamw": lambda p: torch.optim.AdamW(p, RATE, weight_decay=DECAY),
    "adamw_plain": lambda p: torch.optim.AdamW(p, RATE, weight_decay=0.0),
    "adamw_exempt": lambda p: torch.optim.AdamW(exempt_groups(p), RATE),
    "adamw_rates": lambda p: torch.optim.AdamW(
        [{"params": p[:3], "lr": RATE}, {"params": p[3:], "lr": RATE / 10}], RATE, weight_decay=DECAY
    ),
    "adamw_three": lambda p: torch.optim.AdamW(three_groups(p), RATE),
    "adam": lambda p: torch.optim.Adam(p, RATE, weight_decay=DECAY),
    "adam_two": lambda p: torch.optim.Adam(
        [{"params": p[3:], "weight_decay": 0.002}, {"params": p[:3], "weight_decay": 0.02}], RATE
    ),
    "by_value": by_value,
    "sgd": lambda p: torch.optim.SGD(p, RATE, momentum=0.9, weight_decay=DECAY),
    "dampened": lambda p: torch.optim.SGD(p, RATE, momentum=0.9, weight_decay=DECAY, dampening=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, RATE, eps=1e-3),
    "rmsprop_momentum": lambda p: torch.optim.RMSprop(p, RATE, eps=1e-3, momentum=0.9, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, RATE, initial_accumulator_value=0.1),
    "adamax": lambda p: torch.optim.Adamax(p, RATE, eps=1e-5),
    "adamax as usual": lambda p: torch.optim.Adamax(p, RATE, eps=1e-7),
    "lars": lambda p: LARS(p, RATE, weight_decay=DECAY),
}


def flat(parameter: Any) -> bool:
    return parameter.ndim <= 1


def of_three(parameter: Any) -> int:
    return 1 if flat(parameter) else 2 * (list(parameter.shape) == [1, 5])


def three_groups(parameters: list[Any]) -> list[dict[str, Any]]:
    decays = (DECAY, 0.0, DECAY / 2)
    return [{"params": [p for p in parameters if of_three(p) == at], "weight_decay": d} for at, d in enumerate(decays)]


def adamw(parameters: list[Any], decayed: Callable[[Any], bool] = lambda p: True, **settings: Any) -> Any:
    names = {p.name for p in parameters if decayed(p)}
    return paddle.optimizer.AdamW(
        **{"learning_rate": RATE, "weight_decay": DECAY, **settings},
        parameters=parameters,
        apply_decay_param_fun=lambda name: name in names,
    )


def in_groups(parameters: list[Any], number: Callable[[Any], int], **values: Sequence[float]) -> Any:
    """paddle's AdamW with groups, each with its own of the values; `number` says in which group a parameter is."""
    count = len(next(iter(values.values())))
    groups = [
        {"params": [p for p in parameters if number(p) == at], **{name: of[at] for name, of in values.items()}}
        for at in range(count)
    ]
    return paddle.optimizer.AdamW(RATE, parameters=groups)


class ByHand(paddle.optimizer.Optimizer):
    """A method written out: `update(step, value, gradient, kept, rate)` gives the new value."""

    def __init__(self, parameters: list[Any], update: Callable[..., np.ndarray]) -> None:
        super().__init__(RATE, parameters=parameters)
        self.update, self.parameters, self.kept, self.steps = update, parameters, {}, 0
        self._accumulators = {"velocity": {}}

    def step(self) -> None:
        self.steps += 1
        for p in self.parameters:
            if p.grad is not None:
                kept = self.kept.setdefault(p.name, {})
                p.set_value(self.update(self.steps, p.numpy(), p.grad.numpy(), kept, self.get_lr()))
                if "m" not in kept:
                    self._accumulators["velocity"][p.name] = paddle.to_tensor(kept["v"])


def adam_by_hand(corrected: bool = False, after: bool = False, shrink: float | None = None, wave: bool = False) -> Any:
    def update(t: int, w: np.ndarray, g: np.ndarray, kept: dict, rate: float) -> np.ndarray:
        m = kept["m"] = BETAS[0] * kept.get("m", 0.0) + (1 - BETAS[0]) * g
        v = kept["v"] = BETAS[1] * kept.get("v", 0.0) + (1 - BETAS[1]) * g**2
        if corrected:
            m, v = m / (1 - BETAS[0] ** t), v / (1 - BETAS[1] ** t)
        direction = m / (np.sqrt(v) + 1e-8)
        if wave:
            direction = direction * (1 + 0.1 * np.sin(100 * w))
        factor = 1 - (rate if shrink is None else shrink) * DECAY
        return (w - rate * direction) * factor if after else w * factor - rate * direction

    return lambda parameters: ByHand(parameters, update)


def sgd_by_hand(kind: str) -> Any:
    def update(t: int, w: np.ndarray, g: np.ndarray, kept: dict, rate: float) -> np.ndarray:
        if kind == "decoupled":
            v = kept["v"] = 0.9 * kept.get("v", 0.0) + g
            return w * (1 - rate * DECAY) - rate * v
        g = g + DECAY * w
        if kind.startswith("rate inside"):
            v = kept["v"] = 0.9 * kept.get("v", 0.0) + rate * g
            return w - (rate if kind == "rate inside and outside" else 1.0) * v
        if kind == "rate squared":
            v = kept["v"] = 0.9 * kept.get("v", 0.0) + g
            return w - rate * rate * v
        v = kept["v"] = 0.9 * kept.get("v", 0.0) + 0.1 * g  # an average
        return w - rate * v

    return lambda parameters: ByHand(parameters, update)


def lars_by_hand(kind: str) -> Any:
    def update(t: int, w: np.ndarray, g: np.ndarray, kept: dict, rate: float) -> np.ndarray:
        norm = np.linalg.norm
        if w.ndim > 1 or kind == "all":
            plain, g = g, g + DECAY * w
            size = {"sum": norm(plain) + DECAY * norm(w), "eps": norm(g) + 1e-3}.get(kind, norm(g))
            g = g * (0.001 * norm(w) / size if norm(w) > 0 and size > 0 and kind != "no ratio" else 1.0)
        elif kind == "decay":
            g = g + DECAY * w
        v = kept["v"] = 0.9 * kept.get("v", 0.0) + g
        return w - rate * v

    return lambda parameters: ByHand(parameters, update)


class Around:
    """Something around an optimizer's step: `before(parameters, optimizer)` spoils it."""

    def __init__(self, inner: Any, parameters: list[Any], before: Callable[[list[Any], Any], None]) -> None:
        self.inner, self.parameters, self.before = inner, parameters, before

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["inner"], name)

    def step(self) -> None:
        self.before(self.parameters, self.inner)
        self.inner.step()


def scale(factor: float) -> Callable[[list[Any], Any], None]:
    def before(parameters: list[Any], optimizer: Any) -> None:
        for p in parameters:
            p.grad = p.grad * factor

    return before


def exchange(parameters: list[Any], optimizer: Any) -> None:
    same = [p for p in parameters if list(p.shape) == [5, 5]]
    one, other = same[0].grad.clone(), same[1].grad.clone()
    same[0].grad, same[1].grad = other, one


def each_to_norm(bound: float) -> Callable[[list[Any], Any], None]:
    def before(parameters: list[Any], optimizer: Any) -> None:
        for p in parameters:
            p.grad = p.grad * (bound / max(float(np.linalg.norm(p.grad.numpy())), bound))

    return before


def clamp(bound: float) -> Callable[[list[Any], Any], None]:
    def before(parameters: list[Any], optimizer: Any) -> None:
        for p in parameters:
            p.grad = paddle.clip(p.grad, -bound, bound)

    return before


def add_up() -> Callable[[list[Any], Any], None]:
    sums: dict[str, Any] = {}

    def before(parameters: list[Any], optimizer: Any) -> None:
        for p in parameters:
            sums[p.name] = p.grad + sums.get(p.name, 0.0)
            p.grad = sums[p.name]

    return before


def around(before: Callable[[list[Any], Any], None]) -> Callable[[list[Any]], Any]:
    return lambda parameters: Around(adamw(parameters), parameters, before)


def faster(factor: float) -> Callable[[list[Any]], Any]:
    def make(parameters: list[Any]) -> Any:
        inner = adamw(parameters)

        class Faster(Around):
            def step(self) -> None:
                rate = self.inner.get_lr()
                self.inner.set_lr(rate * factor)
                self.inner.step()
                self.inner.set_lr(rate)

        return Faster(inner, parameters, lambda p, o: None)

    return make


def momentum(parameters: list[Any], **settings: Any) -> Any:
    return paddle.optimizer.Momentum(
        **{"learning_rate": RATE, "momentum": 0.9, "weight_decay": DECAY, **settings}, parameters=parameters
    )


def clipped(parameters: list[Any], clip: Any) -> Any:
    return adamw(parameters, grad_clip=clip)


FAULTS: dict[tuple[str, str], Callable[[list[Any]], Any]] = {
    ("adamw", "decay_missing"): lambda p: adamw(p, weight_decay=0.0),
    ("adamw", "decay_missing_on_one_dimensional"): lambda p: adamw(p, lambda q: q.ndim > 1),
    ("adamw", "decay_missing_on_bias"): lambda p: adamw(p, lambda q: not q.name.endswith("b_0")),
    ("adamw", "decay_missing_on_norm"): lambda p: adamw(p, lambda q: "norm" not in q.name),
    ("adamw", "decay_missing_on_scale"): lambda p: adamw(p, lambda q: q.ndim > 1 or q.name.endswith("b_0")),
    ("adamw", "decay_missing_on_weight"): lambda p: adamw(p, flat),
    ("adamw", "decay_missing_on_embedding"): lambda p: adamw(p, lambda q: list(q.shape) != [1, 5]),
    ("adamw_exempt", "decay_on_one_dimensional"): adamw,
    ("adamw_exempt", "decay_on_bias"): lambda p: adamw(p, lambda q: q.ndim > 1 or q.name.endswith("b_0")),
    ("adamw_exempt", "decay_on_norm"): lambda p: adamw(p, lambda q: q.ndim > 1 or "norm" in q.name),
    ("adamw_exempt", "group_decays_exchanged"): lambda p: in_groups(p, flat, weight_decay=(0.0, DECAY)),
    ("adamw_three", "decay_on_other_parameters"): lambda p: in_groups(
        p, of_three, weight_decay=(0.0, DECAY / 2, DECAY)
    ),
    ("adamw_rates", "group_rates_exchanged"): lambda p: in_groups(
        p, lambda q: all(q is not other for other in p[:3]), learning_rate=(0.1, 1.0), weight_decay=(DECAY, DECAY)
    ),
    # A rate where paddle wants a factor of the optimizer's.
    ("adamw_rates", "learning_rate_of_some absolute"): lambda p: in_groups(
        p, lambda q: all(q is not other for other in p[:3]), learning_rate=(RATE, 0.1), weight_decay=(DECAY, DECAY)
    ),
    ("adamw", "decay_on_other_parameters"): lambda p: adamw(p, lambda q: q is not p[0] and q is not p[3]),
    ("adamw", "decay_coefficient"): lambda p: adamw(p, weight_decay=0.0123),
    ("adamw_plain", "decay_added"): lambda p: adamw(p, weight_decay=0.3),
    ("adamw", "decay_as_l2"): lambda p: paddle.optimizer.Adam(RATE, parameters=p, weight_decay=DECAY),
    ("adam", "decay_decoupled"): adamw,
    ("adam_two", "decay_on_other_parameters"): lambda p: paddle.optimizer.Adam(RATE, parameters=p, weight_decay=0.002),
    ("by_value", "gradient_clip_missing per group"): lambda p: paddle.optimizer.AdamW(
        RATE,
        parameters=[{"params": p[:3]}, {"params": p[3:]}],
        weight_decay=DECAY,
        grad_clip=paddle.nn.ClipGradByGlobalNorm(0.3),
    ),
    ("sgd", "decay_decoupled"): sgd_by_hand("decoupled"),
    ("adamw", "decay_without_rate"): adam_by_hand(corrected=True, shrink=1.0),
    ("adamw", "decay_after_step"): adam_by_hand(corrected=True, after=True),
    ("adamw", "optimizer_epsilon"): lambda p: adamw(p, epsilon=1e-5),
    ("adamw", "adam_beta1"): lambda p: adamw(p, beta1=0.87),
    ("adamw", "adam_beta2"): lambda p: adamw(p, beta2=0.95),
    ("adamw", "adam_betas"): lambda p: adamw(p, beta1=0.999, beta2=0.9),
    ("adamw", "amsgrad"): lambda p: adamw(p, amsgrad=True),
    ("adamw", "bias_correction_missing"): adam_by_hand(),
    ("adamw", "learning_rate_factor"): faster(10.0),
    ("adamw", "learning_rate_factor odd"): faster(1.37),
    ("adamw_rates", "group_rate_ignored"): lambda p: paddle.optimizer.AdamW(
        RATE, parameters=[{"params": p[:3]}, {"params": p[3:], "lr": RATE / 10}], weight_decay=DECAY
    ),
    ("adamw_rates", "group_rate_multiplied"): lambda p: paddle.optimizer.AdamW(
        RATE,
        parameters=[{"params": p[:3], "learning_rate": RATE}, {"params": p[3:], "learning_rate": RATE / 10}],
        weight_decay=DECAY,
    ),
    ("adamw", "learning_rate_of_some"): lambda p: paddle.optimizer.AdamW(
        RATE, parameters=[{"params": p[:3]}, {"params": p[3:], "learning_rate": 0.3}], weight_decay=DECAY
    ),
    ("adamw", "gradient_scaled"): around(scale(4.0)),
    ("adamw", "gradient_sign"): around(scale(-1.0)),
    ("adamw", "gradient_clipped"): lambda p: clipped(p, paddle.nn.ClipGradByGlobalNorm(0.7)),
    ("adamw", "gradient_clipped_each"): around(each_to_norm(0.5)),
    ("adamw", "gradient_clipped_by_value"): around(clamp(0.1)),
    ("clipped", "gradient_clip_missing"): adamw,
    ("hooked", "gradient_clip_missing"): adamw,
    ("hooked", "gradient_clip_missing other"): lambda p: clipped(p, paddle.nn.ClipGradByGlobalNorm(0.9)),
    ("hooked", "gradient_sign"): lambda p: Around(clipped(p, paddle.nn.ClipGradByGlobalNorm(0.5)), p, scale(-1.0)),
    ("adamw", "gradient_not_cleared"): around(add_up()),
    ("adamw", "parameters_exchanged"): around(exchange),
    ("adamw", "parameters_left_out"): lambda p: adamw(p[1:]),
    ("adamw", "optimizer_stepped_twice"): around(lambda p, o: o.step()),
    ("adamw", "other_optimizer"): lambda p: paddle.optimizer.SGD(RATE, parameters=p, weight_decay=DECAY),
    ("sgd", "momentum_value"): lambda p: momentum(p, momentum=0.83),
    ("sgd", "momentum_value missing"): lambda p: paddle.optimizer.SGD(RATE, parameters=p, weight_decay=DECAY),
    ("sgd", "nesterov"): lambda p: momentum(p, use_nesterov=True),
    ("sgd", "rate_inside_momentum"): sgd_by_hand("rate inside"),
    ("sgd", "rate_twice"): sgd_by_hand("rate inside and outside"),
    ("sgd", "rate_twice squared"): sgd_by_hand("rate squared"),
    ("sgd", "dampening"): sgd_by_hand("average"),
    ("dampened", "dampening"): momentum,
    ("rmsprop", "epsilon_inside_root"): lambda p: paddle.optimizer.RMSProp(RATE, rho=0.99, epsilon=1e-3, parameters=p),
    ("rmsprop", "epsilon_inside_root defaults"): lambda p: paddle.optimizer.RMSProp(RATE, parameters=p),
    ("rmsprop_momentum", "epsilon_inside_root and rate"): lambda p: paddle.optimizer.RMSProp(
        RATE, rho=0.99, epsilon=1e-3, momentum=0.9, centered=True, parameters=p
    ),
    ("adagrad", "accumulator_start"): lambda p: paddle.optimizer.Adagrad(RATE, epsilon=1e-10, parameters=p),
    ("adamax", "epsilon_in_maximum"): lambda p: paddle.optimizer.Adamax(RATE, epsilon=1e-5, parameters=p),
    ("adamax as usual", "epsilon_in_maximum"): lambda p: paddle.optimizer.Adamax(RATE, epsilon=1e-7, parameters=p),
    ("lars", "lars_trust_coefficient"): lambda p: moco_paddle.LARS(p, RATE, weight_decay=DECAY, trust_coefficient=0.02),
    ("lars", "lars_trust_on_one_dimensional"): lars_by_hand("all"),
    ("lars", "decay_on_one_dimensional"): lars_by_hand("decay"),
    ("lars", "lars_trust_missing"): lars_by_hand("no ratio"),
    ("lars", "lars_trust_denominator"): lars_by_hand("sum"),
    ("lars", "lars_epsilon"): lars_by_hand("eps"),
    ("lars", "decay_missing"): lambda p: moco_paddle.LARS(p, RATE, weight_decay=0.0),
    ("lars", "momentum_value"): lambda p: moco_paddle.LARS(p, RATE, weight_decay=DECAY, momentum=0.99),
    ("adamw", "unknown"): adam_by_hand(corrected=True, wave=True),
}

CLEAN: dict[str, Callable[[list[Any]], Any]] = {
    "adamw": adamw,
    "adamw_exempt": lambda p: adamw(p, lambda q: q.ndim > 1),
    "adam": lambda p: paddle.optimizer.Adam(RATE, parameters=p, weight_decay=DECAY),
    "sgd": momentum,
    "lars": lambda p: moco_paddle.LARS(p, RATE, weight_decay=DECAY),
    "clipped": lambda p: clipped(p, paddle.nn.ClipGradByGlobalNorm(0.5)),
}
CLEAN["hooked"] = CLEAN["clipped"]
REFERENCES["hooked"] = hooked
REFERENCES["clipped"] = lambda p: Clipped(p, RATE, weight_decay=DECAY)


def port(kind: str, fault: str, parameters: list[Any]) -> Any:
    """The paddle optimizer with a fault, the right one without; no edit of the case makes a kind a fault."""
    assert fault not in CLEAN
    return (FAULTS.get((kind, fault)) or CLEAN[kind])(parameters)


Scheduled = tuple[float, float]


def _m(step: float, case: Steps) -> float:
    return 1 - 0.5 * (1 + math.cos(math.pi * step / case.total)) * (1 - case.m)


def cosine(step: float, case: Steps) -> Scheduled:
    return cosine_rate(step, case), _m(step, case)


def wavy(step: float, case: Steps, height: float) -> Scheduled:
    return 0.01 * (1 + height * math.sin(5 * step)), _m(step, case)


def _decay(step: float, case: Steps) -> float:
    return case.peak * 0.5 * (1 + math.cos(math.pi * (step - case.warmup) / (case.total - case.warmup)))


SCHEDULES: dict[str, Callable[[float, Steps], Scheduled]] = {
    "schedule_off_by behind": lambda s, c: cosine(max(s - 1, 0), c),
    "schedule_off_by ahead": lambda s, c: cosine(s + 2, c),
    "schedule_constant": lambda s, c: (c.peak, _m(s, c)),
    "schedule_factor": lambda s, c: (10 * cosine_rate(s, c), _m(s, c)),
    "schedule_per_epoch": lambda s, c: cosine(s // 4 * 4, c),
    "schedule_speed": lambda s, c: cosine(2 * s, c),
    "warmup_missing": lambda s, c: (cosine_rate(s, c, warmup=0), _m(s, c)),
    "warmup_length": lambda s, c: (cosine_rate(s, c, warmup=4), _m(s, c)),
    "warmup_counts_from_one": lambda s, c: (
        c.peak * (s + 1) / c.warmup if s < c.warmup else _decay(s, c),
        _m(s, c),
    ),
    "warmup_start": lambda s, c: (
        c.peak * (1 + 2 * s / c.warmup) / 3 if s < c.warmup else _decay(s, c),
        _m(s, c),
    ),
    "cosine_over_whole_run": lambda s, c: (
        c.peak * s / c.warmup if s < c.warmup else c.peak * 0.5 * (1 + math.cos(math.pi * s / c.total)),
        _m(s, c),
    ),
    "cosine_length": lambda s, c: (cosine_rate(s, c, total=c.total - 1), _m(s, c)),
    "cosine_missing": lambda s, c: (c.peak * min(s / c.warmup, 1), _m(s, c)),
    "schedule_shape": lambda s, c: (
        c.peak * s / c.warmup if s < c.warmup else c.peak * (1 - (s - c.warmup) / (c.total - c.warmup)),
        _m(s, c),
    ),
    "schedule_floor": lambda s, c: (
        c.peak * s / c.warmup if s < c.warmup else 1e-4 + (c.peak - 1e-4) / c.peak * _decay(s, c),
        _m(s, c),
    ),
    "schedule_after_end": lambda s, c: (cosine_rate(min(s, c.total), c), _m(s, c)),
    "momentum_inverted": lambda s, c: (cosine_rate(s, c), 1 - _m(s, c)),
    "momentum_reversed": lambda s, c: (cosine_rate(s, c), 1 + c.m - _m(s, c)),
    "momentum_start": lambda s, c: (cosine_rate(s, c), 1 - (1 - _m(s, c)) * 0.4),
    "schedule_constant momentum": lambda s, c: (cosine_rate(s, c), 0.99),
    "schedule_setting": lambda s, c: wavy(s, c, 0.25),
    "unknown schedule": lambda s, c: (cosine_rate(s, c) * (1 + 0.3 * math.sin(5 * s)), _m(s, c)),
}
