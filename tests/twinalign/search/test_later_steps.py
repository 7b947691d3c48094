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


TARGETS = """
from twinalign import Case

class Targets(Case):
    name = "targets"
    right = False
    float64_train_steps = 4
    steps = 3

    def reference(self):
        import torch
        from torch import nn

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.online, self.target = nn.Linear(4, 3), nn.Linear(4, 3)
                self.target.load_state_dict(self.online.state_dict())

            def forward(self, x, after):
                return self.online(x), self.target(after).detach()

        return Model()

    def reproduced(self):
        from paddle import nn
        right = self.right

        class Model(nn.Layer):
            def __init__(self):
                super().__init__()
                self.online, self.target = nn.Linear(4, 3), nn.Linear(4, 3)
                self.target.set_state_dict(self.online.state_dict())

            def forward(self, x, after):
                return self.online(x), (self.target if right else self.online)(after).detach()

        return Model()

    def inputs(self, rng):
        return {name: rng.standard_normal((5, 4), dtype="float32") for name in ("x", "after")}

    def loss(self, outputs, inputs, framework):
        return (outputs[0] - 0.9 * outputs[1] - 1).square().mean()

    def optimizer(self, parameters, framework):
        if framework == "torch":
            import torch
            return torch.optim.SGD(parameters, lr=0.1)
        import paddle
        return paddle.optimizer.SGD(0.1, parameters=parameters)

    def train(self, framework, model, record, steps=None):
        import numpy as np
        optimizer = self.optimizer(model.online.parameters(), framework)
        rng = np.random.default_rng(4)
        for _ in range(steps or 4):
            given = [rng.standard_normal((5, 4)) for _ in range(2)]
            if framework == "torch":
                import torch
                given = [torch.from_numpy(one).to(model.online.weight.dtype) for one in given]
            else:
                import paddle
                given = [paddle.to_tensor(one).astype(model.online.weight.dtype) for one in given]
            loss = self.loss(model(*given), None, framework)
            record("loss", float(loss))
            loss.backward()
            optimizer.step()
            optimizer.clear_grad() if framework == "paddle" else optimizer.zero_grad()
        return {}
"""


@pytest.mark.slow
@pytest.mark.parametrize(("right", "wrong"), [("true", []), ("false", [("", "forward")])])
def test_a_network_in_anothers_place_is_located_where_both_differ(right: str, wrong: list, tmp_path: Path) -> None:
    """Both begin equal, so that the first step shows nothing, and the training alone does."""
    (tmp_path / "case.py").write_text(TARGETS)
    given = {"stages": ("backward", "train"), "options": {"right": right}}
    faults = locate(RunSettings(f"{tmp_path / 'case.py'}:Targets", tmp_path / "out", **given), explain=False).faults
    assert [(fault.paddle_layer, fault.phase) for fault in faults] == wrong
    assert all("shows on the inputs of step 1" in fault.evidence["notes"][0] for fault in faults)
