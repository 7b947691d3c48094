"""Regions decide, not layers: where the end results of several layers agree, none of them is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from twinalign.recorder.recorder import RunSettings
from twinalign.replay.forced_call import ForcedCall
from twinalign.replay.layer_calls import Call
from twinalign.replay.nested_tensors import each_once
from twinalign.replay.regions import numbers_from
from twinalign.search.locator import locate

CASES = Path(__file__).with_name("region_cases.py")


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("RightRegions", {}),
        ("Wrong", {("2", "forward"): "activation_swapped+norm_epsilon"}),
        ("Epsilons", {(path, "forward"): "norm_epsilon" for path in ("", "1", "2")}),
        (
            "Training",
            {(path, "state"): "running_variance_biased" for path in ("1.bn", "2.bn", "3")},
        ),
    ],
)
@pytest.mark.slow
def test_a_norm_that_holds_its_activation_meets_a_norm_with_an_activation_behind_it(
    tmp_path: Path, case: str, expected: dict[tuple[str, str], str]
) -> None:
    pytest.importorskip("timm")
    assert causes_in(tmp_path, case) == expected


def causes_in(folder: Path, case: str) -> dict[tuple[str, str], str | None]:
    found = locate(RunSettings(f"{CASES}:{case}", folder / "out"))
    return {(f.paddle_layer, f.phase): f.explanation.id if f.explanation else None for f in found.faults}


def test_a_norm_that_holds_the_next_activation_is_right_where_the_code_around_it_is_wrong(tmp_path: Path) -> None:
    expected = {(path, "forward"): "concatenation_order" for path in ("1", "2")}
    assert causes_in(tmp_path, "HeldBehind") == expected


def test_a_cause_without_which_the_whole_still_gives_the_results_is_dropped(tmp_path: Path) -> None:
    assert causes_in(tmp_path, "Needless") == {("1", "forward"): "norm_epsilon"}


@pytest.mark.slow
def test_what_has_no_cause_makes_no_other_cause_needless(tmp_path: Path) -> None:
    pytest.importorskip("timm")
    expected = {("2", "forward"): "activation_swapped+norm_epsilon", ("", "forward"): None}
    assert causes_in(tmp_path, "Unexplained") == expected


def test_results_of_another_shape_make_no_cause_needless(tmp_path: Path) -> None:
    assert causes_in(tmp_path, "OtherSize") == {("1", "forward"): "norm_epsilon"}


def test_a_gradient_that_is_wrong_on_its_way_alone_is_no_fault(tmp_path: Path) -> None:
    assert causes_in(tmp_path, "EqualRows") == {}


def test_a_gradient_that_is_wrong_in_a_parameter_is_one(tmp_path: Path) -> None:
    assert causes_in(tmp_path, "StoppedRow").keys() == {("", "backward")}


def test_a_layer_that_is_called_less_often_is_a_fault_of_its_caller_alone(tmp_path: Path) -> None:
    assert causes_in(tmp_path, "CalledOnce").keys() == {("", "forward")}


def test_an_activation_in_place_behind_a_layer_that_hands_on_what_it_is_given(tmp_path: Path) -> None:
    assert causes_in(tmp_path, "InPlace") == {}


def test_a_tensor_that_is_returned_twice_counts_once_where_the_reference_returns_it_once(tmp_path: Path) -> None:
    assert causes_in(tmp_path, "ReturnedTwice") == {("norm", "forward"): "norm_epsilon"}


def test_repeats_are_left_out_only_where_that_gives_as_many_tensors_as_are_wanted() -> None:
    hidden, cell = np.zeros(2), np.ones(2)
    assert each_once([hidden, hidden, cell], 2) == ([hidden, cell], [0, 0, 1])
    assert each_once([hidden, hidden, cell], 3)[1] == [0, 1, 2]
    assert each_once([hidden, cell.copy(), cell], 2)[1] == [0, 1, 2]


def test_what_ended_before_the_first_wrong_call_keeps_its_pairs() -> None:
    root = ForcedCall(Call(0, "", "", None, 0), "", None, None, 0.0)
    made = {0: root}
    for number, parent in ((1, 0), (2, 1), (3, 0), (4, 3), (5, 3), (6, 5), (7, 0)):
        made[number] = ForcedCall(Call(number, "", "", parent, 0), "", None, made[parent], 0.0)
        made[parent].children.append(made[number])
    assert numbers_from(root, 5) == {3, 5, 6, 7}
    assert numbers_from(root, 1) == {1, 2, 3, 4, 5, 6, 7}
    assert numbers_from(made[3], 4) == {4, 5, 6}


def test_padding_outside_of_the_layer_that_does_it_in_the_reference_is_judged_by_what_both_give(tmp_path: Path) -> None:
    assert causes_in(tmp_path, "PaddedOutside") == {("1", "forward"): "padding_mode"}


@pytest.mark.parametrize(("case", "line"), [("EncodedOutside", "0.5"), ("OuterLoop", "(h * keep, c)")])
def test_where_a_port_is_built_in_another_way_the_wrong_line_alone_is_named(
    tmp_path: Path, case: str, line: str
) -> None:
    cases = CASES.with_name("structure_cases.py")
    (fault,) = locate(RunSettings(f"{cases}:{case}", tmp_path / "out")).faults
    assert (fault.paddle_layer, fault.phase) == ("", "forward")
    assert fault.explanation is not None
    lines = cases.read_text(encoding="utf-8").splitlines()
    assert any(line in lines[number - 1] for _, number, _ in fault.explanation.evidence["lines_of_port"])
