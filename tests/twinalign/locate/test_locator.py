"""What a search tells of several parts is counted once."""

from __future__ import annotations

import pytest

from twinalign.locate.faults import Explanation, Fault
from twinalign.locate.locator import _each_once

NORM = Explanation("batch_norm_momentum+running_variance_biased", "another momentum")


def of_training(identifier: str) -> Fault:
    return Fault("train", "train", "train", Explanation(identifier, "found in the training"))


def test_a_schedule_and_its_rates_in_the_training_are_one_fault() -> None:
    schedule = Fault("schedule", "schedule", "optimizer")
    (found,) = _each_once([schedule, of_training("training_rates")])
    assert found is schedule
    assert found.explanation is not None
    assert found.explanation.id == "training_rates"


@pytest.mark.parametrize(
    ("cause", "layer", "explanation", "count"),
    [
        ("training_batch_norm_momentum", "norm", NORM, 1),
        ("training_batch_norm_momentum", "norm", None, 2),
        ("training_rates", "norm", NORM, 2),
        ("evaluation_mode", "schedule", None, 2),
    ],
)
def test_only_what_is_the_same_is_told_once(
    cause: str, layer: str, explanation: Explanation | None, count: int
) -> None:
    other = Fault(layer, layer, "optimizer" if layer == "schedule" else "state", explanation)
    assert len(_each_once([other, of_training(cause)])) == count
    assert other.explanation is explanation
