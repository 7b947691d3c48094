"""Edits of a case's `rename` and of its storage rules."""

from __future__ import annotations

from twinalign.edits.case_edits import exchanged_pairs, known_names, stored_otherwise
from twinalign.edits.source import Source, applied

CASE = """class Other(Case):
    rename = {"x": "y"}


class Port(Case):
    rename = {
        "first": "up",
        "second": "gate",  # kept
        "head": "fc",
    }

    def reproduced(self):
        return Net()
"""
NAMES = ({"first", "first.weight", "second", "head"}, {"up", "gate", "gate.weight", "fc"})


def made(text: str, edits) -> list[str]:
    return [applied(text, [edit]) for edit in edits if edit is not None]


def test_pairs_of_the_layer_are_exchanged_in_the_class_of_the_line_alone() -> None:
    found = made(CASE, exchanged_pairs(Source("case.py", CASE), 12, "up"))
    assert len(found) == 3
    assert '"first": "gate",\n        "second": "up",  # kept\n' in found[0]
    assert '"first": "fc",' in found[1]
    assert "class Port(Case):\n    rename = {}\n" in found[2]
    assert all(text.startswith('class Other(Case):\n    rename = {"x": "y"}\n') for text in found)


def test_a_layer_around_them_has_all_pairs() -> None:
    assert len(made(CASE, exchanged_pairs(Source("case.py", CASE), 12, ""))) == 4


def test_names_that_do_not_exist_become_the_closest() -> None:
    text = CASE.replace('"first"', '"frist"').replace('"gate"', '"gat"')
    found = made(text, known_names(Source("case.py", text), 12, NAMES))
    assert found[0] == text.replace('"frist"', '"first"')
    assert text.replace('"gat"', '"gate"') in found
    assert "rename = {}" in found[-1]


def test_a_case_without_pairs_has_no_edits() -> None:
    text = "class Port(Case):\n    def reproduced(self):\n        return Net()\n"
    source = Source("case.py", text)
    assert made(text, [*exchanged_pairs(source, 2, ""), *known_names(source, 2, NAMES)]) == []


def test_a_rule_stores_tensors_transposed_or_in_another_order() -> None:
    text = 'weight = Stored.of(layer, "w", transposed=True)\nothers = Stored.packed(layer, "qkv", ["q", "k"])\n'
    found = made(text, stored_otherwise(Source("rules.py", text)))
    assert found == [text.replace("=True", "=False"), text.replace('["q", "k"]', '["k", "q"]')]
