"""Layers are searched on the inputs of the step that shows a fault; a constant of a function is not taken for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate

CASE = """
from twinalign import Case

class Words(Case):
    name = "words"
    slope = 1.0
    padding = True

    def reference(self):
        import torch
        from torch import nn

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.gate = nn.Embedding(6, 4, padding_idx=0), nn.Linear(4, 4)

            def forward(self, tokens):
                x = self.embed(tokens)
                return x * nn.functional.hardsigmoid(self.gate(x))

        return Model()

    def reproduced(self):
        import paddle
        from paddle import nn
        slope, padding = self.slope, 0 if self.padding else None

        class Model(nn.Layer):
            def __init__(self):
                super().__init__()
                self.embed, self.gate = nn.Embedding(6, 4, padding_idx=padding), nn.Linear(4, 4)

            def forward(self, tokens):
                x = self.embed(tokens)
                return x * nn.functional.hardsigmoid(self.gate(x) * slope)

        return Model()

    def inputs(self, rng):
        self.calls = rng.bit_generator.seed_seq.entropy[1]
        tokens = rng.integers(1, 6, (3, 5))
        tokens[0, :2] *= int(self.calls == 0)  # padding comes with the second step
        return {"tokens": tokens}

    def loss(self, outputs, inputs, framework):
        return (outputs + 1).square().mean()

    def optimizer(self, parameters, framework):
        if framework == "torch":
            import torch
            return torch.optim.SGD(parameters, lr=0.1)
        import paddle
        return paddle.optimizer.SGD(0.1, parameters=parameters)
"""


def found(folder: Path, **options: str) -> dict[tuple[str, str], list[str]]:
    """The wrong layers with their phases, and the notes of each."""
    (folder / "case.py").write_text(CASE)
    settings = RunSettings(f"{folder / 'case.py'}:Words", folder / "out", stages=("backward",), options=options)
    faults = locate(settings, explain=False).faults
    return {(fault.paddle_layer, fault.phase): list(fault.evidence.get("notes", ())) for fault in faults}


@pytest.mark.slow
def test_a_fault_that_the_second_step_shows_is_located(tmp_path: Path) -> None:
    notes = found(tmp_path, padding="false")
    assert ("embed", "backward") in notes
    assert notes["embed", "backward"] == ["shows on the inputs of step 1, and not on those of the steps before"]


@pytest.mark.slow
def test_the_constant_of_a_function_is_no_fault_and_another_slope_is_one(tmp_path: Path) -> None:
    assert found(tmp_path) == {}
    assert ("", "forward") in found(tmp_path, slope="1.0001")
