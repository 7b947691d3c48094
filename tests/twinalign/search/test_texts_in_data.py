"""Pipelines whose steps take texts and numbers beside arrays."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twinalign.search.test_whole_layers import written
from tests.twinalign.search.written_cases import edited, faults_of

pytestmark = pytest.mark.slow

CASE = """
import numpy as np
from twinalign import Case

class Spoken(Case):
    name = "spoken"
    splits = ("train",)

    def reference(self):
        import theirs
        return theirs.Net()

    def reproduced(self):
        import ours
        return ours.Net()

    def inputs(self, rng):
        return {"x": rng.standard_normal((2, 3), dtype="float32")}

    def dataset(self, framework, split):
        for index in range(4):
            yield {name: self.made(steps) for name, steps in self.preprocessing(framework, split, index).items()}

    def made(self, steps):
        value = None
        for _, step in steps:
            value = step(value)
        return value

    def preprocessing(self, framework, split, index):
        if framework == "torch":
            import theirs as module
        else:
            import ours as module
        text = ["a b c", "c a", "b b a", "c"][index]
        wave = np.sin(np.arange(12.0) * (index + 1))
        return {
            "phones": [("load", lambda _: text), ("number", module.numbers)],
            "length": [("load", lambda _: 3 + index), ("half", module.half)],
            "wave": [("load", lambda _: wave), ("window", module.windowed)],
        }
"""
REFERENCE = """
import numpy as np
from torch import nn

def numbers(text):
    return np.array(["abc".index(word) for word in text.split()])

def half(length):
    return np.array(range(length)) / 2

def windowed(wave):
    return wave * (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(len(wave)) / len(wave)))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x)
"""
PORT = REFERENCE.replace("from torch import nn", "from paddle import nn").replace("nn.Module", "nn.Layer")


@pytest.mark.parametrize(
    ("right", "wrong", "step"),
    [("/ len(wave)", "/ (len(wave) - 1)", "window"), ('"abc".index(word)', '"acb".index(word)', "phones")],
)
def test_what_is_wrong_beside_texts_is_the_only_fault(right: str, wrong: str, step: str, tmp_path: Path) -> None:
    (fault,) = faults_of(written(tmp_path, edited(PORT, [(right, wrong)]), CASE, REFERENCE), stages=("data",))
    assert step in (fault.evidence.get("step"), fault.evidence.get("value")), fault.evidence
    assert fault.explanation is not None, fault.evidence


def test_a_right_pipeline_is_no_fault(tmp_path: Path) -> None:
    assert faults_of(written(tmp_path, PORT, CASE, REFERENCE), stages=("data",)) == []


SHUFFLED = """
import numpy as np

def turned(items, rng):
    items = items.copy()
    rng.shuffle(items[2:])
    return items

def windows():
    rng = np.random.default_rng(0)
    items = [np.arange(number, number + 6) for number in (0, 10)]
    return [turned(items[number % 2], rng) for number in range(6)]
"""
SHARED = """
from twinalign import Case

class Shared(Case):
    name = "shared"
    splits = ("train",)

    def reference(self):
        import torch
        return torch.nn.Linear(3, 2)

    def reproduced(self):
        import paddle
        return paddle.nn.Linear(3, 2)

    def inputs(self, rng):
        return {"x": rng.standard_normal((2, 3), dtype="float32")}

    def dataset(self, framework, split):
        if framework == "torch":
            import theirs as module
        else:
            import ours as module
        return module.windows()
"""


def test_a_copy_that_a_step_lacks_of_what_it_shuffles_is_told(tmp_path: Path) -> None:
    port = edited(SHUFFLED, [("    items = items.copy()\n", "")])
    (fault,) = faults_of(written(tmp_path, port, SHARED, SHUFFLED), stages=("data",))
    assert fault.explanation is not None
    assert "`items = items.copy()` is lacking before `rng.shuffle(items[2:])`" in fault.explanation.text
