"""Steps before curves part, and the sizes of trained weights, on curves and weights made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from twinalign.verdict.horizon import horizon, steps_within
from twinalign.verdict.trained_weights import compare_weights, judged_weights


def test_the_horizon_is_the_first_step_beyond_the_tolerance() -> None:
    reference = np.full(20, 2.0)
    other = reference + 1e-9 * 3.0 ** np.arange(20)  # passes 2e-6, a millionth of 2, at step 7: 3**7 = 2187
    assert steps_within(reference, other, 1e-6) == 7
    assert steps_within(reference, reference, 0.0) == 20
    found = horizon("loss", "float64", reference, other, reference + 1e-9)
    assert found is not None
    assert (found.port[0], found.reference) == (7, (20, 20, 20))
    assert found.port_growth == pytest.approx(3.0)
    assert found.reference_growth is None
    assert found.sentence() == "within 1e-06 for 7 of 20 steps, the reference's copy with changed last bits for all 20"


def test_zeros_agree_and_nan_does_not() -> None:
    assert steps_within(np.array([0.0, 1.0]), np.array([0.0, 1.0]), 1e-6) == 2
    assert steps_within(np.array([0.0, 1.0]), np.array([0.0, np.nan]), 1e-6) == 1
    assert horizon("loss", "float32", np.ones(3), np.ones(4), None) is None


def trained(rng: np.random.Generator, scale: float = 1.0) -> dict[str, np.ndarray]:
    """Statistics of six scales of normalisation layers, whose size rounding moves by a thousandth, and six matrices."""
    sizes = {f"net.norm{i}.weight": (scale, 1) for i in range(6)} | {f"net.fc{i}.weight": (0.1, 2) for i in range(6)}
    return {name: np.array([0, 0, size * np.exp(1e-3 * rng.normal()), 0, axes]) for name, (size, axes) in sizes.items()}


def test_a_decay_of_one_kind_of_weights_is_named_with_its_coefficient() -> None:
    rng = np.random.default_rng(0)
    rates = np.full(100, 2e-3)
    # Without decay the scales stay at 1; a decay of 0.1 over these rates shrinks them by exp(-0.1 * 0.2).
    kinds = compare_weights(trained(rng, np.exp(-0.02)), trained(rng), trained(rng, np.exp(-0.02)), rates)
    wrong = {kind.kind: kind for kind in kinds if kind.wrong}
    assert list(wrong) == ["net: scales of normalisation layers"]
    (found,) = wrong.values()
    assert found.names == tuple(f"net.norm{i}.weight" for i in range(6))
    assert found.decay == pytest.approx(-0.1, abs=0.01)
    assert "net.norm0.weight" in found.verdict().reason
    assert "on the reference's side alone" in found.verdict().reason


def test_rounding_is_no_decay() -> None:
    alarms = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        alarms += [kind for kind in compare_weights(trained(rng), trained(rng), trained(rng)) if kind.wrong]
    assert not alarms


def test_a_decay_that_nobody_writes_or_of_running_means_explains_nothing() -> None:
    rng = np.random.default_rng(0)
    rates = np.full(10, 2e-3)
    (found,) = (
        kind for kind in compare_weights(trained(rng, 0.9), trained(rng), trained(rng, 0.9), rates) if kind.wrong
    )
    assert found.decay == pytest.approx(-5, abs=0.6)
    assert "weight decay" not in found.verdict().reason
    sides = [{f"net.bn{i}.running_mean": np.array([0, 0, size, 0, 1]) for i in range(3)} for size in (1.0, 0.9, 1.0)]
    (found,) = compare_weights(*sides, rates)
    assert (found.kind, found.wrong, found.decay) == ("net: running means", True, None)
    assert "paddle lists running statistics among the parameters" in found.verdict().reason


@pytest.mark.parametrize("during", [0.98, 1.0])
def test_a_decay_shows_in_the_weights_during_the_training(during: float) -> None:
    """What changes the trained weights behind the last step, such as an average that is put in their place, is none."""
    rng = np.random.default_rng(0)
    sides: list[dict[str, np.ndarray]] = [{"curve.learning_rate": np.full(100, 2e-3)} for _ in range(2)]
    for side, at_end, later in zip(sides, (1.0, during), (1.0, 0.98), strict=True):
        side["curve.weight_norm.net.norm0.weight"] = np.linspace(1.0, at_end, 100)
        side |= {f"weights.{name}": array for name, array in trained(rng, later).items()}
    sides[0] |= {f"repeat.weights.{name}": array for name, array in trained(rng).items()}
    (found,) = (kind for kind in judged_weights(*sides) if kind.wrong)
    assert ("weight decay" in found.verdict().reason) == (during < 1.0)


def test_weights_that_are_shifted_by_other_shares_have_not_decayed() -> None:
    rng, rates = np.random.default_rng(0), np.full(100, 2e-3)
    other = trained(rng)
    for number in range(6):  # as where an average of the weights lags behind
        other[f"net.norm{number}.weight"] = other[f"net.norm{number}.weight"] * np.exp(0.004 * 2.0**number)
    (found,) = (kind for kind in compare_weights(trained(rng), other, trained(rng), rates) if kind.wrong)
    assert found.decay is None
    assert "weight decay" not in found.verdict().reason
