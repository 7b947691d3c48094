"""A layer that takes or returns other tensors than the reference's is judged by those that both sides have."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinalign.recorder.recorder import RunSettings
from twinalign.replay.aligned_tensors import aligned, in_order
from twinalign.search.locator import locate

CASES = Path(__file__).with_name("tensor_cases.py")


@pytest.mark.parametrize(("case", "wrong"), [("MoreTensors", []), ("MoreTensorsScaled", ["first", "second"])])
def test_a_layer_is_judged_by_the_tensors_that_both_have(tmp_path: Path, case: str, wrong: list[str]) -> None:
    found = locate(RunSettings(f"{CASES}:{case}", tmp_path / "out"), explain=False)
    assert [fault.paddle_layer for fault in found.faults] == wrong
    assert {"first", "second"} <= found.layers[case].judged
    assert not found.layers[case].left_out


@pytest.mark.parametrize(
    ("case", "wrong"), [("KeysOnce", []), ("KeysTwice", []), ("KeysOnceScaled", ["first", "second"])]
)
def test_a_tensor_given_twice_has_one_gradient(tmp_path: Path, case: str, wrong: list[str]) -> None:
    found = locate(RunSettings(f"{CASES}:{case}", tmp_path / "out"))
    assert [fault.paddle_layer for fault in found.faults] == wrong
    assert all(fault.explanation for fault in found.faults)
    assert {"first", "second"} <= found.layers[case].judged


@pytest.mark.parametrize(("case", "wrong"), [("BatchFirst", []), ("BatchFirstScattered", [""])])
def test_layers_of_a_port_in_another_form_are_right_behind_values_that_are_scattered(
    tmp_path: Path, case: str, wrong: list[str]
) -> None:
    found = locate(RunSettings(f"{CASES}:{case}", tmp_path / "out"), explain=False)
    assert [fault.paddle_layer for fault in found.faults] == wrong
    assert {"first", "second"} <= found.layers[case].judged


@pytest.mark.parametrize(
    ("case", "cause"),
    [
        ("NotStopped", "detach left out"),
        ("NotStoppedInCode", "detach left out"),
        ("NotStoppedAtOutput", "detach left out"),
        ("NotStoppedInBlock", "no_grad left out"),
        ("StoppedByTheLoss", None),
        ("StoppedInBlock", None),
    ],
)
def test_a_gradient_that_the_reference_stops_is_found_where_it_is_not(
    tmp_path: Path, case: str, cause: str | None
) -> None:
    found = locate(RunSettings(f"{CASES}:{case}", tmp_path / "out"))
    told = [(fault.paddle_layer, fault.explanation) for fault in found.faults]
    assert [(layer, cause in how.text if how and cause else how) for layer, how in told] == (
        [("", True)] if cause else []
    )


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (["x", "mask", "bias"], ["x", "bias"], [0, 2, 1]),
        (["x", "key", "value", "bias"], ["x", "bias"], [0, 3, 1, 2]),
        (["x", "x"], ["x"], [0, 1]),
        (["x", "mask"], ["x", "bias"], [0, 1]),
        (["x", "bias"], ["bias", "mask", "x"], [0, 1]),
        (["bias", "x", "mask"], ["x", "bias"], [0, 1, 2]),
        (["mask"], [], [0]),
    ],
)
def test_tensors_keep_their_order(ours: list[str], theirs: list[str], expected: list[int]) -> None:
    assert aligned(len(ours), len(theirs), lambda one, other: int(ours[one] == theirs[other])) == expected


def test_the_tensor_that_is_most_alike_is_taken() -> None:
    assert aligned(3, 1, lambda one, other: [4, 6, 6][one]) == [1, 0, 2]
    assert in_order([1, 0, 2], [0, 1, 1, 2]) == [1, 0, 0, 2]


@pytest.mark.parametrize(("case", "expected"), [("PooledToOne", {"": "pool_kind"}), ("PooledRight", {})])
def test_axes_of_length_one_are_no_fault_of_the_layer_behind_a_wrong_value(
    tmp_path: Path, case: str, expected: dict[str, str]
) -> None:
    found = locate(RunSettings(f"{CASES}:{case}", tmp_path / "out"))
    assert {f.paddle_layer: f.explanation.id if f.explanation else None for f in found.faults} == expected
