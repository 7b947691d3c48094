"""What is wrong in the port's own training code is told by the edit that mends it, however both loops are written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pooled import pooled_processes
from tests.twinalign.search.training_sources import written
from twinalign.edits.suggestions import suggestion
from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate

AVERAGE = """
class Average:
    def __init__(self, model, decay=0.9):
        self.decay = decay
        self.kept = [p.detach().clone() for p in model.parameters()]

    @paddle.no_grad()
    def follow(self, model):
        for kept, p in zip(self.kept, model.parameters()):
            kept.set_value(self.decay * kept + (1.0 - self.decay) * p)

    def distance(self, model):
        return sum(float(((p - a) ** 2).sum()) for a, p in zip(self.kept, model.parameters())) ** 0.5


def train("""
PORT = {
    "def train(": AVERAGE.strip(),
    "    model.train()\n": "    average = Average(model)\n    model.train()\n",
    "        update(model, optimizer)\n": "        update(model, optimizer)\n        average.follow(model)\n",
    '        record("loss", float(loss))\n': '        record("loss", float(loss))\n'
    '        record("apart", average.distance(model))\n'
    '        record("kept", float(sum((a**2).sum() for a in average.kept)))\n',  # a factor may mend a distance alone
}
REFERENCE = {
    "    model.train()\n": "    model.train()\n"
    "    kept = {n: p.detach().clone() for n, p in model.named_parameters()}\n",
    "        update(model, optimizer)\n": "        update(model, optimizer)\n        with torch.no_grad():\n"
    "            for name, p in model.named_parameters():\n                kept[name].lerp_(p, 0.1)\n",
    '        record("loss", float(loss))\n': '        record("loss", float(loss))\n'
    "        gaps = [(p.detach() - kept[n]).pow(2).sum() for n, p in model.named_parameters()]\n"
    '        record("apart", float(sum(gaps).sqrt()))\n'
    '        record("kept", float(sum(a.pow(2).sum() for a in kept.values())))\n',
}


@pytest.fixture(scope="module", autouse=True)
def processes() -> Iterator[None]:
    with pooled_processes():
        yield


def faults(folder: Path, wrong: dict[str, str]) -> list[Any]:
    case = written(folder, PORT | wrong, REFERENCE)
    return locate(RunSettings(case=case, out=folder / "out", stages=("train",))).faults


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        (
            {
                "        update(model, optimizer)\n        average.follow(model)\n": "        average.follow(model)\n"
                "        update(model, optimizer)\n"
            },
            "write `average.follow(model)` behind `update(model, optimizer)`",
        ),
        (
            {"self.decay * kept + (1.0 - self.decay) * p": "self.decay * p + (1.0 - self.decay) * kept"},
            "write `self.decay * kept + (1.0 - self.decay) * p` in place of",
        ),
    ],
)
def test_the_edit_of_the_ports_own_code_is_told(wrong: dict[str, str], remedy: str, tmp_path: Path) -> None:
    (found,) = faults(tmp_path, wrong)
    assert found.explanation is not None, found.evidence
    assert found.explanation.id == "line_of_port", found.explanation.text
    assert remedy in suggestion(found.to_json())


@pytest.mark.slow
def test_the_right_loop_is_no_fault(tmp_path: Path) -> None:
    assert faults(tmp_path, {}) == []
