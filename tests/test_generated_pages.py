"""The generated pages are as the sources are, and the check that they are can fail."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.conftest import ROOT
from twinalign import errors


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("regenerate_messages", ROOT / "docs" / "regenerate_messages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("name", ["messages.md", "troubleshooting.md", "calls.md", "repair-rules.md"])
def test_a_generated_page_is_not_stale(name: str, pages: ModuleType) -> None:
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == pages.PAGES[name](), "run docs/regenerate_messages.py"


@pytest.mark.slow
def test_the_check_can_fail(tmp_path: Path, pages: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "DOCS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["regenerate_messages.py", "--check"])
    assert pages.main() == 1
    monkeypatch.setattr(sys, "argv", ["regenerate_messages.py"])
    assert pages.main() == 0
    monkeypatch.setattr(sys, "argv", ["regenerate_messages.py", "--check"])
    assert pages.main() == 0


@pytest.mark.slow
def test_messages_have_one_anchor_each(pages: ModuleType) -> None:
    names = [line.split("{ #")[1].split(" ")[0] for line in pages.messages_page().splitlines() if "{ #" in line]
    assert len(names) == len(set(names))
    assert len(names) > 150


def test_every_message_leads_to_a_topic(pages: ModuleType) -> None:
    assert [text for topic, text in pages.messages() if not topic] == [], "add a part of it to `says` in help.toml"


def test_a_message_without_a_topic_is_found(tmp_path: Path, pages: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "new.py").write_text(
        "class Refusal(InputError): ...\n"
        'def check(path, name):\n    raise Refusal(f"{path}: it sings {name} out of tune; tune it")\n'
        '    raise SideCrashError(f"the side {name} sings out of tune")\n'
    )
    monkeypatch.setattr(pages, "PACKAGE", tmp_path)
    assert list(pages.messages()) == [
        ("", "…: it sings … out of tune; tune it"),
        ("side-crashed", "the side … sings out of tune"),
    ]


def test_topics_have_a_title_and_a_text_and_parts_that_name_one_thing() -> None:
    for name, topic in errors.help_topics().items():
        assert set(topic) == {"title", "says", "text"}
        assert len(topic["text"].split()) > 15, name
        assert [part for part in topic["says"] if len(part) < 5] == []
        assert [part for part in topic["says"] if errors.topic_of(part) != name] == []


@pytest.fixture(scope="module")
def held_out() -> ModuleType:
    """The module that writes the page of held-out faults."""
    folder = ROOT / "benchmarks" / "held_out"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        spec = importlib.util.spec_from_file_location("held_out_page", folder / "page.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def _rows(names: list[str]) -> dict[str, dict[str, Any]]:
    found = [{"place": "norm", "phase": "forward", "cause": "sum", "text": "a sum"}]
    row = {"before": "a|b", "after": "c", "effect": True, "located": True, "proven": True, "elsewhere": False}
    return {name: {**row, "named": found, "state": "12ab"} for name in names}


def test_half_b_is_counted_and_not_shown(held_out: ModuleType) -> None:
    of = held_out.halves()
    rows = _rows(list(of))
    hidden = next(name for name in of if of[name] == "B")
    rows[hidden] |= {"proven": False, "before": "hidden line"}
    page = held_out.document(rows)
    number = sum(half == "B" for half in of.values())
    assert f"({(number - 1) / number:.1%})".replace("%", " %") in page
    assert "hidden line" not in page
    assert f"| {hidden} |" not in page
    assert all(f"| {name} |" not in page for name in held_out.SEEN)


def test_the_page_is_of_all_faults_on_one_state(held_out: ModuleType) -> None:
    rows = _rows(list(held_out.halves()))
    name = next(iter(rows))
    with pytest.raises(ValueError, match="on 2 states"):
        held_out.document({**rows, name: {**rows[name], "state": "34cd"}})
    del rows[name]
    with pytest.raises(ValueError, match=f"{len(rows)} of {len(rows) + 1} faults"):
        held_out.document(rows)


def test_the_page_of_held_out_faults_adds_up() -> None:
    text = (ROOT / "docs" / "held-out-faults.md").read_text(encoding="utf-8")
    rows = [row.replace("\\|", "").split(" | ") for row in text.splitlines() if re.match(r"\| [a-z]+-\d+ \|", row)]
    asked = {
        "| faults |": rows,
        "| located |": [r for r in rows if r[2] == "yes"],
        "| a cause proven |": [r for r in rows if r[3] == "yes"],
    }
    for words, found in asked.items():
        line = next(line for line in text.splitlines() if line.startswith(words))
        assert int(line.split("|")[2].split()[0]) == len(found), words


def test_the_page_of_speed_is_made_of_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # the benchmarks set it where it is not set
    speed_page = importlib.import_module("speed_page")
    figures = json.loads(speed_page.FIGURES.read_text(encoding="utf-8"))
    assert (ROOT / "docs" / "speed.md").read_text(encoding="utf-8") == speed_page.page(figures), (
        "run benchmarks/speed_page.py"
    )
    figures["large_models"]["figures"]["size"] *= 2
    assert speed_page.PAGE.read_text(encoding="utf-8") != speed_page.page(figures)
