"""Expressions of the reference in the port's names, which the values tell."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
import torch

from tests.twinalign.replay.test_ordered_edits import module
from twinalign.replay import noted_values
from twinalign.replay.aligned_code import parsed
from twinalign.replay.grafts import grafts
from twinalign.replay.helper_edits import HelperEdit
from twinalign.replay.line_spelling import OF_REFERENCE
from twinalign.replay.noted_expressions import values_of
from twinalign.replay.noted_values import values_in
from twinalign.replay.ordered_edits import edited
from twinalign.replay.running_functions import functions_of
from twinalign.replay.torch_in_paddle import NotSpelledError, in_paddle

REFERENCE = """
import torch

def objective(logits, clip=0.2):
    ratio = torch.exp(logits)
    gain = logits - logits.mean()
    return -torch.min(ratio * gain, ratio.clamp(1 - clip, 1 + clip) * gain).mean()
"""
PORT = """
import paddle

class Objective:
    def __init__(self):
        self.limit = 0.2

    def __call__(self, scores):
        r = paddle.exp(scores)
        advantage = scores - paddle.mean(scores)
        return self.of(r, advantage)

    def of(self, r, advantage):
        bounded = paddle.clip(r, 1.0 - self.limit, 1.0 + self.limit) * advantage
        return -paddle.mean(bounded)
"""
X = np.random.default_rng(0).standard_normal(20)


def found_of(reference: str, port: str, theirs: Callable[[Any], Any], ours: Callable[[Any], Any]) -> list[Any]:
    one, other = module(reference, "theirs_of_grafts"), module(port, "ours_of_grafts")
    values = values_of(lambda: theirs(one), os.devnull)
    codes = functions_of(lambda: ours(other), "paddle")
    return grafts(codes, values_in(lambda: ours(other)), values["functions"], {})


def test_an_expression_that_the_port_lacks_is_found_in_its_names() -> None:
    edits = found_of(
        REFERENCE,
        PORT,
        lambda module: module.objective(torch.from_numpy(X)),
        lambda module: module.Objective()(paddle.to_tensor(X)),
    )
    after = [edit.to_json()["after"] for edit in edits]
    right = "`-paddle.minimum(r * advantage, r.clip(1 - self.limit, 1 + self.limit) * advantage).mean()`"
    assert right.strip("`") in after[:6]
    edit = edits[after.index(right.strip("`"))]
    assert edit.to_json()["before"] == "-paddle.mean(bounded)"
    expected = float(module(REFERENCE).objective(torch.from_numpy(X)))
    with edited(edit):
        (run,) = {function.__globals__["Objective"] for code in [edit.code] for function in code.functions}
        assert float(run()(paddle.to_tensor(X))) == pytest.approx(expected, rel=1e-12)


def test_a_number_that_the_port_has_no_name_for_is_written_itself() -> None:
    reference = """
def rate(step, total=12, warmup=3):
    return (step - warmup) / (total - warmup)
"""
    port = """
def falling(step):
    return (step - 3) / 12.5
"""
    edits = found_of(reference, port, lambda module: module.rate(7), lambda module: module.falling(7))
    assert "(step - 3) / (12 - 3)" in [edit.to_json()["after"] for edit in edits]


def test_what_both_sides_share_or_build_layers_of_is_left_out() -> None:
    shared = """
def drawn(seed):
    return seed * 1.5 + 7

def theirs(seed):
    return drawn(seed) * 3

def ours(seed):
    return drawn(seed) * 4
"""
    both = module(shared)
    values = values_of(lambda: both.theirs(5), os.devnull)
    codes = functions_of(lambda: both.ours(5), "paddle")
    edits = grafts(codes, values_in(lambda: both.ours(5)), values["functions"], {})
    assert not any("1.5" in edit.to_json()["after"] for edit in edits)


def test_names_are_not_partners_for_one_everywhere_alone() -> None:
    reference = """
def of(x, first=1):
    y = x * 2.5
    return y + first
"""
    port = """
def of(x, amount=1):
    y = x * 2.5
    return y - y
"""
    edits = found_of(reference, port, lambda module: module.of(X), lambda module: module.of(X))
    after = [edit.to_json()["after"] for edit in edits]
    assert "y + 1" in after
    assert not any("amount" in one for one in after)


def test_values_are_kept_of_the_first_calls_and_of_plain_attributes() -> None:
    made = module("""
class Counter:
    def __init__(self):
        self.step = 0.5

    def of(self, x):
        y = x + self.step
        return y
""")
    values = values_in(lambda: [made.Counter().of(number) for number in range(9)])
    named = next(one for code, one in values.items() if code.co_name == "of")
    assert named["self.step"] == [((), [0.5])]
    assert named["y"] == [((), [number + 0.5]) for number in range(noted_values._MOST_CALLS)]


SPELLED = [
    ("torch.cat([a, b], dim=1)", "paddle.concat([a, b], axis=1)"),
    ("x.permute(0, 2, 1).view(b, -1)", "x.transpose([0, 2, 1]).reshape([b, -1])"),
    ("x.transpose(1, 2)", "x.swapaxes(1, 2)"),
    ("x.clamp(min=1)", "x.clip(min=1)"),
    ("torch.max(a, b)", "paddle.maximum(a, b)"),
    ("torch.max(a, 1)", "paddle.max(a, 1)"),
    ("x.float().contiguous()", "x.astype('float32')"),
    ("x.size(0) + 1", "x.shape[0] + 1"),
    ("F.softmax(x, dim=-1)", "P.softmax(x, axis=-1)"),
    ("np.log(x)", "numpy.log(x)"),
]


@pytest.mark.parametrize(("torchs", "paddles"), SPELLED)
def test_an_expression_in_paddles_words(torchs: str, paddles: str) -> None:
    theirs = {"torch": "torch", "F": "torch.nn.functional", "np": "numpy"}
    ours = {"paddle": "paddle", "paddle.nn.functional": "P", "numpy": "numpy"}
    assert ast.unparse(in_paddle(ast.parse(torchs, mode="eval").body, theirs, ours)) == paddles


def test_what_an_edit_takes_from_the_reference_is_told_in_paddles_words() -> None:
    code = parsed("def of(x):\n    return paddle.log(x.clip(min=1))\n", "port.py", 1, "of", "paddle")
    assert code is not None
    node = ast.parse("torch.log2(x.clamp(min=1))", mode="eval").body
    setattr(node, OF_REFERENCE, True)
    (old,) = (one.value for one in code.tree.body if isinstance(one, ast.Return))
    assert old is not None
    assert HelperEdit(code, old, node).to_json() == {
        "before": "paddle.log(x.clip(min=1))",
        "after": "paddle.log2(x.clip(min=1))",
    }


def test_what_needs_a_module_that_the_port_lacks_is_refused() -> None:
    with pytest.raises(NotSpelledError, match="paddle"):
        in_paddle(ast.parse("torch.exp(x)", mode="eval").body, {"torch": "torch"}, {})


THEIRS_OF_TABLE = """
import torch

class Table(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("codes", torch.arange(6.0, dtype=torch.float64).reshape(3, 2).sin())

    def forward(self, x):
        return x - self.codes.pow(2).sum(1)
"""
OURS_OF_TABLE = """
import paddle

class Table(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", paddle.arange(6.0, dtype="float64").reshape([3, 2]).sin())

    def forward(self, x):
        return x - self.table.pow(2).sum()
"""


def test_the_tensors_of_a_layer_have_values_too() -> None:
    x = X[:3]
    edits = found_of(
        THEIRS_OF_TABLE,
        OURS_OF_TABLE,
        lambda module: module.Table()(torch.from_numpy(x)),
        lambda module: module.Table()(paddle.to_tensor(x)),
    )
    found = [edit.to_json() for edit in edits]
    assert {"before": "self.table.pow(2).sum()", "after": "self.table.pow(2).sum(1)"} in found[:4]


def test_entries_of_dictionaries_have_values() -> None:
    made = module("def fit(x):\n    found = {'total': x * 2}\n    return found['total']\n", "ours_of_entries")
    values = values_in(lambda: made.fit(paddle.to_tensor(X)))[made.fit.__code__]
    assert values["found['total']"][0][1][0] == pytest.approx(2 * X[0])
