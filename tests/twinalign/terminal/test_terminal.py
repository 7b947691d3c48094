"""What a run prints: accepted differences are said, and nothing located is not nothing wrong."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from twinalign.causes.registry import Explanation
from twinalign.replay.layer_calls import Call
from twinalign.runs.run_result import RunResult
from twinalign.search.faults import Fault
from twinalign.search.layer_faults import LayerFaults
from twinalign.search.locator import LocateResult
from twinalign.search.matching import Matching
from twinalign.terminal import show
from twinalign.terminal.console import print_text
from twinalign.terminal.training import print_training
from twinalign.testing import check
from twinalign.verdict.initial_weights import InitialWeights
from twinalign.verdict.results import Classic, Comparison, TensorVerdict

PASSED = Classic(True, 1e-6, [], None)


def printed(result: RunResult) -> str:
    console = Console(file=io.StringIO(), width=240)
    show(result, console)
    return console.file.getvalue()


def test_accepted_differences_are_said_and_left_out_of_the_figures() -> None:
    right = TensorVerdict("logits", "aligned", "", max_abs=1e-7, fp64_rel=1e-15, noise_ratio=0.9)
    wrong = TensorVerdict("running_var", "diverged", "", max_abs=1e-3, fp64_rel=3.5e-5, noise_ratio=590.0)
    wrong.accepted = "bn_running_var_biased"
    comparison = Comparison("aligned", [right, wrong], PASSED)
    lines = printed(RunResult("net", {"forward": comparison}, {}, 3.0)).splitlines()
    stage = " ".join(lines[1].split())
    assert stage == "01 forward aligned (1 accepted: bn_running_var_biased) 2 1.0e-15 0.9 passed"
    assert "net: aligned (1 accepted: bn_running_var_biased) in 3 s" in lines


@pytest.mark.parametrize(
    ("verdict", "counts", "said"),
    [("diverged", False, "differ; not counted"), ("diverged", True, "diverged"), ("aligned", False, "aligned")],
)
def test_initial_weights_that_do_not_count_are_said_to_be_so(verdict: str, counts: bool, said: str) -> None:
    result = RunResult("net", {}, {}, 3.0, initial=InitialWeights(verdict, 60, 4, counts))
    (row,) = (" ".join(line.split()) for line in printed(result).splitlines() if line.startswith("initial"))
    assert row == f"initial {said} 60 – – –"


def test_nothing_located_is_not_nothing_wrong() -> None:
    wrong = TensorVerdict("step1.parameter.fc.weight", "diverged", "the float64 runs differ")
    comparison = Comparison("diverged", [TensorVerdict("step0.loss", "aligned", ""), wrong], PASSED)
    text = printed(RunResult("Mlp", {"backward": comparison}, {}, 3.0, located=LocateResult("Mlp")))
    assert "nothing is wrong" not in text
    assert "Mlp: no fault located; 0 layers judged alone" in text
    assert (
        "Nothing was located. Stage backward diverges, first in step1.parameter.fc.weight. Layers are compared with "
        "the initial weights, so a difference from a later step comes from the optimizer or from what the step changes."
    ) in text


def test_accepted_findings_are_not_numbered_among_the_faults() -> None:
    accepted = Fault("norm", "norm", "state", Explanation("a", "one"), {"accepted": "bn_running_var_biased"})
    wrong = [Fault(name, name, "forward", Explanation("b", f"two of {name}")) for name in ("fc", "head")]
    console = Console(file=io.StringIO(), width=240)
    show(LocateResult("net", [accepted, *wrong]), console)
    lines = console.file.getvalue().splitlines()
    marked = [line for line in lines if line.endswith(("(forward)", "(state)"))]
    assert marked == ["1. fc (forward)", "2. head (forward)", "accepted: norm (state)"]
    assert "net: 2 faults found, 2 explained; 0 layers judged alone" in lines


def convention(name: str) -> Fault:
    explanation = Explanation("running_variance_biased", "the running variance is biased")
    return Fault(name, name, "state", explanation, {"convention": "bn_running_var_biased"})


def test_conventions_are_counted_apart_from_faults_and_one_cause_once() -> None:
    wrong = [Fault(f"blocks.{at}", f"blocks.{at}", "forward", Explanation("b", "one line")) for at in range(12)]
    lines = located([convention("norm"), *wrong, convention("last")])
    said = "net: 1 fault in 12 places found, 1 explained; 1 convention of paddle in 2 places not accepted; 0 layers"
    assert any(line.startswith(said) for line in lines)
    assert any(line.startswith("net: 1 convention of paddle not accepted; 0") for line in located([convention("n")]))


def located(faults: list[Fault], layers: dict[str, LayerFaults] | None = None) -> list[str]:
    console = Console(file=io.StringIO(), width=240)
    show(LocateResult("net", faults, layers or {}), console)
    return console.file.getvalue().splitlines()


def pair(path: str, kind: str, number: int) -> tuple[Call, Call]:
    ours, theirs = (Call(number, path, f"package.{kind}", None if not path else 0, 0) for _ in range(2))
    return ours, theirs


def layers_of(pairs: list[tuple[Call, Call]], faults: list[Fault], alone: list[Call]) -> dict[str, LayerFaults]:
    matching = Matching(pairs, {ours.number: "name" for ours, _ in pairs}, {"reference": alone, "paddle": []})
    judged = {theirs.path for _, theirs in pairs}
    return {"net": LayerFaults(faults, matching, {}, judged, {}, {}, 0, 0)}


def test_the_tree_shows_few_of_many_layers_with_one_fault() -> None:
    faults = [Fault(f"blocks.{at}", f"blocks.{at}", "forward", Explanation("b", "one line")) for at in range(12)]
    pairs = [pair("", "Net", 0), *(pair(f"blocks.{at}", "Block", at + 1) for at in range(12))]
    tree = [line for line in located(faults, layers_of(pairs, faults, [])) if "✗" in line]
    assert tree[:-1] == [f"├── blocks.{at} Block  ✗ forward" for at in range(3)]
    assert "… 9 more like blocks.2: blocks.3, blocks.4, blocks.5, blocks.6 and 5 more  ✗ forward" in tree[-1]


@pytest.mark.parametrize("is_wrong", [False, True])
def test_a_parametrisation_of_a_right_layer_is_not_said_to_lack_a_counterpart(is_wrong: bool) -> None:
    faults = [Fault(name, name, "forward", Explanation("b", "x")) for name in (["conv"] if is_wrong else ["fc"])]
    pairs = [pair("", "Net", 0), pair("conv", "Conv1D", 1), pair("fc", "Linear", 2)]
    alone = [Call(3, "conv.parametrizations.weight.0", "torch._WeightNorm", 1, 0)]
    lines = located(faults, layers_of(pairs, faults, alone))
    assert any("without a counterpart" in line for line in lines) is is_wrong


def test_parts_of_a_loss_are_named_as_python_takes_them_out() -> None:
    values = {f"output.{at}": {"relative": 0.1, "max_abs": 1.0, "text": ""} for at in (0, 1)}
    evidence = {"values": values, "places": {"output.0": "['l1']", "output.1": "['aux'][0]"}, "paddle_class": "(loss)"}
    lines = located([Fault("loss", "loss", "forward", None, evidence)])
    assert "   part ['l1'] of what loss returns: relative difference 0.1, at most 1" in lines
    assert "   part ['aux'][0] of what loss returns: relative difference 0.1, at most 1" in lines
    wrong = TensorVerdict("aux.1", "diverged", "another")
    numbered = Comparison("diverged", [TensorVerdict("3", "diverged", "the float64 runs differ"), wrong], PASSED)
    text = printed(RunResult("net", {"loss": numbered}, {}, 3.0))
    assert "  part [3] of what loss returns: the float64 runs differ" in text
    assert "  aux.1: another" in text


def test_what_a_case_accepts_is_not_among_the_wrong_tensors() -> None:
    accepted = TensorVerdict("running_var", "diverged", "as paddle does", accepted="bn_running_var_biased")
    comparison = Comparison("diverged", [accepted, TensorVerdict("logits", "diverged", "apart")], PASSED)
    text = printed(RunResult("net", {"forward": comparison}, {}, 3.0))
    assert "forward: 1 of 2 tensors\n  logits: apart\n" in text
    assert "as paddle does" not in text


def test_an_allowance_that_was_used_is_told() -> None:
    used = TensorVerdict("logits", "aligned", "", allowed="paddle_hard_activation")
    wrong = TensorVerdict("other", "diverged", "", allowed="paddle_average_pool")
    stages = {
        "forward": Comparison("diverged", [used, used, wrong], PASSED),
        "loss": Comparison("aligned", [used], PASSED),
    }
    text = printed(RunResult("net", stages, {}, 3.0))
    why = "paddle's hard activations keep slope and offset in float32"
    assert f"Allowed as paddle_hard_activation: {why} (2 of forward, 1 of loss)." in text
    assert "paddle_average_pool" not in text


def test_why_an_aligned_stage_is_far_above_rounding_is_told() -> None:
    near = TensorVerdict("logits", "aligned", "near", noise_ratio=9.0)
    far = TensorVerdict("loss", "aligned", "the float64 runs agree", noise_ratio=69.0)
    known = TensorVerdict("moment2", "aligned", "why", noise_ratio=90.0, allowed="paddle_adam_second_moment")
    wrong = TensorVerdict("psnr", "diverged", "apart", noise_ratio=80.0)
    stages = {
        "forward": Comparison("aligned", [near], PASSED),
        "loss": Comparison("aligned", [near, far, known], PASSED),
        "metric": Comparison("diverged", [wrong], PASSED),
    }
    text = printed(RunResult("net", stages, {}, 3.0))
    assert "\nloss: noise × 69 in loss: the float64 runs agree\n" in text
    assert "forward: noise" not in text
    assert "metric: noise" not in text


def test_a_stage_keeps_the_guides_number_and_nan_is_not_bit_equal() -> None:
    right = TensorVerdict("logits", "aligned", "", max_abs=0.0)
    nan = TensorVerdict("loss", "diverged", "NaN on one side", max_abs=0.0, basis="structure")
    stages = {"forward": Comparison("aligned", [right], PASSED), "loss": Comparison("diverged", [right, nan], PASSED)}
    lines = [" ".join(line.split()) for line in printed(RunResult("net", stages, {}, 3.0)).splitlines()]
    assert lines[1:3] == ["01 forward aligned 1 bit-equal – passed", "04 loss diverged 2 – – passed"]


def test_curves_that_never_part_are_known_for_the_steps_there_were() -> None:
    horizon = {"curve": "loss", "precision": "float64", "steps": 12, "tolerances": [1e-6, 1e-2]}
    horizon |= {"port": [3, 12], "reference": [12, 12], "port_growth": None, "reference_growth": None}
    console = Console(file=io.StringIO(), width=240)
    print_training({"horizons": [horizon]}, console)
    assert "3 / ≥ 12" in console.file.getvalue()
    assert "≥ 12 / ≥ 12" in console.file.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_wraps_at_words_and_ends_with_faults_and_verdict(width: int) -> None:
    wrong = TensorVerdict("logits", "diverged", "the float64 runs differ by 0.39 relative, " + "and more " * 20)
    cause = Explanation("padding_mode", "the border is padded in another mode: constant in place of reflect, " * 3)
    located = LocateResult("net", [Fault("stem", "stem", "forward", cause)])
    result = RunResult("net", {"forward": Comparison("diverged", [wrong], PASSED)}, {}, 3.0, located=located)
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    show(result, console, out=Path("result"))
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert " ".join(wrong.reason.split()) in " ".join(text.split())
    at = [
        text.index(part)
        for part in ("01 forward", "logits", "report in", "1. stem", "cause:", "1 explained", "net: diverged")
    ]
    assert at == sorted(at)
    assert text.splitlines()[-1] == "net: diverged in 3 s"


def test_no_word_is_broken_that_is_longer_than_the_terminal() -> None:
    console = Console(file=io.StringIO(), width=30, force_terminal=True, color_system=None)
    print_text(console, f"   see {'x' * 50} and there")
    assert console.file.getvalue().splitlines() == ["   see", "     " + "x" * 50, "     and there"]


def test_a_failed_assertion_begins_with_the_first_cause() -> None:
    causes = [Fault("fc", "fc", "forward", Explanation("a", "one")), Fault("out", "out", "state")]
    wrong = Comparison("diverged", [TensorVerdict("logits", "diverged", "far off")], PASSED)
    with pytest.raises(AssertionError, match=r"^fc \(forward\): \[a\] one; 1 more; net diverged\n"):
        check(RunResult("net", {"forward": wrong}, {}, 3.0, located=LocateResult("net", causes)))
    with pytest.raises(AssertionError, match=r"^logits: far off; net diverged\n"):
        check(RunResult("net", {"forward": wrong}, {}, 3.0))


def test_what_a_fixed_threshold_says_is_said_not_to_count() -> None:
    tensors = [TensorVerdict("logits", "aligned", "", max_abs=1e-5, fp64_rel=1e-15, noise_ratio=1.0)]
    said = "The last column is what reprod_log's fixed threshold of 1e-06 would say of the float32 runs"
    for classic, is_said in ((Classic(False, 1e-6, ["logits"], None), True), (PASSED, False)):
        text = printed(RunResult("net", {"forward": Comparison("aligned", tensors, classic)}, {}, 3.0))
        assert (said in text) == is_said
