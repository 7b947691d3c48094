"""A block that is told which activation it ends with, where the reference calls activations outside of its blocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twinalign.search.written_cases import edited, faults_of, written

REFERENCE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6)) for _ in range(3))

    def forward(self, x):
        for block in self.blocks[:-1]:
            x = torch.tanh(block(x))
        return self.blocks[-1](x)
"""
PORT = """
class Block(nn.Layer):
    def __init__(self, act=None):
        super().__init__()
        self.linear, self.norm, self.act = nn.Linear(6, 6), nn.LayerNorm(6), act

    def forward(self, x):
        x = self.norm(self.linear(x))
        return x if self.act is None else self.act(x)

class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(F.tanh), Block(F.tanh), Block())

    def forward(self, x):
        return self.blocks(x)
"""
INPUTS = '{"x": rng.standard_normal((4, 6), dtype="float32")}'


@pytest.mark.parametrize("act", ["tanh", "relu", "sigmoid"])
def test_an_activation_too_many_is_named(act: str, tmp_path: Path) -> None:
    port = edited(PORT, [("Block())", f"Block(F.{act}))")])
    (fault,) = faults_of(written(tmp_path, REFERENCE, port, INPUTS))
    assert fault.explanation is not None
    assert fault.explanation.id == "activation_added"
    assert act in fault.explanation.text.lower()


def test_activations_inside_of_blocks_are_right(tmp_path: Path) -> None:
    assert faults_of(written(tmp_path, REFERENCE, PORT, INPUTS)) == []


def test_activations_inside_of_blocks_are_right_behind_a_wrong_layer(tmp_path: Path) -> None:
    """Every other wrong layer is tested for itself: with one more before them, other blocks come first."""
    more = ("        self.blocks =", "        self.enter = nn.LayerNorm(6)\n        self.blocks =")
    reference = edited(REFERENCE, [more, ("        for block", "        x = self.enter(x)\n        for block")])
    wrong = more[0], more[1].replace("nn.LayerNorm(6)", "nn.LayerNorm(6, epsilon=1e-3)")
    port = edited(PORT, [wrong, ("self.blocks(x)", "self.blocks(self.enter(x))")])
    (fault,) = faults_of(written(tmp_path, reference, port, INPUTS))
    assert (fault.paddle_layer, fault.explanation and fault.explanation.id) == ("enter", "norm_epsilon")
