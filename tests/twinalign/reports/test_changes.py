"""What changed between two runs of a case, and the report of two files."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from tests.twinalign.reports.runs import rich_summary, stage, summary, tensor
from twinalign.cli import cli
from twinalign.errors import InputError
from twinalign.reports.changes import changes, compared


def state(verdict: str, **of_tensor: Any) -> dict[str, Any]:
    fault = {"paddle_layer": "1", "phase": "forward", "explanation": {"id": "norm_epsilon"}}
    faults = [fault] if verdict == "diverged" else []
    return summary(
        {"forward": stage([tensor("y", verdict, **of_tensor)], verdict)}, verdict, located={"faults": faults}
    )


def test_what_changed_against_the_last_run() -> None:
    assert changes(state("diverged"), state("aligned")) == [
        "verdict: diverged → aligned",
        "forward: diverged → aligned",
        "forward: y: diverged → aligned",
        "mended: 1 (forward): norm_epsilon",
    ]
    assert changes(state("aligned"), state("diverged"))[-1] == "new: 1 (forward): norm_epsilon"
    assert changes(state("aligned"), state("aligned")) == ["nothing changed against the last run"]


def test_differences_settings_and_tensors_that_come_and_go() -> None:
    before, after = state("aligned", fp64_rel=1e-13), state("aligned", fp64_rel=3e-13)
    after["stages"]["forward"]["tensors"].append(tensor("z"))
    after["environment"]["ref"]["versions"]["torch"] = "2.16.0"
    del after["environment"]["paddle"]["flags"]["FLAGS_use_mkldnn"]
    assert changes(before, after) == [
        "forward: z: absent → aligned",
        "forward: the float64 runs differ by 1e-13 → 3e-13",
        "ref versions torch: 2.15.0 → 2.16.0",
        "paddle flags FLAGS_use_mkldnn: False → absent",
    ]
    assert changes(state("aligned", fp64_rel=1e-13), state("aligned", fp64_rel=1.9e-13)) == [
        "nothing changed against the last run"
    ]


def test_two_cases_are_not_compared() -> None:
    with pytest.raises(InputError, match=r"^--against: that run is of the case 'other' and this one of 'made_up'; "):
        compared(state("aligned") | {"case": "other"}, state("aligned"))


@pytest.fixture
def two_runs(tmp_path: Path) -> tuple[Path, Path]:
    after = rich_summary()
    before = copy.deepcopy(after)
    before["stages"]["loss"]["verdict"] = "diverged"
    for name, found in (("before", before), ("after", after)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.json").write_text(json.dumps(found))
    return tmp_path / "before", tmp_path / "after"


@pytest.mark.slow
@pytest.mark.parametrize(("code", "title"), [("en", "What changed"), ("zh", "有何变化")])
def test_the_report_begins_with_what_changed(two_runs: tuple[Path, Path], code: str, title: str) -> None:
    before, after = map(str, two_runs)
    shown = CliRunner().invoke(cli, ["report", after, "--against", before, "--lang", code])
    assert shown.exit_code == 0, shown.output
    page = (two_runs[1] / "report.html").read_text()
    assert 0 < page.index(f"<h2>{title}</h2>") < page.index('id="faults"')
    assert shown.output.splitlines()[0] in page
    as_json = CliRunner().invoke(cli, ["report", after, "--against", before, "--json", "-"])
    assert json.loads(as_json.output)["changes"] == [
        {"kind": "verdict", "name": "loss", "before": "diverged", "after": "aligned"}
    ]
    CliRunner().invoke(cli, ["report", after])
    assert f"<h2>{title}</h2>" not in (two_runs[1] / "report.html").read_text()


def test_what_changed_takes_two_runs(two_runs: tuple[Path, Path]) -> None:
    shown = CliRunner().invoke(cli, ["report", str(two_runs[1]), "--json", "-"])
    assert isinstance(shown.exception, InputError)
    assert "--against" in str(shown.exception)


def test_a_report_of_two_files_has_no_empty_section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.ones(4, "float32"))
    np.save("b.npy", np.full(4, 1.5, "float32"))
    shown = CliRunner().invoke(cli, ["compare", "a.npy", "b.npy", "--html", "both.html"], standalone_mode=False)
    assert shown.return_value == 1, shown.output
    page = Path("both.html").read_text()
    assert "a.npy against b.npy" in page
    assert "The two files differ by more than rounding explains." in page
    for missing in ("environment", "layers", "curves", "initial"):
        assert f'id="{missing}"' not in page
        assert f'href="#{missing}"' not in page
