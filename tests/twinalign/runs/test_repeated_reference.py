"""A model with a step in it: rounding carries values across it in float32, and the reference does so too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ROOT, KeptRun

CASE = "tests.cases.quantised:Quantised"


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.slow
def test_what_rounding_makes_of_a_step_is_no_divergence(tmp_path: Path, kept_run: KeptRun) -> None:
    explained = list[str]()
    for seed in range(6):  # whether a value crosses a step is chance
        result = kept_run(CASE, out=tmp_path / str(seed), locate=False, options={"seed": str(seed)})
        assert result.verdict == "aligned"
        explained += [t.reason for found in result.stages.values() for t in found.tensors if "last bits" in t.reason]
        assert (tmp_path / str(seed) / "repeat").exists() == bool(explained)
        if explained:
            # The repeat is kept, and the stage is judged by it again.
            again = kept_run(CASE, out=tmp_path / str(seed), locate=False, options={"seed": str(seed)})
            assert again.verdict == "aligned"
            return
    pytest.fail("no value crossed a step")


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"fault": "floor"}, {"fault": "half"}, {"offset": "4096"}], ids=str)
def test_a_step_excuses_nothing_else(options: dict[str, str], tmp_path: Path, kept_run: KeptRun) -> None:
    result = kept_run(CASE, out=tmp_path, stages=["forward"], locate=False, options=options)
    assert result.verdict == "diverged"
    assert not list((tmp_path / "repeat").glob("*"))
