"""Steps that are taken again for some parameters alone are those that the whole optimizer makes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from twinalign.replay.changed_steps import ChangedSteps, Moment, StepChange


class _Steps(ChangedSteps):
    def __init__(self) -> None:
        self.change = StepChange()
        self.parameters = {name: torch.nn.Parameter(torch.zeros(1)) for name in "ab"}
        self.clipping = 1.0

    def make_optimizer(self) -> Any:
        parameters = list(self.parameters.values())
        made = torch.optim.SGD(parameters, lr=1.0)

        def clip(*_: Any) -> None:
            torch.nn.utils.clip_grad_norm_(parameters, self.clipping)

        made.register_step_pre_hook(clip)
        return made

    def gradient(self, name: str, step: int) -> Any:
        return torch.tensor([{"a": 3.0, "b": 4.0}[name]])


@pytest.mark.parametrize(("unclipped", "step"), [(False, -0.6), (True, -3.0)])
def test_a_hook_clips_by_the_gradients_of_all_parameters(unclipped: bool, step: float) -> None:
    steps = _Steps()
    steps.change = StepChange(unclipped=unclipped)
    optimizer, parameter = steps.make_optimizer(), steps.parameters["a"]
    optimizer.param_groups = [{**optimizer.param_groups[0], "params": [parameter]}]
    moment = Moment(0, "a", parameter, steps.gradient("a", 0), optimizer.param_groups[0], {}, None, {})
    steps.take_step(optimizer, [moment])
    assert float(parameter) == pytest.approx(step, abs=1e-6)
    assert [float(steps.parameters["b"]), steps.parameters["b"].grad] == [0.0, None]
