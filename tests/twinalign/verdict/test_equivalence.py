"""Equivalence of outcomes: the tests' distribution against scipy's, the verdicts against simulations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from twinalign.errors import InputError
from twinalign.verdict.equivalence import judge_equivalence, seeds_needed, student_cdf, student_quantile


@pytest.mark.parametrize("freedom", [1, 2, 4, 9, 30, 500, 9999])
def test_students_t_is_scipys(freedom: int) -> None:
    for value in (-40.0, -3.0, -0.1, 0.0, 0.5, 2.0, 7.0, 300.0):
        assert student_cdf(value, freedom) == pytest.approx(stats.t.cdf(value, freedom), rel=1e-9, abs=1e-14)
    for probability in (0.05, 0.9, 0.95, 0.999):
        expected = stats.t.ppf(probability, freedom)
        assert student_quantile(probability, freedom) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_p_value_is_that_of_two_one_sided_t_tests() -> None:
    rng = np.random.default_rng(0)
    reference, port = 90 + rng.normal(size=7), 90.2 + rng.normal(size=7)
    found = judge_equivalence("top1", reference, port, margin=1.5)
    difference = port - reference
    expected = max(
        stats.ttest_1samp(difference, -1.5, alternative="greater").pvalue,
        stats.ttest_1samp(difference, 1.5, alternative="less").pvalue,
    )
    assert found.p_value == pytest.approx(expected, rel=1e-9)
    assert found.interval == pytest.approx(
        stats.t.interval(0.9, 6, loc=difference.mean(), scale=stats.sem(difference)), rel=1e-9
    )
    assert (found.verdict == "aligned") == (expected < 0.05)


def test_no_difference_found_is_not_equivalence() -> None:
    # Three seeds that scatter by points: a test for a difference finds none, and yet nothing is shown.
    found = judge_equivalence("top1", [90.0, 88.0, 92.0], [91.0, 89.0, 90.5], margin=0.15)
    assert found.verdict == "inconclusive"
    assert "with this scatter it takes about" in found.reason
    assert found.seeds_needed is not None
    assert found.seeds_needed > 100


def test_a_port_that_is_a_point_worse_is_diverged() -> None:
    reference = 90 + np.array([0.0, 0.3, -0.2, 0.1, 0.2])
    found = judge_equivalence("top1", reference, reference - 1 + np.array([0.02, -0.03, 0.01, 0.0, 0.02]), margin=0.15)
    assert found.verdict == "diverged"
    assert found.reason.startswith("further apart than 0.15 points: 90.08 ± 0.19 against 89.08")


def test_identical_outcomes_are_equivalent() -> None:
    found = judge_equivalence("top1", [90.0, 91.0], [90.0, 91.0])
    assert (found.verdict, found.p_value) == ("aligned", 0.0)


def test_wrong_at_the_margin_in_one_of_twenty_and_right_in_four_of_five_with_the_seeds_needed() -> None:
    rng = np.random.default_rng(1)
    at_margin = [_shown(rng, count=8, truth=1.0) for _ in range(800)]
    assert np.mean(at_margin) == pytest.approx(0.05, abs=0.025)
    count = seeds_needed(1.0, 1 / 3)  # of few seeds the formula asks for one more than needed
    assert count is not None
    shown = [_shown(rng, count, truth=0.0, margin=1 / 3) for _ in range(800)]
    assert np.mean(shown) == pytest.approx(0.8, abs=0.05)


def _shown(rng: np.random.Generator, count: int, truth: float, margin: float = 1.0) -> bool:
    reference = np.zeros(count)
    return judge_equivalence("x", reference, reference + rng.normal(truth, 1.0, count), margin).verdict == "aligned"


@pytest.mark.parametrize(("seeds", "margin", "words"), [(1, 0.15, "--seeds"), (3, 0.0, "--margin 0: must be above 0")])
def test_what_cannot_be_tested_is_refused(seeds: int, margin: float, words: str) -> None:
    with pytest.raises(InputError, match=words):
        judge_equivalence("top1", [90.0] * seeds, [90.0] * seeds, margin)
