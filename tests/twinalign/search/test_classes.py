"""A layer of another class is a stated cause, whether it has other parameters than the reference's or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinalign.recorder.recorder import RunSettings
from twinalign.search.locator import locate

CASES = Path(__file__).with_name("class_cases.py")
NORMED = "weight normalisation runs along another axis of the reference's weight: one length for "
WITH_WEIGHTS = "the layer is of another kind or size, with weights of its own: "


@pytest.mark.parametrize(
    ("case", "text"),
    [
        (
            "Weighted",
            "another kind of layer is used: LeakyReLU(negative_slope=0.1) in place of PReLU(num_parameters=8)",
        ),
        (
            "Weightless",
            f"{WITH_WEIGHTS}PReLU(num_parameters=1, data_format=NCHW, init=0.25, dtype=float64) in place of",
        ),
        ("NormedLinear", f"{NORMED}axis 1 in place of axis 0 of its weight"),
        ("NormedWhole", f"{NORMED}all entries in place of axis 0 of its weight"),
        (
            "OtherSize",
            f"{WITH_WEIGHTS}Conv1D(5, 5, kernel_size=[3], padding=1, data_format=NCL) in place of Conv1d(5, 5, k",
        ),
        (
            "Groups",
            f"{WITH_WEIGHTS}Conv1D(6, 6, kernel_size=[3], padding=1, data_format=NCL) in place of Conv1d(6, 6, k",
        ),
        ("OtherNorm", f"{WITH_WEIGHTS}LayerNorm(normalized_shape=[8], epsilon=1e-05) in place of BatchNorm1d(8, eps="),
    ],
)
def test_a_layer_of_another_class_is_named_with_the_line_that_builds_it(case: str, text: str, tmp_path: Path) -> None:
    found = locate(RunSettings(f"{CASES}:{case}", tmp_path / "out"))
    assert found.not_searched == {}
    (fault,) = found.faults
    assert (fault.paddle_layer, fault.phase) == ("1", "forward")
    assert fault.explanation is not None
    assert fault.explanation.text.startswith(text)
    assert [Path(file).name for file, _, _ in fault.evidence["source"]][:1] == [CASES.name]
