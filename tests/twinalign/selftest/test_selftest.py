"""Planted faults change what is recorded, are flagged by the right stage, and a clean port is left alone."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from twinalign.errors import InputError
from twinalign.runner import RunSettings
from twinalign.selftest.catalogue import catalogue
from twinalign.selftest.running import Selftest, SelftestResult, Trial

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
Command = Callable[..., subprocess.CompletedProcess[str]]


def settings(case: str, out: Path, **options: Any) -> RunSettings:
    return RunSettings(case=case, out=out, **options)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> SelftestResult:
    case = f"{HERE / 'three_methods.py'}:ThreeMethods"
    return Selftest(settings(case, tmp_path_factory.mktemp("three")), locate=False).run()


def test_a_case_of_three_methods_gets_faults_in_its_layers(three: SelftestResult) -> None:
    assert {trial.kind for trial in three.trials} == {"weights", "forward"}
    assert len(three.trials) > 25
    assert set(three.left_out) | {trial.id for trial in three.trials} == set(catalogue())


def test_each_is_detected_and_the_clean_port_is_no_alarm(three: SelftestResult) -> None:
    assert [trial.id for trial in three.trials if trial.changed and not trial.detected] == []
    assert [trial.id for trial in three.trials if trial.error] == []
    assert three.alarms == []
    assert three.exit_code == 0


def test_a_fault_that_changes_nothing_does_not_count(three: SelftestResult) -> None:
    # No activation of this case exceeds 6.
    silent = [trial.id for trial in three.trials if not trial.changed]
    assert silent == ["relu6_for_relu"]
    assert three.summary()["faults"] == len(three.trials) - 1


def test_a_port_that_is_wrong_by_itself_is_a_false_alarm(tmp_path: Path) -> None:
    case = f"{HERE / 'three_methods.py'}:WrongPort"
    result = Selftest(settings(case, tmp_path), ["linear_bias_forgotten"], locate=False).run()
    assert result.alarms == ["forward"]
    assert result.exit_code == 1


def test_places_and_causes_are_judged(tmp_path: Path) -> None:
    case = f"{HERE / 'three_methods.py'}:ThreeMethods"
    result = Selftest(settings(case, tmp_path), ["square_linear_transposed", "gelu_by_tanh"]).run()
    assert [(trial.place, trial.right_place, trial.right_cause, trial.extra) for trial in result.trials] == [
        ("6", True, True, []),
        ("5", True, True, []),
    ]
    assert result.alarms == []


def test_a_wrong_place_and_a_wrong_cause_are_not_taken_for_right() -> None:
    from twinalign.locate.faults import Explanation, Fault

    fault = catalogue()["gelu_by_tanh"]
    trial = Trial(fault.id, fault.kind, fault.text, "5", "5", "forward", changed=True)
    Selftest._judge(fault, trial, [Fault("4", "4", "forward", Explanation("gelu_form", ""))])
    assert (trial.right_place, trial.right_cause, trial.extra) == (False, False, ["4"])
    Selftest._judge(fault, trial, [Fault("5", "5", "forward", Explanation("bias_missing", ""))])
    assert (trial.right_place, trial.right_cause) == (True, False)


def test_an_unknown_fault_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--faults typo: no such fault; twinalign selftest --list names them"):
        Selftest(settings(f"{HERE / 'three_methods.py'}:ThreeMethods", tmp_path), ["typo"])


def test_the_command_lists_what_has_a_place(twinalign: Command) -> None:
    finished = twinalign("selftest", f"{HERE / 'three_methods.py'}:ThreeMethods", "--list")
    assert finished.returncode == 0, finished.stderr
    assert "square_linear_transposed" in finished.stdout
    assert "layer_norm_epsilon" not in finished.stdout


def test_the_command_writes_every_trial(twinalign: Command, tmp_path: Path) -> None:
    case, path = f"{HERE / 'three_methods.py'}:ThreeMethods", tmp_path / "trials.json"
    finished = twinalign("selftest", case, "--faults", "bias_not_loaded", "--no-locate", "--json", path)
    assert finished.returncode == 0, finished.stderr
    assert "detected 1 of 1 (100%), false alarms 0" in finished.stdout
    written = json.loads(path.read_text(encoding="utf-8"))
    assert written["trials"][0]["id"] == "bias_not_loaded"
    assert written["summary"]["faults"] == 1


# Every third fault, taken in turn by two cases. docs/selftest.md has them all, trainings included, located, explained.
_SAMPLE = [fault.id for fault in catalogue().values() if fault.kind != "train"][::3]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "faults"),
    [
        ("pipeline.small_moco:SmallMoCoViT", _SAMPLE[::2]),
        ("benchmarks/zoo_cases.py:MobileNetV3Small", _SAMPLE[1::2]),
    ],
    ids=["vit", "mobilenet"],
)
def test_faults_change_what_is_recorded_and_are_detected(
    case: str, faults: list[str], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(ROOT)
    result = Selftest(settings(case, tmp_path), faults, locate=False).run()
    assert sum(trial.detected for trial in result.trials) >= 8
    assert [trial.id for trial in result.trials if trial.changed and not trial.detected] == []
    assert [trial.id for trial in result.trials if trial.error] == []
    assert result.alarms == []
    silent = {trial.id for trial in result.trials if not trial.changed}
    # ReLU6 where nothing exceeds 6; a training mode that a network without batch norm does not have.
    assert silent <= {"relu6_for_relu", "metric_in_training_mode", "metric_labels_shifted"}
