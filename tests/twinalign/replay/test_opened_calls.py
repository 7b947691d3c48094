"""Functions that are called once are written out in their callers, and the program stays the same."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from twinalign.replay.aligned_code import Code, parsed
from twinalign.replay.opened_calls import calls_opened


def codes(source: str, file: str = "model.py") -> list[Code]:
    """The functions of a module and the methods of its classes."""
    found = []
    for node in ast.parse(source).body:
        functions = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for one in functions:
            assert isinstance(one, ast.FunctionDef)
            text = ast.get_source_segment(source, one)
            assert text is not None
            found.append(parsed(text, file, one.lineno, prefix + one.name, "torch"))
    return [code for code in found if code is not None]


def run(code: Code, *given: Any) -> Any:
    scope: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(ast.Module([code.tree], [])), "opened", "exec"), scope)
    return scope[code.tree.name](*given)


PARTS = """\
def split(x, at):
    left = x[:at]
    right = x[at:]
    return left, right

def scaled(x, factor=2):
    factor = factor + 1
    x = [factor * one for one in x]
    return x

def forward(x, y):
    left, rest = split(x, 1)
    both = scaled(rest, len(y)) + scaled_once(left) + x
    return both, y

def scaled_once(given):
    y = [one - 1 for one in given]
    return y
"""


def test_what_is_called_once_is_written_out_and_gives_the_same() -> None:
    (made,) = calls_opened(codes(PARTS), [], [])
    text = ast.unparse(made.tree)
    assert "split(" not in text
    assert "scaled(" not in text
    assert "y_of_scaled_once" in text  # the caller reads its own `y` behind the call
    scope: dict[str, Any] = {}
    exec(PARTS, scope)
    assert run(made, [1, 2, 3], [4, 5]) == scope["forward"]([1, 2, 3], [4, 5])


def test_methods_of_the_same_object_keep_their_lines() -> None:
    source = """\
class Model:
    def encode(self, images):
        x = self.embed(images)
        return self.norm(x), x

    def forward(self, images):
        latent, x = self.encode(images)
        return latent + x
"""
    (made,) = calls_opened(codes(source), [], [])
    assert ast.unparse(made.tree).splitlines()[1:] == [
        "    x = self.embed(images)",
        "    latent = self.norm(x)",
        "    return latent + x",
    ]
    assert [one.lineno for one in made.tree.body] == [3, 4, 8]


@pytest.mark.parametrize(
    "source",
    [
        "def helper(x):\n    x = x + 1\n    return x\n\ndef forward(x):\n    return helper(x) + helper(x)",
        "def helper(x):\n    return x + 1\n\ndef forward(x):\n    return helper(x)",
        "def helper(x):\n    if x:\n        return 1\n    return x\n\ndef forward(x):\n    return helper(x)",
        "def helper(*x):\n    x = x[1:]\n    return x\n\ndef forward(x):\n    return helper(x)",
        "def helper(x):\n    x = x + 1\n    return x\n\ndef forward(x):\n    return x and helper(x)",
        "def helper(x):\n    x = x + 1\n    return x\n\ndef forward(x):\n    return [helper(one) for one in x]",
        "def helper(x):\n    x = x + 1\n    return x\n\ndef forward(x):\n    while helper(x):\n        return x",
    ],
    ids=["called twice", "formula", "two returns", "any number", "perhaps not called", "in a list", "in a condition"],
)
def test_what_would_be_another_program_stays(source: str) -> None:
    given = codes(source)
    assert calls_opened(given, [], []) == given


def test_a_function_that_has_a_partner_stays() -> None:
    theirs, ours = codes(PARTS), codes(PARTS.replace("split", "apart"))
    pairs = [(one, two) for one, two in zip(theirs, ours, strict=True) if "scaled" not in one.name]
    assert [code.name for code in calls_opened(theirs, [], pairs)] == ["split", "forward"]


def test_a_part_whose_partner_is_the_whole_is_written_out() -> None:
    theirs, ours = codes(PARTS), codes("def forward(x, y):\n    return x, y")
    pairs = [(theirs[0], ours[0])]
    assert [code.name for code in calls_opened(theirs, [], pairs)] == ["forward"]


def test_a_call_in_a_loop_is_written_out_in_it() -> None:
    source = """\
def step(x, at):
    moved = x + at
    x = moved * 2
    return x

def forward(x):
    moved = 1
    for at in range(3):
        x = step(x, at)
    return x + moved
"""
    (made,) = calls_opened(codes(source), [], [])
    scope: dict[str, Any] = {}
    exec(source, scope)
    assert run(made, 5) == scope["forward"](5)


def test_a_method_that_is_a_layer_on_the_other_side_stays() -> None:
    given = codes(PARTS)
    theirs = codes("class Model:\n    def forward(self, x):\n        return self.split(x)")
    assert [code.name for code in calls_opened(given, theirs, [])] == ["split", "forward"]
