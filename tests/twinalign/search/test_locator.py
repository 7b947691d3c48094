"""What a search tells of several parts is counted once."""

from __future__ import annotations

import io
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from twinalign.causes.registry import Explanation
from twinalign.processes.side_process import ChildError, SideProcess
from twinalign.recorder import recorder
from twinalign.recorder.recorder import RunSettings
from twinalign.recorder.worker import Worker
from twinalign.reports.fault_facts import remarks
from twinalign.search import locator
from twinalign.search.faults import Fault, each_once, telling
from twinalign.search.locator import locate
from twinalign.terminal import show

STARTING = """
import numpy as np

from twinalign import Case


class Starting(Case):
    def reference(self):
        import torch

        class Table(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("codes", torch.randn(32, 16))

            def forward(self, x):
                return x @ self.codes

        return torch.nn.Sequential(Table())

    def reproduced(self):
        import paddle
        from paddle import nn

        zeros = paddle.ParamAttr(initializer=nn.initializer.Constant(0.0))

        class Table(nn.Layer):
            def __init__(self):
                super().__init__()
                self.register_buffer("codes", paddle.rand([32, 16]))

            def forward(self, x):
                return x @ self.codes

        return nn.Sequential(Table())

    def inputs(self, rng):
        return {"x": rng.standard_normal((2, 32)).astype(np.float32)}


class Counting(Starting):
    initial = True
"""
NORM = Explanation("batch_norm_momentum+running_variance_biased", "another momentum")


def of_training(identifier: str) -> Fault:
    return Fault("train", "train", "train", Explanation(identifier, "found in the training"))


def test_a_schedule_and_its_rates_in_the_training_are_one_fault() -> None:
    schedule = Fault("schedule", "schedule", "optimizer")
    (found,) = each_once([schedule, of_training("training_rates")])
    assert found is schedule
    assert found.explanation is not None
    assert found.explanation.id == "training_rates"


@pytest.mark.parametrize(
    ("elsewhere", "count"),
    [
        ("another line: `a * (b + c)` in place of `a * b`, line 3 of port.py", 1),
        ("another line (`a * (b + c)` in place of `a * b`, line 3 of port.py)", 1),
        ("another line: `a * (b + c)` in place of `a * b`, line 4 of port.py", 2),
    ],
)
def test_a_line_that_a_layer_runs_is_not_told_again_of_the_training(elsewhere: str, count: int) -> None:
    layer = Fault("block", "block", "forward", Explanation("line_of_port", elsewhere))
    text = "another line (`a * (b + c)` in place of `a * b`, line 3 of port.py)"
    training = Fault("train", "train", "train", Explanation("line_of_port", text))
    assert each_once([layer, training])[0] is layer
    assert len(each_once([layer, training])) == count


def test_a_line_that_the_metric_runs_is_the_metrics_and_a_training_beside_others_needs_a_cause() -> None:
    lines = {"lines_of_port": [("port.py", 3, 3)]}
    metric = Fault("metric", "metric", "metric", Explanation("line_of_port", "another line", evidence=lines))
    training = Fault("train", "train", "train", Explanation("line_of_port", "another line", evidence=lines))
    assert each_once([metric, training]) == [metric]
    unexplained = Fault("train", "train", "train")
    assert telling([metric, unexplained], [metric]) == [metric]
    assert telling([unexplained], [unexplained]) == [unexplained]
    assert telling([metric, training], [metric], new=[training]) == []


@pytest.mark.parametrize(("line", "told"), [(3, ["optimizer"]), (4, ["schedule", "optimizer"])])
def test_a_line_that_makes_rates_too_is_the_optimizers_alone(line: int, told: list[str]) -> None:
    found = [
        Fault(
            part, part, "optimizer", Explanation("line_of_port", part, evidence={"lines_of_port": [("p.py", at, at)]})
        )
        for part, at in (("schedule", line), ("optimizer", 3))
    ]
    assert [fault.reference_layer for fault in each_once(found)] == told
    rates = Explanation("training_rates", "other rates")
    assert len(each_once([Fault("schedule", "schedule", "optimizer", rates)])) == 1


@pytest.mark.parametrize("phase", ["train", "metric"])
@pytest.mark.parametrize(("line", "count"), [(3, 1), (4, 2)])
def test_a_line_that_a_cause_of_a_layer_stands_in_is_not_told_again(phase: str, line: int, count: int) -> None:
    layer = Fault("norm", "norm", "forward", Explanation("reduction_kind", "the unbiased var"))
    again = Fault(phase, phase, phase, Explanation("line_of_port", "another line"))
    for fault, at in ((layer, "port.py"), (again, "/here/port.py")):
        assert fault.explanation is not None
        fault.explanation.evidence["lines_of_port"] = [
            (at, line if fault is again else 3, line if fault is again else 3)
        ]
    assert len(each_once([layer, again])) == count


@pytest.mark.parametrize(
    ("said", "first", "count"),
    [
        ("(`build`, line 12 of port.py, as a whole in place of `build`, line 11 of other.py)", 12, 1),
        ("(`build`, line 12 of port.py, as a whole in place of `build`, line 11 of other.py)", 20, 2),
        ("(`b` in place of `a`, line 12 of port.py)", 12, 2),
    ],
)
def test_a_training_with_the_function_of_a_wrong_optimizer_is_no_other_fault(said: str, first: int, count: int) -> None:
    optimizer = Fault("optimizer", "optimizer", "optimizer", Explanation("learning_rate_of_some", "another rate"))
    optimizer.evidence["source"] = [("/a/port.py", first, first + 4)]
    training = of_training("line_of_port")
    assert training.explanation is not None
    lines = {"lines_of_port": [("port.py", 12, 17)]}
    training.explanation = Explanation("line_of_port", f"a line computes something else {said}", evidence=lines)
    assert len(each_once([optimizer, training])) == count


@pytest.mark.parametrize(
    ("cause", "layer", "explanation", "count"),
    [
        ("training_batch_norm_momentum", "norm", NORM, 1),
        ("training_batch_norm_momentum", "norm", None, 2),
        ("training_rates", "norm", NORM, 2),
        ("evaluation_mode", "schedule", None, 2),
    ],
)
def test_only_what_is_the_same_is_told_once(
    cause: str, layer: str, explanation: Explanation | None, count: int
) -> None:
    other = Fault(layer, layer, "optimizer" if layer == "schedule" else "state", explanation)
    assert len(each_once([other, of_training(cause)])) == count
    assert other.explanation is explanation


def test_a_search_that_fails_in_one_part_goes_on_in_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise ChildError("the ref side crashed while searching", "KeyError: 'x'", died=False)

    monkeypatch.setattr(locator, "locate_layers", fail)
    found = locate(RunSettings(f"{Path(__file__).with_name('pairs.py')}:Evaluating", tmp_path / "out"))
    assert found.not_searched == {"net": "the ref side crashed while searching: KeyError: 'x'"}
    assert (found.verdict, int(found.exit_code)) == ("inconclusive", 3)
    text = "net could not be searched: the ref side crashed while searching: KeyError: 'x'"
    assert remarks(found.to_json()) == [text]


def test_a_process_that_dies_in_one_part_begins_again_for_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def die(processes: Any, *_: Any, **__: Any) -> Any:
        os.kill(processes["ref"].pid, signal.SIGKILL)
        while True:
            processes["ref"].call(Worker.describe)

    monkeypatch.setattr(recorder, "SideProcess", SideProcess)  # a fork would not begin again
    monkeypatch.setattr(locator, "locate_layers", die)
    case = f"{Path(__file__).with_name('metric_case.py')}:Outputs"
    found = locate(RunSettings(case, tmp_path / "out", options={"fault": "metric_top_k"}))
    (why,) = found.not_searched.values()
    assert "killed by SIGKILL" in why
    assert [fault.reference_layer for fault in found.faults] == ["metric"]


def test_places_are_told_before_their_causes_are_sought_and_a_spent_budget_is_said(tmp_path: Path) -> None:
    told: list[str] = []
    case = f"{Path(__file__).with_name('pairs.py')}:EvaluatingEpsilon"
    settings = RunSettings(case, tmp_path / "out", stages=("forward",), explain_seconds=0.0)
    (fault,) = locate(settings, lambda side, text: told.append(f"{side}: {text}")).faults
    place = "norm (forward)"
    assert told.index(f"found: differences in {place}") < told.index(f"ref: why {place} differs, 1 of 1")
    assert fault.explanation is None
    assert "not tried: some of the known causes, and two of them together; " in fault.evidence["notes"][-1]
    assert "--explain-seconds 120 gives it more" in fault.evidence["notes"][-1]


def test_a_port_that_raises_is_judged_with_the_references_values_in_its_layers(tmp_path: Path) -> None:
    case = Path(__file__).with_name("raising_case.py")
    found = locate(RunSettings(f"{case}:Branches", tmp_path / "out"))
    assert (found.verdict, found.not_searched.keys()) == ("diverged", {"training"})
    (fault,) = found.faults
    assert (fault.paddle_layer, fault.explanation and fault.explanation.id) == ("wide", "window_padding")
    assert fault.evidence["notes"][-1].startswith(f"the port crashes at {case}:")
    assert {"narrow", "wide"} <= found.layers["branches"].judged


def test_a_port_that_raises_is_told_once_with_the_first_other_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinalign.search.layers._Search._past", lambda *_: {})
    case = Path(__file__).with_name("raising_case.py")
    found = locate(RunSettings(f"{case}:Branches", tmp_path / "out"))
    assert (found.verdict, found.not_searched.keys()) == ("inconclusive", {"branches", "training"})
    line = next(n for n, text in enumerate(case.read_text(encoding="utf-8").splitlines(), 1) if "concat = " in text)
    console = Console(file=io.StringIO(), width=240)
    show(found, console)
    first, *_, shape, last = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert first.startswith("branches, training could not be searched: the paddle side crashed while searching")
    assert shape == "wide returns [2, 3, 4] where the reference returns [2, 3, 6]"
    assert last == f"branches: no layer could be judged, since the port crashes at {case}:{line}"


def test_an_optimizer_leaves_frozen_parameters_out() -> None:
    frozen = Explanation("parameters_frozen", "parameters get no gradient")
    layer = Fault("mixer", "ssm", "backward", frozen, {"values": {"gradient.parameter.A_log": {}}})
    left_out = Explanation("parameters_left_out", "some parameters are not updated at all")
    follows, more = (
        Fault("optimizer", "optimizer", "optimizer", left_out, {"parameters": names})
        for names in (["mixer.A_log"], ["mixer.A_log", "head.weight"])
    )
    assert each_once([layer, follows]) == [layer]
    assert each_once([layer, more]) == [layer, more]


def test_initial_weights_are_faults_where_they_count_or_are_asked_for(tmp_path: Path) -> None:
    case = tmp_path / "case.py"
    case.write_text(STARTING, encoding="utf-8")
    for stages, name in ((("initial",), "Starting"), ((), "Counting")):
        (fault,) = locate(RunSettings(f"{case}:{name}", tmp_path / name, stages=stages)).faults
        assert (fault.reference_layer, fault.paddle_layer, fault.phase) == ("0", "0", "initial")
        assert fault.explanation is not None
        assert fault.explanation.id == "initializer_family_differs"
        assert fault.explanation.text.endswith("uniform from 0 to 1 in the port")
        # The initialiser of the file is another layer's: exchanging it is for `fix` to try.
        assert fault.edit is None
        assert [edit["before"] for edit in fault.reference_edits] == ["nn.initializer.Constant(0.0)"]
    assert locate(RunSettings(f"{case}:Starting", tmp_path / "Starting")).faults == []
