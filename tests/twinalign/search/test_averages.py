"""What a model's own code does to the state of its layers is found in that code, in every pass anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate

CASES = Path(__file__).with_name("average_cases.py")


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("Right", []),
        (
            "CoversStatistics",
            [("momentum.1", "state", "the moving average covers the running statistics as well: m = 0.9")],
        ),
        (
            "CopiesFirst",
            [
                (
                    "momentum.0",
                    "state",
                    "the moving average has another coefficient: 0 in place of 0.9, a copy, as a first update may be",
                )
            ],
        ),
    ],
)
@pytest.mark.slow
def test_the_update_of_a_momentum_network(tmp_path: Path, case: str, expected: list[tuple[str, str, str]]) -> None:
    found = locate(RunSettings(f"{CASES}:{case}", tmp_path / "out", stages=("forward",)))
    faults = [(f.paddle_layer, f.phase, f.explanation.text if f.explanation else "") for f in found.faults]
    assert faults == expected


@pytest.mark.parametrize("case", ["BeginsEqual", "BeginsEqualAndLate", "BeginsEqualAndRight"])
@pytest.mark.slow
def test_an_average_that_begins_as_the_network_is_judged_with_the_weights_of_a_later_step(
    tmp_path: Path, case: str
) -> None:
    found = locate(RunSettings(f"{CASES}:{case}", tmp_path / "out"), explain=False)
    places = [(fault.paddle_layer, fault.phase) for fault in found.faults]
    assert places == ([] if case == "BeginsEqualAndRight" else [("average.0", "state")])
