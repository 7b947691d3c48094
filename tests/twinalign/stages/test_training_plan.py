"""What of the other side's training is given to this one: data, and nothing that the model has made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from twinalign.backends import load_backend
from twinalign.conversion.canonical_names import CanonicalNames
from twinalign.files.recordings import save_npz
from twinalign.stages.training_plan import TrainingPlan, TrainingSwaps, keep_data


def test_data_is_what_other_weights_leave_as_it_is(tmp_path: Path) -> None:
    kept, moved = tmp_path / "kept.npz", tmp_path / "moved.npz"
    arrays = {"batch.0.0": np.ones(3), "batch.0.1": np.arange(3.0), "batch.1.0": np.ones(2), "state.0.w": np.ones(1)}
    save_npz(kept, arrays)
    save_npz(moved, {**arrays, "batch.0.1": np.arange(3.0) * (1 + 1e-12), "batch.1.0": np.ones(3), "state.0.w": 0.0})
    keep_data(kept, moved)
    with np.load(kept) as left:
        assert sorted(left) == ["batch.0.0", "state.0.w"]
    assert not moved.exists()


@pytest.mark.parametrize("makes_a_gradient", [False, True])
def test_what_has_a_gradient_is_not_replaced(makes_a_gradient: bool, tmp_path: Path) -> None:
    save_npz(tmp_path / "data.npz", {"batch.0.0": np.full(3, 7.0)})
    model: Any = torch.nn.Linear(3, 3)
    plan = TrainingPlan(data=str(tmp_path / "data.npz"))
    swaps = TrainingSwaps(plan, load_backend("torch"), model, CanonicalNames.of({}))
    given = model(torch.ones(3)) if makes_a_gradient else torch.ones(3)
    assert (swaps.batch(given, 0, 0) is given) == makes_a_gradient


@pytest.mark.parametrize(
    ("apart", "is_replaced"),
    [(1e-7, True), (2e-6, False), (np.eye(1, 100)[0] * 5e-6, True), (np.eye(1, 100)[0] * 5e-5, False)],
    ids=["rounding", "more on the average", "a single value", "more in a single value"],
)
def test_batches_that_differ_by_rounding_are_replaced(apart: Any, is_replaced: bool, tmp_path: Path) -> None:
    theirs = np.random.default_rng(0).uniform(0.5, 1.0, 100)
    save_npz(tmp_path / "data.npz", {"batch.0.0": theirs})
    model: Any = torch.nn.Linear(3, 3)
    swaps = TrainingSwaps(
        TrainingPlan(rounded=str(tmp_path / "data.npz")), load_backend("torch"), model, CanonicalNames.of({})
    )
    given = swaps.batch(torch.from_numpy(theirs * (1 + apart)), 0, 0)
    assert bool((given.numpy() == theirs).all()) == is_replaced == bool(swaps.replaced)
