"""The page of causes in the docs is current, and says of every cause by which faults it is planted."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from twinalign.causes.registry import known_causes
from twinalign.planted_faults.rank_faults import rank_faults


def test_the_page_in_the_docs_is_current(causes_page: ModuleType) -> None:
    written = causes_page.PATH.read_text(encoding="utf-8")
    assert written == causes_page.page(), "run python docs/regenerate_causes.py"


def test_a_stale_page_is_noticed(
    causes_page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "differences.md"
    path.write_text("stale", encoding="utf-8")
    monkeypatch.setattr(causes_page, "PATH", path)
    monkeypatch.setattr(sys, "argv", ["regenerate_causes.py", "--check"])
    assert causes_page.main() == 1
    assert (capsys.readouterr().err, path.read_text(encoding="utf-8")) == ("docs/differences.md: is stale\n", "stale")
    monkeypatch.setattr(sys, "argv", ["regenerate_causes.py"])
    assert causes_page.main() == 0
    assert path.read_text(encoding="utf-8") == causes_page.page()


def test_the_page_shows_what_is_registered_and_planted(
    causes_page: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = SimpleNamespace(id="some_cause", phase="forward", text="it is | so", difference="a_difference")
    monkeypatch.setattr(causes_page, "known_causes", lambda *phases: [one] if phases in ((), ("forward",)) else [])
    fault = SimpleNamespace(id="some_fault", kind="weights", causes=("some_cause",))
    monkeypatch.setattr(causes_page, "catalogue", lambda: {"some_fault": fault})
    assert "| `some_cause` | it is \\| so | `a_difference` | `some_fault` |" in causes_page.page()
    assert "1 of 1 causes are planted" in causes_page.page()
    monkeypatch.setattr(causes_page, "catalogue", dict)
    assert "| `some_cause` | it is \\| so | `a_difference` |  |" in causes_page.page()
    assert "0 of 1 causes are planted" in causes_page.page()


def test_a_cause_is_marked_in_the_phase_of_its_faults_alone(causes_page: ModuleType) -> None:
    marked = causes_page.planted_by()
    # Of one name in three phases: planted by a shifted label of a sample, by one of a loss, and by none of a metric.
    assert "labels_from_one" in marked["data", "labels_shifted"]
    assert "loss_labels_shifted" in marked["forward", "labels_shifted"]
    assert not set(marked["data", "labels_shifted"]) & set(marked["forward", "labels_shifted"])
    assert {name for (phase, _), names in marked.items() if phase == "ranks" for name in names} == set(rank_faults())


def test_most_causes_are_planted(causes_page: ModuleType) -> None:
    planted, known = causes_page.planted_by(), {(cause.phase, cause.id) for cause in known_causes()}
    assert planted.keys() <= known
    assert len(planted) >= 250
    stated = re.search(r"(\d+) of (\d+) causes are planted", causes_page.page())
    assert stated is not None
    assert (int(stated[1]), int(stated[2])) == (len(planted), len(known))
