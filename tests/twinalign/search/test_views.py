"""What is changed in place may be a view: its gradient is known all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate

CASES = Path(__file__).with_name("view_cases.py")


@pytest.mark.parametrize(("case", "wrong"), [("InPlace", []), ("InPlaceScaled", [("", "forward")])])
def test_an_instance_norm_before_an_activation_in_place_is_judged(
    tmp_path: Path, case: str, wrong: list[tuple[str, str]]
) -> None:
    found = locate(RunSettings(f"{CASES}:{case}", tmp_path / "out"), explain=False)
    assert [(fault.paddle_layer, fault.phase) for fault in found.faults] == wrong
    layers = found.layers[case]
    assert {"convolution", "norm", "act"} <= layers.judged
    assert layers.left_out == {}
