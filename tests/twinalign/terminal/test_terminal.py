"""What a run prints: accepted differences are said, and nothing located is not nothing wrong."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from twinalign.causes.registry import Explanation
from twinalign.runs.run_result import RunResult
from twinalign.search.faults import Fault
from twinalign.search.locator import LocateResult
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
    [("diverged", False, "diverged (not counted)"), ("diverged", True, "diverged"), ("aligned", False, "aligned")],
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
