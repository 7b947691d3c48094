"""Statements of a port that read otherwise than the reference's, and the edits that let them read alike."""

from __future__ import annotations

import ast

import numpy
import paddle
import pytest

from twinalign.replay.aligned_code import parsed
from twinalign.replay.slices import distances
from twinalign.replay.statement_pairs import statement_edits_by_pairs

GLOBALS = {name: ("name", place) for name, place in {
    "torch": "torch", "nn": "torch.nn", "np": "numpy", "itertools": "itertools",
}.items()}  # fmt: skip


def edits(port: str, reference: str) -> list[str]:
    """What each edit writes in place of what."""
    code = parsed(port, "port.py", 1, "f", "paddle")
    assert code is not None
    held = {"paddle": paddle, "np": numpy, "adam": None, "noam": None, "model": None}
    code.functions = [eval(f"lambda: ({', '.join(held)})", dict(held))]
    theirs = [ast.parse(reference).body[0]]
    functions = [({"globals": GLOBALS}, {})]
    found = statement_edits_by_pairs([code], theirs, functions, distances([code], [], {}))
    return [f"{ast.unparse(one.new)} for {ast.unparse(one.old)}" for one in found]


@pytest.mark.parametrize(
    ("port", "reference", "first"),
    [
        (  # parameters that an optimizer lacks; the loop beside it reads alike
            "def f(model):\n    a = adam(model.g.parameters())\n    b = adam(model.e.parameters())",
            "def f(model):\n    a = adam(model.g.parameters())\n"
            "    b = adam(itertools.chain(model.d.parameters(), model.e.parameters()))\n    return model.d",
            "[*model.d.parameters(), *model.e.parameters()] for model.e.parameters()",
        ),
        (  # a slice for what is drawn
            "def f(data, first, i):\n    out = model(pick(data), first[0])\n    more = pick(data)\n    less = 0",
            "def f(data, first, i):\n    out = model(data[:, i], first[i])\n    more = data[:, i]\n    less = 0",
            "i for 0",
        ),
        (  # the same words in another order
            "def f(r, a, b):\n    x = r * a + (1 - r) * b",
            "def f(r, a, b):\n    x = r * b + (1 - r) * a",
            "r * b + (1 - r) * a for r * a + (1 - r) * b",
        ),
        (  # an argument that is left at its default
            "def f(p, lr):\n    return paddle.optimizer.Adam(lr, parameters=p)",
            "def f(p, lr):\n    return torch.optim.Adam(p, lr=lr, eps=1e-05)",
            "paddle.optimizer.Adam(lr, parameters=p, epsilon=1e-05) for paddle.optimizer.Adam(lr, parameters=p)",
        ),
        (  # what both are applied to, whatever that is called on either side
            "def f(s, done, t):\n    s = s * (1.0 - done[t - 1]).unsqueeze(1)",
            "def f(s, done, t):\n    s = s * (1.0 - done[t])[:, None]",
            "t for t - 1",
        ),
    ],
)
def test_the_edit_that_reads_as_the_reference_comes_soon(port: str, reference: str, first: str) -> None:
    assert first in edits(port, reference)[:3]


def test_a_statement_that_reads_as_one_of_the_references_is_left_alone() -> None:
    same = "def f(x, k):\n    y = x * k\n    z = y + {}\n    return z"
    assert edits(same.format("k"), same.format("k")) == []
    assert edits("def f(a):\n    return paddle.sum(a)", "def f(a):\n    return torch.sum(a)") == []


def test_what_the_port_always_writes_otherwise_comes_after_what_it_writes_so_once() -> None:
    port = "def f(x, y):\n    a = x.unsqueeze(0) + 1\n    b = y.unsqueeze(0) + 2\n    c = x.unsqueeze(0) - y * 3"
    theirs = "def f(x, y):\n    a = x[None] + 1\n    b = y[None] + 2\n    c = x[None] - y * 2\n    d = x.unsqueeze(0)"
    found = edits(port, theirs)
    once = found.index("2 for 3")
    assert all(found.index(one) > once for one in found if one.startswith(("x[None] for", "y[None] for")))


def test_a_call_that_is_made_twice_may_be_meant_for_what_is_named_alike() -> None:
    port = "def f(m):\n    rate_a = m\n    rate_b = m\n    rate_a.step()\n    rate_a.step()"
    assert "rate_b for rate_a" in edits(port, "def f(ones):\n    for one in ones:\n        one.step()")


def test_names_that_the_port_does_not_have_are_not_written() -> None:
    found = edits("def f(x):\n    y = x * 2 + x", "def f(x):\n    scale = 3\n    y = x * scale + x * 2")
    assert not any("scale" in one for one in found)
