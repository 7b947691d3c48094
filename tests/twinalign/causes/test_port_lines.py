"""Lines of a port that are run in the reference: what they compute, and what is proven by them."""

from __future__ import annotations

import ast
import copy
import importlib
import json
import subprocess
import sys
import textwrap
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.twinalign.causes import paddle_expressions
from tests.twinalign.causes.module_unit import ModuleUnit
from tests.twinalign.causes.units import explain
from twinalign.backends.torch.reference_only import paddle_spelling
from twinalign.causes.component import Component, line_of_port
from twinalign.causes.component import explain as explain_component
from twinalign.causes.layers.explaining import examined_unit
from twinalign.causes.proving import prove
from twinalign.edits.suggestions import suggestion
from twinalign.replay.aligned_code import differences, parsed
from twinalign.replay.helpers import Helpers
from twinalign.replay.line_spelling import in_torch
from twinalign.replay.port_code import set_port_code
from twinalign.replay.port_lines import LinesVariant

PROVEN = {"line_of_port", "line_of_port_for_buffers"}
"""Ids of the causes that tests here find."""
NAMES = {"paddle": ["name", "paddle"], "F": ["name", "paddle.nn.functional"]}


@pytest.fixture(scope="module")
def of_paddle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, np.ndarray]]:
    """What paddle gives for each line, computed in a process of its own."""
    file = tmp_path_factory.mktemp("lines") / "values.npz"
    subprocess.run([sys.executable, paddle_expressions.__file__, str(file)], check=True, capture_output=True)
    with np.load(file) as stored:
        names = [*paddle_expressions.EXPRESSIONS, *paddle_expressions.LAYERS, "facts"]
        arrays = {name: stored[f"arr_{at}"] for at, name in enumerate(names[:-1])}
        yield {**arrays, "facts": stored["facts"]}


def _in_torch(text: str) -> Any:
    source = f"def line(x, y, i, j, k):\n    return {text}\n"
    code = parsed(source, "port.py", 1, "line", "paddle", globals=NAMES)
    assert code is not None
    tree = ast.Module([in_torch(code.tree, code, None, Helpers({}, ()))], [])
    found: dict[str, Any] = {
        "_twinalign_paddle": paddle_spelling.PADDLE,
        "_twinalign_imported": __import__,
        "_twinalign_attribute": lambda value, name: paddle_spelling.attribute({}, value, name),
    }
    exec(compile(ast.fix_missing_locations(tree), "port.py", "exec"), found)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return found["line"](*(torch.from_numpy(value.copy()) for value in paddle_expressions.arrays().values()))
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("text", paddle_expressions.EXPRESSIONS)
def test_a_line_computes_in_torch_what_paddle_computes(text: str, of_paddle: Mapping[str, np.ndarray]) -> None:
    found, wanted = _in_torch(text).numpy(), of_paddle[text]
    assert found.shape == wanted.shape
    assert found.dtype.kind == wanted.dtype.kind
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("text", paddle_expressions.LAYERS)
def test_a_layer_of_paddles_own_computes_in_torch_what_it_computes(
    text: str, of_paddle: Mapping[str, np.ndarray]
) -> None:
    kind, facts = json.loads(str(of_paddle["facts"]))[paddle_expressions.LAYERS.index(text)]
    layer = paddle_spelling.layer(kind, facts, nn.Identity())
    found = layer(torch.from_numpy(paddle_expressions.arrays()["x"])).numpy()
    np.testing.assert_allclose(found, of_paddle[text], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("kind", ["Dropout", "Maxout", "MyBlock"])
def test_a_layer_that_draws_or_that_no_function_does_is_none(kind: str) -> None:
    with pytest.raises(KeyError, match=kind.lower()):
        paddle_spelling.layer(kind, {"p": 0.5}, nn.Identity())


def test_a_gradient_without_a_graph_of_its_own_leaves_that_of_its_function() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = (x**3).sum()
    (gradient,) = paddle_spelling.PADDLE.grad(y, x)
    assert (gradient.tolist(), gradient.requires_grad) == ([3.0, 12.0], False)
    (again,) = paddle_spelling.PADDLE.grad(outputs=y, inputs=x, create_graph=True)
    assert again.requires_grad
    y.backward()


def test_an_optimizer_of_torch_answers_to_paddles_names() -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    weight.sum().backward()
    paddle_spelling.attribute({}, optimizer, "set_lr")(0.25)
    assert paddle_spelling.attribute({}, optimizer, "get_lr")() == optimizer.param_groups[0]["lr"] == 0.25
    paddle_spelling.attribute({}, optimizer, "step")()
    paddle_spelling.attribute({}, optimizer, "clear_grad")()
    assert weight.tolist() == [0.75, 0.75]
    assert weight.grad is None


def test_what_torch_does_not_compute_alike_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="channels last"):
        _in_torch("F.avg_pool2d(x.unsqueeze(0), 2, data_format='NHWC')")
    with pytest.raises(NotImplementedError, match="random"):
        _in_torch("F.dropout(x, 0.5)")


class Mixed(nn.Module):
    """A reference of several lines; its port has other names and is spelled as paddle spells."""

    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(6, 6)
        self.scale = 0.25

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = self.proj(x)
        scores = torch.matmul(q, x.transpose(1, 2)) * self.scale
        weights = torch.softmax(scores, dim=-1)
        mixed = x
        for _ in range(2):
            mixed = torch.matmul(weights, mixed)
        return torch.cat([mixed, x.mean(1, keepdim=True).expand_as(x)], dim=-1)


PORT = """
def forward(self, inputs):
    query = self.proj(inputs)
    attn = paddle.matmul(query, inputs.transpose([0, 2, 1])) * self.scale
    probs = F.softmax(attn, axis=-1)
    out = inputs
    for _ in range(2):
        out = paddle.matmul(probs, out)
    return paddle.concat([out, inputs.mean(1, keepdim=True).expand_as(inputs)], axis=-1)
"""
INPUT = np.random.default_rng(3).standard_normal((2, 4, 6))


def _explained(port: str, wrong: Any, phase: str = "forward", **facts: Any) -> Any:
    """What is found for a port of this text, whose values are those of `wrong`, the same mistake written in torch."""
    right = Mixed()
    other = type("Wrong", (Mixed,), {"forward": wrong})()
    other.load_state_dict(right.state_dict())
    unit = ModuleUnit(right, [INPUT], {}, phase=phase, facts=facts)
    unit.port = ModuleUnit(other, [INPUT], {}, phase=phase).reference
    described = {"source": textwrap.dedent(port).strip(), "file": "port.py", "line": 7, "name": "Mixed.forward"}
    unit.functions = [{**described, "globals": NAMES}]  # type: ignore[attr-defined]
    return explain(unit)


def _with(lines: str) -> Any:
    """`Mixed.forward` with other lines, in torch."""
    found: dict[str, Any] = {"torch": torch}
    exec(textwrap.dedent(lines), found)
    return found["forward"]


RIGHT = """
def forward(self, x):
    q = self.proj(x)
    scores = torch.matmul(q, x.transpose(1, 2)) * self.scale
    weights = torch.softmax(scores, dim=-1)
    mixed = x
    for _ in range(2):
        mixed = torch.matmul(weights, mixed)
    return torch.cat([mixed, x.mean(1, keepdim=True).expand_as(x)], dim=-1)
"""


@pytest.mark.parametrize(
    ("port", "torch_line", "sentence"),
    [
        (
            ("inputs.mean(1, keepdim=True)", "inputs.amax(1, keepdim=True).tanh()"),
            ("x.mean(1, keepdim=True)", "x.amax(1, keepdim=True).tanh()"),
            "amax(1, keepdim=True).tanh()",
        ),
        (("range(2)", "range(3)"), ("range(2)", "range(3)"), "`range(3)` in place of `range(2)`, line 12 of port.py"),
        (
            ("    out = inputs\n", "    out = inputs * F.softmax(inputs, 1)\n"),
            ("    mixed = x\n", "    mixed = x * x.softmax(1)\n"),
            "softmax(",
        ),
        (
            ("    out = inputs\n", "    probs = probs - 0.1 * probs ** 2\n    out = inputs\n"),
            ("    mixed = x\n", "    weights = weights - 0.1 * weights**2\n    mixed = x\n"),
            "the port alone has",
        ),
    ],
    ids=["expression", "loop", "assignment", "added line"],
)  # fmt: skip
def test_the_line_of_the_port_that_is_wrong_is_named(
    port: tuple[str, str], torch_line: tuple[str, str], sentence: str
) -> None:
    found = _explained(PORT.replace(*port), _with(RIGHT.replace(*torch_line)))
    assert found is not None
    assert found.id == "line_of_port"
    assert sentence in found.text
    assert found.evidence["remaining_error"] < 1e-12


def test_a_helper_that_the_reference_lacks_is_run_as_the_port_has_it() -> None:
    right = Mixed()
    other = type(
        "Wrong", (Mixed,), {"forward": _with(RIGHT.replace("x.mean(1, keepdim=True)", "x.amax(1, True).tanh()"))}
    )()
    other.load_state_dict(right.state_dict())
    unit = ModuleUnit(right, [INPUT], {})
    unit.port = ModuleUnit(other, [INPUT], {}).reference
    port = PORT.replace("inputs.mean(1, keepdim=True)", "summary(inputs)")
    helper = "def summary(t: Tensor) -> Tensor:\n    return _largest(t)\n"
    inner = "def _largest(t):\n    return t.max(axis=1, keepdim=True).tanh()\n"
    files = {"file": "port.py", "line": 1}
    unit.functions = [  # type: ignore[attr-defined]
        {"source": port.strip(), "name": "Mixed.forward", "globals": {**NAMES, "summary": ["name", "port.summary"]}},
        {"source": helper, "name": "summary", "globals": {"_largest": ["name", "port._largest"]}},
        {"source": inner, "name": "_largest", "globals": NAMES},
    ]
    unit.functions = [{**one, **files} for one in unit.functions]  # type: ignore[attr-defined]
    found = explain(unit)
    assert found is not None
    assert "`summary(inputs)` in place of `inputs.mean(1, keepdim=True).expand_as(inputs)`, line 8" in found.text


def test_a_parameter_that_the_port_alone_has_stands_for_its_default() -> None:
    """By position it would be taken for one of the reference's, whose method has `self` beside them."""
    port = PORT.replace("def forward(self, inputs)", "def forward(inputs, self, axis=1)")
    port = port.replace("inputs.mean(1, keepdim=True)", "inputs.amax(axis, keepdim=True).tanh()")
    found = _explained(port, _with(RIGHT.replace("x.mean(1, keepdim=True)", "x.amax(1, keepdim=True).tanh()")))
    assert found is not None
    assert "`inputs.amax(axis, keepdim=True).tanh()" in found.text


def test_two_lines_that_are_wrong_are_named_together() -> None:
    port = PORT.replace("inputs.mean(1, keepdim=True)", "inputs.amax(1, keepdim=True).sin()")
    port = port.replace("attn = paddle.matmul", "attn = paddle.tanh(query).sum() * paddle.matmul")
    wrong = RIGHT.replace("x.mean(1, keepdim=True)", "x.amax(1, keepdim=True).sin()")
    wrong = wrong.replace("scores = torch.matmul", "scores = torch.tanh(q).sum() * torch.matmul")
    found = _explained(port, _with(wrong))
    assert found is not None
    assert found.text.count("in place of") == 2


def test_a_line_that_only_serves_another_is_not_told_as_a_fault_of_its_own() -> None:
    port = PORT.replace(
        "    out = inputs\n", "    more = F.softmax(inputs, 1)\n    out = inputs * more.square() + more\n"
    )
    wrong = RIGHT.replace("    mixed = x\n", "    mixed = x * x.softmax(1).square() + x.softmax(1)\n")
    found = _explained(port, _with(wrong))
    assert found is not None
    differing, _, beside = found.text.partition("; what one side alone has: ")
    assert "`out = inputs * more.square() + more` in place of `mixed = x`" in differing
    assert beside.startswith("the port alone has `more = F.softmax(inputs, 1)`")


def test_as_many_lines_as_are_wrong_are_named_together() -> None:
    port = PORT.replace("inputs.mean(1, keepdim=True)", "inputs.amax(1, keepdim=True).sin()")
    port = port.replace("attn = paddle.matmul", "attn = paddle.tanh(query).sum() * paddle.matmul")
    wrong = RIGHT.replace("x.mean(1, keepdim=True)", "x.amax(1, keepdim=True).sin()")
    wrong = wrong.replace("scores = torch.matmul", "scores = torch.tanh(q).sum() * torch.matmul")
    port, wrong = (text.replace("range(2)", "range(3)") for text in (port, wrong))
    found = _explained(port, _with(wrong))
    assert found is not None
    assert found.text.count("in place of") == 3
    assert sorted(line for _, line, _ in found.evidence["lines_of_port"]) == [9, 12, 14]


def test_a_cause_with_a_name_keeps_it_where_it_does_the_same() -> None:
    port = PORT.replace("axis=-1)\n    out", "axis=1)\n    out")
    found = _explained(port, _with(RIGHT.replace("scores, dim=-1", "scores, dim=1")))
    assert found is not None
    assert found.id == "softmax_axis"


def test_a_line_that_differs_but_is_not_why_is_not_named() -> None:
    """The port's text has a mistake that its values do not have: the values decide."""
    found = _explained(PORT.replace("range(2)", "range(3)"), _with(RIGHT.replace("x.mean(1,", "x.amax(1,")))
    assert found is None or "range" not in found.text


def test_the_reference_is_left_as_it_was() -> None:
    before, defaults = Mixed.forward.__code__, Mixed.forward.__defaults__
    _explained(PORT.replace("range(2)", "range(3)"), _with(RIGHT.replace("range(2)", "range(3)")))
    assert Mixed.forward.__code__ is before
    assert Mixed.forward.__defaults__ is defaults


def test_an_attribute_of_the_port_is_named() -> None:
    wrong = _with(RIGHT.replace("self.scale", "0.7**0.5 * 0.3"))
    found = _explained(PORT, wrong, scale=0.7**0.5 * 0.3)
    assert found is not None
    assert "0.25" in found.text


class Counted(nn.Module):
    """A moving average of what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.mean.mul_(0.9).add_(x.mean((0, 1)), alpha=0.1)
        return x - self.mean


class CountedWrong(Counted):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            before = self.mean.clone()
            self.mean.copy_(self.mean * 0.9 + x.abs().amax((0, 1)) * 0.1)
        return x - (before * 0.9 + x.mean((0, 1)) * 0.1)


def test_a_line_that_moves_a_buffer_is_named() -> None:
    unit = ModuleUnit(Counted(), [INPUT], {}, phase="state", training=True)
    unit.port = ModuleUnit(CountedWrong(), [INPUT], {}, phase="state", training=True).reference
    unit.port = {name: value for name, value in unit.port.items() if name.startswith("buffer.")}
    source = """
    def forward(self, x):
        self.mean.set_value(self.mean * 0.9 + x.abs().max((0, 1)) * 0.1)
        return x - self.mean
    """
    described = {"source": textwrap.dedent(source).strip(), "file": "port.py", "line": 3, "name": "Counted.forward"}
    unit.functions = [{**described, "globals": NAMES}]  # type: ignore[attr-defined]
    found = explain(unit)
    assert found is not None
    assert found.id == "line_of_port_for_buffers"
    assert "`x.abs().max((0, 1))` in place of `x.mean((0, 1))`, line 4 of port.py" in found.text


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("sines",), "`sines` has other values; the constructor makes it, and no weights hold it"),
        (
            ("cosines", "sines"),
            "`cosines`, `sines` have other values; the constructor makes them, and no weights hold them",
        ),
    ],
    ids=["one", "two"],
)
def test_tables_that_only_the_constructor_knows_are_named(names: tuple[str, ...], said: str) -> None:
    """Of two that one function makes both are wrong: with either of them alone the values are not the port's."""
    forward = _with(RIGHT.replace("* self.scale", "* self.cosines * self.sines"))
    right = Mixed()
    right.forward = types.MethodType(forward, right)
    angles = torch.linspace(0.3, 1.2, 4, dtype=torch.float64)[:, None]
    right.cosines, right.sines = angles.cos(), angles.sin()
    other = copy.deepcopy(right)
    for name in names:
        setattr(other, name, getattr(right, name).flip(0) + 0.1)
    other.forward = types.MethodType(forward, other)
    unit = ModuleUnit(right, [INPUT], {})
    unit.port = ModuleUnit(other, [INPUT], {}).reference
    unit.tables = lambda: {name: (name, getattr(other, name)) for name in names}  # type: ignore[attr-defined]
    found = explain(unit)
    assert found is not None
    assert found.text.endswith(said)


def _share_right(scores: np.ndarray, labels: np.ndarray) -> float:
    best = scores.argmax(1)
    return float((best == labels).mean())


class Share(Component):
    """A metric of the user's own, in numpy."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.scores, self.labels = rng.standard_normal((40, 3)), rng.integers(0, 3, 40)
        self.reference = self.run()
        self.port = {"share": np.array((self.scores[:, ::-1].argmax(1) == self.labels).sum() / 40)}
        self.floors = {"share": 1e-6}

    def run(self) -> dict[str, np.ndarray]:
        return {"share": np.array(_share_right(self.scores, self.labels))}


def test_a_line_of_a_component_is_named() -> None:
    source = """
    def share(scores, labels):
        best = scores[:, ::-1].argmax(1)
        return float((best == labels).sum() / len(labels))
    """
    described = {"source": textwrap.dedent(source).strip(), "file": "port.py", "line": 3, "name": "share"}
    set_port_code(None, [{**described, "globals": {"np": ["name", "numpy"]}}])
    try:
        found = explain_component(Share(), "metric")
    finally:
        set_port_code(None, [])
    assert found["explanation"]["id"] == "line_of_port"
    text = "`scores[:, ::-1].argmax(1)` in place of `scores.argmax(1)`, line 4 of port.py"
    assert text in found["explanation"]["text"]


def _best(scores: np.ndarray) -> np.ndarray:
    return scores.argmax(1)


def _share(scores: np.ndarray, labels: np.ndarray) -> float:
    best = _best(scores)
    return float((best == labels).mean())


class ShareOfBest(Share):
    """Two functions, of which the first is written alike on both sides."""

    def run(self) -> dict[str, np.ndarray]:
        return {"share": np.array(_share(self.scores, self.labels))}


def test_lines_with_the_same_words_are_tried_after_those_of_all_functions() -> None:
    named = {
        "_share": "def _share(scores, labels):\n    best = _best(scores)\n    return float((best == labels).mean())",
        "_best": "def _best(scores):\n    return scores[:, ::-1].argmax(1)",
    }
    described = {"file": "port.py", "line": 3, "globals": {}}
    set_port_code(None, [{**described, "source": text, "name": name} for name, text in named.items()])
    try:
        lines = [variant.detail for variant in line_of_port(ShareOfBest())]
    finally:
        set_port_code(None, [])
    assert ["::-1" in detail for detail in lines[:3]] == [True, False, False]


def _summary(scores: torch.Tensor) -> dict[str, float]:
    return {"mean": float(scores.mean()), "median": float(scores.median())}


class Summary(Component):
    """A metric whose port is written with the same words."""

    def __init__(self) -> None:
        self.scores = torch.from_numpy(np.random.default_rng(0).standard_normal(40))
        self.reference = self.run()
        self.port = {**self.reference, "median": np.median(self.scores.numpy())}
        self.floors = dict.fromkeys(self.port, 1e-6)

    def run(self) -> dict[str, np.ndarray]:
        return {name: np.array(value) for name, value in _summary(self.scores).items()}


def test_of_a_line_with_the_same_words_the_call_is_named_that_means_another_thing() -> None:
    text = "def _summary(scores):\n    return {'mean': float(scores.mean()), 'median': float(scores.median())}"
    set_port_code(None, [{"file": "port.py", "line": 3, "globals": {}, "source": text, "name": "_summary"}])
    try:
        found = explain_component(Summary(), "metric")["explanation"]
    finally:
        set_port_code(None, [])
    assert found["id"] == "line_of_port"
    said = "`scores.median()` gives something else than it does in the reference, line 4 of port.py and line "
    assert said in found["text"]
    fault = {"explanation": found, "evidence": {}, "reference_edits": [], "paddle_layer": "metric", "phase": "metric"}
    assert suggestion(fault) == (
        "in metric, near port.py:4: write in line 4 of port.py what gives in paddle what `scores.median()` gives in "
        "torch"
    )


def test_lines_that_compute_the_same_are_known_to_be_right() -> None:
    """One does not run without the other, and the third, which is wrong, is not the only one that is spelled anew."""
    lines = {
        "    query = self.proj(inputs)\n": "    query = [self.proj(inputs), 0.0]\n",
        "paddle.matmul(query, inputs": "paddle.matmul(query[0] + query[1], inputs",
        "    out = inputs\n": "    out = inputs - inputs.unknown()\n",
    }
    port = PORT
    for old, new in lines.items():
        port = port.replace(old, new)
    right = Mixed()
    unit = ModuleUnit(right, [INPUT], {})
    unit.port = {"output.0": unit.reference["output.0"] + 0.1}
    described = {"source": port.strip(), "file": "port.py", "line": 7, "name": "Mixed.forward"}
    unit.functions = [{**described, "globals": NAMES}]  # type: ignore[attr-defined]
    examined = examined_unit(unit)
    assert examined is not None
    assert prove(examined) is None
    known = {line for _, first, last in examined.right_lines for line in range(first, last + 1)}
    assert known >= {8, 9, 10}
    assert 11 not in known


def test_lines_of_a_port_cannot_import_paddle_into_the_references_process(monkeypatch):
    monkeypatch.delitem(sys.modules, "paddle", raising=False)
    with LinesVariant("", (), None, {}, Helpers({}, ())).apply(), pytest.raises(ImportError):
        importlib.import_module("paddle")
    assert "paddle" not in sys.modules


def test_of_a_long_call_the_one_argument_that_differs_is_shown() -> None:
    call = "    return self.a_function_of_a_long_name({}, the_second_argument, number_of_buckets=self.buckets, {})\n"
    found = []
    for first, last in (("x", "flag=not self.decoder"), ("x", "flag=self.decoder"), ("x.T", "flag=not self.decoder")):
        code = parsed(f"def f(self, x, the_second_argument):\n{call.format(first, last)}", "f.py", 1, "f", "paddle")
        assert code is not None
        found.append(code)
    (other_keyword,), (other_place,) = differences(found[0], found[1]), differences(found[0], found[2])
    lines = "line 2 of f.py and line 2 of f.py"
    assert other_keyword.text == f"`flag=self.decoder` in place of `flag=not self.decoder`, {lines}"
    assert other_place.text == f"`x.T` in place of `x`, {lines}"


def test_a_parameter_that_only_the_port_has_is_the_value_it_was_given() -> None:
    theirs = parsed("def f(x, size):\n    return x.reshape(2, *size)\n", "f.py", 1, "f", "torch")
    source = "def f(x, high, wide=3):\n    return x.reshape([2, high, wide])\n"
    ours = parsed(source, "g.py", 1, "f", "paddle", arguments={"high": 4, "wide": 5})
    assert theirs is not None
    assert ours is not None
    (found,) = differences(theirs, ours)
    assert found.new is not None
    assert ast.unparse(found.new) == "return x.reshape([2, 4, 5])"
    assert "x.reshape([2, high, wide])" in found.text
