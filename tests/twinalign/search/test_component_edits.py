"""Training, metric, data and schedule that the port writes otherwise: the edit of its own code is found in the port."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twinalign.search.test_whole_layers import written
from tests.twinalign.search.written_cases import edited, faults_of
from twinalign.search.faults import Fault

pytestmark = pytest.mark.slow

CASE = """
from twinalign import Case
import numpy as np

class Small(Case):
    name = "small"
    steps = 6
    data_samples = 4
    float64_train_steps = 12

    def reference(self):
        import theirs
        return theirs.Net()

    def reproduced(self):
        import ours
        return ours.Network()

    def inputs(self, rng):
        return {"x": rng.standard_normal((4, 6), dtype="float32")}

    def loss(self, outputs, inputs, framework):
        return (outputs * outputs).mean()

    def optimizer(self, parameters, framework):
        if framework == "torch":
            import torch
            return torch.optim.SGD(parameters, lr=0.1)
        import paddle
        return paddle.optimizer.SGD(0.1, parameters=parameters)

    def schedule(self, optimizer, step, framework):
        if framework == "torch":
            import theirs
            rate = theirs.rate(step)
            for group in optimizer.param_groups:
                group["lr"] = rate
        else:
            import ours
            rate = ours.Falling()(step)
            optimizer.set_lr(rate)
        return {"rate": rate}

    def dataset(self, framework, split):
        for number in range(6):
            rng = np.random.default_rng(number)
            distances = rng.integers(1, 5, (3, 3))
            if framework == "torch":
                import theirs
                yield {"distances": theirs.padded(distances)}
            else:
                import ours
                yield {"distances": ours.to_square(distances)}

    def evaluate(self, model, framework, dtype):
        scores = np.random.default_rng(1).random(40)
        clicks = np.random.default_rng(2).random(40) < scores
        if framework == "torch":
            import theirs
            return theirs.measured(scores, clicks)
        import ours
        return ours.Measured(scores).of(clicks)

    def train(self, framework, model, record, steps=None):
        batches = [np.random.default_rng(number).standard_normal((4, 6)) for number in range(12)]
        if framework == "torch":
            import theirs
            theirs.fit(model, batches[:steps], record)
        else:
            import ours
            ours.Trainer(model).run(batches[:steps], record)
        return {}
"""
REFERENCE = """
import copy
import numpy as np
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))

    def forward(self, x):
        return self.layers(x)

def rate(step):
    return 0.1 * 0.5 ** max(0, (step - 2) // 3 + 1)

def padded(distances):
    found = np.zeros((5, 5), dtype=np.int64)
    found[:3, :3] = distances + 1
    return found

def measured(scores, clicks, bins=4):
    found = 0.0
    place = np.minimum((scores * bins).astype(int), bins - 1)
    for one in range(bins):
        inside = place == one
        if inside.any():
            found += abs(scores[inside].mean() - clicks[inside].mean()) * inside.sum()
    return {"error": float(found / len(scores))}

def fit(model, batches, record):
    average, updates = copy.deepcopy(model), 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    for step, batch in enumerate(batches):
        loss = model(torch.as_tensor(batch, dtype=next(model.parameters()).dtype)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        if (step + 1) % 2 == 0:
            schedule.step()
        updates += 1
        decay = min(0.9, (1 + updates) / (10 + updates))
        with torch.no_grad():
            for kept, new in zip(average.parameters(), model.parameters()):
                kept.mul_(decay).add_(new, alpha=1 - decay)
        record("loss", loss.item())
        record("kept", sum(p.square().sum().item() for p in average.parameters()))
"""
PORT = """
import numpy as np
import paddle
from paddle import nn

class Network(nn.Layer):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.last(paddle.tanh(self.first(x)))

class Falling:
    def __init__(self, base=0.1, start=2, every=3, gamma=0.5):
        self.base, self.start, self.every, self.gamma = base, start, every, gamma

    def __call__(self, step):
        falls = max(0, (step - self.start) // self.every + 1)
        return self.base * self.gamma**falls

def to_square(distances, size=5):
    gap = size - len(distances)
    return np.pad(distances + 1, ((0, gap), (0, gap)))

class Measured:
    def __init__(self, scores, count=4):
        self.scores, self.count = scores, count

    def of(self, clicks):
        edges = np.floor(self.scores * self.count).clip(max=self.count - 1)
        groups = [edges == one for one in range(self.count) if (edges == one).any()]
        gaps = [np.abs(self.scores[one].mean() - clicks[one].mean()) for one in groups]
        sizes = [one.sum() / len(self.scores) for one in groups]
        return {"error": float(np.dot(gaps, sizes))}

class Average:
    def __init__(self, model):
        self.count, self.values = 0, [p.clone() for p in model.parameters()]

    @paddle.no_grad()
    def update(self, model):
        self.count += 1
        decay = min(0.9, (1 + self.count) / (10 + self.count))
        for kept, new in zip(self.values, model.parameters()):
            kept.set_value(decay * kept + (1 - decay) * new)

class Trainer:
    def __init__(self, model, limit=0.5):
        self.model, self.limit, self.average = model, limit, Average(model)
        self.schedule = paddle.optimizer.lr.StepDecay(0.1, step_size=2, gamma=0.5)
        self.optimizer = paddle.optimizer.SGD(self.schedule, parameters=model.parameters())

    def clip(self):
        grads = [p.grad for p in self.model.parameters()]
        norm = paddle.sqrt(sum(one.square().sum() for one in grads))
        factor = (self.limit / (norm + 1e-6)).clip(max=1.0)
        for one in grads:
            one.set_value(one * factor)

    def run(self, batches, record):
        for step, batch in enumerate(batches):
            x = paddle.to_tensor(batch, dtype=self.model.first.weight.dtype)
            loss = self.model(x).square().mean()
            loss.backward()
            self.clip()
            self.optimizer.step()
            self.optimizer.clear_grad()
            if (step + 1) % 2 == 0:
                self.schedule.step()
            self.average.update(self.model)
            record("loss", float(loss))
            record("kept", float(sum(p.square().sum() for p in self.average.values)))
"""


def found(tmp_path: Path, right: str, wrong: str, stage: str, case: str = CASE) -> list[Fault]:
    return faults_of(written(tmp_path, edited(PORT, [(right, wrong)]), case, REFERENCE), stages=(stage,))


@pytest.mark.parametrize(
    ("right", "wrong", "stage", "told"),
    [
        ("(self.limit / (norm + 1e-6)).clip(max=1.0)", "self.limit / (norm + 1e-6)", "train", ".clip(max=1.0)"),
        ("self.count, self.values = 0,", "self.count, self.values = 1,", "train", "0"),
        ("max(0, (step", "max(1, (step", "backward", "max(0, (step"),
        ("np.pad(distances + 1, ((0, gap), (0, gap)))", "np.pad(distances, ((0, gap), (0, gap))) + 1", "data", "+ 1"),
        (".mean() - clicks[one]", ".mean() + clicks[one]", "metric", ".mean() - clicks[one]"),
    ],
)
def test_the_line_is_told_with_what_is_meant(right: str, wrong: str, stage: str, told: str, tmp_path: Path) -> None:
    fault = found(tmp_path, right, wrong, stage)[0]  # of data one for each split
    assert fault.explanation is not None, fault.evidence
    number = next(n for n, text in enumerate(edited(PORT, [(right, wrong)]).splitlines(), start=1) if wrong in text)
    assert f"line {number} of ours.py" in fault.explanation.text, fault.explanation.text
    assert told in fault.explanation.text, fault.explanation.text


def test_what_the_reference_makes_of_a_setting_in_a_loop_is_told(tmp_path: Path) -> None:
    edits = [
        ("self.count, self.values = 0,", "self.rate, self.count, self.values = 0.9, 0,"),
        ("decay = min(0.9, (1 + self.count) / (10 + self.count))", "decay = self.rate"),
    ]
    named = [
        ("updates = copy.deepcopy(model), 0", "updates, rate = copy.deepcopy(model), 0, 0.9"),
        ("min(0.9", "min(rate"),
    ]
    case = written(tmp_path, edited(PORT, edits), CASE, edited(REFERENCE, named))
    (fault,) = faults_of(case, stages=("train",))
    assert fault.explanation is not None, fault.evidence
    told = "`self.rate` in place of `min(self.rate, (1 + self.count) / (10 + self.count))`"
    assert told in fault.explanation.text, fault.explanation.text


def test_data_of_fewer_samples_than_are_asked_for_are_mended_as_well(tmp_path: Path) -> None:
    right, wrong = "np.pad(distances + 1, ((0, gap), (0, gap)))", "np.pad(distances, ((0, gap), (0, gap))) + 1"
    fault = found(tmp_path, right, wrong, "data", edited(CASE, [("data_samples = 4", "data_samples = 9")]))[0]
    assert fault.explanation is not None
    assert "+ 1" in fault.explanation.text


WALKS = """
def padded(distances):
    walk = torch.as_tensor(distances).double()
    power, found = walk, []
    for _ in range(2):
        power = power @ walk
        found.append(torch.diagonal(power))
    return torch.stack(found)
"""
WALKS_OF_PORT = """
def to_square(distances):
    walk = distances.astype("float64")
    power, found = np.eye(3), []
    for _ in range(2):
        power = power @ walk
        found.append(np.diagonal(power))
    return np.stack(found)
"""


def test_both_sides_may_read_their_data_from_a_module_that_they_share(tmp_path: Path) -> None:
    """The port's line does not run in the reference, so that it is searched in the port."""
    (tmp_path / "raw.py").write_text(
        "import numpy as np\n\n\ndef tables(count=6):\n    found = []\n    for number in range(count):\n"
        "        found.append(np.random.default_rng(number).integers(1, 5, (3, 3)))\n    return found\n"
    )
    loop = "        for number in range(6):\n            rng = np.random.default_rng(number)\n"
    drawn = "            distances = rng.integers(1, 5, (3, 3))\n"
    reading = "        for distances in raw.tables():\n"
    case = edited(CASE, [(loop + drawn, reading), ("import numpy as np\n", "import numpy as np\nimport raw\n")])
    folder = written(tmp_path, PORT + WALKS_OF_PORT, case, REFERENCE + WALKS)
    fault = faults_of(folder, stages=("data",))[0]
    assert fault.explanation is not None
    assert "`np.eye(3)` in place of `walk`" in fault.explanation.text


def test_the_right_port_has_no_fault(tmp_path: Path) -> None:
    assert faults_of(written(tmp_path, PORT, CASE, REFERENCE)) == []
