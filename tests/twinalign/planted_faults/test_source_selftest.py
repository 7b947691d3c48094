"""What the selftest of `fix` counts: here `fix` and the runs are played, but for one test."""

from types import SimpleNamespace

import numpy as np
import pytest

from tests.conftest import without_topic
from twinalign.edits.source import Edit
from twinalign.errors import InputError, SideCrashError
from twinalign.planted_faults import source_selftest
from twinalign.planted_faults.source_faults import SourceFault
from twinalign.planted_faults.source_selftest import RepairSelftest, RepairTrials, selftest_of_fix
from twinalign.recorder.run_settings import RunSettings
from twinalign.repair.fix import FixResult

pytestmark = pytest.mark.usefixtures("kept_processes")

PORT = "/case/port.py"
RIGHT = {"forward/output": np.ones(3)}
FAULT = SourceFault("number_changed", Edit(PORT, (2, 0, 2, 1), "1", "2"))


def found(first: int = 1, last: int = 3, cause: bool = True):
    explanation = {"id": "some_cause", "text": "it is wrong"} if cause else None
    fault = {"paddle_layer": "fc", "explanation": explanation, "edit": None, "reference_edits": []}
    return {**fault, "evidence": {"source": [[PORT, first, last]]}}


@pytest.fixture
def trials(monkeypatch):
    """`trials.of(fault)` with a played `fix`, which gives `mended`, and runs, which give `again` and `arrays`."""
    played = RepairTrials.__new__(RepairTrials)
    played._settings, played._progress, played._kept = RunSettings("case.py"), None, None
    played.texts, played._right, played._right_elsewhere = {PORT: "a\n1\n"}, RIGHT, RIGHT
    played.again, played.arrays = "aligned", RIGHT
    played._recorded = lambda sources, further: (SimpleNamespace(verdict=played.again), played.arrays)

    def fix(settings, progress, kept):
        assert settings.sources == {PORT: "a\n2\n"}
        if isinstance(played.mended, Exception):
            raise played.mended
        return played.mended

    monkeypatch.setattr(source_selftest, "fix", fix)
    return played


def mended(**said):
    edits = [{"after": "1"}]
    return FixResult(
        "Case", **{"verdict": "aligned", "edits": edits, "texts": {PORT: "a\n1\n"}, "found": [found()], **said}
    )


def told(trials):
    trial = trials.of(FAULT)
    return {name for name in ("counts", "located", "suggested", "repaired", "wrong") if getattr(trial, name)}


def test_a_port_that_is_as_right_on_other_inputs_is_repaired(trials):
    trials.mended = mended()
    assert told(trials) == {"counts", "located", "suggested", "repaired"}


@pytest.mark.parametrize(("again", "output"), [("diverged", 1.0), ("aligned", 1.1)], ids=["diverges", "another port"])
def test_an_edit_is_wrong_with_which_the_port_is_not_the_right_one(again, output, trials):
    trials.mended, trials.again, trials.arrays = mended(), again, {"forward/output": np.full(3, output)}
    assert told(trials) == {"counts", "located", "suggested", "wrong"}


def test_a_fault_elsewhere_is_not_the_planted_one(trials):
    trials.mended = mended(found=[found(3, 9)], edits=[], verdict="diverged")
    assert told(trials) == {"counts"}


def test_a_fault_without_cause_or_edit_is_located_and_not_suggested(trials):
    trials.mended = mended(found=[found(cause=False)], edits=[], verdict="diverged")
    assert told(trials) == {"counts", "located"}


def test_what_changes_nothing_and_what_stops_do_not_count(trials):
    trials.mended = mended(found=[], edits=[])
    assert told(trials) == set()
    trials.arrays = {"forward/output": np.full(3, 1.1)}  # it changes something, and nobody saw it
    assert told(trials) == {"counts"}
    trials.mended = SideCrashError("the shapes do not fit\nand more")
    trial = trials.of(FAULT)
    assert (trial.counts, trial.error) == (False, "the shapes do not fit")
    result = RepairSelftest("Case", [trial])
    assert (result.summary()["stopped"], result.summary()["faults"], result.exit_code) == (1, 0, 0)


def test_the_table_has_what_counts_and_the_totals(trials):
    trials.mended = mended()
    found = RepairSelftest("Case", [trials.of(FAULT)], 3.0)
    text = str(found)
    assert "number_changed@port.py:2:0" in text
    assert "Case: located 1 of 1, suggested 1 of 1, repaired 1 of 1, wrong edits called proven 0, in 3 s" in text


def test_options_of_the_other_selftest_are_refused(twinalign):
    finished = twinalign("selftest", "case.py", "--fix", "3", "--faults", "bias_not_loaded")
    assert (finished.returncode, finished.stdout) == (2, "")
    assert without_topic(finished.stderr.strip()).endswith(
        "plants faults of its own in the source; leave --faults, --list and --ranks out"
    )


@pytest.mark.slow
def test_faults_of_a_real_port_are_repaired(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text in (("source", SOURCE), ("port", PORTED), ("case", CASE)):
        (tmp_path / f"{name}.py").write_text(text)
    result = selftest_of_fix(RunSettings("case.py", out=tmp_path / "out"), 3)
    summary = result.summary()
    assert summary["faults"] == summary["located"] == summary["repaired"] > 0
    assert (summary["wrong"], (tmp_path / "port.py").read_text()) == (0, PORTED)
    (tmp_path / "port.py").write_text(PORTED.replace("* 0.5", "* 0.25"))
    with pytest.raises(InputError, match="is diverged without any fault; mend it"):
        selftest_of_fix(RunSettings("case.py", out=tmp_path / "out"), 3)


SOURCE = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 8)
        self.norm = nn.LayerNorm(8, eps=1e-3)

    def forward(self, x):
        return self.norm(self.fc(x)).relu() * 0.5
"""
PORTED = """
from paddle import nn
from paddle.nn import functional as F


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 8)
        self.norm = nn.LayerNorm(8, epsilon=1e-3)

    def forward(self, x):
        return F.relu(self.norm(self.fc(x))) * 0.5
"""
CASE = """
import numpy as np

from twinalign import Case


class Small(Case):
    def reference(self):
        from source import Net

        return Net()

    def reproduced(self):
        from port import Net

        return Net()

    def inputs(self, rng):
        return {"x": rng.standard_normal((4, 6), dtype=np.float32)}
"""
