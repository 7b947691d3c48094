"""Plain numbers of a metric have no type; batches that each side rounds to float32 itself prove nothing in float64."""

from typing import Any

import numpy as np
import pytest

from twinalign.files.recordings import Recording
from twinalign.verdict.compare import compare_stage
from twinalign.verdict.results import Comparison
from twinalign.verdict.stage_recordings import StageRecordings

BATCH = np.random.default_rng(0).standard_normal(32)
OUTPUT = np.random.default_rng(1).standard_normal(500)
ROUNDED = "the batches of the metric differ in the float64 runs, by no more than rounding to float32, and"


def judged(
    reference: dict[str, np.ndarray], port: dict[str, np.ndarray], of_reference: dict[str, Any], of_port: dict[str, Any]
) -> Comparison:
    """Judge the metric stage; float64 arrays by side, whose float32 runs are those rounded."""
    sides = {"ref": (reference, of_reference), "paddle": (port, of_port)}
    found = {}
    for side, (arrays, metadata) in sides.items():
        for dtype in ("float32", "float64"):
            as_recorded = {n: a.astype("f4") if dtype == "float32" and a.ndim else a for n, a in arrays.items()}
            found[side, dtype] = Recording(as_recorded, {"stage": "metric", **metadata})
    return compare_stage("metric", StageRecordings(found), {})


@pytest.mark.parametrize("named", ["ref", "paddle"])
def test_a_plain_number_has_no_type(named: str) -> None:
    numbers: dict[str, dict[str, Any]] = {"ref": {}, "paddle": {}} | {named: {"numbers": ["loss"]}}
    exact, rounded = np.array(0.1234567890123), np.array(0.1234567890123, "f4")
    sides = (exact, rounded) if named == "ref" else (rounded, exact)
    found = judged({"loss": sides[0]}, {"loss": sides[1]}, numbers["ref"], numbers["paddle"])
    assert found.verdict in ("aligned", "rounding")
    other = np.array(0.1235, sides[1].dtype)
    assert judged({"loss": sides[0]}, {"loss": other}, numbers["ref"], numbers["paddle"]).verdict == "diverged"


def test_a_tensor_has_one() -> None:
    found = judged({"loss": np.array(0.5)}, {"loss": np.array(0.5, "f4")}, {}, {})
    assert found.tensors[0].reason.startswith("dtype float64 against float32")


def with_batches(moved: float, output: np.ndarray) -> Comparison:
    batch = BATCH * (1 + moved * np.sign(OUTPUT[:32]))
    return judged({"output": OUTPUT}, {"output": output}, {"entered": [BATCH.tolist()]}, {"entered": [batch.tolist()]})


@pytest.mark.parametrize("moved", [5e-8, 5e-6], ids=["rounded", "a mean in float32"])
def test_batches_that_each_side_rounds_itself_prove_nothing_in_float64(moved: float) -> None:
    found = with_batches(moved, OUTPUT * (1 + 3e-8))
    assert found.verdict in ("aligned", "rounding")
    assert any(note.startswith(ROUNDED) for note in found.notes)


@pytest.mark.parametrize(
    ("moved", "factor"),
    [(0.0, 1 + 3e-8), (1e-3, 1 + 3e-8), (5e-8, 1 + 2e-5)],
    ids=["same batches", "other batches", "more than they explain"],
)
def test_float64_decides_elsewhere(moved: float, factor: float) -> None:
    found = with_batches(moved, OUTPUT * factor)
    assert found.verdict == "diverged"
    assert not any(note.startswith(ROUNDED) for note in found.notes)


def test_beside_a_wrong_number_those_that_the_batches_explain_are_right() -> None:
    batch = BATCH * (1 + 5e-8 * np.sign(OUTPUT[:32]))
    reference, port = {"a": OUTPUT, "b": OUTPUT}, {"a": OUTPUT * (1 + 3e-8), "b": OUTPUT * 1.01}
    found = judged(reference, port, {"entered": [BATCH.tolist()]}, {"entered": [batch.tolist()]})
    assert found.verdict == "diverged"
    assert {tensor.name for tensor in found.tensors if tensor.verdict == "diverged"} == {"b"}
    assert not any(note.startswith(ROUNDED) for note in found.notes)
