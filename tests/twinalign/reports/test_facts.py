"""What a curve and a pair of pictures say about themselves."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.twinalign.reports.runs import stage, tensor
from twinalign.reports.curves import Curve
from twinalign.reports.fault_facts import entries, facts
from twinalign.reports.faults import amplified
from twinalign.reports.language import language
from twinalign.reports.plots import curve_plot, plotting
from twinalign.reports.shown_values import figures
from twinalign.reports.stage_tables import stage_tables
from twinalign.reports.summary import worst_first
from twinalign.search.optimizer import steps_evidence
from twinalign.terminal.faults import fault_text


def test_a_curve_says_where_and_why_it_leaves_the_band() -> None:
    noise = [1e-7, 1e-7, 1e-7, 1e-7]
    curve = Curve("train", "loss", [0, 1, 2, 3], [1.0] * 4, [1.0, 1.0 + 5e-8, 1.0 + 2e-7, 1.0 + 7.66e-5], noise)
    assert curve.leaves == (2, pytest.approx(766, rel=1e-6))
    with plotting():
        text = curve_plot(curve, "one", language("en")).text
        assert "above the noise from step 2 on (the circle), by up to 766 times." in text
        values = [0, 1], [1.0, 1.0], [1.0, 1.1], [0.2, 0.2]
        judged = Curve("train", "loss", *values, None, "aligned", "rounding flips a sign")
        text = curve_plot(judged, "two", language("en")).text
    assert judged.leaves is None
    assert "(the circle)" not in text
    assert text.endswith("aligned: rounding flips a sign.")


@pytest.mark.parametrize(
    ("text", "evidence", "lines"),
    [
        (
            "a term is left out: the first operand",
            {"lines_of_port": [["/a/port.py", 7, 9]]},
            ["line 7 of port.py in the port"],
        ),
        ("a line differs: `x` in place of `y`, line 7 of port.py", {"lines_of_port": [["/a/port.py", 7, 9]]}, []),
        (
            "the bias is not applied",
            {"reference_calls": [{"line": "line 3 of ref.py"}, {"line": ""}]},
            ["line 3 of ref.py in the reference"],
        ),
        ("the bias is not applied", {}, []),
        (
            "a term is left out: `+`, line 3 of ref.py: return a + b",
            {"lines_of_port": [["/a/port.py", 7, 9]], "reference_calls": [{"line": "line 3 of ref.py"}]},
            ["line 7 of port.py in the port"],
        ),
    ],
)
def test_the_lines_that_a_cause_does_not_name_stand_behind_it(
    text: str, evidence: dict[str, Any], lines: list[str]
) -> None:
    fault = {"phase": "forward", "paddle_layer": "x", "reference_layer": "x", "evidence": {}}
    cause = {"id": "x", "text": text, "evidence": evidence}
    (shown,) = entries([{**fault, "explanation": cause}, {**fault, "paddle_layer": "y", "explanation": cause}])
    assert shown["lines"] == lines
    said = str(fault_text("1.", {**shown, "suggestion": ""}))
    assert f"cause: {', '.join([text, *lines])} [x]" in said


@pytest.mark.parametrize(
    ("apart", "text"),
    [
        ({"0.parameter.a": 0.5, "2.parameter.b": np.inf}, "from step 0 on, by up to 0.5 relative: a, b"),
        ({"1.parameter.b": np.inf}, "from step 1 on: b"),
    ],
)
def test_a_parameter_that_one_side_alone_moves_has_no_relative_difference(apart: dict[str, float], text: str) -> None:
    taken = {"ref": {"facts": {}}, "paddle": {"facts": {}, "unnamed": []}}
    evidence = steps_evidence(apart, {"start.a": np.zeros(1), "start.b": np.zeros(1)}, taken)
    fault = {"phase": "optimizer", "paddle_layer": "optimizer", "explanation": None, "evidence": evidence}
    assert facts(fault) == [f"updates {len(apart)} of 2 parameters differently, {text}"]


def unexplained(path: str, **evidence: Any) -> dict[str, Any]:
    values = {"output.0": {"relative": 0.1, "max_abs": 1.0, "text": ""}}
    found = {"paddle_class": "port.Block", "where": "what it returns", "values": values, **evidence}
    return {
        "phase": "forward",
        "paddle_layer": path,
        "reference_layer": path,
        "explanation": None,
        "evidence": found,
    }


def test_unexplained_faults_of_like_layers_are_told_once() -> None:
    step = {"name": "y", "file": "port.py", "line": 7, "source": "y = x"}
    blocks = [unexplained(f"blocks.{n}.attn", inside={"unknown": step, "known": None}) for n in range(3)]
    other = unexplained("blocks.3.attn", inside={"unknown": {**step, "line": 8}, "known": None})
    shown = entries([*blocks, other, unexplained("head"), unexplained("tail")])
    assert [(one["paddle_layer"], one["also"]) for one in shown] == [
        ("blocks.0.attn", ["blocks.1.attn", "blocks.2.attn"]),
        ("blocks.3.attn", []),
        ("head", []),
        ("tail", []),
    ]
    assert facts(shown[0])[0] == "the same in 2 more: blocks.1.attn, blocks.2.attn"


def test_what_layers_of_one_class_keep_wrongly_is_told_once_wherever_they_stand() -> None:
    kept = [{**unexplained(path), "phase": "state"} for path in ("stem.norm", "blocks.0.bn1", "tail.bn")]
    for fault in kept[:2]:
        fault["evidence"] = {**fault["evidence"], "paddle_class": "ours.Norm"}
    assert [one["also"] for one in entries(kept)] == [["blocks.0.bn1"], []]


def test_one_wrong_line_that_layers_run_with_other_numbers_is_told_once() -> None:
    texts = [f"the scale differs: left out (it is {number})" for number in (0.5, 0.25, 0.25)]
    lines = [{"lines_of_port": [["/a/port.py", 7, 7]]}, {"lines_of_port": [["/a/port.py", 7, 7]]}, {}]
    causes = [{"id": "scale", "text": text, "evidence": line} for text, line in zip(texts, lines, strict=True)]
    faults = [{**unexplained(f"blocks.{at}"), "explanation": cause} for at, cause in enumerate(causes)]
    (shown,) = entries(faults)
    assert (shown["also"], shown["explanation"]["text"]) == (["blocks.1", "blocks.2"], texts[0])
    elsewhere = {**causes[0], "text": "another", "evidence": {"lines_of_port": [["/a/port.py", 8, 8]]}}
    assert len(entries([*faults, {**unexplained("head"), "explanation": elsewhere}])) == 2


def test_a_result_of_a_metric_has_the_name_that_the_case_gives_it() -> None:
    numbers = {"ref": 0.5, "paddle": 0.75}
    values = {f"metric.acc@5{part}": numbers for part in ("", " on part 0", " on part 3")}
    fault = {"phase": "metric", "evidence": {"values": values, "parts": "part # of the samples"}}
    assert facts(fault) == [
        f"acc@5{part}: 0.5 in the reference, 0.75 in the port"
        for part in ("", " on part 1 of the samples", " on part 4 of the samples")
    ]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (1.0, 2.0, ("1", "2")),
        (0.69314718, 0.69314722, ("0.69314718", "0.69314722")),
        (1.0, 1.0 + 2**-52, ("1", "1.0000000000000002")),
        (0.5, 0.5, ("0.5", "0.5")),
        (None, 0.25, ("–", "0.25")),
        (3, 4, ("3", "4")),
        (float("nan"), 1.5, ("nan", "1.5")),
    ],
)
def test_two_numbers_have_as_many_digits_as_tell_them_apart(one: Any, other: Any, expected: tuple[str, str]) -> None:
    assert figures(one, other) == expected


def test_curves_of_a_training_are_told_apart() -> None:
    curve = {"first_step": 0, "reference": [0.69314718, 0.5], "port": [0.69314722, 0.25]}
    fault = {"phase": "train", "evidence": {"values": {"loss": curve}}}
    assert facts(fault) == [
        "loss differs from step 0 on: [0.69314718, 0.5] in the reference, [0.69314722, 0.25] in the port"
    ]


def test_what_is_recorded_once_differs_in_no_step() -> None:
    value = {"first_step": 0, "reference": [3.5], "port": [3.25]}
    assert facts({"phase": "train", "evidence": {"values": {"mae": value}}}) == [
        "mae differs: [3.5] in the reference, [3.25] in the port"
    ]


def test_accepted_tensors_are_folded_behind_what_is_undecided() -> None:
    tensors = [tensor("a", "diverged", accepted="bn_running_var_biased"), tensor("b"), tensor("c", "inconclusive")]
    table = stage_tables({"forward": stage(tensors, "inconclusive")}, language("en"))["forward"]
    assert [row.cells[0] for row in table.rows] == ["c", "b", "a"]
    assert table.first == 2


def png(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(array).save(out, format="PNG")
    return out.getvalue()


def test_the_difference_of_two_pictures_is_amplified_to_white() -> None:
    reference = np.full((4, 5, 3), 100, np.uint8)
    port = reference.copy()
    port[1, 2, 0] += 2
    port[3, 4, 1] -= 1
    found = amplified(png(reference), png(port))
    assert found is not None
    data, most, factor = found
    assert (most, factor) == (2, 127.5)
    shown = np.asarray(Image.open(io.BytesIO(data)), int)
    expected = np.rint(np.abs(port.astype(int) - reference.astype(int)) * 127.5)
    assert np.abs(shown - expected).max() <= 1
    assert amplified(png(reference), png(reference)) is None
    assert amplified(png(reference), png(reference[:2])) is None


def test_what_gives_the_same_is_told_once_and_never_in_the_words_of_the_cause() -> None:
    cause = {"text": "`a` in place of `b`, line 7", "evidence": {"alike": ["`a` in place of `b`, line 7", "c", "c"]}}
    fault = {"phase": "forward", "evidence": {}, "explanation": cause}
    assert facts(fault) == ["gives the same, on other inputs as well: c"]


def test_what_float64_proves_comes_before_what_only_float32_shows() -> None:
    tensors = [
        {"name": name, "verdict": verdict, "fp64_ratio": ratio}
        for name, verdict, ratio in (("a", "aligned", 0.0), ("b", "diverged", 0.1), ("c", "diverged", 9.0))
    ]
    assert [tensor["name"] for tensor in worst_first(tensors)] == ["c", "b", "a"]
