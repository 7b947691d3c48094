"""Numbers of a metric that are counted: a last bit may decide how a sample counts."""

import numpy as np
import pytest

from twinalign.files.recordings import Recording
from twinalign.sides import SIDES
from twinalign.verdict.compare import compare_stage
from twinalign.verdict.results import ALIGNED, DIVERGED, Comparison
from twinalign.verdict.stage_recordings import StageRecordings


def compared(numbers: dict[str, tuple[float, float, float, float]], stage: str = "metric") -> Comparison:
    """Of numbers in the reference and the port, in float32 and then in float64."""
    by_key = {
        (side, dtype): Recording(
            {name: np.array(given[2 * at + of], dtype) for name, given in numbers.items()}, {"stage": stage}
        )
        for of, side in enumerate(SIDES)
        for at, dtype in enumerate(("float32", "float64"))
    }
    return compare_stage(stage, StageRecordings(by_key), {})


@pytest.mark.parametrize(
    ("auc", "verdict"),
    [
        pytest.param((0.5375, 0.5375, 0.55, 0.5375), ALIGNED, id="a tie of the reference is broken in float64"),
        pytest.param((0.5375, 0.55, 0.5375, 0.55), DIVERGED, id="float32 shows it"),
        pytest.param((0.5375, 0.5375, 0.65, 0.5375), DIVERGED, id="more than a few samples"),
        pytest.param((0.5375, 0.5375, 0.5375, 0.537500001), DIVERGED, id="float32 could not show it"),
    ],
)
def test_a_number_that_only_float64_sets_apart_by_a_jump_is_judged_in_float32(
    auc: tuple[float, float, float, float], verdict: str
) -> None:
    found = compared({"auc": auc, "mrr": (0.75, 0.75, 0.75, 0.75)})
    assert found.verdict == verdict
    assert found.notes == (
        [
            "numbers of the metric that agree in float32 jump in the float64 runs: a sample lies on a threshold, or "
            "two have one score, and a last bit decides how they count; of these only float32 is judged"
        ]
        if verdict == ALIGNED
        else []
    )


def test_what_else_is_wrong_is_told_alone() -> None:
    found = compared({"auc": (0.5375, 0.5375, 0.55, 0.5375), "mrr": (0.75, 0.5, 0.75, 0.5)})
    assert [tensor.name for tensor in found.tensors if tensor.verdict == DIVERGED] == ["mrr"]


def test_other_stages_count_nothing() -> None:
    assert compared({"auc": (0.5375, 0.5375, 0.55, 0.5375)}, "loss").verdict == DIVERGED
