"""What goes wrong between ranks: each planted fault is detected, located and explained, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

import twinalign

MOCO = {
    "rank_same_samples": "ranks.inputs",
    "rank_own_weights": "ranks.weights",
    "rank_batch_norm_alone": "ranks.forward",
    "rank_labels_not_offset": "ranks.loss",
    "rank_gradients_summed": "ranks.gradient",
}
ALL_PAIRS = {"rank_gather_with_gradient": "ranks.gradient"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "faults"),
    [("tests.tiny_cases:TinyMoCo", MOCO), ("tests.ranks.cases:AllPairs", ALL_PAIRS)],
)
def test_faults_of_ranks_are_named_with_their_cause(case: str, faults: dict[str, str], tmp_path: Path) -> None:
    result = twinalign.selftest(case, faults=list(faults), ranks=2, out=tmp_path)
    assert result.alarms == []
    assert {trial.id: trial.place for trial in result.trials} == faults
    for trial in result.trials:
        assert trial.detected, trial
        assert trial.right_place, trial
        assert trial.right_cause, trial
