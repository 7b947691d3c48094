"""What the port holds in another form than the reference, and where no line of it says what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate

CASES = Path(__file__).with_name("pyramid_cases.py")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "place", "cause", "said"),
    [
        ("Pyramid", "attn", "line_of_port", "self.norm(x_.transpose([0, 2, 3, 1])).transpose([0, 3, 1, 2])"),
        ("Patches", "embed", "reshaped_not_transposed", ""),
        ("Scattered", "embed", "line_of_port", "`x.reshape([x.shape[0], x.shape[2], x.shape[1]])` in place of `x`"),
        ("Exchanged", "block", "layers_exchanged", "one and two"),
        ("Biased", "one", "line_of_port", "bias.mT"),
    ],
)
def test_the_place_alone_is_named_with_its_cause(tmp_path: Path, case: str, place: str, cause: str, said: str) -> None:
    (fault,) = locate(RunSettings(f"{CASES}:{case}", tmp_path / "out", stages=("forward",))).faults
    assert (fault.paddle_layer, fault.phase) == (place, "forward")
    assert fault.explanation is not None
    assert fault.explanation.id == cause
    assert said in fault.explanation.text
