"""A mask that is written otherwise and hides the same is no fault; one that hides less is."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate

CASES = Path(__file__).with_name("mask_cases.py")


@pytest.mark.parametrize(("case", "expected"), [("HiddenAlike", []), ("HiddenInPart", [("", "forward")])])
def test_what_a_layer_gives_the_same_with_is_no_fault(
    tmp_path: Path, case: str, expected: list[tuple[str, str]]
) -> None:
    found = locate(RunSettings(f"{CASES}:{case}", tmp_path / "out"), explain=False)
    assert [(fault.paddle_layer, fault.phase) for fault in found.faults] == expected


@pytest.mark.parametrize(("case", "wrong"), [("OtherArgument", []), ("OtherArgumentScaled", ["attention"])])
def test_a_layer_keeps_what_it_is_given_in_place_of_something_else(tmp_path: Path, case: str, wrong: list[str]) -> None:
    found = locate(RunSettings(f"{CASES}:{case}", tmp_path / "out"), explain=False)
    assert [fault.paddle_layer for fault in found.faults] == wrong
    assert {"attention", "attention.value"} <= found.layers[case].judged


@pytest.mark.parametrize(
    ("case", "wrong"),
    [
        ("Valid", []),
        ("ValidNumbers", []),
        ("ValidScaled", ["encoder.attention"]),
        ("ValidInAModelOfPadding", [""]),
    ],
)
def test_layers_of_the_port_may_take_masks_with_the_opposite_truth_values(
    tmp_path: Path, case: str, wrong: list[str]
) -> None:
    found = locate(RunSettings(f"{CASES}:{case}", tmp_path / "out"), explain=False)
    assert [fault.paddle_layer for fault in found.faults] == wrong
    assert {"encoder", "encoder.attention", "encoder.attention.value"} <= found.layers[case].judged
