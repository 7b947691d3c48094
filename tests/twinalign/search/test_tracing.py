"""Inside functional code the line is named from which the port's values are not the reference's."""

from __future__ import annotations

import gc
import sys
import weakref
from pathlib import Path

import numpy as np
import paddle
import pytest

from twinalign.backends.paddle import backend as paddle_backend
from twinalign.recorder.recorder import RunSettings
from twinalign.replay.code_lines import OwnCode, print_of
from twinalign.replay.shared_values import narrowed_down
from twinalign.reports.fault_facts import facts
from twinalign.search.locator import locate

CASES = Path(__file__).with_name("functional_case.py")


def inside(case: str, folder: Path) -> dict:
    (fault,) = locate(RunSettings(f"{CASES}:{case}", folder), explain=False).faults
    assert (fault.paddle_layer, fault.phase) == ("", "forward")
    return fault.to_json()


def test_a_line_that_binds_a_wrong_value_is_named(tmp_path):
    fault = inside("Bound", tmp_path)
    found = fault["evidence"]["inside"]
    assert (found["unknown"]["name"], found["unknown"]["source"]) == ("scores", "scores = scores + 0.01 * scores**3")
    source = "scores = paddle.matmul(q, k.transpose([0, 2, 1])) / 8**0.5"
    assert (found["known"]["name"], found["known"]["source"]) == ("scores", source)
    line = CASES.read_text().splitlines().index("                scores = scores + 0.01 * scores**3") + 1
    assert found["unknown"]["line"] == line
    assert facts(fault)[1:] == [
        f"first value absent from the reference: `scores` in line {line} of functional_case.py: "
        "scores = scores + 0.01 * scores**3",
        f"last value before it that both sides have: `scores` in line {line - 2} of functional_case.py: {source}",
    ]


def test_a_line_that_changes_a_value_in_place_is_named(tmp_path):
    found = inside("Changed", tmp_path)["evidence"]["inside"]
    assert (found["unknown"]["name"], found["unknown"]["source"]) == ("scores", "scores[:, 0] = 0.0")


def test_a_wrong_return_is_named(tmp_path):
    found = inside("Returned", tmp_path)["evidence"]["inside"]
    assert found["unknown"]["name"] == ""
    assert found["unknown"]["source"] == "return self.proj(paddle.matmul(weights, v)) + 0.1 * x**3"
    assert found["known"]["name"] == "weights"


def test_code_without_a_fault_is_not_named(tmp_path):
    assert locate(RunSettings(f"{CASES}:Functional", tmp_path)).faults == []


def step(name: str, values: np.ndarray) -> dict:
    return {"name": name, "file": "f.py", "line": 1, "source": "", "print": print_of(values)}


def test_values_of_a_shape_that_the_reference_never_has_are_passed_over():
    known, other = np.arange(6.0), np.arange(8.0)
    assert narrowed_down([step("a", known), step("b", other)], [print_of(known)]) is None
    found = narrowed_down([step("a", known), step("b", other), step("c", known + 1)], [print_of(known)])
    assert found is not None
    assert (found["unknown"]["name"], found["known"]["name"]) == ("c", "a")


def test_the_last_known_value_is_no_other_part_of_what_the_line_returns():
    known, other = np.arange(6.0), np.arange(6.0) + 9
    steps = [step("a", known), step("", known), step("", other)]
    found = narrowed_down(steps, [print_of(known)])
    assert found is not None
    assert (found["unknown"]["name"], found["known"]["name"]) == ("", "a")
    assert narrowed_down(steps[1:], [print_of(known)]) == {"unknown": found["unknown"], "known": None}


def test_what_leads_to_values_of_both_sides_is_no_first_difference():
    before, alone, behind, wrong = (np.arange(6.0) + shift for shift in (0, 10, 20, 30))
    steps = [
        {**step("x", before), "source": "x = given"},
        {**step("halves", alone), "source": "halves = x * 0.5"},
        {**step("y", behind), "source": "y = halves + halves"},
        {**step("z", wrong), "source": "z = y - 1"},
    ]
    results = [print_of(before), print_of(behind)]
    found = narrowed_down(steps, results)
    assert found is not None
    assert (found["unknown"]["name"], found["known"]["name"]) == ("z", "y")
    # What a layer returns is right whatever it was handed, and what reads other names tells nothing of these.
    for given, source in ((results[1:], "y = self.layer(halves)"), ([], "y = x * 20")):
        found = narrowed_down([*steps[:2], {**steps[2], "source": source}, steps[3]], results, given)
        assert found is not None
        assert found["unknown"]["name"] == "halves"


def test_values_in_the_same_order_are_known_in_any_shape():
    known, other = np.arange(6.0), np.arange(6.0).reshape(2, 3) + 1
    found = narrowed_down([step("a", known.reshape(2, 3)), step("b", other)], [print_of(known), print_of(other - 3)])
    assert found is not None
    assert (found["unknown"]["name"], found["known"]["name"]) == ("b", "a")


@pytest.mark.parametrize(("size", "same"), [(1e-11, True), (1e-7, False)])
def test_values_are_the_same_up_to_float64_rounding(size, same):
    values = np.random.default_rng(0).standard_normal(50)
    assert (narrowed_down([step("a", values * (1 + size))], [print_of(values)]) is None) == same


class Notes:
    def __init__(self):
        self.steps, self.functions = [], {}


def test_a_debugger_that_follows_the_code_is_not_disturbed():
    notes = Notes()

    def nothing(frame, event, argument):
        return None

    before = sys.gettrace()
    try:
        sys.settrace(nothing)
        with OwnCode(paddle_backend, lambda: notes).followed():
            assert sys.gettrace() is nothing
    finally:
        sys.settrace(before)
    with OwnCode(paddle_backend, lambda: notes).followed():
        twice(paddle.ones([2]))
    assert sys.gettrace() is before
    assert [found.name for found in notes.steps] == ["y", ""]
    (function,) = notes.functions.values()
    assert (function.name, function.source) == ("twice", "def twice(x):\n    y = x * 2\n    return y\n")


def test_what_was_followed_is_free_afterwards():
    def follow() -> weakref.ref:
        running = Notes()
        with OwnCode(paddle_backend, lambda: running).followed():
            twice(paddle.ones([2]))
        assert running.steps
        return weakref.ref(running)

    gc.disable()
    try:
        assert follow()() is None
    finally:
        gc.enable()


def twice(x):
    y = x * 2
    return y


def test_complex_values_are_not_those_of_a_real_tensor_of_as_many_elements():
    real = np.arange(12.0)
    assert narrowed_down([step("a", real + 1j), step("b", real)], [print_of(real)]) == {
        "unknown": {"name": "a", "file": "f.py", "line": 1, "source": ""},
        "known": None,
    }
