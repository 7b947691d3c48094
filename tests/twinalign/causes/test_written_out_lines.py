"""A port writes the formula of an attention for which the reference asks a fused kernel."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.twinalign.causes.module_unit import ModuleUnit
from tests.twinalign.causes.units import explain
from twinalign.causes.layers import own_code
from twinalign.causes.layers.subject import LayerSubject
from twinalign.replay.aligned_code import parsed
from twinalign.replay.code_lines import print_of
from twinalign.replay.port_lines import lines_of
from twinalign.replay.ran_branches import with_branches_of

NAMES = {"paddle": ["name", "paddle"], "F": ["name", "paddle.nn.functional"]}


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.scale = 4**-0.5
        self.fused = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, c = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, 2, 4).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        if self.fused:
            x = F.scaled_dot_product_attention(q, k, v)
        else:
            q = q * self.scale
            attn = q @ k.transpose(-2, -1)
            attn = attn.softmax(dim=-1)
            x = attn @ v
        return x.transpose(1, 2).reshape(b, n, c)


PORT = """
def forward(self, x):
    b, n, c = x.shape
    qkv = self.qkv(x).reshape([-1, n, 3, 2, 4]).transpose([2, 0, 3, 1, 4])
    q, k, v = qkv[0], qkv[1], qkv[2]
    attn = paddle.matmul(q, k.transpose([0, 1, 3, 2])) * self.scale
    attn = F.softmax(attn, axis=-1)
    x = paddle.matmul(attn, v).transpose([0, 2, 1, 3]).reshape([-1, n, c])
    return x
"""


class Wrong(Attention):
    """The port's mistake in torch: its softmax, or the order of the three."""

    softmax: Any = staticmethod(lambda attn: attn.softmax(-1))
    order = (0, 1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        qkv = self.qkv(x).reshape(2, -1, 3, 2, 4).permute(2, 0, 3, 1, 4)
        q, k, v = (qkv[at] for at in self.order)
        mixed = self.softmax(q @ k.transpose(-2, -1) * self.scale) @ v
        return mixed.transpose(1, 2).reshape(x.shape)


@pytest.mark.parametrize(
    ("port", "wrong", "cause", "sentence"),
    [
        (
            ("F.softmax(attn, axis=-1)", "F.softmax(attn.sin(), axis=-2)"),
            {"softmax": staticmethod(lambda attn: attn.sin().softmax(-2))},
            "line_of_port",
            "`F.softmax(attn.sin(), axis=-2)` in place of `attn.softmax(dim=-1)`, line 12 of port.py",
        ),
        (("q, k, v = qkv", "k, q, v = qkv"), {"order": (1, 0, 2)}, "qkv_order", "k, q, v where q, k, v are meant"),
    ],
    ids=["softmax", "order"],
)
def test_a_line_of_the_formula_is_named(
    port: tuple[str, str], wrong: dict[str, Any], cause: str, sentence: str
) -> None:
    right, other = Attention(), type("Other", (Wrong,), wrong)()
    other.load_state_dict(right.state_dict())
    given = [np.random.default_rng(3).standard_normal((2, 5, 8))]
    unit = ModuleUnit(right, given, {})
    unit.port = ModuleUnit(other, given, {}).reference
    source = textwrap.dedent(PORT.replace(*port)).strip()
    described = {"source": source, "file": "port.py", "line": 7, "name": "Attention.forward", "globals": NAMES}
    unit.functions = [described]  # type: ignore[attr-defined]
    found = explain(unit)
    assert found is not None
    assert found.id == cause
    assert sentence in found.text
    assert found.text.count("in place of") <= 1


class Twice(nn.Module):
    """Two functions, each of which asks whether to take a kernel."""

    fused = True

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        if self.fused:  # noqa: SIM108 - the form that is meant
            x = F.softplus(x)
        else:
            x = torch.log(1.0 + torch.exp(x))
        return x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inner(x)
        if self.fused:  # noqa: SIM108
            x = F.silu(x)
        else:
            x = x * torch.sigmoid(x)
        return x


def test_all_functions_are_written_out_in_one_run() -> None:
    texts = {
        "Twice.inner": "def inner(self, x):\n    x = paddle.log(1.0 + paddle.exp(x))\n    return x",
        "Twice.forward": "def forward(self, x):\n    x = self.inner(x)\n    x = x * paddle.sigmoid(x)\n    return x",
    }
    functions = [{"source": s, "file": "p.py", "line": 1, "name": n, "globals": NAMES} for n, s in texts.items()]
    model, given, runs = Twice(), torch.linspace(-2, 2, 7, dtype=torch.float64), list[int]()

    def run() -> dict[str, np.ndarray]:
        runs.append(1)
        return {"x": model(given).numpy()}

    lines = lines_of(functions, run, model)
    assert len(runs) == 2, "once to see what runs, once in the other form"
    assert not any("softplus" in one.detail or "silu" in one.detail for one in lines)


def test_a_function_that_only_has_the_name_of_the_ports_keeps_its_branches() -> None:
    theirs = "def start(self, a):\n    if a is None:\n        self.tile = []\n    else:\n        self.name = a.open()"
    ours = (
        "def start(self, dim, heads):\n    self.name = 3\n    self.heads = heads\n    self.scale = dim // heads + dim"
    )
    codes = [parsed(text, "a.py", 1, "start", side) for text, side in ((theirs, "torch"), (ours, "paddle"))]
    assert with_branches_of(codes[0], codes[1]) is None


class Rounds(nn.Module):
    """Sixty rounds of a few lines, which is a long program; what the port may write otherwise stands in the loop."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = x.sin()
        start = first.exp()
        hidden = start
        for _ in range(60):
            angle = hidden + start
            bent = angle.tanh()
            squared = bent.square()
            hidden = squared.cos()
        return hidden


ROUNDS = """
def forward(self, x):
    first = paddle.sin(x + 1)
    start = paddle.exp(x=first)
    hidden = start
    for _ in range(60):
        angle = hidden + start
        bent = paddle.tanh(x=angle)
        squared = paddle.square(bent + 1)
        hidden = paddle.cos(x=squared)
    return hidden
"""


def _lines_of_rounds() -> list[str]:
    unit = ModuleUnit(Rounds(), [np.linspace(-1, 1, 5)], {})
    unit.port = {name: value + 1.0 for name, value in unit.reference.items()}
    known = np.exp(np.sin(np.linspace(-1, 1, 5)))
    unit.steps = [{"print": print_of(known), "source": ""}]  # type: ignore[attr-defined]
    described = {"source": ROUNDS.strip(), "file": "port.py", "line": 1, "name": "Rounds.forward", "globals": NAMES}
    unit.functions = [described]  # type: ignore[attr-defined]
    subject = LayerSubject(unit)
    return [line.detail for line in own_code.line_of_port(subject)]


def test_lines_of_a_long_unit_are_tried_first_where_the_ports_values_end() -> None:
    details = _lines_of_rounds()
    assert ["bent + 1" in detail for detail in details] == [True, False]


def test_lines_are_not_measured_longer_than_they_have_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then each may be what is wrong, also one that only computes the same."""
    measured = _lines_of_rounds()
    monkeypatch.setattr(own_code, "_SECONDS_TO_MEASURE", 0.0)
    unmeasured = _lines_of_rounds()
    assert len(unmeasured) > len(measured)
