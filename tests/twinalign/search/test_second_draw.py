"""A cause is proven on two draws of inputs, or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from twinalign.recorder.recorder import RunSettings
from twinalign.search.faults import Fault
from twinalign.search.locator import locate

CASES = Path(__file__).with_name("draw_cases.py")


def fault_in(folder: Path, case: str) -> Fault:
    (fault,) = locate(RunSettings(f"{CASES}:{case}", folder / "out")).faults
    return fault


def test_a_factor_in_the_case_s_own_forward_is_proven(tmp_path: Path) -> None:
    fault = fault_in(tmp_path, "Twice")
    assert fault.explanation is not None
    # That the output is scaled by 2 fits any code that does so: the line says more.
    assert fault.explanation.id == "line_of_port"
    assert "in place of `returned`" in fault.explanation.text
    # What is tried on this code before must leave the weights of the model alone.
    assert fault.evidence["whole_reproduced"] is True


@pytest.mark.parametrize("case", ["Counted", "CountedTwins"])
def test_a_cause_that_fits_one_draw_of_inputs_and_not_a_second_is_not_proven(tmp_path: Path, case: str) -> None:
    fault = fault_in(tmp_path, case)
    assert fault.explanation is not None
    assert fault.explanation.id == "line_of_port"  # which an edit of the port proves
    assert "in place of `returned`" in fault.explanation.text
    text = "fits these inputs, but not a second draw of them: the output is scaled by a factor: 2"
    assert text in fault.evidence["notes"]


def test_the_flags_of_the_two_draws_are_what_the_case_says() -> None:
    drawn = [np.random.default_rng([6, draw]) for draw in (0, 1)]
    counts = [(rng.standard_normal((2, 6), dtype="float32"), int(rng.integers(0, 2, 4).sum()))[1] for rng in drawn]
    assert counts[0] == 2
    assert counts[1] not in (0, 2)
