"""Data have no float64 run: what a resampling rounds is told from a fault by its size."""

import numpy as np
import paddle
import pytest
import torch

from twinalign.files.recordings import Recording
from twinalign.sides import SIDES
from twinalign.verdict.compare import compare_stage
from twinalign.verdict.results import ALIGNED, DIVERGED, ROUNDING, Comparison
from twinalign.verdict.stage_recordings import StageRecordings

IMAGE = np.random.default_rng(0).integers(0, 256, (1, 3, 150, 210)).astype("float32")


def compared(reference: np.ndarray, port: np.ndarray, stage: str = "data") -> Comparison:
    arrays = zip(SIDES, (reference, port), strict=True)
    by_key = {(side, "float32"): Recording({"train.0.image": array}, {"stage": stage}) for side, array in arrays}
    return compare_stage(stage, StageRecordings(by_key), {})


@pytest.fixture(scope="module")
def resized() -> list[np.ndarray]:
    """A noisy picture, which two frameworks resize in float32, normalised."""
    size = {"size": (231, 300), "mode": "bilinear", "align_corners": False}
    theirs = torch.nn.functional.interpolate(torch.from_numpy(IMAGE), **size)
    ours = paddle.nn.functional.interpolate(paddle.to_tensor(IMAGE), **{**size, "size": [231, 300]})
    return [(one.numpy() / np.float32(255) - np.float32(0.45)) / np.float32(0.22) for one in (theirs, ours)]


def test_what_two_frameworks_resize_in_float32_is_no_fault(resized: list[np.ndarray]) -> None:
    theirs, ours = resized
    assert (np.abs(theirs - ours) > 1e-5 + 1.3e-6 * np.abs(theirs)).any()  # the fixed tolerances are not enough
    (tensor,) = (comparison := compared(theirs, ours)).tensors
    assert (comparison.verdict, tensor.verdict) == (ALIGNED, ROUNDING)
    assert tensor.reason.endswith("of the values: a resampling in float32 rounds its positions as well")


def test_another_stage_is_judged_by_its_tolerances(resized: list[np.ndarray]) -> None:
    assert compared(*resized, stage="observe").verdict == DIVERGED


@pytest.mark.parametrize("fault", ["one element", "another mean", "a few rows", "whole numbers", "float64"])
def test_a_fault_of_the_data_stays_one(fault: str, resized: list[np.ndarray]) -> None:
    theirs, ours = resized[0], resized[0].copy()
    if fault == "one element":
        ours[0, 1, 5, 7] += 1e-3
    elif fault == "another mean":
        ours -= np.float32(0.0001)
    elif fault == "a few rows":
        ours[:, :, -1] = ours[:, :, -2]
    elif fault == "float64":
        theirs, ours = (one.astype("float64") for one in resized)
    else:
        theirs, ours = (IMAGE.astype("int64"), IMAGE.astype("int64"))
        ours[0, 0, 0, 0] += 1
    assert compared(theirs, ours).verdict == DIVERGED
