"""The generated pages are as the sources are, and the check that they are can fail."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import ROOT


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("regenerate_messages", ROOT / "docs" / "regenerate_messages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["messages.md", "calls.md"])
def test_a_generated_page_is_not_stale(name: str, pages: ModuleType) -> None:
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == pages.PAGES[name](), "run docs/regenerate_messages.py"


def test_the_check_can_fail(tmp_path: Path, pages: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "DOCS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["regenerate_messages.py", "--check"])
    assert pages.main() == 1
    monkeypatch.setattr(sys, "argv", ["regenerate_messages.py"])
    assert pages.main() == 0
    monkeypatch.setattr(sys, "argv", ["regenerate_messages.py", "--check"])
    assert pages.main() == 0


def test_messages_have_one_anchor_each(pages: ModuleType) -> None:
    names = [line.split("{ #")[1].split(" ")[0] for line in pages.messages_page().splitlines() if "{ #" in line]
    assert len(names) == len(set(names))
    assert len(names) > 150


def test_the_page_of_speed_is_made_of_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # the benchmarks set it where it is not set
    speed_page = importlib.import_module("speed_page")
    figures = json.loads(speed_page.FIGURES.read_text(encoding="utf-8"))
    assert (ROOT / "docs" / "speed.md").read_text(encoding="utf-8") == speed_page.page(figures), (
        "run benchmarks/speed_page.py"
    )
    figures["large_models"]["size"] *= 2
    assert speed_page.PAGE.read_text(encoding="utf-8") != speed_page.page(figures)
