"""Constants that paddle's kernels keep in float32 are seen in the port's calls: no word of the case is needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import ROOT, KeptRun

CASE = "tests.cases.float32_constants:TorchDialect"


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def wrong(result: object) -> set[str]:
    stages = result.stages  # type: ignore[attr-defined]
    return {t.name for found in stages.values() for t in found.tensors if t.verdict == "diverged" and not t.accepted}


@pytest.mark.slow
def test_a_right_port_in_torchs_dialect_aligns_in_each_precision(tmp_path: Path, kept_run: KeptRun) -> None:
    result = kept_run(CASE, out=tmp_path, locate=False)
    assert (result.verdict, wrong(result)) == ("aligned", set())
    assert json.loads((tmp_path / "forward_paddle.json").read_text())["kernels"] == {
        "batch_norm": {"epsilon": [1e-5], "momentum": [0.99]},
        "hardswish": {},
    }
    # Float64 alone is judged by what moved values change in float64, for which the reference is run once more.
    result = kept_run(CASE, out=tmp_path, precision="float64", locate=False)
    assert (result.verdict, wrong(result)) == ("aligned", set())
    assert {t.basis for found in result.stages.values() for t in found.tensors} <= {"repeat", "exact", "tolerance"}
    assert "repeat" in {t.basis for t in result.stages["backward"].tensors}


def test_a_constant_that_is_really_off_is_caught_by_float64_alone(tmp_path: Path, kept_run: KeptRun) -> None:
    options = {"smoothing": 0.15}
    result = kept_run(CASE, out=tmp_path, stages=["loss"], precision="float64", locate=False, options=options)
    assert wrong(result) == {"loss"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"steepness": "60"}, {"rate": "0.30000005"}, {"refuses": "yes"}],
    ids=["right", "widened", "wrong", "refuses"],
)
def test_a_table_that_a_constructor_rounds_is_judged_where_it_is_built_in_float64(
    options: dict[str, str], tmp_path: Path, kept_run: KeptRun
) -> None:
    case = "tests.cases.float32_constants:TableOfPositions"
    result = kept_run(case, out=tmp_path, locate=False, options=options)
    found = json.loads((tmp_path / "float64" / "forward_paddle.json").read_text())
    said = [note for note in result.stages["forward"].notes if "built in float64" in note]
    if options.keys() & {"rate", "refuses"}:
        assert (result.verdict, found.get("built_in_float64"), said) == ("diverged", None, [])
    else:
        assert (result.verdict, found["built_in_float64"], len(said)) == ("aligned", True, 1)
        # What was recorded so is used again.
        assert kept_run(case, out=tmp_path, locate=False, options=options).verdict == "aligned"
    assert not (tmp_path / "built_in_float64").exists()
    assert (result.stages["forward"].tensors[0].fp64_rel or 0.0) < 1e-7


@pytest.mark.slow
def test_a_table_is_judged_so_where_another_stage_does_not_run_in_float64(tmp_path: Path, kept_run: KeptRun) -> None:
    result = kept_run("tests.cases.float32_constants:MeasuredTable", out=tmp_path, locate=False)
    assert {name: stage.verdict for name, stage in result.stages.items()} == {"forward": "aligned", "metric": "aligned"}
    assert any("built in float64" in note for note in result.stages["forward"].notes)
    assert set(result.without_float64) == {"metric"}


@pytest.mark.slow
def test_what_is_wrong_is_located_where_another_stage_does_not_run_in_float64(
    tmp_path: Path, kept_run: KeptRun
) -> None:
    result = kept_run("tests.cases.float32_constants:MeasuredTable", out=tmp_path, options={"rate": "0.4"})
    assert result.located is not None
    assert [fault.phase for fault in result.located.counted] == ["forward"]


@pytest.mark.slow
def test_a_table_is_judged_so_beside_what_is_really_wrong(tmp_path: Path, kept_run: KeptRun) -> None:
    result = kept_run("tests.cases.float32_constants:TableBesideLoss", out=tmp_path, locate=False)
    assert {name: stage.verdict for name, stage in result.stages.items()} == {"forward": "aligned", "loss": "diverged"}
    assert any("built in float64" in note for note in result.stages["forward"].notes)
