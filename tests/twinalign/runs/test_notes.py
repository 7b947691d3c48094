"""What the recorded numbers cannot show is said beside the verdict, or refused."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import without_topic
from twinalign.conversion.initial_weights import tied_apart
from twinalign.verdict.compare import notes_of_model

pytestmark = pytest.mark.usefixtures("kept_processes")

Twinalign = Callable[..., subprocess.CompletedProcess[str]]

CASE = """
from twinalign import Case

class Fresh(Case):
    vector = False
    zeros = True

    def reference(self):
        import torch
        from torch import nn
        embed, body, head = nn.Embedding(12, 8), nn.Linear(8, 8), nn.Linear(8, 12, bias=False)
        head.weight = embed.weight
        if self.zeros:
            nn.init.zeros_(body.weight)
        return nn.Sequential(embed, body, head)

    def reproduced(self):
        from paddle import nn
        return nn.Sequential(nn.Embedding(12, 8), nn.Linear(8, 8), nn.Linear(8, 12, bias_attr=False))

    def inputs(self, rng):
        return {"tokens": rng.integers(0, 12, (2, 5))}

    def loss(self, outputs, inputs, framework):
        return outputs.mean(-1) if self.vector else outputs.mean()
"""
HIDDEN = """
from twinalign import Case

class Hidden(Case):
    factor = 1.02
    allowances = ("paddle_average_pool",)

    def reference(self):
        import torch
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = torch.nn.Linear(8, 8)
            def forward(self, x):
                return 3e-7 * self.fc(x) + 1.0
        return Model()

    def reproduced(self):
        import paddle
        factor = self.factor
        class Model(paddle.nn.Layer):
            def __init__(self):
                super().__init__()
                self.fc = paddle.nn.Linear(8, 8)
            def forward(self, x):
                return 3e-7 * factor * self.fc(x) + 1.0
        return Model()

    def inputs(self, rng):
        return {"x": rng.standard_normal((4, 8)).astype("float32")}
"""
TIED = "forward: 0.weight and 2.weight are one tensor in the reference alone: they start equal, and training parts them"
HARDLY = (
    "forward: other inputs change the reference's outputs by 0 of their size, so that they say little of the layers "
    "before: does a freshly built layer start at zero? Give trained or random weights in reference()"
)


@pytest.mark.slow
def test_weights_tied_on_one_side_and_outputs_that_ignore_the_inputs(twinalign: Twinalign, tmp_path: Path) -> None:
    (tmp_path / "case.py").write_text(CASE)
    finished = twinalign("run", "case.py", "--stages", "forward")
    assert finished.returncode == 0, finished.stderr
    assert {TIED, HARDLY} <= set(finished.stdout.splitlines())
    finished = twinalign("run", "case.py", "--stages", "forward", "--set", "zeros=false")
    assert TIED in finished.stdout.splitlines()
    assert "other inputs change" not in finished.stdout


@pytest.mark.slow
def test_outputs_that_hardly_depend_on_the_inputs_align_by_what_depends_alone(
    twinalign: Twinalign, tmp_path: Path
) -> None:
    """The port's layer is 2 % off, which an allowance for float32 takes: of what the layer says, 3e-7 is left."""
    (tmp_path / "case.py").write_text(HIDDEN)
    finished = twinalign("run", "case.py", "--stages", "forward")
    assert finished.returncode == 3, finished.stdout + finished.stderr
    (output,) = json.loads((tmp_path / "result" / "summary.json").read_text())["stages"]["forward"]["tensors"]
    assert output["reason"].startswith("in float64 the sides differ by ")
    assert output["reason"].endswith(
        ": what depends on the inputs may be wrong; give trained or random weights in reference()"
    )
    finished = twinalign("run", "case.py", "--stages", "forward", "--set", "factor=1.0")
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_a_loss_of_many_numbers_is_the_cases_mistake(twinalign: Twinalign, tmp_path: Path) -> None:
    (tmp_path / "case.py").write_text(CASE)
    finished = twinalign("run", "case.py", "--stages", "loss", "--set", "vector=true")
    assert finished.returncode == 2
    assert without_topic(finished.stderr.strip().splitlines()[-1]) == (
        "twinalign: case Fresh: loss() returned a tensor of shape [2, 5] on the reference's side; return one number, "
        'its mean say, or {"loss": that number, "each": the tensor}'
    )


def layout(*keys: str, **tied: str) -> list[dict[str, Any]]:
    return [{"key": key, "tied_to": tied.get(key)} for key in keys]


def names(**partners: str) -> dict[str, list[list[str]]]:
    """Port's key -> reference's key."""
    return {key: [[name]] for key, name in partners.items()}


@pytest.mark.parametrize(
    ("reference", "port", "canonical", "expected"),
    [
        # The reference's two names are two tensors of the port, whichever of the names each has.
        (layout("a", "b", b="a"), layout("x", "y"), names(x="a", y="b"), {"ref": [["a", "b"]], "paddle": []}),
        (layout("a", "b", b="a"), layout("x", "y"), names(x="a", y="a"), {"ref": [["a", "b"]], "paddle": []}),
        (layout("a", "b"), layout("x", "y", y="x"), names(x="a", y="b"), {"ref": [], "paddle": [["x", "y"]]}),
        # Tied on both sides; used twice by the port's code; a second key of one tensor, as paddle's RNNs have.
        (layout("a", "b", b="a"), layout("x", "y", y="x"), names(x="a", y="b"), {"ref": [], "paddle": []}),
        (layout("a", "b", b="a"), layout("x"), names(x="a"), {"ref": [], "paddle": []}),
        (layout("a"), layout("x", "y", y="x"), names(x="a", y="a"), {"ref": [], "paddle": []}),
    ],
)
def test_ties_of_one_side(
    reference: list[dict[str, Any]],
    port: list[dict[str, Any]],
    canonical: dict[str, list[list[str]]],
    expected: dict[str, list[list[str]]],
) -> None:
    assert tied_apart(reference, port, canonical) == expected


def test_notes_name_the_side() -> None:
    assert notes_of_model({"effect_of_inputs": 0.5}, {"tied_apart": {"ref": [], "paddle": [["x", "y"]]}}) == [
        "x and y are one tensor in the port alone: they start equal, and training parts them"
    ]
    assert notes_of_model({"effect_of_inputs": None}, {}) == []
    assert len(notes_of_model({"effect_of_inputs": 3e-5}, {})) == 1
