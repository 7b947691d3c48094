"""The floor of a single number: one lucky draw of the reference, and its repeats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats

from twinalign.files.recordings import Recording, random_projections, sample_positions
from twinalign.verdict import compare_arrays
from twinalign.verdict.results import DIVERGED

TRUTH = 0.5339971305834568
ROUNDING = 2e-6
REPEATS = [[TRUTH * (1 + error)] for error in (2.5e-6, -1.7e-6, 2.0e-6, -2.8e-6)]


def judged(port_error: float, repeats: Any, port64_error: float = 1e-13, reference_error: float = 9e-8) -> Any:
    def loss(error: float, dtype: str) -> dict[str, np.ndarray]:
        return {"loss": np.array(TRUTH * (1 + error), dtype=dtype)}

    return compare_arrays(
        loss(reference_error, "float32"),
        loss(port_error, "float32"),
        reference64=loss(0.0, "float64"),
        reproduced64=loss(port64_error, "float64"),
        repeats=None if repeats is None else {"loss": repeats},
    ).tensors[0]


def test_a_lucky_reference_does_not_make_the_port_diverge() -> None:
    assert judged(4.1e-6, None).verdict == DIVERGED
    found = judged(4.1e-6, REPEATS)
    assert found.verdict != DIVERGED
    # Of five distances: the root of their mean square, to which float32 itself adds a little.
    expected = 4.1e-6 / np.sqrt(np.mean(np.square([9e-8, 2.5e-6, 1.7e-6, 2.0e-6, 2.8e-6])))
    assert found.noise_ratio == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("error", [3e-5, -3e-4, 2e-3])
def test_a_number_computed_more_coarsely_is_found_all_the_same(error: float) -> None:
    assert judged(error, REPEATS).verdict == DIVERGED


@pytest.mark.parametrize("error", [1e-10, 1e-7, 1e-3])
def test_what_differs_in_float64_is_found_however_float32_scatters(error: float) -> None:
    """Relative 1e-10 is a hundredth of a thousandth of what float32 scatters by."""
    assert judged(error, REPEATS, port64_error=error).verdict == DIVERGED


def test_repeats_of_the_same_number_are_no_evidence() -> None:
    same = [[float(np.float32(TRUTH * (1 + 9e-8)))]] * 40
    assert judged(4.1e-6, same).noise_ratio == judged(4.1e-6, None).noise_ratio


def test_false_alarms_are_as_rare_as_the_page_says() -> None:
    """Both sides' errors normal and alike: beyond 8 times the floor is Student's t of five degrees beyond 8."""
    assert 2 * scipy.stats.t.sf(8, 1) == pytest.approx(1 / 12, rel=0.1)
    assert 2 * scipy.stats.t.sf(8, 5) == pytest.approx(1 / 2000, rel=0.1)
    random = np.random.RandomState(0)

    def alarms(repeats: int) -> int:
        count = 0
        for _ in range(400):
            reference, port, *more = ROUNDING * random.randn(2 + repeats)
            found = judged(port, [[TRUTH * (1 + error)] for error in more], reference_error=reference)
            count += found.verdict == DIVERGED
        return count

    assert alarms(0) > 10
    assert alarms(4) <= 3


def sampled(errors: np.ndarray, dtype: str) -> dict[str, np.ndarray]:
    """A tensor of 8192 elements as a step records it, with these errors."""
    values = np.random.RandomState(1).randn(8192)
    recording = Recording()
    recording.add_sampled("step0.gradient.weight", (values + errors).astype(dtype))
    return recording.arrays


def of_projections(port: dict[str, np.ndarray], port64: dict[str, np.ndarray]) -> Any:
    found = compare_arrays(
        sampled(cancelling(), "float32"),
        port,
        reference64=sampled(np.zeros(8192), "float64"),
        reproduced64=port64,
    )
    return next(tensor for tensor in found.tensors if tensor.name.endswith("(projections)"))


def cancelling() -> np.ndarray:
    """Errors of a reference that hardly show in its projections: what these see of them is taken away."""
    values = np.random.RandomState(1).randn(8192)
    errors = 1e-6 * np.random.RandomState(2).randn(8192)
    bases = np.stack([random_projections(row) for row in np.eye(8192)], axis=1)
    total = (values + errors).astype(np.float32).astype(np.float64) - values
    return errors - 0.95 * np.linalg.lstsq(bases, bases @ total, rcond=None)[0]


def test_projections_that_cancel_by_luck_round_like_the_elements() -> None:
    right = sampled(2e-6 * np.random.RandomState(3).randn(8192), "float32")
    found = of_projections(right, sampled(np.zeros(8192), "float64"))
    own = found.floor_rms
    assert found.rms_abs > 8 * own  # by themselves the projections would say that the port is worse than rounding
    assert found.verdict != DIVERGED
    assert found.noise_ratio == pytest.approx(2, abs=1.5)


@pytest.mark.parametrize("size", [1e-5, 1e-3])
def test_projections_show_what_is_wrong_outside_of_the_sample(size: float) -> None:
    wrong = np.zeros(8192)
    wrong[np.setdiff1d(np.arange(8192), sample_positions(8192))[::2]] = size
    found = of_projections(sampled(wrong, "float32"), sampled(wrong, "float64"))
    assert found.verdict == DIVERGED
