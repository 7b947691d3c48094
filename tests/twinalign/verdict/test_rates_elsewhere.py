"""A learning rate that the port keeps in another place is judged by what the optimizer does."""

from __future__ import annotations

import numpy as np
import pytest

from twinalign.verdict.array_comparison import compare_arrays
from twinalign.verdict.rates_elsewhere import excuse_rates, factor_of_rates
from twinalign.verdict.results import Comparison

RATES = [0.1, 0.08, 0.05]


def judged(rates: list[float], moved: float = 0.0, parameters: bool = True) -> Comparison:
    def side(values: list[float], by: float) -> dict[str, np.ndarray]:
        found = {f"step{n}.learning_rate": np.asarray(value) for n, value in enumerate(values)}
        weights = np.linspace(1.0, 2.0, 50) + by
        of_steps = {f"step{n}.parameter.layer.weight": weights * 0.9**n for n in range(len(values))}
        return {**found, **of_steps} if parameters else found

    reference, port = side(RATES, 0.0), side(rates, moved)
    comparison = compare_arrays(reference, port, reference64=reference, reproduced64=port)
    excuse_rates(comparison, reference, port)
    return comparison


def test_a_factor_that_changes_no_update_is_said_and_aligned() -> None:
    comparison = judged([2 * rate for rate in RATES])
    assert comparison.verdict == "aligned"
    assert comparison.notes[-1] == (
        "the port's learning rate is 2 times the reference's, and all parameters agree after every step: the port has "
        "the rest of the rate elsewhere, such as inside of step(); it is judged by what it does"
    )


@pytest.mark.parametrize(
    ("rates", "moved", "parameters"),
    [
        ([0.2, 0.16, 0.11], 0.0, True),  # no one factor
        ([0.2, 0.16, 0.1], 1e-3, True),  # the updates differ as well
        ([0.2, 0.16, 0.1], 0.0, False),  # nothing shows what the optimizer does
    ],
)
def test_other_rates_diverge(rates: list[float], moved: float, parameters: bool) -> None:
    assert judged(rates, moved, parameters).verdict == "diverged"


def test_the_factor_of_rates() -> None:
    assert factor_of_rates([0.0, 0.1], [0.0, 0.05]) == pytest.approx(0.5)
    assert factor_of_rates([0.1, 0.2], [0.1, 0.2]) is None
    assert factor_of_rates([0.0, 0.1], [0.1, 0.2]) is None
    assert factor_of_rates([0.1], []) is None
