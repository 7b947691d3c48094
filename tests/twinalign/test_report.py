"""The report shows what summary.json says, harmlessly, and asks for nothing outside of itself."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twinalign.errors import InputError
from twinalign.report import load_summary, markdown, write_report
from twinalign.verdict import compare_arrays

HOSTILE = "</td><script>alert(1)</script><img src=x onerror=alert(2)>"


def write_summary(folder: Path, name: str = "logits", change: float = 0.0, verdict: str = "aligned") -> dict[str, Any]:
    """A summary as `run` writes it, of one stage with one tensor."""
    reference = np.linspace(0, 1, 5, dtype=np.float32)
    compared = compare_arrays({name: reference}, {name: reference + np.float32(change)})
    summary = {
        "case": "tiny",
        "verdict": verdict,
        "seconds": 1.0,
        "stages": {"forward": compared.to_json()},
        "environment": {
            "ref": {"framework": "torch", "versions": {"torch": "2.15.0"}, "python": "3.11.7"},
            "paddle": {"framework": "paddle", "versions": {"paddle": "3.3.1"}, "python": "3.12.1"},
        },
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    return summary


def test_table_for_a_pull_request(tmp_path: Path) -> None:
    assert markdown(write_summary(tmp_path)).splitlines() == [
        "**tiny**: The port is aligned with its reference in forward.",
        "",
        "| stage | verdict | tensors | float64 differs by | times the noise | reprod_log 1e-6 |",
        "| --- | --- | ---: | ---: | ---: | --- |",
        "| forward | aligned | 1 | – | – | passed |",
        "",
        "torch 2.15.0; paddle 3.3.1",
    ]


def test_page_says_the_verdict_and_marks_what_differs(tmp_path: Path) -> None:
    write_summary(tmp_path, change=0.5, verdict="diverged")
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert "The port has diverged from its reference: first in stage forward." in page
    assert '<td class="diverged">diverged</td>' in page
    assert re.search(r'<tr class="differs"><td>python</td><td>3\.11\.7</td><td>3\.12\.1</td></tr>', page)


def test_names_from_recordings_are_shown_harmlessly(tmp_path: Path) -> None:
    write_summary(tmp_path, name=HOSTILE)
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert "<script" not in page
    assert "<img" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_page_asks_for_nothing(tmp_path: Path) -> None:
    write_summary(tmp_path)
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert "default-src 'none'" in page
    assert not re.search(r"(?:src|href)=[\"'](?!#)", page)
    assert "http://" not in page
    assert "https://" not in page


def test_folder_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"summary\.json: no finished run there; give the --out folder of `twinalign run`$"
    ):
        load_summary(tmp_path)


def test_command(twinalign: Callable[..., Any], tmp_path: Path) -> None:
    write_summary(tmp_path)
    assert "| forward | aligned |" in twinalign("report", tmp_path, "--md").stdout
    assert twinalign("report", tmp_path).stdout.strip() == str(tmp_path / "report.html")
    missing = twinalign("report", tmp_path / "nowhere")
    assert missing.returncode == 2
    assert missing.stderr.count("\n") == 1
