"""Where the port's code goes wrong, by the reference's values, and the edits that are right there."""

from __future__ import annotations

import ast
import dataclasses
import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
import torch

from tests.twinalign.replay.test_ordered_edits import module
from twinalign.backends.paddle.tensors import to_tensor_like
from twinalign.replay.grafts import code_of
from twinalign.replay.handed_on import handed_on
from twinalign.replay.lacking_statements import lacking_statements
from twinalign.replay.noted_expressions import values_of
from twinalign.replay.noted_values import values_in
from twinalign.replay.ordered_edits import Fit, edited
from twinalign.replay.places_of_edits import Unit, found_anyhow, found_by_values, told, trials_of
from twinalign.replay.running_functions import functions_of
from twinalign.replay.words_by_values import by_values

Run = Callable[[Any], Any]
X = np.random.default_rng(0).standard_normal((3, 4))
W = np.random.default_rng(1).uniform(0.5, 2.0, (3, 4))


@dataclasses.dataclass
class Both:
    """The reference's values, and the port as a unit."""

    values: dict[str, Any]
    unit: Unit


def both(folder: Path, reference: str, port: str, theirs: Run, ours: Run) -> Both:
    one, other = module(reference, "theirs_of_places"), module(port, "ours_of_places")
    right = np.asarray(theirs(one), np.float64)
    values = values_of(lambda: theirs(one), str(folder / "values.npy"))

    def is_right() -> bool:
        found = np.asarray(ours(other), np.float64)
        return found.shape == right.shape and bool(np.allclose(found, right, rtol=1e-12, atol=0.0))

    def fit(edit: Any) -> Fit:
        with edited(edit):
            return Fit.ALL if is_right() else Fit.NOTHING

    codes = functions_of(lambda: ours(other), "paddle")
    named = values_in(lambda: ours(other))
    return Both(values, Unit(codes, lambda: ours(other), is_right, fit, named, to_tensor_like))


def found(folder: Path, reference: str, port: str, theirs: Run, ours: Run) -> tuple[Any, Any]:
    made = both(folder, reference, port, theirs, ours)
    trials = trials_of(made.unit, made.values)
    assert trials is not None
    edit, place = found_by_values(made.unit, trials, made.values, [], [], {}, 20.0)
    return (edit[0] if edit is not None else None), place


RATIO = """
import torch

def ratio(clean, other, mask):
    signal = (clean ** 2 * mask).sum(1)
    noise = ((clean - other) ** 2 * mask).sum(1)
    return (10 * torch.log10(signal / (noise + 1e-8))).mean()
"""
POOLED = """
import paddle

def quality(target, estimate, weight):
    err = (target - estimate).square() * weight
    power = target.square() * weight
    quotient = power.sum() / (err.sum() + 1e-8)
    return 10 * paddle.log10(quotient).mean()
"""


def test_one_edit_in_two_places_of_what_an_expression_is_made_of(tmp_path: Path) -> None:
    edit, place = found(
        tmp_path,
        RATIO,
        POOLED,
        lambda made: made.ratio(torch.from_numpy(X), torch.from_numpy(X[::-1].copy()), torch.from_numpy(W)),
        lambda made: made.quality(paddle.to_tensor(X), paddle.to_tensor(X[::-1].copy()), paddle.to_tensor(W)),
    )
    assert place.place.text == "10 * paddle.log10(quotient).mean()"
    assert edit.text == (
        "`power.sum()` in place of `power.sum(1)`, line 6 of ours_of_places.py, "
        "and `err.sum()` in place of `err.sum(1)`, line 6 of ours_of_places.py"
    )
    to_do = "write `power.sum(1)` in place of `power.sum()` and write `err.sum(1)` in place of `err.sum()`"
    assert edit.to_json() == {"to_do": to_do}
    assert edit.lines_of_port == [("ours_of_places.py", 6, 6)]


def test_the_first_place_that_makes_all_right_is_found_and_another_attribute_there(tmp_path: Path) -> None:
    reference = """
class Matcher:
    def __init__(self):
        self.high, self.low = 0.9, 0.2

    def of(self, best):
        labels = (best > 0) * 1.0
        labels[best < self.low] = 0
        labels[(best >= self.low) & (best < self.high)] = -1
        return labels * 3
"""
    port = """
import numpy as np

class Matching:
    def __init__(self):
        self.upper, self.lower = 0.9, 0.2

    def of(self, quality):
        labels = np.where(quality >= self.upper, (quality > 0) * 1.0, -1.0)
        labels = np.where(quality < self.upper, 0.0, labels)
        return labels * 3
"""
    edit, place = found(
        tmp_path, reference, port, lambda made: made.Matcher().of(X), lambda made: made.Matching().of(X)
    )
    assert place.place.text == "np.where(quality < self.upper, 0.0, labels)"
    assert place.parts[0][1].text == "labels[(best >= self.low) & (best < self.high)] = -1"
    assert edit.text == "`self.upper` in place of `self.lower`, line 9 of ours_of_places.py"


STEPS = """
import numpy as np

def steps(x, keep):
    h, c, every = np.zeros(4), np.zeros(4), []
    for one, alive in zip(x, keep):
        new, memory = np.tanh(one + h), c + one
        h, c = np.where(alive, new, h), np.where(alive, memory, c)
        every.append(h + c)
    return np.stack(every)
"""
NOT_HELD = """
import numpy as np

def run(x, mask):
    state, cell, found = np.zeros(4), np.zeros(4), []
    for one, m in zip(x, mask):
        state, cell = np.tanh(one + state), cell + one
        found.append(state + cell)
    return np.stack(found)
"""


def test_two_values_of_one_statement_are_exchanged_at_once_and_told(tmp_path: Path) -> None:
    keep = np.array([True, False, True])
    edit, place = found(
        tmp_path, STEPS, NOT_HELD, lambda made: made.steps(X, keep), lambda made: made.run(X, keep.astype(float))
    )
    assert edit is None
    assert told(place) == {
        "text": (
            "`np.tanh(one + state)` and `cell + one`, line 6 of ours_of_places.py, should be what "
            "`np.where(alive, new, h)`, line 7 of theirs_of_places.py and `np.where(alive, memory, c)`, "
            "line 7 of theirs_of_places.py, are"
        ),
        "lines_of_port": [("ours_of_places.py", 6, 6)],
        "edit": {
            "to_do": (
                "let `np.tanh(one + state)` and `cell + one` be what `np.where(alive, new, h)`, "
                "line 7 of theirs_of_places.py and `np.where(alive, memory, c)`, line 7 of theirs_of_places.py, are"
            )
        },
        "is_place": True,
    }


def test_values_in_another_layout_are_no_place_where_it_goes_wrong(tmp_path: Path) -> None:
    reference = """
def of(x):
    heads = x.reshape(3, 2, 2).transpose(0, 1)
    return (heads * 3 + 1).sum(0)
"""
    port = """
def of(x):
    heads = x.reshape([3, 2, 2])
    scaled = heads * 3
    return (scaled + 2).sum(0)
"""
    edit, place = found(
        tmp_path,
        reference.replace(".sum(0)", ".transpose(0, 1).sum(0)"),
        port,
        lambda made: made.of(torch.from_numpy(X)),
        lambda made: made.of(paddle.to_tensor(X)),
    )
    assert place.place.text == "scaled + 2"
    assert place.is_where
    assert edit.text == "`scaled + 2` in place of `scaled + 1`, line 4 of ours_of_places.py"


def test_a_formula_of_the_reference_is_written_for_numbers(tmp_path: Path) -> None:
    reference = """
import torch

def perplexity(forward, backward):
    return torch.exp((forward + backward) / 2)
"""
    port = """
import math
import paddle

def measure(one, other):
    return 0.5 * (math.exp(one) + math.exp(other))
"""
    edit, _ = found(
        tmp_path,
        reference,
        port,
        lambda made: made.perplexity(torch.tensor(1.25, dtype=torch.float64), torch.tensor(2.5, dtype=torch.float64)),
        lambda made: made.measure(1.25, 2.5),
    )
    assert edit.to_json()["after"] == "math.exp((one + other) / 2)"


def test_nothing_is_told_where_it_goes_wrong_before_or_an_object_is_called(tmp_path: Path) -> None:
    """The object may have been changed before."""
    reference = """
def evaluate(x, factor):
    scaled = x * factor
    return scaled + 1
"""
    port = """
class Net:
    def __init__(self, factor):
        self._held = [factor]

    def __call__(self, x):
        return x * self._held[0]

def evaluate(x, factor):
    net = Net(factor)
    return net(x) + 1
"""
    made = both(tmp_path, reference, port, lambda made: made.evaluate(X, 2.0), lambda made: made.evaluate(X, 3.0))
    outer = [code for code in made.unit.codes if code.name == "evaluate"]
    unit = dataclasses.replace(made.unit, codes=outer)
    trials = trials_of(unit, made.values)
    assert trials is not None
    place = trials.found(unit.is_right, {}, 10.0)[0]
    assert place.place.text == "net(x)"
    assert found_by_values(unit, trials, made.values, [], [], {}, 20.0) == (None, None)
    plain = dataclasses.replace(place.place, node=ast.parse("x + 1", mode="eval").body)
    for is_where in (True, False):
        parts = [(plain, *place.parts[0][1:])]
        other = dataclasses.replace(place, place=plain, parts=parts, is_where=is_where, calls_object=False)
        assert bool(told(other)) is is_where


def test_without_a_place_the_edits_are_tried_in_turn(tmp_path: Path) -> None:
    made = both(tmp_path, "def of(x):\n    return x * 2\n", "def of(x):\n    return x * 3\n", *[lambda m: m.of(X)] * 2)
    tried: list[Any] = []

    def edits(far: Any) -> Iterable[Any]:
        tried.append("asked")
        return iter(())

    assert found_anyhow(None, lambda: None, made.values, [], [], {}, edits, made.unit.fit, 1.0) == {}
    assert tried == ["asked"]
    trials = functools.partial(trials_of, made.unit, made.values)
    answer = found_anyhow(made.unit, trials, made.values, [], [], {}, lambda far: (), made.unit.fit, 20.0)
    assert answer["text"] == "`x * 3` in place of `x * 2`, line 2 of ours_of_places.py"


@pytest.mark.parametrize("expressions", [None, {}])
def test_without_the_references_values_there_is_no_place(tmp_path: Path, expressions: Any) -> None:
    made = both(tmp_path, "def of(x):\n    return x * 2\n", "def of(x):\n    return x * 3\n", *[lambda m: m.of(X)] * 2)
    values = made.values | {"expressions": expressions}
    assert trials_of(made.unit, values) is None
    answer = found_anyhow(made.unit, lambda: None, values, [], [], {}, lambda far: (), made.unit.fit, 20.0)
    assert answer == {}


ROLLOUT = """
SCALE = 8.0
def step(state):
    return 0.75 * state + 0.25, 1.0 - state / 3.0

def ready(length):
    marks = (length, length + 1.5)
    return marks[0] * 2.5 - 1.0

def {name}(x, steps=8):
    state, total = x.sum().item(), ready(2.5) * 0.0
    {begin}
    for t in range(steps):
        state, reward = step(state + 0.1 * {wanted})
        total += reward
        {change}
    return total
"""


def test_in_a_loop_the_first_step_tells_what_goes_wrong_and_what_follows_is_made_of_it(tmp_path: Path) -> None:
    parts = {
        "begin": "asked = [4.0 / SCALE]",
        "wanted": "asked[-1]",
        "change": "asked.append(asked[-1] - reward / SCALE)",
    }
    reference = ROLLOUT.format(name="rollout", **parts)
    parts = {"begin": "wanted = 4.0 / SCALE", "wanted": "wanted", "change": "wanted -= reward"}
    port = ROLLOUT.format(name="play", **parts).replace("marks[0] * 2.5", "2.5 * marks[0]")
    made = both(tmp_path, reference, port, lambda made: made.rollout(X), lambda made: made.play(X))
    trials = trials_of(made.unit, made.values)
    assert trials is not None
    edit, place = found_by_values(made.unit, trials, made.values, [], [], {}, 20.0)
    assert place is not None
    assert (place.place.text, place.is_where) == ("wanted -= reward", True)
    assert edit is not None
    assert edit[0].text == "`wanted -= reward` in place of `wanted -= reward / SCALE`, line 15 of ours_of_places.py"


def test_what_right_values_alone_are_made_of_comes_last(tmp_path: Path) -> None:
    reference = """
def of(x):
    return 2.5 * x.sum() * 3.0 + x.mean() * 7.0
"""
    port = """
def of(x):
    whole = 7.5 * (x.sum() * 1.0)
    return whole + x.mean() * 6.0
"""
    made = both(tmp_path, reference, port, lambda made: made.of(X), lambda made: made.of(X))
    trials = trials_of(made.unit, made.values)
    assert trials is not None
    code = made.unit.codes[0]
    late = {one.value: trials.is_used_rightly(code, one) for one in code.nodes if isinstance(one, ast.Constant)}
    assert late == {7.5: True, 1.0: True, 6.0: False}


@pytest.mark.parametrize("called", ["kept.net(x)", "kept.net.scaled(x)"])
def test_an_object_that_is_called_by_way_of_another_is_no_place(tmp_path: Path, called: str) -> None:
    text = """
class Net:
    def __init__(self, factor):
        self.held = factor

    def __call__(self, x):
        return x * self.held

    scaled = __call__

class Kept:
    def __init__(self, factor):
        self.net = Net(factor)

def evaluate(x, factor):
    kept = Kept(factor)
    return {called} + 1
"""
    text = text.format(called=called)
    made = both(tmp_path, text, text, lambda made: made.evaluate(X, 2.0), lambda made: made.evaluate(X, 3.0))
    unit = dataclasses.replace(made.unit, codes=[code for code in made.unit.codes if code.name == "evaluate"])
    trials = trials_of(unit, made.values)
    assert trials is not None
    assert trials.found(unit.is_right, {}, 10.0)[0].place.text == called
    assert found_by_values(unit, trials, made.values, [], [], {}, 20.0) == (None, None)


def test_what_the_reference_calls_its_own_functions_for_the_port_has_names_for(tmp_path: Path) -> None:
    """And the edit stands where the port makes the name; what it is made of besides is not computed once more."""
    reference = """
import numpy as np

class Process:
    def at(self, table, t):
        return np.cos(table) * t

    def step(self, x, t):
        clean = np.clip(x, -1, 1)
        noise = (x - self.at(1.0, t) * clean) / self.at(0.5, t)
        return clean * 0.3 + noise
"""
    port = """
import numpy as np

CALLS = []

def coefficients(t):
    CALLS.append(t)
    return np.cos(1.0) * t, np.cos(0.5) * t

def sample(x, t):
    a, s = coefficients(t)
    denoised = np.clip(x, -1, 1)
    eps = a * denoised + s * x
    return denoised * 0.3 + eps
"""
    edit, place = found(
        tmp_path, reference, port, lambda made: made.Process().step(X, 3.5), lambda made: made.sample(X, 3.5)
    )
    assert place.parts[0][1].text == "(x - self.at(1.0, t) * clean) / self.at(0.5, t)"
    assert edit.text == ("`a * denoised + s * x` in place of `(x - a * denoised) / s`, line 12 of ours_of_places.py")


TRACKER = """
import numpy as np

def associate(found, boxes):
    tracks, last = found[0].copy(), boxes[0].copy()
    costs = []
    for t in range(1, 3):
        cost = np.abs(tracks - found[t]).sum() + np.abs(last - boxes[t]).sum()
        costs.append(cost)
        for r in range(3):
            tracks[r] = 0.5 * tracks[r] + 0.5 * found[t][r]
            last[r] = boxes[t][r]
    return sum(costs)
"""
LINKER = """
import numpy as np

class Linker:
    def __init__(self, embedding, boxes):
        self.embedding, self.boxes = embedding.copy(), boxes.copy()
        self.costs = []

    def step(self, embedding, boxes):
        cost = np.abs(self.embedding - embedding).sum() + np.abs(self.boxes - boxes).sum()
        self.costs.append(cost)
        for i in range(3):
            self.embedding[i] = 0.5 * self.embedding[i] + 0.5 * embedding[i]
            {lost}

def link(embeddings, boxes):
    linker = Linker(embeddings[0], boxes[0])
    for t in range(1, 3):
        linker.step(embeddings[t], boxes[t])
    return sum(linker.costs)
"""


def lacking_in(folder: Path, lost: str) -> list[str]:
    embeddings, boxes = np.random.default_rng(2).random((2, 3, 3, 4))
    reference = TRACKER.replace("boxes[t][r]", "places[r]").replace("boxes[t])", "places)")
    reference = reference.replace("cost = ", "places = boxes[t]\n        cost = ")
    made = both(
        folder,
        reference.replace("found[t][r]", "new[r]").replace("places = boxes[t]", "places, new = boxes[t], found[t]"),
        LINKER.format(lost=lost),
        lambda made: made.associate(embeddings, boxes),
        lambda made: made.link(embeddings, boxes),
    )
    trials = trials_of(made.unit, made.values)
    assert trials is not None
    return [edit.text for edit in lacking_statements(made.unit.codes, made.values["functions"], trials)]


def test_a_statement_that_the_port_lacks_is_written_where_the_reference_has_it(tmp_path: Path) -> None:
    beside = "`self.embedding[i] = 0.5 * self.embedding[i] + 0.5 * embedding[i]`, line 12 of ours_of_places.py"
    right = "with it the port does what the reference does"
    text = f"`self.boxes[i] = boxes[i]` is lacking behind {beside}: {right}"
    assert text in lacking_in(tmp_path, "")[:4]  # among what else has its shape


def test_a_statement_that_the_port_has_lacks_nowhere(tmp_path: Path) -> None:
    assert lacking_in(tmp_path, "self.boxes[i] = boxes[i]") == []


def test_a_loop_that_does_not_end_with_a_value_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = """
def of(x):
    total = 1.0
    for at in range(3):
        left = 2.25 + at * 0.0
        total = total + left
    return total
"""
    port = """
def of(x):
    left, total = 37, 1.0
    while left != 1:
        left -= 12
        total += 4.0
    return total
"""
    monkeypatch.setattr("twinalign.replay.value_trials.LONGEST", 0.2)
    made = both(tmp_path, reference, port, lambda made: made.of(X), lambda made: made.of(X))
    ended: list[bool] = []

    def is_right() -> bool:
        ended.append(False)
        found = made.unit.is_right()
        ended[-1] = True
        return found

    trials = trials_of(made.unit, made.values)
    assert trials is not None
    falling = {id(one): 0 for code in made.unit.codes for one in code.nodes if isinstance(one, ast.AugAssign)}
    assert trials.found(is_right, dict.fromkeys(list(falling)[:1], 0), 5.0) == []
    assert ended
    assert not all(ended)


def test_names_of_the_reference_are_opened_until_the_port_has_their_values(tmp_path: Path) -> None:
    """A value that is used too early has one that the reference has as well; settings are the numbers that they are."""
    reference = """
import numpy as np

LOW, HIGH = -5.0, 2.0

class Head:
    def __call__(self, h):
        return h * 0.5 + 0.1

class Policy:
    def __init__(self):
        self.scale = Head()

    def of(self, h):
        spread = np.tanh(self.scale(h))
        spread = LOW + 0.5 * (HIGH - LOW) * (spread + 1)
        return np.exp(spread) * 3.0 + spread
"""
    port = """
import numpy as np

class Raw:
    def __call__(self, h):
        return h * 0.5 + 0.1

class Actor:
    def __init__(self):
        self.raw = Raw()

    def of(self, h):
        log_std = np.clip(self.raw(h), -5.0, 2.0)
        return np.exp(log_std) * 3.0 + log_std
"""
    made = both(tmp_path, reference, port, lambda made: made.Policy().of(X), lambda made: made.Actor().of(X))
    trials = trials_of(made.unit, made.values)
    assert trials is not None
    (of,) = [one for function, _ in made.values["functions"] if (one := code_of(function)) and one.name == "Policy.of"]
    (code,) = [one for one in made.unit.codes if one.name == "Actor.of"]
    wanted: Any = of.tree.body[1]
    clipped: Any = code.tree.body[0]
    words = by_values(code, clipped.value.args[0], of, wanted.value, trials)
    assert words is not None
    assert ast.unparse(words) == "-5.0 + 0.5 * (2.0 - -5.0) * (np.tanh(self.raw(h)) + 1)"
    assert by_values(code, clipped.value.args[0], of, of.tree.body[2].value, trials) is not None  # type: ignore[attr-defined]
    before = clipped.value.args[0].args[0]  # where nothing but `h` has a value
    assert by_values(code, before, of, ast.parse("unknown(h)", mode="eval").body, trials) is None


def test_what_the_port_hands_on_is_divided_as_in_the_reference(tmp_path: Path) -> None:
    reference = """
class Settings:
    accumulate = 4

def objective(x):
    return {"loss": (x * x).mean()}

def step(x, args):
    loss = objective(x)["loss"] / args.accumulate
    return loss * 1.0

def train(x):
    return step(x, Settings())
"""
    port = """
def total(x):
    return {"loss": (x * x).mean()}

def micro_step(x):
    loss = total(x)["loss"]
    return loss * 1.0

def fit(x):
    return micro_step(x)
"""
    made = both(tmp_path, reference, port, lambda made: made.train(X), lambda made: made.fit(X))
    trials = trials_of(made.unit, made.values)
    assert trials is not None
    edits = list(handed_on(made.unit.codes, made.values["functions"], trials))
    text = "`total(x)['loss']` in place of `total(x)['loss'] / 4`, line 5 of ours_of_places.py"
    assert text in [edit.text for edit in edits if made.unit.fit(edit) is Fit.ALL]


def test_what_an_own_function_gives_wrongly_is_not_written_out_around_its_call(tmp_path: Path) -> None:
    """Each of two calls has its own place in the reference, and none is that of both."""
    reference = """
import numpy as np

def compare(p, t):
    one = ((p - p.mean(axis=1, keepdims=True)) ** 2).mean(axis=1)
    other = ((t - t.mean(axis=1, keepdims=True)) ** 2).mean(axis=1)
    return np.abs(np.log(one + 0.5) - np.log(other + 0.5)).sum()
"""
    port = """
import numpy as np

def energy(x):
    centred = x - x.mean()
    return (centred ** 2).mean(axis=1)

def distance(p, t):
    log_p = np.log(energy(p) + 0.5)
    log_t = np.log(energy(t) + 0.5)
    return np.abs(log_p - log_t).sum()
"""
    edit, place = found(tmp_path, reference, port, lambda made: made.compare(X, W), lambda made: made.distance(X, W))
    assert place.place.code.name == "distance"
    assert edit is None
