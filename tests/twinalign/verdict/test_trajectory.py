"""Chaos told from bugs, on a system whose growth of rounding is known: the logistic map, and gradient descent."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from twinalign.errors import InputError
from twinalign.verdict.trajectory import judge_trajectory

STEPS = 120


def descent(dtype: str, order: int, change: Callable[[int, np.ndarray], np.ndarray] | None = None) -> np.ndarray:
    """Losses of a coupled map that doubles differences at every step, in one of two summation orders."""
    state = np.linspace(0.1, 0.9, 16).astype(dtype)
    losses = []
    for step in range(STEPS):
        if change is not None:
            state = change(step, state.copy())
        neighbours = (state + np.roll(state, 1)) + np.roll(state, 2)
        if order:
            neighbours = state + (np.roll(state, 1) + np.roll(state, 2))
        mean = neighbours / np.asarray(3, dtype)
        state = (np.asarray(3.8, dtype) * mean * (1 - mean)).astype(dtype)
        losses.append(float(state.sum(dtype=dtype)) / 16 if order else float(np.mean(state)))
    return np.array(losses)


def four(change: Callable[[int, np.ndarray], np.ndarray] | None = None) -> dict[str, np.ndarray]:
    return {
        "reference": descent("f4", 0),
        "reproduced": descent("f4", 1, change),
        "reference64": descent("f8", 0),
        "reproduced64": descent("f8", 1, change),
    }


def at(when: int, factor: float) -> Callable[[int, np.ndarray], np.ndarray]:
    return lambda step, state: state * state.dtype.type(factor) if step == when else state


def always(factor: float) -> Callable[[int, np.ndarray], np.ndarray]:
    return lambda step, state: state * state.dtype.type(factor) if step >= 1 else state


def test_identical_curves() -> None:
    losses = descent("f4", 0)
    found = judge_trajectory(losses, losses)
    assert (found.verdict, found.kind, found.parted_at) == ("aligned", "identical", None)


def test_growth_of_rounding_is_no_bug() -> None:
    curves = four()
    assert np.abs(curves["reference"] - curves["reproduced"]).max() > 0.01, "the example must be chaotic"
    found = judge_trajectory(**curves)
    assert (found.verdict, found.kind, found.basis) == ("rounding", "chaos", "float64")
    assert found.parted_at is not None
    assert found.parted_at > 5
    assert found.growth is not None


@pytest.mark.parametrize("step", [0, 1, 7, 20])
def test_a_difference_of_a_millionth_is_found_where_it_enters(step: int) -> None:
    found = judge_trajectory(**four(at(step, 1 + 1e-5)))
    assert found.verdict == "diverged"
    assert found.parted_at == step
    assert found.kind == {0: "offset", 1: "slope"}.get(step, "jump")
    assert "in float64, where rounding cannot be the cause" in found.reason


def test_a_slope_from_the_first_update_on() -> None:
    found = judge_trajectory(**four(always(1 + 1e-6)))
    assert (found.verdict, found.kind, found.parted_at) == ("diverged", "slope", 1)
    assert found.reason.endswith("gradient, optimizer or schedule")


@pytest.mark.parametrize(("change", "kind"), [(at(0, 0.97), "offset"), (at(1, 0.97), "slope"), (at(9, 0.97), "jump")])
def test_without_float64_gross_bugs_are_found_by_their_growth(
    change: Callable[[int, np.ndarray], np.ndarray], kind: str
) -> None:
    curves = four(change)
    found = judge_trajectory(curves["reference"], curves["reproduced"])
    assert (found.verdict, found.kind, found.basis) == ("diverged", kind, "growth")


def test_without_float64_chaos_passes_and_says_what_is_missing() -> None:
    curves = four()
    found = judge_trajectory(curves["reference"], curves["reproduced"])
    assert (found.verdict, found.kind) == ("rounding", "chaos")
    assert found.reason.endswith("there were no float64 runs to prove it")


def test_a_repeat_shows_the_growth_of_rounding() -> None:
    curves = four()
    found = judge_trajectory(curves["reference"], curves["reproduced"], reference_repeat=curves["reproduced"])
    assert (found.verdict, found.basis) == ("rounding", "repeat")
    curves = four(at(2, 1.05))
    found = judge_trajectory(curves["reference"], curves["reproduced"], reference_repeat=descent("f4", 1))
    assert (found.verdict, found.parted_at) == ("diverged", 2)


def test_nan_on_one_side_and_lengths() -> None:
    losses = descent("f4", 0)
    broken = losses.copy()
    broken[30:] = np.nan
    found = judge_trajectory(losses, broken)
    assert (found.verdict, found.parted_at, found.reason) == (
        "diverged",
        30,
        "NaN or infinite on one side only at step 30",
    )
    assert judge_trajectory(losses, losses[:-1]).reason == "120 steps against 119"
    assert judge_trajectory(broken, broken).verdict == "aligned"
    with pytest.raises(InputError, match="loss: a curve has one value a step"):
        judge_trajectory(np.ones((2, 3)), np.ones((2, 3)))


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(("first", "second"), [(NAN, INF), (INF, NAN), (INF, -INF), (-INF, NAN)])
def test_one_kind_of_nonfinite_is_not_another(first: float, second: float) -> None:
    found = judge_trajectory([1.0, first], [1.0, second])
    assert (found.verdict, found.parted_at) == ("diverged", 1)
    assert found.reason == "NaN or infinite on one side only at step 1"


def test_curves_without_a_number_prove_nothing() -> None:
    assert judge_trajectory([NAN, NAN], [NAN, NAN]).verdict == "inconclusive"
    assert judge_trajectory([1.0, NAN], [1.0, NAN]).verdict == "aligned"


def test_nan_in_float64_hides_no_difference() -> None:
    curves = {"reference": [1.0, 2.0, 3.0], "reproduced": [1.0, 2.0, 3.5]}
    found = judge_trajectory(**curves, reference64=[1.0, 2.0, 3.0], reproduced64=[1.0, 2.0, NAN])
    assert (found.verdict, found.reason) == ("diverged", "NaN or infinite in one float64 run only at step 2")
    both = judge_trajectory(**curves, reference64=[1.0, 2.0, NAN], reproduced64=[1.0, 2.0, NAN])
    assert (both.verdict, both.basis) == ("diverged", "growth")
