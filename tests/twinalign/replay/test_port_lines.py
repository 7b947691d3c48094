"""What a line of the port is, when it runs in the reference."""

from __future__ import annotations

import ast

import pytest

from tests.twinalign.causes.module_unit import ModuleUnit
from tests.twinalign.causes.test_port_lines import INPUT, NAMES
from tests.twinalign.causes.units import explain
from twinalign.replay import port_lines
from twinalign.replay.aligned_code import Code, Difference, differences, parsed
from twinalign.replay.helpers import Helpers
from twinalign.replay.port_lines import LinesVariant

REFERENCE = """
def forward(self, given):
    made = self.proj(given).tanh()
    made += given
    return made
"""
PORT = """
def forward(self, x):
    kept = x
    x = F.tanh(self.proj(x))
    x = paddle.add(kept, x)
    return x
"""


def _lines(reference: str, port: str) -> list[LinesVariant]:
    theirs, ours = (
        parsed(reference.strip(), "ref.py", 1, "f", "torch"),
        parsed(port.strip(), "port.py", 1, "f", "paddle"),
    )
    assert theirs is not None
    assert ours is not None
    found = [one for one in differences(theirs, ours) if one.old is not None and one.new is not None]
    return [LinesVariant(one.text, (one,), None, {}, Helpers({}, ())) for one in found]


@pytest.mark.parametrize(
    ("port", "reads"),
    [
        (PORT, True),
        # What the port is given is still what the name says.
        (PORT.replace("x = F", "y = F").replace("x = paddle.add(kept, x)", "y = paddle.add(x, y)"), False),
        (PORT.replace("return x", "return x + 1"), False),
    ],
    ids=["assigned anew", "as it was given", "says more than a name"],
)
def test_a_name_that_the_port_has_assigned_anew_is_not_the_references_parameter(port: str, reads: bool) -> None:
    (last,) = (one for one in _lines(REFERENCE, port) if isinstance(one.lines[0].new, ast.Return))
    assert last.reads_other_values is reads


GROUPS = """
def step(self):
    for group in self.groups:
        rate = group["lr"]
        for p in group["params"]:
            kept = self.state[p]
            kept["m"] = self.beta * kept["m"] + p.grad
            p.sub_(rate * kept["m"])
"""
ALL_AT_ONCE = """
def step(self):
    for p in self.parameters:
        kept = self.state[p]
        kept["m"] = self.beta * kept["m"] - p.grad
        p.sub_(self.rate * kept["m"])
"""


@pytest.mark.parametrize(("reference", "port"), [(GROUPS, ALL_AT_ONCE), (ALL_AT_ONCE, GROUPS)])
def test_a_loop_of_parameters_is_compared_with_that_inside_of_the_loop_of_groups(reference: str, port: str) -> None:
    found = [one.lines[0] for one in _lines(reference, port)]
    pairs = {(ast.unparse(one.old), ast.unparse(one.new)) for one in found if one.old and one.new}
    with_sign = {f"kept['m'] = self.beta * kept['m'] {sign} p.grad" for sign in "+-"}
    assert any(set(pair) == with_sign for pair in pairs), pairs


@pytest.mark.parametrize(
    ("port", "keeps"),
    [
        ("return a + (b - b.mean(-1))", True),
        ("return a + b", False),
        ("return a + b - b.mean(1) * 2", False),
    ],
    ids=["another axis", "a term less", "a factor more"],
)
def test_a_line_keeps_operations_if_it_makes_as_many(port: str, keeps: bool) -> None:
    head = "def forward(self, a, b):\n    "
    (line,) = _lines(f"{head}return a + b - b.mean(1)", head + port)
    assert line.keeps_operations is keeps


def test_what_the_references_parameter_gives_by_chance_is_no_line_of_the_port() -> None:
    import torch
    from torch import nn

    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.proj = nn.Linear(6, 6)

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            made = self.proj(given).tanh()
            made += given
            return made

    unit = ModuleUnit(Sum(), [INPUT], {})
    unit.port = {"output.0": INPUT}  # the port's sum has lost what the layer returns
    unit.functions = [  # type: ignore[attr-defined]
        {"source": PORT.strip(), "file": "port.py", "line": 3, "name": "Sum.forward", "globals": NAMES}
    ]
    found = explain(unit)
    assert found is not None
    assert found.id in ("layer_missing", "residual_missing")


@pytest.mark.parametrize(
    ("ours", "theirs", "made"),
    [
        ("np.log1p(np.concatenate(parts))", "torch.log1p(torch.cat(parts))", True),
        ("np.log1p(x)", "torch.log1p(x).numpy()", False),
        ("np.log1p(x)", "np.log(1 + x)", False),
        ("paddle.log1p(x)", "torch.log1p(x)", False),
    ],
)
def test_an_array_is_made_a_tensor_where_the_reference_has_one(ours: str, theirs: str, made: bool) -> None:
    """`values.std(0)` divides by other numbers in numpy: the next line is wrong, and not this one."""
    sides = [Code(function(f"def f(x, parts):\n    values = {text}"), "f.py", "f") for text in (theirs, ours)]
    old, new = (code.tree.body[0] for code in sides)
    assert port_lines._makes_array_of_tensor(Difference(sides[0], sides[1], (0, "instead"), old, new)) is made


def function(text: str) -> ast.FunctionDef:
    (found,) = ast.parse(text).body
    assert isinstance(found, ast.FunctionDef)
    return found
