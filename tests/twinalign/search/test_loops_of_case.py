"""A training loop in the case's own file, with a branch for each framework inside of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twinalign.search.written_cases import edited
from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate

CASE = """
import numpy as np

from twinalign import Case


class Looped(Case):
    name = "looped"
    float64_train_steps = 4

    def reference(self):
        import torch

        return torch.nn.Linear(3, 2)

    def reproduced(self):
        import paddle

        return paddle.nn.Linear(3, 2)

    def inputs(self, rng):
        return {"x": rng.standard_normal((4, 3)).astype("float32")}

    def train(self, framework, model, record, steps=None):
        drawn = np.random.default_rng(3)
        if framework == "torch":
            import torch

            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.7)
        else:
            import paddle

            schedule = paddle.optimizer.lr.StepDecay(0.1, 2, gamma=0.7)
            optimizer = paddle.optimizer.SGD(schedule, parameters=model.parameters())
        for step in range(6):
            if steps is not None and step == steps:
                break
            array = drawn.standard_normal((4, 3))
            if framework == "torch":
                outputs = model(torch.tensor(array, dtype=next(model.parameters()).dtype))
                losses = {"loss": (outputs**2).mean() + outputs.mean(), "square": (outputs**2).mean()}
                optimizer.zero_grad()
                losses["loss"].backward()
                optimizer.step()
            else:
                outputs = model(paddle.to_tensor(array, dtype=model.parameters()[0].dtype))
                losses = {"loss": (outputs**2).mean() + outputs.mean(), "square": (outputs**2).mean()}
                losses['loss'].backward()
                optimizer.step()
                optimizer.clear_grad()
            schedule.step()
            record("loss", float(losses["loss"]))
        return {}
"""


RATES = (
    "the schedule gives other learning rates, and nothing else is wrong ({}); in the port "
    "`paddle.optimizer.lr.StepDecay({})` in place of `paddle.optimizer.lr.StepDecay(0.1, 2, gamma=0.7)`, "
    "line 34 of case.py"
)


@pytest.mark.parametrize(
    ("right", "wrong", "text"),
    [
        (
            "losses['loss']",
            "losses['square']",
            "a line of the port computes something else (`losses['square'].backward()` in place of "
            "`losses['loss'].backward()`, line 49 of case.py and line 44 of case.py)",
        ),
        ("0.1, 2, gamma=0.7)", "0.1, 2, gamma=0.83)", RATES.format("0.083 for 0.07 at step 2", "0.1, 2, gamma=0.83")),
        ("Decay(0.1, 2,", "Decay(0.1, 1,", RATES.format("0.07 for 0.1 at step 1", "0.1, 1, gamma=0.7")),
    ],
)
def test_the_line_of_the_ports_branch_is_told(right: str, wrong: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "case.py").write_text(edited(CASE, [(right, wrong)]))
    (fault,) = locate(RunSettings(f"{tmp_path / 'case.py'}:Looped", tmp_path / "out")).faults
    assert fault.phase == "train"
    assert fault.explanation is not None
    assert fault.explanation.text == text
