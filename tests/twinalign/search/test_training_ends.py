"""What a training makes behind its last step, such as an average that takes the model's place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.twinalign.search.test_training_edits import AVERAGE, PORT, REFERENCE
from tests.twinalign.search.training_sources import written
from twinalign.edits.suggestions import suggestion
from twinalign.recorder.recorder import RunSettings
from twinalign.runs.run_result import RunResult
from twinalign.runs.run_stages import run
from twinalign.search.locator import locate
from twinalign.search.training import _shown_within, ends_apart
from twinalign.verdict.results import ALIGNED, DIVERGED

INTO = """
    @paddle.no_grad()
    def into(self, model):
        for kept, p in zip(self.kept, model.parameters()):
            p.set_value(kept)

    def distance("""
END = """
    if len(batches) == 8:
        {average}
        record("bias", float(model.second.bias.square().sum()))
    return {{}}
"""


def averaged_at_its_end(folder: Path, wrong: dict[str, str]) -> RunResult:
    """A training whose whole length, of eight steps, ends with the average in the model's place."""
    kept, last = ("    model.train()\n", "        update(model, optimizer)\n"), "\n    return {}\n"
    port = {part: PORT[part] for part in kept} | {
        "def train(": AVERAGE.strip().replace("\n    def distance(", INTO),
        last: END.format(average="average.into(model)"),
    }
    reference = {part: REFERENCE[part] for part in kept} | {
        last: END.format(average="model.load_state_dict(kept, strict=False)")
    }
    case = written(folder, port | wrong, reference, {"range(steps or 4)": "range(steps or 8)"})
    return run(RunSettings(case=case, out=folder / "out", stages=("train",)), report=False)


@pytest.mark.slow
def test_what_a_training_makes_behind_its_last_step_is_searched(tmp_path: Path) -> None:
    swapped = {"self.decay * kept + (1.0 - self.decay) * p": "self.decay * p + (1.0 - self.decay) * kept"}
    result = averaged_at_its_end(tmp_path, swapped)
    assert result.verdict == DIVERGED
    assert result.located is not None
    (found,) = result.located.faults
    trained = {f"trained_norm.{name}" for name in ("first.weight", "first.bias", "second.weight", "second.bias")}
    assert found.evidence["values"].keys() == {"bias", *trained}
    assert "write `self.decay * kept + (1.0 - self.decay) * p` in place of" in suggestion(found.to_json())


@pytest.mark.slow
def test_a_training_that_ends_right_is_no_fault(tmp_path: Path) -> None:
    result = averaged_at_its_end(tmp_path, {})
    assert (result.verdict, result.located) == (ALIGNED, None)
    assert locate(RunSettings(case=str(tmp_path / "case.py"), out=tmp_path / "out", stages=("train",))).faults == []


@pytest.mark.slow
def test_a_rate_that_falls_after_many_steps_is_searched_until_both_agree_again(tmp_path: Path) -> None:
    stepped, falls = "        update(model, optimizer)\n", "0.1 if step >= {} else 1.0"
    rate = f"            group['lr'] = 0.01 * ({falls.format(75)})\n"
    reference = {
        "for x in batches": "for step, x in enumerate(batches)",
        stepped: f"        for group in optimizer.param_groups:\n{rate}{stepped}",
    }
    port = {
        "AdamW(0.01,": "AdamW(schedule,",
        "    optimizer = ": f"    falls = lambda step: {falls.format(70)}\n"
        "    schedule = paddle.optimizer.lr.LambdaDecay(0.01, falls)\n    optimizer = ",
        stepped: stepped + "        schedule.step()\n",
    }
    case = written(tmp_path, port, reference, {"range(steps or 4)": "range(steps or 90)"})
    result = run(RunSettings(case=case, out=tmp_path / "out", stages=("train",)), report=False)
    assert result.located is not None
    (found,) = result.located.faults
    assert "write `step >= 75` in place of `step >= 70`" in suggestion(found.to_json())


@pytest.mark.parametrize(
    ("loss", "rate", "steps"),
    [
        ((), (), 0),
        ((), (70, 75), 105),  # half as many again
        ((), (2, 75), 76),  # once both agree
        ((40,), (), 60),
        ((4,), (), 7),
        ((40,), (70, 100), 105),  # the rate, if that departs
    ],
)
def test_so_many_steps_show_what_departs(loss: Sequence[int], rate: Sequence[int], steps: int) -> None:
    reference = {"loss": np.ones(100), "learning_rate": np.ones(100)}
    port = {name: curve.copy() for name, curve in reference.items()}
    if loss:
        port["loss"][slice(*loss, None)] = 1.1
    if rate:
        port["learning_rate"][slice(*rate)] = 0.1
    assert _shown_within({"ref": reference, "paddle": port}) == steps


@pytest.mark.parametrize(
    ("name", "port", "apart"),
    [
        ("weights.first", 1.01, True),
        ("weights.first", 1.0005, False),
        ("outcome.top1", 1.01, True),
        ("curve.psnr", 1.01, True),
        ("curve.loss", 1.01, False),
    ],
)
def test_ends_are_apart_where_rounding_takes_the_reference_less_far(name: str, port: float, apart: bool) -> None:
    names = ("weights.first", "outcome.top1", "curve.psnr")
    reference = {name: np.array([1.0]) for name in names} | {"curve.loss": np.array([1.0, 0.5])}
    repeat = {f"repeat.{name}": values * 1.0001 for name, values in reference.items()}
    assert ends_apart(reference | repeat, reference | {name: reference[name] * port}) is apart
