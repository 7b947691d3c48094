"""What goes wrong between ranks: each planted fault is detected, located and explained, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

import twinalign

FAULTS = {
    "rank_same_samples": ("loss", "ranks.inputs", "rank_inputs"),
    "rank_own_weights": ("loss", "ranks.weights", "rank_weights"),
    "rank_batch_norm_alone": ("loss", "ranks.forward", "rank_batch_norm"),
    "rank_labels_not_offset": ("loss", "ranks.loss", "rank_labels"),
    "rank_gradients_summed": ("backward", "ranks.gradient", "rank_gradient_average"),
    "rank_gather_with_gradient": ("backward", "ranks.gradient", "rank_gather_gradient"),
}


@pytest.mark.slow
def test_faults_of_ranks_are_named_with_their_cause(tmp_path: Path) -> None:
    """One launch of either side for all of them; `twinalign selftest --ranks 2` does the same with MoCo."""
    result = twinalign.selftest("tests.cases.ranks:AllPairs", ranks=2, out=tmp_path)
    assert result.alarms == []
    found = {
        trial.id: (trial.flagged, *((named["place"], named["cause"]) for named in trial.named))
        for trial in result.trials
    }
    assert found == {name: (stage, (place, cause)) for name, (stage, place, cause) in FAULTS.items()}
    assert [trial.error for trial in result.trials] == [None] * len(FAULTS)
