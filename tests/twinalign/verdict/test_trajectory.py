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


def both(change: Callable[[int, np.ndarray], np.ndarray] | None = None) -> tuple[np.ndarray, np.ndarray]:
    return descent("f4", 0), descent("f4", 1, change)


def at(when: int, factor: float) -> Callable[[int, np.ndarray], np.ndarray]:
    return lambda step, state: state * state.dtype.type(factor) if step == when else state


def test_identical_curves() -> None:
    losses = descent("f4", 0)
    found = judge_trajectory(losses, losses)
    assert (found.verdict, found.kind, found.parted_at) == ("aligned", "identical", None)


@pytest.mark.parametrize(("change", "kind"), [(at(0, 0.97), "offset"), (at(1, 0.97), "slope"), (at(9, 0.97), "jump")])
def test_without_float64_gross_bugs_are_found_by_their_growth(
    change: Callable[[int, np.ndarray], np.ndarray], kind: str
) -> None:
    found = judge_trajectory(*both(change))
    assert (found.verdict, found.kind, found.basis) == ("diverged", kind, "growth")


def test_without_float64_chaos_passes_and_says_what_is_missing() -> None:
    reference, reproduced = both()
    assert np.abs(reference - reproduced).max() > 0.01, "the example must be chaotic"
    found = judge_trajectory(reference, reproduced)
    assert (found.verdict, found.kind) == ("rounding", "chaos")
    assert found.parted_at is not None
    assert found.parted_at > 5
    assert found.growth is not None
    assert found.reason.endswith("there were no float64 runs to prove it")


def test_a_repeat_shows_the_growth_of_rounding() -> None:
    repeat = descent("f4", 1)
    found = judge_trajectory(*both(), reference_repeat=repeat)
    assert (found.verdict, found.basis) == ("rounding", "repeat")
    found = judge_trajectory(*both(at(2, 1.05)), reference_repeat=repeat)
    assert (found.verdict, found.parted_at) == ("diverged", 2)


def test_the_first_step_may_differ_as_the_reference_does_from_float64() -> None:
    """10 log10 of a ratio next to 1 loses most of its digits, in both sides alike."""
    curve, repeat = [0.05, 0.04, 0.03], [0.05, 0.04 + 1e-9, 0.03 + 2e-9]
    port = [0.05 + 3e-6, 0.04, 0.03]
    assert judge_trajectory(curve, port, reference_repeat=repeat).parted_at == 0
    assert judge_trajectory(curve, port, reference_repeat=repeat, own_first=1e-6).verdict == "rounding"
    found = judge_trajectory(curve, [0.05 + 5e-6, 0.04, 0.03], reference_repeat=repeat, own_first=1e-6)
    assert (found.verdict, found.parted_at) == ("diverged", 0)


def test_a_repeat_without_numbers_measures_nothing() -> None:
    found = judge_trajectory([1.0, 2.0, 3.0], [1.0, 2.0, 3.5], reference_repeat=[1.0, 2.0, NAN])
    assert (found.verdict, found.basis) == ("diverged", "growth")


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


def quiet_repeat() -> np.ndarray:
    """A repeat that moves a thousandth as far as the port does."""
    reference, reproduced = both()
    return reference + 1e-3 * (reproduced - reference)


@pytest.mark.parametrize(
    ("exact_steps", "verdict", "kind"),
    [(0, "diverged", "slope"), (2, "inconclusive", "growth"), (STEPS, "rounding", "growth")],
)
def test_growth_that_the_repeat_does_not_show_is_left_to_float64(exact_steps: int, verdict: str, kind: str) -> None:
    found = judge_trajectory(*both(), reference_repeat=quiet_repeat(), exact_steps=exact_steps)
    assert (found.verdict, found.kind) == (verdict, kind)
    assert found.parted_at is not None
    if verdict == "inconclusive":
        assert found.reason == (
            f"the curves depart from step {found.parted_at} on by more than the reference's repeat shows; the float64 "
            f"runs agree in all their 2 steps: with {found.parted_at + 1} (float64_train_steps in the case) they would "
            "tell rounding that grows from a fault"
        )


def test_float64_steps_excuse_no_offset_no_jump_and_nothing_that_rounding_does_not_move() -> None:
    for change, kind, exact_steps in ((at(0, 0.97), "offset", STEPS), (at(9, 0.97), "jump", 5)):
        found = judge_trajectory(*both(change), reference_repeat=quiet_repeat(), exact_steps=exact_steps)
        assert (found.verdict, found.kind) == ("diverged", kind)
    jump = judge_trajectory(*both(at(9, 0.97)), reference_repeat=quiet_repeat(), exact_steps=5, may_jump=True)
    assert (jump.verdict, jump.kind) == ("inconclusive", "growth")
    proven = judge_trajectory(*both(at(9, 0.97)), reference_repeat=quiet_repeat(), exact_steps=STEPS)
    assert (proven.verdict, proven.kind) == ("rounding", "growth")
    rates = np.linspace(1.0, 0.1, STEPS)
    wrong = rates + np.maximum(0, np.arange(STEPS) - 1) * 1e-5
    found = judge_trajectory(rates, wrong, reference_repeat=rates, exact_steps=STEPS, name="learning_rate")
    assert found.verdict == "diverged"


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("curve.loss", ": forward pass, loss or data"),
        ("curve.ema_distance", ": gradient, optimizer or average of weights"),
        ("curve.weight_norm.fc.weight", ": gradient, optimizer or schedule"),
        ("curve.learning_rate", ": optimizer or schedule"),
    ],
)
def test_a_first_value_says_what_it_is_made_of(name: str, places: str) -> None:
    found = judge_trajectory(*both(at(0, 0.97)), name=name)
    assert found.reason.endswith("beyond what rounding explains" + places)


def test_a_value_that_is_recorded_once_is_no_curve() -> None:
    found = judge_trajectory([0.5], [0.6])
    assert (found.verdict, found.reason) == ("diverged", "the value differs, beyond what rounding explains")
