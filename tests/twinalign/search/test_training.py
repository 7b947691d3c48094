"""Wrong training loops are located and explained by their first steps in float64."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.pooled import pooled_processes
from twinalign.causes.training.subject import explain_training
from twinalign.recorder.recorder import RunSettings
from twinalign.recorder.recording_plan import RecordingPlan
from twinalign.replay.training import MOVED
from twinalign.runs.run_stages import run
from twinalign.search.components import ComponentContext
from twinalign.search.locator import locate
from twinalign.search.training import _not_as_recorded

CASE = f"{Path(__file__).parent / 'training_case.py'}:Training"


@pytest.fixture(scope="module", autouse=True)
def processes() -> Iterator[None]:
    with pooled_processes():
        yield


def faults(fault: str, tmp_path: Path, **options: Any) -> list[Any]:
    settings = RunSettings(case=CASE, out=tmp_path, stages=("train",), options={"fault": fault, **options})
    found = locate(settings)
    assert not found.not_searched
    return found.faults


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "cause", "words"),
    [
        ("curve_scaled", "curve_scaled", "loss times 3"),
        ("gradients_accumulate", "gradients_accumulate", ""),
        ("step_skipped", "step_skipped", "every second one"),
        ("step_twice", "step_twice", ""),
        ("training_rate", "training_rate", "1.3 times, as learning_rate shows"),
        ("training_rate_shown", "training_rate", "1.5 times, as rate shows"),
        ("evaluation_mode", "evaluation_mode", ""),
        ("ema_inverted", "ema_inverted", ""),
        ("ema_momentum", "ema_momentum", "not at all"),
        ("ema_first_copied", "ema_first_copied", ""),
        ("ema_buffers", "ema_buffers", ""),
        ("batch_norm_momentum", "training_batch_norm_other_momentum", "2 times that of the reference"),
    ],
)
def test_a_wrong_training_is_explained(fault: str, cause: str, words: str, tmp_path: Path) -> None:
    (found,) = faults(fault, tmp_path)
    assert (found.paddle_layer, found.phase) == ("train", "train")
    assert found.explanation is not None, found.evidence
    assert found.explanation.id == cause
    assert words in found.explanation.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "names", "options"),
    [
        ("ema_last_left", "teacher.3.weight, teacher.3.bias", {}),
        ("ema_scale_left", "teacher.1.weight", {}),
        ("ema_mean_left", "teacher.1.running_mean", {"averages_buffers": "true"}),
    ],
)
def test_what_a_moving_average_leaves_out_is_named(
    fault: str, names: str, options: dict[str, str], tmp_path: Path
) -> None:
    (found,) = faults(fault, tmp_path, **options)
    assert found.explanation is not None, found.evidence
    assert found.explanation.id == "ema_leaves_out"
    assert found.explanation.text.endswith(f"covers in the reference ({names})")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "cause", "words"),
    [
        ("clipped_each_pass", "clipping_place", "after each backward pass, not once"),
        ("constant", "ema_schedule", "always 0.99: 0.99, 0.99, 0.99, … in place of 0.1, 0.181818, 0.25, …"),
        ("next", "ema_schedule", "that of the next step"),
        ("step_twice", "step_twice", ""),
        ("", "", ""),
    ],
)
def test_a_wrong_training_that_accumulates_is_explained(fault: str, cause: str, words: str, tmp_path: Path) -> None:
    """Its loop sets no mode, has groups with rates of their own and an average whose momentum grows."""
    case = f"{Path(__file__).parent / 'accumulating_case.py'}:Accumulating"
    found = locate(RunSettings(case=case, out=tmp_path, stages=("train",), options={"fault": fault})).faults
    assert [one.explanation and one.explanation.id for one in found] == ([cause] if cause else []), found
    assert all(words in one.explanation.text for one in found if one.explanation)


@pytest.mark.slow
def test_a_right_training_is_no_alarm(tmp_path: Path) -> None:
    assert faults("", tmp_path) == []


@pytest.mark.slow
def test_batches_that_an_input_pipeline_rounds_are_no_alarm_and_hide_no_fault(tmp_path: Path) -> None:
    assert faults("", tmp_path, rounded="true") == []
    assert faults("", tmp_path, rounded="true", clip_norm="0.3") == []
    (found,) = faults("training_rate", tmp_path, rounded="true")
    assert found.explanation is not None, found.evidence
    assert found.explanation.id == "training_rate"
    assert "batch_rms" not in found.evidence["values"]


@pytest.mark.parametrize("fault", ["", "step_twice"])
def test_a_training_whose_first_gradient_a_wrong_layer_explains_is_not_searched(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[Any] = []
    plain = ComponentContext.explanation

    def noted(self: ComponentContext, function: Any, **given: Any) -> Any:
        searched.append(function)
        return plain(self, function, **given)

    monkeypatch.setattr(ComponentContext, "explanation", noted)
    found = locate(RunSettings(case=CASE, out=tmp_path, options={"layer_fault": "true", "fault": fault}))
    assert not found.not_searched
    assert [(one.paddle_layer, one.phase) for one in found.faults] == [("student.1", "forward")]
    assert explain_training not in searched


@pytest.mark.slow
@pytest.mark.parametrize("hooked", ["true", "false"])
@pytest.mark.parametrize(("copies", "when"), [("false", ""), ("true", "before they are clipped")])
def test_a_wrong_training_is_explained_where_paddles_optimizer_clips(
    hooked: str, copies: str, when: str, tmp_path: Path
) -> None:
    (found,) = faults("gradients_accumulate", tmp_path, clip_norm=0.25, hooked=hooked, clips_copies=copies)
    assert found.explanation is not None
    assert found.explanation.id == "gradients_accumulate"
    assert when in found.explanation.text


@pytest.mark.slow
def test_a_reference_that_trains_otherwise_than_it_was_recorded_is_no_fault_of_the_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = RunSettings(case=CASE, out=tmp_path, stages=("train",), options={"fault": "unknown"})
    assert run(dataclasses.replace(settings, locate=False), report=False).verdict == "diverged"
    fresh = RecordingPlan.fresh_arrays
    assert len(locate(settings).faults) == 1  # it trains as it was recorded
    monkeypatch.setattr(RecordingPlan, "fresh_arrays", lambda *given: {n: a * 2 for n, a in fresh(*given).items()})
    found = locate(settings)
    assert (found.verdict, found.faults) == ("inconclusive", [])
    assert re.fullmatch(
        r"the reference trains otherwise than when it was recorded: \S+ is \S+ in step 0, and was \S+; "
        "let train depend on the case's seed and its arguments alone",
        found.not_searched["training"],
    )


def test_what_a_training_measures_at_its_end_may_be_another_value_after_fewer_steps(tmp_path: Path) -> None:
    steps = np.linspace(1.0, 0.5, 12)
    here = {"loss": steps[:5], "psnr": np.array([20.0]), "of_epoch": np.array([3.0, 9.0])}
    np.savez(tmp_path / "curves.npz", **here, **{f"{MOVED}{name}": curve for name, curve in here.items()})
    recorded = {"loss": steps, "psnr": np.array([25.0]), "of_epoch": np.array([3.0, 4.0, 5.0])}
    assert _not_as_recorded(recorded, tmp_path / "curves.npz") == ""
    assert "of_epoch is 3 in step 0, and was 8" in _not_as_recorded(
        {**recorded, "of_epoch": np.array([8.0, 4.0])}, tmp_path / "curves.npz"
    )
    assert "psnr is 20 in step 0, and was 25" in _not_as_recorded(
        {"loss": steps[:5], "psnr": np.array([25.0])}, tmp_path / "curves.npz"
    )


@pytest.mark.slow
def test_a_reference_that_is_to_clip_as_paddle_does_may_train_otherwise_than_it_was_recorded(tmp_path: Path) -> None:
    options = {"clip_norm": "0.25", "port_clip_norm": "0.5"}
    found = run(RunSettings(case=CASE, out=tmp_path, stages=("train",), options=options), report=False)
    assert found.located is not None
    assert ([fault.phase for fault in found.located.faults], found.located.not_searched) == (["train"], {})


def test_clipping_in_a_hook_of_the_optimizer_is_no_alarm(tmp_path: Path) -> None:
    assert faults("", tmp_path, clip_norm=0.25, hooked="true") == []


@pytest.mark.slow
def test_clipping_otherwise_than_a_hook_is_found(tmp_path: Path) -> None:
    (found,) = faults("", tmp_path, clip_norm=0.25, hooked="true", port_clip_norm=0.5)
    shown = found.evidence["values"]["gradient_norm"]
    assert [shown["reference"][0], shown["port"][0]] == pytest.approx([0.25, 0.5])
    assert found.explanation is not None
    assert (found.explanation.id, "to 0.5" in found.explanation.text) == ("gradient_clip_missing", True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "clip_norm", "cause", "words"),
    [
        ("norm", 0.4, "gradient_clipped_each", "to 0.4"),
        ("by_hand", 0.5, "gradient_clipped_each", "to 0.5"),
        ("value", 0.4, "gradient_clipped_by_value", "to 0.4"),
        ("adam", 0.0, "decay_as_l2", ""),
        ("decay", 0.0, "setting_not_scheduled", "weight_decay"),
        ("none", 0.4, "", ""),
    ],
)
def test_causes_of_optimizers_are_proven_in_a_training(
    fault: str, clip_norm: float, cause: str, words: str, tmp_path: Path
) -> None:
    """The loop is right, and what its optimizer does with the gradients is not."""
    found = faults("", tmp_path, optimizer_fault=fault, clip_norm=clip_norm)
    assert [one.explanation and one.explanation.id for one in found] == ([cause] if cause else []), found
    assert all(words in one.explanation.text for one in found)


@pytest.mark.slow
def test_a_training_that_no_cause_makes_is_unexplained(tmp_path: Path) -> None:
    (found,) = faults("unknown", tmp_path)
    assert found.explanation is None
    assert found.evidence["values"]["loss"]["first_step"] == 0
    assert "rate" not in found.evidence["values"]


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["", "generator", "critic", "critic generator"])
def test_of_two_optimizers_the_wrong_one_alone_is_changed(wrong: str, tmp_path: Path) -> None:
    case = f"{Path(__file__).parent / 'two_optimizers_case.py'}:Adversarial"
    found = locate(RunSettings(case=case, out=tmp_path, stages=("train",), options={"wrong": wrong})).faults
    explanations = [fault.explanation and fault.explanation.text.partition("; in the port ")[0] for fault in found]
    assert explanations == (["the first beta differs (0.9 for 0.5)"] if wrong else [])


OWN_OPTIMIZER = """
import numpy as np

from twinalign import Case


class Own(Case):
    def reference(self):
        import torch

        return torch.nn.Linear(3, 2)

    def reproduced(self):
        import paddle

        return paddle.nn.Linear(3, 2)

    def train(self, framework, model, record, steps=None):
        rng = np.random.default_rng(0)
        for step in range(4 if steps is None else min(4, steps)):
            x = rng.standard_normal((5, 3))
            (torch_step if framework == "torch" else paddle_step)(model, x, step, record)
        return {}

    float64_train_steps = 4


def torch_step(model, x, step, record):
    import torch

    loss = model(torch.from_numpy(x).to(model.weight.dtype)).square().mean()
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad.sign()
    record("loss", loss.item())


def paddle_step(model, x, step, record):
    import paddle

    loss = model(paddle.to_tensor(x.astype(model.weight.numpy().dtype))).square().mean()
    loss.backward()
    with paddle.no_grad():
        for parameter in model.parameters():
            parameter.set_value(parameter - 0.1 * STEP)
            parameter.clear_gradient()
    record("loss", float(loss))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "wrong"),
    [
        ("parameter.grad.sign()", False),
        ("paddle.tanh(9 * parameter.grad)", True),  # no known cause, and no settings of an optimizer to look at
    ],
)
def test_a_training_with_an_optimizer_of_its_own_is_searched(step: str, wrong: bool, tmp_path: Path) -> None:
    (tmp_path / "case.py").write_text(OWN_OPTIMIZER.replace("STEP", step), encoding="utf-8")
    settings = RunSettings(case=f"{tmp_path / 'case.py'}:Own", out=tmp_path / "out", stages=("train",))
    found = locate(settings)
    assert not found.not_searched
    assert [fault.paddle_layer for fault in found.faults] == (["train"] if wrong else [])
