"""Lines of the port run in the reference where parameters and buffers of a layer have other names there."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate

CASE = """
from twinalign import Case

class Support(Case):
    name = "support"

    def reference(self):
        import torch
        from torch import nn

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(4, 5)
                self.register_buffer("support", torch.linspace(-2, 2, 5))
                self.gain = nn.Parameter(torch.full((5,), 0.7))

            def forward(self, x, alive):
                shares = self.head(x).softmax(-1)
                moved = alive.unsqueeze(1) * self.support + x.mean(1, keepdim=True)
                return (shares * moved).mul(self.gain)

        return Model()

    def reproduced(self):
        import paddle
        from paddle import nn
        import paddle.nn.functional as F

        class Model(nn.Layer):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(4, 5)
                self.register_buffer("atoms", paddle.linspace(-2, 2, 5))
                self.scale = self.create_parameter([5], default_initializer=nn.initializer.Constant(0.7))

            def forward(self, x, alive):
                chances = F.softmax(self.head(x), axis=-1)
                z = alive[:, None] * (self.atoms[None] + x.mean(axis=1, keepdim=True))
                return self.scale * (chances * z)

        return Model()

    def inputs(self, rng):
        x = rng.standard_normal((6, 4), dtype="float32")
        return {"x": x, "alive": (rng.random(6) > 0.4).astype("float32")}
"""


@pytest.mark.slow
def test_a_line_that_reads_a_buffer_of_another_name_is_told(tmp_path: Path) -> None:
    (tmp_path / "case.py").write_text(CASE)
    (fault,) = locate(RunSettings(f"{tmp_path / 'case.py'}:Support", tmp_path / "out", stages=("forward",))).faults
    assert fault.explanation is not None, fault.evidence
    assert "alive[:, None] * (self.atoms[None] + x.mean(axis=1, keepdim=True))" in fault.explanation.text
    assert "line 39 of case.py" in fault.explanation.text
