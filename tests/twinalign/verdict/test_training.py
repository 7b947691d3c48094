"""The train stage: curves against the reference's own repeat, accuracies against their sampling error."""

from __future__ import annotations

import math

import numpy as np
import pytest

from twinalign.verdict.case_allowances import allowances_for
from twinalign.verdict.results import Comparison
from twinalign.verdict.training_comparison import compare_training, unsettled_step


def judge(ours: float, theirs: float, repeat: float | None = None, samples: int = 400) -> tuple[str, str]:
    """Verdict and reason for two accuracies in percent."""
    reference = {"outcome.top1": np.array([ours, samples])}
    if repeat is not None:
        reference["repeat.outcome.top1"] = np.array([repeat, samples])
    tensor = compare_training(reference, {"outcome.top1": np.array([theirs, samples])}, None, None).tensors[0]
    return tensor.verdict, tensor.reason


def test_margin_is_two_standard_errors_of_a_difference_of_proportions() -> None:
    # sqrt(2 p (1 - p) / n) for p = 0.8, n = 400 is 0.0283; a simulation of the null agrees with it.
    draws = np.random.default_rng(0).binomial(400, 0.8, size=(200_000, 2)) / 4
    assert np.std(draws[:, 0] - draws[:, 1]) == pytest.approx(100 * math.sqrt(2 * 0.8 * 0.2 / 400), rel=0.01)
    assert judge(80.0, 85.0)[0] == "aligned"
    verdict, reason = judge(80.0, 87.0)
    assert verdict == "diverged"
    assert reason == (
        "80.00% against 87.00%, outside of 5.25 points "
        "(two standard errors of 400 samples, or a change in the last bit)"
    )


def test_what_the_reference_does_to_itself_is_allowed_and_a_little_more_is_open() -> None:
    assert judge(80.0, 70.0, repeat=70.0)[0] == "aligned"
    verdict, reason = judge(80.0, 65.0, repeat=72.0)
    assert verdict == "inconclusive"
    assert reason.endswith("; the reference itself varies by 8.00 points: train for longer, or with several seeds")
    assert judge(80.0, 20.0, repeat=79.0)[0] == "diverged"


def test_an_accuracy_of_a_hundred_percent_has_a_margin_too() -> None:
    assert judge(100.0, 99.9)[0] == "aligned"
    assert judge(100.0, 90.0)[0] == "diverged"


def curves(change: float = 0.0, step: int = 5) -> Comparison:
    """Two loss curves that differ by `change` from a step on, and a repeat that differs by rounding."""
    loss = 4.0 * np.exp(-np.arange(20) / 10)
    port = loss + np.where(np.arange(20) >= step, change, 0.0)
    reference = {"curve.loss": loss, "repeat.curve.loss": loss * (1 + 1e-7)}
    return compare_training(reference, {"curve.loss": port}, None, None)


def test_curves_may_part_as_the_reference_parts_from_its_repeat() -> None:
    assert curves().verdict == "aligned"
    assert curves(1e-6).verdict == "aligned"
    found = curves(1e-3)
    assert found.verdict == "diverged"
    assert found.tensors[0].reason.startswith("the difference jumps at step 5")


@pytest.mark.parametrize(
    ("in_batches", "since", "in_loss", "verdict"),
    [
        (3e-8, 0, 1e-7, "aligned"),  # as data differ that each side rounds to float32
        (0.0, 0, 1e-7, "diverged"),
        (3e-8, 0, 1e-4, "diverged"),
        (1e-6, 0, 1e-7, "diverged"),
        (3e-8, 1, 1e-7, "diverged"),  # what a model has made enters another, which a fault moves
    ],
)
def test_float64_runs_on_batches_in_float32_may_differ_by_as_much(
    in_batches: float, since: int, in_loss: float, verdict: str
) -> None:
    loss, size = 4.0 * np.exp(-np.arange(20) / 10), np.linspace(1.0, 1.1, 20)
    reference = {"curve.loss": loss, "curve.batch_rms": size}
    exact = reference | {"repeat.curve.loss": loss * (1 + 1e-10), "repeat.curve.batch_rms": size}
    low = reference | {"repeat.curve.loss": loss * (1 + 1e-7), "repeat.curve.batch_rms": size}
    port = {"curve.loss": loss * (1 + in_loss), "curve.batch_rms": size * (1 + in_batches * (np.arange(20) >= since))}
    found = compare_training(low, reference, exact, port)
    assert found.verdict == verdict
    assert any(note.startswith("each side rounds its batches to float32 itself") for note in found.notes) == (
        in_batches == 3e-8 and not since
    )


def test_curves_of_one_side_only_are_named() -> None:
    found = compare_training({"curve.loss": np.ones(3)}, {"curve.lr": np.ones(3)}, None, None)
    assert found.verdict == "diverged"
    assert {tensor.name for tensor in found.tensors if tensor.verdict == "diverged"} == {"curve.loss", "curve.lr"}


def test_what_is_recorded_behind_a_loop_is_no_count_of_its_steps() -> None:
    """Float64 has made eight steps, and a score once."""
    steps = np.arange(12.0)
    rates = {"curve.learning_rate": np.ones(12), "curve.score": np.ones(1)}
    loss = 1.0 + steps
    exact = {n: array[:8] for n, array in {**rates, "curve.loss": loss}.items()}
    low = {**rates, "curve.loss": loss, "repeat.curve.loss": loss * (1 + 1e-8), "repeat.curve.score": np.ones(1)}
    port = {**rates, "curve.loss": loss * (1 + 1e-9 * 5**steps)}
    of_loss = next(t for t in compare_training(low, port, exact, exact).tensors if t.name == "curve.loss")
    assert "the float64 runs agree in all their 8 steps" in of_loss.reason


def test_a_fault_of_one_curve_takes_no_excuse_from_another() -> None:
    """The port's own rounding is large, as its float64 run shows; the score is wrong in float64, too."""
    loss, steps = 1.0 + np.arange(12.0), np.arange(12)
    exact = {"curve.loss": loss, "repeat.curve.loss": loss * (1 + 1e-15), "curve.score": np.ones(12)}
    exact |= {"repeat.curve.score": np.ones(12)}
    low = {**exact, "repeat.curve.loss": loss * (1 + 1e-7)}
    port = {"curve.loss": loss * (1 + 3e-5 * (-1.0) ** steps), "curve.score": np.ones(12)}
    wrong = {"curve.score": np.full(12, 1.1)}
    verdicts = []
    for other in ({}, wrong):
        found = compare_training(low, {**port, **other}, exact, {**exact, **other})
        verdicts.append({tensor.name: tensor.verdict for tensor in found.tensors})
    assert set(verdicts[0].values()) <= {"aligned", "rounding"}
    assert {name for name, verdict in verdicts[1].items() if verdict == "diverged"} == {
        "curve.score",
        "curve.score (float64)",
    }


@pytest.mark.parametrize(
    ("apart", "in_float64", "verdict"),
    [(1e-5, 0.0, "rounding"), (1e-3, 0.0, "diverged"), (1e-5, 1e-5, "diverged")],
    ids=["as far as a curve", "farther", "in float64, too"],
)
def test_a_number_behind_the_loop_may_move_as_far_as_the_curves(apart: float, in_float64: float, verdict: str) -> None:
    loss, steps = 1.0 + np.arange(12.0), np.arange(12)
    exact = {"curve.loss": loss, "repeat.curve.loss": loss * (1 + 1e-15)}
    exact |= {"curve.score": np.ones(1), "repeat.curve.score": np.ones(1)}
    low = {**exact, "repeat.curve.loss": loss * (1 + 1e-7)}
    port = {"curve.loss": loss * (1 + 3e-5 * (-1.0) ** steps), "curve.score": np.ones(1) * (1 + apart)}
    found = compare_training(low, port, exact, {**exact, "curve.score": np.ones(1) * (1 + in_float64)})
    assert found.verdict == ("diverged" if verdict == "diverged" else "aligned")
    assert next(t.verdict for t in found.tensors if t.name == "curve.score") == verdict


def test_curves_that_hooks_see_on_one_side_alone_are_a_note() -> None:
    """An optimizer of the user's own class makes steps that no hook sees; averages go by the names of parameters."""
    case = {"curve.loss": np.ones(3), "curve.batch_size": np.ones(3), "weights.a": np.array([0.1, 1.0, 1.0, 3.0, 2.0])}
    hooks = {"curve.gradient_norm": np.ones(3), "curve.learning_rate": np.ones(3), "curve.weight_norm.a": np.ones(3)}
    found = compare_training({**case, **hooks}, case, None, None)
    assert found.verdict == "aligned"
    assert "no step of the port's optimizer was seen" in found.notes[0]
    found = compare_training({**case, **hooks}, {**case, **hooks, "curve.ema_distance": np.ones(3)}, None, None)
    assert found.verdict == "aligned"
    assert "no part that looks like an average" in found.notes[0]
    more = {**case, **hooks, "curve.weight_norm.b": np.ones(3)}
    assert compare_training(more, {**case, **hooks}, None, None).verdict != "aligned"
    assert (
        compare_training({**case, **hooks}, {**case, "curve.loss": np.full(3, 2.0)}, None, None).verdict == "diverged"
    )


def test_norms_that_part_alone_are_an_open_question_until_float64_answers_it() -> None:
    norm = "curve.weight_norm.head.bias"
    loss, tipped = np.linspace(4, 3, 10), np.where(np.arange(10) >= 5, 1e-4, 0.0)
    ours = {"curve.loss": loss, norm: loss}
    ours |= {f"repeat.{name}": values * (1 + 1e-7) for name, values in ours.items()}
    found = compare_training(ours, {"curve.loss": loss, norm: loss + tipped}, None, None)
    assert found.verdict == "inconclusive"
    assert found.tensors[1].reason.endswith("set float64_train_steps in the case to tell the two apart")
    assert compare_training(ours, {"curve.loss": loss + tipped, norm: loss + tipped}, None, None).verdict == "diverged"
    theirs = {"curve.loss": loss, norm: loss + tipped}
    assert compare_training(ours, theirs, ours, theirs).verdict == "diverged"


def test_float64_curves_are_judged_beside() -> None:
    loss = np.linspace(4, 3, 10)
    arrays = {"curve.loss": loss, "repeat.curve.loss": loss * (1 + 1e-6)}
    exact = {"curve.loss": loss, "repeat.curve.loss": loss * (1 + 1e-10)}
    found = compare_training(arrays, {"curve.loss": loss}, exact, {"curve.loss": loss + 1e-6})
    assert [(t.name, t.verdict) for t in found.tensors] == [
        ("curve.loss", "aligned"),
        ("curve.loss (float64)", "diverged"),
    ]


def tipped(agree: bool = True, late: float = 0.0, first: float = 1e-7, with_float64: bool = True) -> Comparison:
    """A port that a gradient next to zero takes away at its first step, where the repeat meets none.

    Args:
        agree: whether the float64 runs do.
        late: a further jump of the port's float32 curve, at step 15.
        first: relative difference before the first step.
        with_float64: whether there are float64 runs, of four steps.
    """
    steps = np.arange(20)
    loss = 4.0 * np.exp(-steps / 10)
    away = np.where(steps >= 1, 2e-4 * 1.05**steps, 0.0)
    port = loss * (1 + np.where(steps == 0, first, 0.0)) + away + np.where(steps >= 15, late, 0.0)
    reference = {"curve.loss": loss, "repeat.curve.loss": loss * (1 + 1e-7)}
    partners = [{"curve.loss": loss[:4], "repeat.curve.loss": loss[:4] * (1 + 1e-13)}, {"curve.loss": loss[:4].copy()}]
    if not agree:
        partners[1]["curve.loss"] = port[:4].copy()
    return compare_training(reference, {"curve.loss": port}, *(partners if with_float64 else (None, None)))


def test_a_port_that_rounds_its_own_way_is_judged_by_what_its_float64_run_proves() -> None:
    found = tipped()
    assert found.verdict == "aligned"
    (note,) = found.notes
    assert note.startswith("in float32 the port's own rounding is up to ")
    assert note.endswith(" and the float64 runs agree: its curves may differ by that much")
    # The same curves without the proof, or with the proof that the two do differ.
    assert tipped(with_float64=False).verdict == "diverged"
    assert tipped(agree=False).verdict == "diverged"
    # Nothing has been amplified before the first step, and a late jump is over what was measured.
    assert tipped(first=1e-4).verdict == "diverged"
    assert tipped(late=0.1).verdict == "diverged"


@pytest.mark.parametrize(
    ("steps", "exact", "times", "verdict", "end"),
    [
        (20, 20, True, "aligned", "; the float64 runs agree in all steps: it is rounding that grows"),
        (20, 4, True, "inconclusive", "; float64 runs of all 20 steps (float64_train_steps in the case) would tell"),
        (80, 4, True, "diverged", ""),
        (20, 20, False, "diverged", ""),
    ],
)
def test_shifted_weights_of_a_port_that_rounds_its_own_way_are_settled_by_float64(
    steps: int, exact: int, times: bool, verdict: str, end: str
) -> None:
    loss = np.linspace(4, 3, steps)
    away = 1e-4 * (np.arange(steps) >= 1) if times else 0.0
    reference = {"curve.loss": loss, "repeat.curve.loss": loss * (1 + 1e-7)}
    port = {"curve.loss": loss + away}
    for name in ("net.a.weight", "net.b.weight", "net.c.weight"):
        size = np.array([0.0, 1.0, 1.0, 2.0, 2.0])
        reference |= {f"weights.{name}": size, f"repeat.weights.{name}": size * (1 + 1e-6)}
        port[f"weights.{name}"] = size * np.array([1.0, 1.01, 1.01, 1.01, 1.0])
    partners = ({"curve.loss": loss[:exact], "repeat.curve.loss": loss[:exact]}, {"curve.loss": loss[:exact].copy()})
    found = compare_training(reference, port, *partners)
    (weights,) = (tensor for tensor in found.tensors if tensor.name.startswith("weights of net"))
    assert found.verdict == verdict
    assert weights.reason.startswith("median size +1% against the reference, whose own scatter is 0.0001%")
    assert end in weights.reason
    assert found.training["weights"][0]["wrong"] is (verdict == "diverged")
    assert unsettled_step(found) == (steps - 1 if verdict == "inconclusive" else None)


def test_a_reference_that_rounding_takes_away_with_its_repeat_is_judged_by_its_float64_run() -> None:
    loss = np.linspace(4, 3, 10)
    away = np.where(np.arange(10) >= 4, 1e-4, 0.0)
    reference = {"curve.loss": loss - away, "repeat.curve.loss": (loss - away) * (1 + 1e-7)}
    partners = ({"curve.loss": loss[:6], "repeat.curve.loss": loss[:6]}, {"curve.loss": loss[:6].copy()})
    found = compare_training(reference, {"curve.loss": loss}, *partners)
    assert found.verdict == "aligned"
    (note,) = found.notes
    assert note.startswith("in float32 the reference's own rounding is up to ")
    assert " times what its repeat shows, and the float64 runs agree" in note
    # Had the float64 runs ended before it, nothing would prove it.
    short = tuple({name: values[:4] for name, values in arrays.items()} for arrays in partners)
    assert compare_training(reference, {"curve.loss": loss}, *short).verdict == "diverged"
    # A later jump of the port is over what was measured.
    late = loss + 0.1 * (np.arange(10) >= 8)
    assert compare_training(reference, {"curve.loss": late}, *partners).verdict == "diverged"


@pytest.mark.parametrize(
    ("relative", "allowances", "verdict"),
    [
        (1e-8, ("paddle_label_smoothing",), "aligned"),
        (1e-8, ("paddle_label_smoothing=curve.loss",), "aligned"),
        (1e-8, (), "diverged"),
        (1e-8, ("paddle_label_smoothing=curve.rate",), "diverged"),
        (1e-6, ("paddle_label_smoothing",), "diverged"),
    ],
)
def test_a_curve_may_differ_by_what_the_case_allows(relative: float, allowances: tuple[str, ...], verdict: str) -> None:
    loss = np.linspace(4, 3, 10)
    arrays = {"curve.loss": loss, "repeat.curve.loss": loss * (1 + 1e-6)}
    exact = {"curve.loss": loss, "repeat.curve.loss": loss * (1 + 1e-13)}
    port = {"curve.loss": loss * (1 + relative)}
    found = compare_training(arrays, {"curve.loss": loss}, exact, port, allowances=allowances)
    assert found.verdict == verdict
    (curve,) = (tensor for tensor in found.tensors if tensor.name.endswith("(float64)"))
    assert curve.allowed == ("paddle_label_smoothing" if verdict == "aligned" else None)
    assert curve.reason.endswith("allowed: paddle's label smoothing keeps its epsilon in float32") == bool(
        curve.allowed
    )


@pytest.mark.parametrize(
    ("relative", "momentum", "verdict"),
    [(1.2e-5, 0.999, "aligned"), (1.2e-5, 0.9, "diverged"), (1.6e-5, 0.999, "diverged")],
)
def test_running_statistics_in_float32_may_differ_by_the_error_of_the_ports_momentum(
    relative: float, momentum: float, verdict: str
) -> None:
    norm, name = np.linspace(1, 2, 10), "curve.buffer_norm.bn.running_mean"
    reference = {"curve.loss": norm, name: norm, f"repeat.{name}": norm * (1 + 1e-9)}
    port = {"curve.loss": norm * (1 + 1e-3 * (verdict == "diverged")), name: norm * (1 + relative)}
    allowed = allowances_for("train", {"kernels": {"batch_norm": {"momentum": [momentum]}}}, {})
    found = {t.name: t for t in compare_training(reference, port, None, None, allowances=allowed).tensors}
    assert found[name].verdict in ({"aligned", "rounding"} if verdict == "aligned" else {verdict})
    assert found[name].allowed == ("paddle_batch_norm_momentum" if verdict == "aligned" else None)
