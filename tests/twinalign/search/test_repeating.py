"""A unit is judged by running it again; where that gives something else than before, the report says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from twinalign.causes.layers.explaining import reference_explain
from twinalign.recorder.recorder import RunSettings
from twinalign.replay.layers import KEPT
from twinalign.replay.repeating import not_repeated
from twinalign.search.locator import LocateResult, locate

CASES = Path(__file__).with_name("repeating_cases.py")


def located(tmp_path: Path, case: str) -> LocateResult:
    return locate(RunSettings(f"{CASES}:{case}", tmp_path / "out", stages=("forward",)))


@pytest.mark.slow
def test_a_unit_that_counts_its_calls_begins_each_run_with_the_same_count(tmp_path: Path) -> None:
    (fault,) = located(tmp_path, "CountedWrong").faults
    assert fault.paddle_layer == "first"
    assert fault.explanation is not None
    assert not located(tmp_path / "right", "Counted").faults


@pytest.mark.slow
def test_a_unit_with_a_generator_of_its_own_is_not_judged_and_the_report_says_why(tmp_path: Path) -> None:
    result = located(tmp_path, "DrawnWrong")
    (layers,) = result.layers.values()
    assert not result.faults
    assert "does not give what was recorded when it runs again" in layers.left_out["first"]
    assert "every run gives something else" in layers.left_out["first"]


@pytest.mark.parametrize(
    ("case", "phase", "cause"),
    [("CachedStopped", "backward", "line_of_port"), ("CachedWrong", "forward", "attention_scale")],
)
def test_a_unit_that_writes_to_what_it_is_given_finds_it_as_it_was_in_each_run(
    tmp_path: Path, case: str, phase: str, cause: str
) -> None:
    (fault,) = locate(RunSettings(f"{CASES}:{case}", tmp_path / "out")).faults
    assert (fault.paddle_layer, fault.phase) == ("one", phase)
    assert fault.explanation is not None
    assert fault.explanation.id == cause


class Unit:
    """Returns one recorded value after the other."""

    phase, module, facts, held, port_class, children = "forward", None, {}, (), "", ()

    def __init__(self, *values: float, draws: bool = False, beside: tuple[float, ...] = ()) -> None:
        self.beside = beside
        self._values, self.reference = [np.array([value]) for value in values], {"output.0": np.array([1.0])}
        self.port, self._draws, self.runs = {"output.0": np.array([2.0])}, draws, 0
        self.backend = self

    def random_state(self) -> str:
        return str(self.runs if self._draws else 0)

    def run(self, *_: float, everything: bool = False) -> dict[str, np.ndarray]:
        if everything:
            return {"output.0": self._values[0], **{f"output.{n}": np.array([v]) for n, v in enumerate(self.beside, 1)}}
        self.runs += 1
        return {"output.0": self._values[min(self.runs, len(self._values)) - 1]}

    def hold_what_agrees(self) -> None: ...


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        (Unit(1.0), ""),
        (Unit(1.5, beside=(1e15,)), ""),
        (Unit(1.5), "output.0 differs by 0.5 relative, and every run gives the same: it depends on what ran before it"),
        (Unit(1.5, 2.0), "output.0 differs by 0.5 relative, and every run gives something else"),
        (Unit(1.5, draws=True), "output.0 differs by 0.5 relative, since it draws random numbers"),
    ],
)
def test_how_a_rerun_differs_is_said_with_its_likely_reason(unit: Unit, expected: str) -> None:
    said = not_repeated(unit)  # type: ignore[arg-type]
    assert expected in said if expected else not said


def test_a_fault_whose_unit_does_not_repeat_is_told_why_no_cause_was_sought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinalign.causes.layers.explaining.RerunUnit", lambda *_: Unit(1.5))
    worker = type("Worker", (), {"kept": {KEPT: None}})
    answer = reference_explain(worker, str(tmp_path), {}, "forward", ())
    assert answer["explanation"] is None
    assert "does not give what was recorded" in answer["stopped"]
