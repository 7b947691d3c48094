"""Where `run` calls a case aligned, `locate` finds nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

import twinalign as api
from tests.conftest import ROOT, KeptRun

CLEAN = (
    "tests.cases.attention:Attention",
    "tests.cases.attention:Transformer",
    "tests.cases.attention:ReferencePacks",
    "tests.cases.attention:PortPacks",
    "tests.cases.compact:Compact",
    "tests.cases.language.cases:Llama",
)


@pytest.mark.slow
@pytest.mark.parametrize("case", CLEAN)
def test_nothing_is_located_in_what_a_run_calls_aligned(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_run: KeptRun
) -> None:
    monkeypatch.chdir(ROOT)
    assert kept_run(case, out=tmp_path, stages=["forward", "loss", "backward"]).verdict == "aligned"
    assert api.locate(case, out=tmp_path).faults == []
