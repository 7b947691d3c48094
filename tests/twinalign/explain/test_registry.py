"""The registry refuses what is not complete, and every hypothesis about layers has a test of its own."""

from __future__ import annotations

import importlib
import re
from types import SimpleNamespace

import pytest

from twinalign.explain import catalogue, registry
from twinalign.explain.registry import Hypothesis, hypotheses, register

TESTED_IN = ("activation", "attention", "frameworks", "losses", "normalisation", "shapes", "weights")


def made(**attributes):
    complete = {"id": "some_cause", "phase": "forward", "text": "something is wrong"}
    return type("Some", (Hypothesis,), {**complete, **attributes})


@pytest.fixture
def empty(monkeypatch):
    """A registry of its own for the test."""
    monkeypatch.setattr(registry, "_registered", {})


@pytest.mark.usefixtures("empty")
@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        (
            {"phase": "sideways"},
            "some_cause: phase 'sideways' is none of forward, backward, .*",
        ),
        ({"text": ""}, r".*Some: give text"),
        ({"id": ""}, r".*Some: give id"),
    ],
)
def test_what_is_incomplete_is_refused(attributes, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        register(made(**attributes))


@pytest.mark.usefixtures("empty")
def test_an_id_is_given_once_a_phase():
    register(made())
    register(made(phase="data"))
    with pytest.raises(ValueError, match=r"^some_cause: already registered by Some$"):
        register(made())


def test_hypotheses_come_by_rank():
    ranks = [hypothesis.rank for hypothesis in hypotheses("forward", "backward", "state")]
    assert ranks == sorted(ranks)
    assert len(ranks) > 150


def tested_ids() -> set[str]:
    found: set[str] = set()
    for name in TESTED_IN:
        module = importlib.import_module(f"tests.twinalign.explain.test_{name}")
        found.update(part for case in module.CASES for part in case.id.split("+"))
    paddle = importlib.import_module("tests.twinalign.explain.test_paddle")
    return found | {part for pair in paddle.PAIRS.values() for part in pair.id.split("+")}


def test_every_hypothesis_about_layers_is_tested():
    assert {item.id for item in hypotheses("forward", "backward", "state")} - tested_ids() == set()


@pytest.mark.parametrize("hypothesis", hypotheses(), ids=lambda item: f"{item.phase}-{item.id}")
def test_texts_read_alike(hypothesis):
    assert re.fullmatch(r"[a-z][a-z0-9_]*", hypothesis.id)
    assert not hypothesis.text.endswith(".")
    assert len(hypothesis.text) < 140


def test_the_catalogue_in_the_docs_is_current():
    assert catalogue.PATH.read_text(encoding="utf-8") == catalogue.table(), "run python -m twinalign.explain.catalogue"


def test_the_catalogue_shows_what_is_registered(monkeypatch):
    one = SimpleNamespace(id="some_cause", phase="forward", text="it is | so", difference="a_difference")
    monkeypatch.setattr(catalogue, "hypotheses", lambda *phases: [one] if phases == ("forward",) else [])
    assert "| `some_cause` | it is \\| so | `a_difference` |" in catalogue.table()
