"""The registry refuses what is not complete, and every cause about layers has a test of its own."""

from __future__ import annotations

import importlib
import re

import pytest

from twinalign.causes import registry
from twinalign.causes.component import Component, enter_rows
from twinalign.causes.registry import cause, known_causes

TESTED_IN = ("activation", "attention", "edited_program", "frameworks", "losses", "normalisation", "shapes", "weights")


@pytest.fixture
def empty(monkeypatch):
    """A registry of its own for the test."""
    monkeypatch.setattr(registry, "_registered", {})


def some_cause(subject):
    """Something is wrong."""
    return ()


def without_text(subject):
    return ()


@pytest.mark.usefixtures("empty")
@pytest.mark.parametrize(
    ("phase", "function", "message"),
    [
        ("sideways", some_cause, "some_cause: phase 'sideways' is none of forward, backward, .*"),
        ("forward", without_text, "without_text: its docstring must say the cause in one sentence"),
    ],
)
def test_what_is_incomplete_is_refused(phase, function, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        cause(phase, object)(function)


@pytest.mark.usefixtures("empty")
def test_an_id_is_given_once_a_phase():
    cause("forward", object)(some_cause)
    cause("data", object)(some_cause)
    with pytest.raises(ValueError, match=r"^some_cause: the phase forward already has a cause of this name$"):
        cause("forward", object)(some_cause)


@pytest.mark.usefixtures("empty")
def test_a_cause_has_variants_for_its_own_subject_alone():
    cause("forward", str)(lambda_named("spelled", lambda subject: [subject.upper()]))
    (entered,) = registry._registered.values()
    assert (entered.id, entered.text, entered.difference, entered.rank) == ("spelled", "it is spelled", None, 0)
    assert list(entered.variants("word")) == ["WORD"]
    assert list(entered.variants(5)) == []


def lambda_named(name, function):
    function.__name__, function.__doc__ = name, f"It is {name}."
    return function


def test_causes_come_by_rank():
    ranks = [item.rank for item in known_causes("forward", "backward", "state")]
    assert ranks == sorted(ranks)
    assert len(ranks) > 150


def test_of_one_rank_edits_with_a_name_come_first():
    order = [(item.rank, not item.plain) for item in known_causes("forward")]
    assert order == sorted(order)
    assert {plain for rank, plain in order if rank == 0} == {True, False}


@pytest.mark.usefixtures("empty")
def test_rows_enter_one_cause_each():
    rows = [(name, f"it is {name}", {"rank": 2}, lambda subject, name=name: {"": name}) for name in ("one", "two")]
    enter_rows("metric", Component, "change", rows)
    assert [(item.id, item.rank) for item in registry._registered.values()] == [("one", 2), ("two", 2)]
    for item, value in zip(registry._registered.values(), ("one", "two"), strict=True):
        component = Recalled()
        (variant,) = item.variants(component)
        with variant.apply():
            assert component.change == value
        assert component.change is None


class Recalled(Component):
    """A component that only keeps what is other."""

    change = None

    def run(self):
        return {}


def ids_with_a_test() -> set[str]:
    found: set[str] = set()
    for name in TESTED_IN:
        module = importlib.import_module(f"tests.twinalign.causes.test_{name}")
        found.update(part for case in module.CASES for part in case.id.split("+"))
    paddle = importlib.import_module("tests.twinalign.causes.test_paddle")
    lines = importlib.import_module("tests.twinalign.causes.test_port_lines")
    ties = importlib.import_module("tests.twinalign.search.test_ties")
    weights = importlib.import_module("tests.twinalign.search.test_own_weights")
    return (
        found
        | lines.PROVEN
        | ties.PROVEN
        | weights.PROVEN
        | {part for pair in paddle.PAIRS.values() for part in pair.id.split("+")}
    )


def test_every_cause_about_layers_is_tested():
    assert {item.id for item in known_causes("forward", "backward", "state")} - ids_with_a_test() == set()


@pytest.mark.parametrize("item", known_causes(), ids=lambda item: f"{item.phase}-{item.id}")
def test_texts_read_alike(item):
    assert re.fullmatch(r"[a-z][a-z0-9_]*", item.id)
    assert not item.text.endswith(".")
    assert len(item.text) < 140
