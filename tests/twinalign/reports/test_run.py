"""What `twinalign run` writes for people to read, from a real run with a fault."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from twinalign.files.strict_json import check_form

pytestmark = pytest.mark.usefixtures("kept_processes")

CASE = "tests.cases.tiny:LayerNormEpsilon"


@pytest.mark.slow
def test_run_writes_what_is_asked_for(twinalign: Callable[..., Any], tmp_path: Path) -> None:
    files = {"--md": tmp_path / "table.md", "--junit": tmp_path / "tests.xml"}
    options = ["--stages", "forward", "--out", tmp_path / "out", "--lang", "zh"]
    done = twinalign("run", CASE, *options, *[part for pair in files.items() for part in pair])
    assert done.returncode == 1, done.stderr
    assert "01 forward  diverged" in done.stdout
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    check_form(summary, "summary", "summary.json")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert '<html lang="zh">' in page
    assert '<li class="wrong">' in page
    assert "证据：将其用于参考代码后" in page
    assert "base_encoder.blocks.1.norm1" in files["--md"].read_text(encoding="utf-8")
    suite = ElementTree.parse(files["--junit"]).getroot()[0]
    assert int(suite.attrib["failures"]) == sum(
        tensor["verdict"] == "diverged" for tensor in summary["stages"]["forward"]["tensors"]
    )
    again = twinalign("run", CASE, "--stages", "forward", "--out", tmp_path / "out", "--no-locate", "--md", "-")
    assert again.stdout.startswith("**tiny_moco**: The port has diverged")
    assert "01 forward" not in again.stdout
    assert '<html lang="en">' in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_wrong_options_end_before_anything_is_recorded(twinalign: Callable[..., Any], tmp_path: Path) -> None:
    for option in (("--md", tmp_path), ("--junit", tmp_path), ("--lang", "de"), ("--md", "-", "--junit", "-")):
        done = twinalign("run", CASE, "--out", tmp_path / "out", *option)
        assert done.returncode == 2
        assert not (tmp_path / "out").exists()
