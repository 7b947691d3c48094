"""Operators that plant faults in any source: what they plant, and that the lot is a lot."""

import ast
from pathlib import Path

import pytest

from twinalign.planted_faults.source_faults import chosen_faults, operators, source_faults

PORTS = Path(__file__).parents[3] / "benchmarks" / "fix_ports"


@pytest.fixture(scope="module")
def texts():
    return {str(path): path.read_text() for path in sorted(PORTS.glob("*_port.py"))}


def test_every_operator_finds_a_place_in_the_ports(texts):
    assert [name for name, faults in source_faults(texts).items() if not faults] == []
    assert all(operators().values())


def test_sixty_faults_are_python_that_says_something_else(texts):
    faults = chosen_faults(texts, 60)
    assert len(faults) == len({(fault.edit.file, fault.edit.span) for fault in faults}) == 60
    for fault in faults:
        right, wrong = texts[fault.edit.file], fault.planted_in(texts[fault.edit.file])
        assert ast.dump(ast.parse(wrong)) != ast.dump(ast.parse(right)), fault.id
    assert len({fault.operator for fault in faults}) == len(operators())


def test_the_lot_depends_on_the_seed_alone(texts):
    assert chosen_faults(texts, 20, 1) == chosen_faults(texts, 20, 1) != chosen_faults(texts, 20, 2)


@pytest.mark.parametrize(
    ("right", "operator", "wrong"),
    [
        ("y = f(x, axis=1)", "argument_left_out", "y = f(x)"),
        ("y = f(0.1)", "number_changed", "y = f(0.05)"),
        ("y = x.softmax(-1)", "axis_changed", "y = x.softmax(1)"),
        ("y = nn.relu(x)", "name_exchanged", "y = nn.gelu(x)"),
        ("y = m.norm(x)", "call_left_out", "y = x"),
        ("y = m.norm(m.fc(x))", "calls_exchanged", "y = m.fc(m.norm(x))"),
        ("y = a - b", "operands_exchanged", "y = b - a"),
        ("y = a + b", "term_left_out", "y = b"),
        ("y = x.detach()", "call_of_value_left_out", "y = x"),
        ("y = [f(1), g(2)]", "item_left_out", "y = [g(2)]"),
        ("q, k = f(x)", "items_exchanged", "k, q = f(x)"),
        ("x = x + y", "changed_in_place", "x += y"),
    ],
)
def test_what_an_operator_plants(right, operator, wrong):
    assert wrong in [fault.planted_in(right) for fault in source_faults({"port.py": right})[operator]]


def test_a_file_that_is_no_python_has_no_places():
    assert chosen_faults({"port.py": "def ("}, 5) == []
