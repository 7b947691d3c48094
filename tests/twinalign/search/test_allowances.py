"""What a case allows is no fault, in its loss and in its training; what is more than that is one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from twinalign.recorder.recorder import RunSettings
from twinalign.replay.training import MOVED, wrong_curves
from twinalign.search.locator import locate

CASE = """
from twinalign import Case

class Smoothed(Case):
    name = "smoothed"
    allowances = ("paddle_label_smoothing",)
    amount = 1.2e-8

    def reference(self):
        from torch import nn
        return nn.Sequential(nn.Linear(4, 3))

    def reproduced(self):
        from paddle import nn
        return nn.Sequential(nn.Linear(4, 3))

    def inputs(self, rng):
        return {"x": rng.standard_normal((5, 4), dtype="float32"), "y": rng.integers(0, 3, 5)}

    def forward(self, model, inputs, framework):
        return model(inputs["x"])

    def loss(self, outputs, inputs, framework):
        if framework == "torch":
            import torch.nn.functional as F
            return F.cross_entropy(outputs, inputs["y"], label_smoothing=0.1)
        import paddle.nn.functional as F
        probabilities = F.one_hot(inputs["y"], 3).astype(outputs.dtype) * 0.9 + 1 / 30
        found = F.cross_entropy(outputs, probabilities, soft_label=True)
        return found * (1 + self.amount) if str(outputs.dtype).endswith("64") else found
"""


def faults(folder: Path, **options: str) -> list[tuple[str, str]]:
    (folder / "case.py").write_text(CASE)
    settings = RunSettings(f"{folder / 'case.py'}:Smoothed", folder / "out", stages=("loss",), options=options)
    return [(fault.paddle_layer, fault.phase) for fault in locate(settings, explain=False).faults]


@pytest.mark.slow
def test_an_allowed_difference_of_the_loss_is_no_fault(tmp_path: Path) -> None:
    assert faults(tmp_path) == []
    assert ("loss", "forward") in faults(tmp_path, amount="1e-6")


@pytest.mark.parametrize(
    ("allowances", "wrong"),
    [(("paddle_label_smoothing",), []), ((), ["loss"]), (("paddle_label_smoothing=curve.rate",), ["loss"])],
)
def test_an_allowed_difference_of_a_curve_is_no_fault(
    tmp_path: Path, allowances: tuple[str, ...], wrong: list[str]
) -> None:
    loss = np.linspace(2.0, 1.0, 6)
    paths = {side: tmp_path / f"{side}.npz" for side in ("ref", "paddle")}
    np.savez(paths["ref"], **{"loss": loss, f"{MOVED}loss": loss * (1 + 1e-12)})
    np.savez(paths["paddle"], loss=loss * (1 + 1.2e-8))
    assert list(wrong_curves(paths, allowances)) == wrong
