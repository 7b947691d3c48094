"""Where two functions differ, statement by statement."""

import ast

import pytest

from twinalign.replay.aligned_code import Code, differences, parsed
from twinalign.replay.helpers import Helpers
from twinalign.replay.line_spelling import in_torch
from twinalign.replay.partner_functions import partners

REFERENCE = """
def loss(predictions, target):
    total = 0.0
    for i in range(len(predictions)):
        total = total + 0.8 ** (len(predictions) - i - 1) * (predictions[i] - target).abs().mean()
    return total
"""
PORT = """
def loss(predictions, target):
    total = 0.0
    for i, flow in enumerate(predictions):
        total = total + 0.8 ** i * (flow - target).abs().mean()
    return total
"""
SAME_NAMES = PORT.replace("i, flow in enumerate(predictions)", "i in range(3)").replace("flow", "predictions[i]")


@pytest.mark.parametrize(("port", "whole"), [(PORT, True), (SAME_NAMES, False)])
def test_a_loop_that_gives_its_body_other_names_is_exchanged_as_a_whole(port: str, whole: bool) -> None:
    theirs, ours = (
        parsed(text.strip(), "a.py", 1, "loss", side) for text, side in ((REFERENCE, "torch"), (port, "paddle"))
    )
    assert theirs is not None
    assert ours is not None
    found = [one.old for one in differences(theirs, ours) if not one.has_same_words]
    assert [isinstance(old, ast.For) for old in found] == ([True] if whole else [False, False])


def test_constructors_of_unlike_classes_are_no_partners() -> None:
    picture = "def __init__(self, file):\n    self.tile = []\n    self.file = open(file)"
    norm = "def __init__(self, dim):\n    for _ in range(dim):\n        add_sublayer(nn.LayerNorm(dim, epsilon=1e-6))"
    theirs, other = (
        parsed(text, "a.py", 1, f"{name}.__init__", side)
        for text, name, side in ((picture, "ImageFile", "torch"), (norm, "Block", "paddle"))
    )
    alike = parsed(picture.replace("tile", "tiles"), "b.py", 1, "Picture.__init__", "paddle")
    assert theirs is not None
    assert other is not None
    assert alike is not None
    assert partners([theirs], [other]) == []
    assert partners([theirs], [other, alike]) == [(theirs, alike)]


def test_what_hands_on_to_another_function_is_no_partner_of_what_does_the_work() -> None:
    work = "def {}(self, x):\n    y = self.proj(x)\n    z = y.softmax(-1) * x\n    return z.sum(1) + y.mean(1)"
    hands_on = "def forward(self, x, other=None):\n    return self._work(x)"
    one, two, ours = (
        parsed(text, "a.py", 1, f"Block.{name}", side)
        for text, name, side in (
            (hands_on, "forward", "torch"),
            (work.format("_work"), "_work", "torch"),
            (work.format("forward"), "forward", "paddle"),
        )
    )
    assert one is not None
    assert two is not None
    assert ours is not None
    assert partners([one, two], [ours]) == [(two, ours)]
    assert partners([ours], [one, two]) == [(ours, two)]
    assert partners([one], [ours]) == [(one, ours)]


def _code(source: str, name: str, side: str) -> Code:
    found = parsed(source.strip(), "a.py", 1, name, side)
    assert found is not None
    return found


def test_a_branch_of_one_side_inside_of_a_loop_is_taken_there_alone() -> None:
    source = """
def train(self, framework, losses):
    for one in losses:
        if framework == "torch":
            one["loss"].backward()
        elif framework == "paddle":
            one["aux"].backward()
        self.record(one)
"""
    sides = [_code(source, "train", side) for side in ("torch", "paddle")]
    (found,) = [one for one in differences(*sides) if not one.has_same_words]
    assert found.text == (
        "`one['aux'].backward()` in place of `one['loss'].backward()`, line 6 of a.py and line 4 of a.py"
    )
    alone = [ast.unparse(node) for node in sides[1].nodes if id(node) in sides[1].of_one_side]
    assert "one['aux'].backward()" in alone
    assert "self.record(one)" not in alone


def test_methods_of_other_names_are_partners_where_partners_call_them() -> None:
    """They have hardly a word in common, and stand in the same place."""
    theirs = [
        _code("def forward(self, x):\n    return self.encode(x) * 2", "Net.forward", "torch"),
        _code(
            "def encode(self, ids):\n    for one in zip(ids, self.blocks):\n        y = one(y)\n    return y",
            "Net.encode",
            "torch",
        ),
    ]
    ours = [
        _code("def forward(self, x):\n    return 2 * self.features(x)", "Net.forward", "paddle"),
        _code(
            "def features(self, tokens):\n    h = paddle.add(tokens, 1)\n    return F.relu(h).sum(-1)",
            "Net.features",
            "paddle",
        ),
    ]
    assert partners(theirs, ours) == list(zip(theirs, ours, strict=True))
    alone = [ours[0], _code("def features(self, tokens):\n    return tokens", "Net.other", "paddle")]
    assert partners(theirs, alone) == [(theirs[0], ours[0])]


def test_a_method_without_a_partner_is_called_with_its_object() -> None:
    split = _code("def split(self, x):\n    return x", "Attention.split", "paddle")
    other = _code("def split(self, x):\n    return x * 2", "Block.split", "paddle")
    caller = _code("def forward(self, x):\n    return self.split(x) + self.merge(x)", "Attention.forward", "paddle")
    helpers = Helpers({"forward": "forward", "merge": "join"}, [split, other, caller])
    made = in_torch(caller.tree.body[0], caller, None, helpers)
    text = ast.unparse(ast.fix_missing_locations(made))
    assert "_twinalign_helper_Attention_split(self, x)" in text
    assert "(self, 'join')" in text


def test_a_layer_s_method_stands_for_a_function_whose_weights_it_has_as_settings() -> None:
    reference = "def criterion(x, weight=0.1):\n    penalty = weight * x.pow(2).mean()\n    return penalty"
    port = "def forward(self, x):\n    weight = self.beta * x.square().mean()\n    return weight"
    theirs = parsed(reference, "a.py", 1, "criterion", "torch")
    ours = parsed(port, "b.py", 1, "Loss.forward", "paddle", attributes={"beta": 0.1})
    assert theirs is not None
    assert ours is not None
    found = differences(theirs, ours)
    assert [ast.unparse(one.new) for one in found if one.new] == ["penalty = 0.1 * x.square().mean()", "return penalty"]
    text = "`self.beta * x.square().mean()` in place of `weight * x.pow(2).mean()`, line 2 of b.py and line 2 of a.py"
    assert found[0].text == text
