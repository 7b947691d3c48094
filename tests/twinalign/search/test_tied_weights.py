"""A weight that the code around a layer uses as well: a gradient that is stopped there is a fault of that code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pooled import pooled_processes
from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate

CASE = """
import numpy as np
from twinalign import Case

class Tied(Case):
    fault = ""

    def reference(self):
        import torch

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.words = torch.nn.Embedding(7, 4)
                self.inner = torch.nn.Linear(4, 4)

            def forward(self, tokens):
                return torch.tanh(self.inner(self.words(tokens))) @ self.words.weight.T

        return Net()

    def reproduced(self):
        import paddle

        stopped = self.fault == "detached"

        class Net(paddle.nn.Layer):
            def __init__(self):
                super().__init__()
                self.words = paddle.nn.Embedding(7, 4)
                self.inner = paddle.nn.Linear(4, 4)

            def forward(self, tokens):
                weight = self.words.weight.detach() if stopped else self.words.weight
                return paddle.tanh(self.inner(self.words(tokens))) @ weight.T

        return Net()

    def inputs(self, rng):
        return {"tokens": np.array([[1, 2, 3], [4, 2, 0]])}

    def loss(self, outputs, inputs, framework):
        return (outputs**2).mean()

    def optimizer(self, parameters, framework):
        import importlib
        kind = importlib.import_module(framework)
        return kind.optim.SGD(parameters, lr=0.1) if framework == "torch" else kind.optimizer.SGD(0.1, parameters)
"""


@pytest.fixture(scope="module", autouse=True)
def processes() -> Iterator[None]:
    with pooled_processes():
        yield


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "place", "words"),
    [("detached", "", "parameters get no gradient: words.weight, where this code itself uses them"), ("", None, None)],
)
def test_what_lacks_a_use_of_a_weight_is_at_fault(fault: str, place: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "case.py").write_text(CASE, encoding="utf-8")
    settings = RunSettings(
        case=f"{tmp_path / 'case.py'}:Tied", out=tmp_path, stages=("backward",), options={"fault": fault}
    )
    found = locate(settings).faults
    assert [one.paddle_layer for one in found] == ([] if place is None else [place])
    for one in found:
        assert one.phase == "backward"
        assert one.evidence["values"]["gradient.parameter.words.weight"]["relative"] > 0.1
        assert one.explanation is not None
        assert words in one.explanation.text


@pytest.mark.parametrize("case", ["CalledOnce", "CalledTwice"])
def test_gradients_that_only_their_sum_shows_wrong_are_explained_where_they_are_used(case: str, tmp_path: Path) -> None:
    cases = Path(__file__).with_name("packed_cases.py")
    found = locate(RunSettings(case=f"{cases}:{case}", out=tmp_path, stages=("backward",)))
    assert found.not_searched == {}
    assert [(one.paddle_layer, one.phase) for one in found.faults] == [("block", "backward")]
    assert "gradient.parameter.qk.weight" in found.faults[0].evidence["values"]
