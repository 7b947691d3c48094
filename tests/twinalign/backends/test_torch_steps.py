"""Steps of torch's optimizers are seen as the step itself sees them: behind every hook."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from twinalign.backends.torch.attaching import watching_updates
from twinalign.backends.torch.reference_only.steps import pre_hooks, replacing_steps, watching_steps, without_pre_hooks


def _optimizer(kind: type = torch.optim.SGD) -> Any:
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([3.0, 4.0])
    return kind([parameter], lr=1.0)


def _clip(optimizer: Any, limit: float) -> None:
    torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], limit)


def _norm(optimizer: Any) -> float:
    return float(optimizer.param_groups[0]["params"][0].grad.norm())


def _watching(kind: str, seen: list[float]) -> Any:
    if kind == "steps":
        return watching_steps(lambda one: seen.append(_norm(one)), lambda one: None)
    return watching_updates(lambda one, closure: seen.append(_norm(one)), lambda one: None)


@pytest.mark.parametrize("kind", ["steps", "updates"])
@pytest.mark.parametrize("when", ["before", "inside"])
def test_gradients_are_seen_behind_all_hooks(kind: str, when: str) -> None:
    optimizer, seen = _optimizer(), []
    if when == "before":
        optimizer.register_step_pre_hook(lambda *_: _clip(optimizer, 2.0))
    with _watching(kind, seen):
        if when == "inside":
            optimizer.register_step_pre_hook(lambda *_: _clip(optimizer, 2.0))
        optimizer.step()
        optimizer.param_groups[0]["params"][0].grad.fill_(3.0)
        optimizer.step()
    optimizer.step()
    assert seen == pytest.approx([2.0, 2.0], abs=1e-5)
    assert len(pre_hooks(optimizer)) == 1


@pytest.mark.parametrize("kind", ["steps", "updates"])
def test_gradients_are_seen_behind_hooks_of_all_optimizers(kind: str) -> None:
    optimizer, seen = _optimizer(), []
    with _watching(kind, seen):
        handle = register_optimizer_step_pre_hook(lambda one, *_: _clip(one, 1.0))
        try:
            optimizer.step()
        finally:
            handle.remove()
    assert seen == pytest.approx([1.0], abs=1e-5)


def test_a_step_that_raises_is_forgotten() -> None:
    optimizer, seen = _optimizer(), []
    handle = optimizer.register_step_pre_hook(lambda *_: 1 / 0)
    with _watching("updates", seen):
        with pytest.raises(ZeroDivisionError):
            optimizer.step()
        handle.remove()
        optimizer.step()
    assert (seen, pre_hooks(optimizer)) == ([5.0], [])


def test_hooks_are_called_though_no_optimizer_of_the_class_was_made_before() -> None:
    """torch puts its hooks around the step of a class when the first optimizer of it is made."""

    class Base(torch.optim.Optimizer):
        def __init__(self, parameters: Any, lr: float) -> None:
            super().__init__(parameters, {"lr": lr})

        def step(self, closure: Any = None) -> Any:
            called.append("made")

    class Own(Base):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    called: list[str] = []
    step = vars(Own)["step"]
    for _ in range(2):
        with watching_steps(lambda one: called.append("seen"), lambda one: called.append("stepped")):
            optimizer = _optimizer(Own)
            optimizer.register_step_pre_hook(lambda *_: called.append("hook"))
            optimizer.register_step_post_hook(lambda *_: called.append("hook after"))
            optimizer.step()
        assert vars(Own)["step"] is step
    assert called == ["hook", "seen", "made", "hook after", "stepped"] * 2


def test_hooks_can_be_left_out_of_a_replaced_step() -> None:
    optimizer, called = _optimizer(), []
    optimizer.register_step_pre_hook(lambda *_: called.append("hook"))

    def twice(original: Any) -> Any:
        def step(self: Any) -> None:
            original(self)
            with without_pre_hooks(self):
                original(self)

        return step

    with replacing_steps(twice):
        optimizer.step()
    assert called == ["hook"]
    assert optimizer.param_groups[0]["params"][0].tolist() == [-6.0, -8.0]


def test_steps_of_a_scaler_and_with_a_closure_are_seen_once() -> None:
    optimizer, seen = _optimizer(), []
    closing = torch.optim.LBFGS([torch.nn.Parameter(torch.ones(1))], max_iter=3)
    parameter = closing.param_groups[0]["params"][0]

    def closure() -> Any:
        closing.zero_grad()
        loss = (parameter**2).sum()
        loss.backward()
        return loss

    with watching_steps(seen.append, seen.append), replacing_steps(lambda original: original):
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        scaler.scale(torch.zeros(()))
        scaler.step(optimizer)
        closing.step(closure)
    assert seen == [optimizer, optimizer, closing, closing]
    assert optimizer.param_groups[0]["params"][0].tolist() == [-0.75, -1.0]
