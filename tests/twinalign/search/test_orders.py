"""A layer whose parameters stand in another order than its partner's is right, whatever is wrong before it."""

from pathlib import Path

import pytest

from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate

CASES = Path(__file__).with_name("order_cases.py")


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("Gated", {}),
        ("WrongFeatures", {("", "forward"): "leaky_slope"}),
        ("WrongSignal", {("", "forward"): "factor_wrong"}),
        ("WrongGate", {("gate", "forward"): "activation_swapped"}),
        ("OfShapes", {("", "forward"): "line_of_port"}),
        ("Exchanged", {("", "forward"): "line_of_port"}),
    ],
)
def test_inputs_are_told_apart_by_what_the_layer_makes_of_them(
    tmp_path: Path, case: str, expected: dict[tuple[str, str], str]
) -> None:
    found = locate(RunSettings(f"{CASES}:{case}", tmp_path / "out"))
    assert {(f.paddle_layer, f.phase): f.explanation and f.explanation.id for f in found.faults} == expected
