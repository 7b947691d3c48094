"""A port that is built otherwise than the reference: the edit of its own code that mends it is found in the port."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twinalign.search.test_whole_layers import written
from tests.twinalign.search.written_cases import edited, faults_of
from twinalign.causes.registry import Explanation
from twinalign.replay.drawn_unit import allowed
from twinalign.search.edits_of_port import is_open, lacks_line, with_edit
from twinalign.search.faults import Fault

pytestmark = pytest.mark.slow

CASE = """
from twinalign import Case
import numpy as np

class Bags(Case):
    name = "bags"

    def reference(self):
        import theirs
        return theirs.Net()

    def reproduced(self):
        import ours
        return ours.Net()

    def inputs(self, rng):
        ids = rng.integers(1, 9, (4, 5))
        ids[:, 3:] = 0
        return {"ids": ids, "x": rng.standard_normal((4, 6), dtype="float32")}

    def loss(self, outputs, inputs, framework):
        return (outputs * outputs).mean()

    def optimizer(self, parameters, framework):
        if framework == "torch":
            import torch
            return torch.optim.SGD(parameters, lr=0.1)
        import paddle
        return paddle.optimizer.SGD(0.1, parameters=parameters)
"""
REFERENCE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(9, 6, mode="sum", padding_idx=0)
        self.mix, self.norm, self.last = nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 3)
        with torch.no_grad():
            self.bag.weight[0] = 0.0

    def forward(self, ids, x):
        bag = self.bag(ids)
        mixed = self.mix(x + bag)
        gate = torch.tanh(bag)
        return self.last(self.norm(x) + gate * mixed)
"""
PORT = """
import paddle
from paddle import nn

class Summed(nn.Layer):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 6)

    def forward(self, ids):
        rows = self.table(ids)
        seen = (ids != 0).astype(rows.dtype).unsqueeze(-1)
        total = (rows * seen).sum(axis=1)
        return total, seen.sum(axis=1)

class Gated(nn.Layer):
    def forward(self, values, other):
        gate = paddle.tanh(values)
        return gate * other

class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.bags, self.gated = Summed(), Gated()
        self.mix, self.norm, self.last = nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 3)

    def forward(self, ids, x):
        sums, counts = self.bags(ids)
        given = x + sums
        mixed = self.gated(sums, self.mix(given))
        return self.last(self.norm(x) + mixed)
"""


def found(tmp_path: Path, right: str, wrong: str, stage: str) -> list[Fault]:
    return faults_of(written(tmp_path, edited(PORT, [(right, wrong)]), CASE, REFERENCE), stages=(stage,))


@pytest.mark.parametrize(
    ("right", "wrong", "stage"),
    [
        ("gate * other", "gate * values", "forward"),
        ("(rows * seen).sum(axis=1)", "rows.sum(axis=1)", "backward"),
    ],
)
def test_the_line_is_told_with_what_is_meant(right: str, wrong: str, stage: str, tmp_path: Path) -> None:
    (fault,) = found(tmp_path, right, wrong, stage)
    assert fault.explanation is not None, fault.evidence
    number = next(n for n, text in enumerate(edited(PORT, [(right, wrong)]).splitlines(), start=1) if wrong in text)
    assert f"line {number} of ours.py" in fault.explanation.text, fault.explanation.text
    assert f"`{wrong}` in place of `{right}`" in fault.explanation.text
    assert fault.suggestion.endswith(f"near ours.py:{number}: write `{right}` in place of `{wrong}`")


def test_the_right_port_has_no_fault(tmp_path: Path) -> None:
    assert faults_of(written(tmp_path, PORT, CASE, REFERENCE), stages=("backward",)) == []


TRAINING = CASE.replace('name = "bags"', 'name = "bags"\n    train_mode = True')
BUILDING = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, size=6):
        super().__init__()
        self.mix, self.last = nn.Linear(6, size), nn.Linear(size, 3)
        self.register_buffer("share", torch.arange(size).double() / (size - 1), persistent=False)
        self.register_buffer("seen", torch.zeros(size))

    def forward(self, ids, x):
        mixed = self.mix(x)
        with torch.no_grad():
            self.seen.copy_(0.9 * self.seen + 0.1 * mixed.sum(0))
        return self.last(torch.tanh(mixed) * self.share.to(x))
"""
BUILDING_PORT = """
import paddle
from paddle import nn

class Shares(nn.Layer):
    def __init__(self, size):
        super().__init__()
        self.shares = [number / (size - 1) for number in range(size)]

    def forward(self, values):
        return values * paddle.to_tensor(self.shares, dtype=values.dtype)

class Net(nn.Layer):
    def __init__(self, size=6):
        super().__init__()
        self.mix, self.last, self.parts = nn.Linear(6, size), nn.Linear(size, 3), Shares(size)
        self.register_buffer("seen", paddle.zeros([size]))

    @paddle.no_grad()
    def remember(self, mixed):
        least = paddle.abs(mixed).max()
        now = mixed.sum(axis=0)
        self.seen.set_value(self.seen * 0.9 + now * 0.1)

    def forward(self, ids, x):
        mixed = self.mix(x)
        self.remember(mixed)
        return self.last(self.parts(paddle.tanh(mixed)))
"""


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("number / (size - 1)", "number / size", "`number / size` in place of `number / (size - 1)`"),
        ("now = mixed.sum(axis=0)", "now = mixed.sum(axis=0) / least", "`mixed.sum(axis=0) / least` in place of "),
    ],
)
def test_what_builds_the_model_and_what_it_keeps_are_edited_too(
    right: str, wrong: str, told: str, tmp_path: Path
) -> None:
    port = edited(BUILDING_PORT, [(right, wrong)])
    (fault,) = faults_of(written(tmp_path, port, TRAINING, BUILDING), stages=("forward",))
    assert fault.explanation is not None, fault.evidence
    assert told in fault.explanation.text, fault.explanation.text


def test_the_right_port_of_both_has_no_fault(tmp_path: Path) -> None:
    assert faults_of(written(tmp_path, BUILDING_PORT, TRAINING, BUILDING), stages=("forward",)) == []


def test_nothing_of_a_nan_may_be_left() -> None:
    assert allowed(float("inf")) == allowed(0.0) < allowed(1.0)


def test_causes_that_fit_any_code_leave_the_line_open() -> None:
    assert is_open(Explanation("operation_swapped", ""))
    assert not is_open(Explanation("gelu_tanh", ""))


def test_what_is_said_to_be_left_out_may_be_there() -> None:
    known = Explanation("term_missing", "one term of a sum is left out: the second", evidence={"lines_of_port": []})
    assert lacks_line(known)
    found = {"text": "`b.sum()` in place of `b.sum(1)`, line 3", "lines_of_port": [("port.py", 3, 3)]}
    there = with_edit(known, {**found, "edit": {"before": "b.sum()", "after": "b.sum(1)"}}, "forward", "{}: {}")
    assert (there.id, there.text) == ("line_of_port", f"a line of the port computes something else: {found['text']}")
    lacking = with_edit(known, {**found, "edit": {"before": "a", "after": "a + b.sum(1)"}}, "forward", "{}: {}")
    assert (lacking.id, lacking.text) == ("term_missing", f"{known.text}; in the port {found['text']}")
    whole = with_edit(known, {**found, "edit": {"to_do": "let it be what it is"}}, "forward", "{}: {}")
    assert whole.id == "term_missing"
