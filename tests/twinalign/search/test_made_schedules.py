"""Schedules of paddle's that are made with a wrong number, one inside of another as well."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twinalign.search.written_cases import edited
from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate

CASE = """
from twinalign import Case


class Scheduled(Case):
    name = "scheduled"
    steps = 8

    def reference(self):
        import torch

        return torch.nn.Linear(3, 2)

    def reproduced(self):
        import paddle

        return paddle.nn.Linear(3, 2)

    def inputs(self, rng):
        return {"x": rng.standard_normal((4, 3)).astype("float32")}

    def loss(self, outputs, inputs, framework):
        return (outputs**2).mean()

    def optimizer(self, parameters, framework):
        if framework == "torch":
            import torch

            return torch.optim.SGD(parameters, 0.1)
        import paddle

        falls = (4, 6)
        decay = paddle.optimizer.lr.MultiStepDecay(0.1, [fall - 3 for fall in falls], 0.5)
        warmed = paddle.optimizer.lr.LinearWarmup(decay, 3, start_lr=0.01, end_lr=0.1)
        return paddle.optimizer.SGD(warmed, parameters=parameters)

    def schedule(self, optimizer, step, framework):
        if framework == "torch":
            rate = 0.01 + 0.03 * step if step < 3 else 0.1 * 0.5 ** ((step >= 4) + (step >= 6))
            optimizer.param_groups[0]["lr"] = rate
        elif step:
            optimizer._learning_rate.step()
"""


WARMED = "in place of `paddle.optimizer.lr.LinearWarmup(decay, 3, start_lr=0.01, end_lr=0.1)`, line 34 of case.py"


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("[fall - 3 for fall in falls]", "list(falls)", "`list(falls)` in place of `[1, 3]`, line 33 of case.py"),
        ("(decay, 3, start_lr", "(decay, 2, start_lr", WARMED),
        ("start_lr=0.01", "start_lr=0.02", WARMED),
    ],
)
def test_the_argument_is_told(right: str, wrong: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "case.py").write_text(edited(CASE, [(right, wrong)]))
    (fault,) = locate(RunSettings(f"{tmp_path / 'case.py'}:Scheduled", tmp_path / "out")).faults
    assert fault.paddle_layer == "schedule"
    assert fault.explanation is not None
    assert told in fault.explanation.text


CYCLE = """
        rising = paddle.optimizer.lr.OneCycleLR(0.1, 8, 25.0, 4e-7, phase_pct=0.3, anneal_strategy="linear")
        return paddle.optimizer.SGD(rising, parameters=parameters)

    def schedule(self, optimizer, step, framework):
        if framework == "torch":
            import torch

            if step == 0:
                optimizer.cycle = torch.optim.lr_scheduler.OneCycleLR(
                    optimizer, 0.1, 8, pct_start=0.3, anneal_strategy="linear", cycle_momentum=False
                )
            else:
                optimizer.cycle.step()
        elif step:
            optimizer._learning_rate.step()
"""


def test_an_argument_that_is_left_out_is_told(tmp_path: Path) -> None:
    right = CASE[: CASE.index("        falls =")] + CYCLE.lstrip("\n")
    lacking = edited(right, [(', anneal_strategy="linear")\n        return', ")\n        return")])
    (tmp_path / "case.py").write_text(lacking)
    (fault,) = locate(RunSettings(f"{tmp_path / 'case.py'}:Scheduled", tmp_path / "out")).faults
    assert fault.paddle_layer == "schedule"
    assert fault.explanation is not None
    assert "anneal_strategy='linear" in fault.explanation.text, fault.explanation.text
    assert "line 32 of case.py" in fault.explanation.text, fault.explanation.text
