"""Several seeds, a change of framework on the way and swapped parts, on a training of a few steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import twinalign
from tests.conftest import ROOT
from tests.pooled import pooled_processes
from twinalign.errors import InputError
from twinalign.files.recordings import Recording, metadata_path
from twinalign.recorder.recorder import Recorder, RunSettings
from twinalign.search.training_swaps import swap_parts
from twinalign.verdict import trajectory
from twinalign.verdict.training_comparison import compare_training

CASE = f"{ROOT / 'tests' / 'twinalign' / 'search' / 'training_case.py'}:Training"


@pytest.fixture(scope="module", autouse=True)
def processes() -> Iterator[None]:
    with pooled_processes():
        yield


def run(out: Path, fault: str = "", **asked: Any) -> Any:
    return twinalign.run(CASE, stages=["train"], out=out, options={"fault": fault}, locate=False, **asked)


@pytest.mark.slow
def test_a_right_port_is_right_in_every_experiment(tmp_path: Path) -> None:
    result = run(tmp_path, seeds=3, margin=1.0, switch_at=2, swaps=("data", "network"), tensorboard=True)
    assert result.verdict == "aligned"
    training = result.stages["train"].training
    (outcome,) = training["outcomes"]
    assert outcome["verdict"] == "aligned"
    assert len(set(outcome["reference"])) == 3  # the seeds are seeds of the training
    assert outcome["port"] == pytest.approx(outcome["reference"], rel=1e-4)
    assert training["switched"]["verdict"] == "aligned"
    assert {t["name"] for t in training["switched"]["tensors"]} >= {"curve.loss", "curve.loss (float64)"}
    assert training["swaps"]["at_fault"] is None
    loss = {h["precision"]: h for h in training["horizons"] if h["curve"] == "loss"}
    assert loss["float64"]["port"] == [5, 5, 5]
    logs = {path.name for path in (tmp_path / "tensorboard").iterdir() if any(path.glob("events.*"))}
    assert logs >= {f"{side} {dtype}" for side in ("reference", "port") for dtype in ("float32", "float64")}
    assert "port float32 seed 2" in logs
    again = run(tmp_path)
    assert again.stages["train"].training["outcomes"] == []
    assert "seeds.margin" not in Recording.load(tmp_path / "train_ref.npy").arrays


@pytest.mark.slow
def test_a_switched_training_goes_wrong_where_the_port_takes_over(tmp_path: Path) -> None:
    result = run(tmp_path, "training_rate", switch_at=2)
    assert result.verdict == "diverged"
    switched = result.stages["train"].training["switched"]
    loss = next(t for t in switched["tensors"] if t["name"] == "curve.loss (float64)")
    assert (loss["verdict"], loss["parted_at"]) == ("diverged", 3)  # the loss of step 2 is of weights carried over
    recorded = [Recording.load(tmp_path / "float64" / f"train_{side}.npy").arrays for side in ("ref", "paddle")]
    stayed, mixed = recorded[0]["curve.loss"], recorded[1]["switched.curve.loss"]
    assert mixed[:3] == pytest.approx(stayed[:3], rel=1e-7)
    assert abs(mixed[3] - stayed[3]) > 1e-4
    assert "switched.step" not in recorded[0]


def test_a_switched_training_decides_by_its_recording_alone(tmp_path: Path) -> None:
    result = run(tmp_path, switch_at=2, switch_from="paddle")
    assert result.verdict == "aligned"
    ours, theirs = (Recording.load(tmp_path / f"train_{side}.npy").arrays for side in ("ref", "paddle"))
    assert result.stages["train"].training["switched"]["start"] == "paddle"
    ours["switched.curve.loss"] = ours["switched.curve.loss"] * 1.01  # as `verify` sees it: arrays, nothing else
    found = compare_training(ours, theirs, None, None)
    assert found.verdict == "diverged"
    assert all(tensor.verdict != "diverged" for tensor in found.tensors)
    assert found.training is not None
    assert found.training["switched"]["reason"].startswith("curve.loss: ")
    assert "switched" not in run(tmp_path).stages["train"].training  # another run takes it out again


@pytest.mark.parametrize(
    ("fault", "part"),
    [("data", "data"), ("initialisation", "init"), ("step_skipped", "updates"), ("unknown", "network")],
)
def test_the_part_whose_swap_removes_the_difference_is_named(fault: str, part: str, tmp_path: Path) -> None:
    recorder = Recorder(RunSettings(case=CASE, out=tmp_path, stages=("train",), options={"fault": fault}))
    with recorder.running() as weights:
        found = swap_parts(recorder.processes, weights["training"], tmp_path / "swaps")
    assert found is not None
    assert found.at_fault == part, found.to_json()
    assert not list((tmp_path / "swaps").iterdir())


def test_norms_are_numpys_and_nothing_of_the_case(tmp_path: Path) -> None:
    run(tmp_path)
    for side, key in (("ref", "student.0.weight"), ("paddle", "student.0.weight")):
        arrays = Recording.load(tmp_path / f"train_{side}.npy").arrays
        assert len(arrays[f"curve.weight_norm.{key}"]) == 5
        # 5 by 7 weights: what is recorded at the end as a root mean square is the last norm over the root of 35.
        assert arrays[f"curve.weight_norm.{key}"][-1] == pytest.approx(np.sqrt(35) * arrays[f"weights.{key}"][2])
        assert arrays["curve.learning_rate"] == pytest.approx(0.1 / (1 + np.arange(5)))
        assert (arrays["curve.batch_size"] == 6).all()
        # The teacher begins as the student and moves after the step: they are one step of gradient descent apart.
        assert arrays["curve.ema_distance"][0] == pytest.approx(0.1 * arrays["curve.gradient_norm"][0], rel=1e-5)


def test_the_gradient_norm_is_that_after_clipping_where_paddles_optimizer_clips_inside_of_its_step(
    tmp_path: Path,
) -> None:
    options = {"clip_norm": 0.25}
    assert twinalign.run(CASE, stages=["train"], out=tmp_path, options=options, locate=False).verdict == "aligned"
    for side in ("ref", "paddle"):
        norms = Recording.load(tmp_path / f"train_{side}.npy").arrays["curve.gradient_norm"]
        assert norms[0] == pytest.approx(0.25, rel=1e-5)
        assert norms.max() < 0.2501


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"seeds": 0}, "--seeds 0"),
        ({"seeds": 2, "margin": -1.0}, "--margin -1: must be above 0"),
        ({"switch_at": -3}, "--switch-at -3"),
        ({"switch_at": 3, "precision": "float64"}, "--switch-at: trains in float32"),
        ({"switch_at": 9}, "--switch-at 9: the training has only 5 steps"),
    ],
)
def test_what_cannot_be_made_is_refused_in_one_line(asked: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        run(tmp_path, **asked)
    assert str(error.value).startswith(words)
    assert "\n" not in str(error.value)


def test_curves_that_depart_behind_the_float64_steps_are_settled_by_more_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One repeat may miss how far rounding takes the port; here it is made to show nothing from the third step on."""
    shown = trajectory._shown_by

    def quiet(reference: np.ndarray, other: np.ndarray, least: float) -> np.ndarray:
        floor = shown(reference, other, least)
        if least == 2.0**-24 * np.abs(reference).max():  # of float32
            floor[2:] = 1e-30
        return floor

    monkeypatch.setattr(trajectory, "_shown_by", quiet)
    said: list[str] = []
    asked = {"options": {"float64_train_steps": "2"}, "stages": ["train"], "out": tmp_path, "locate": False}
    found = twinalign.run(CASE, progress=lambda side, text: said.append(text), **asked).stages["train"]
    begin = "06 train: inconclusive, "
    assert any(text.startswith(begin) and "with 3 (float64_train_steps in the case)" in text for text in said)
    assert "06 train: 5 steps in float64, to tell rounding that grows from a fault" in said
    assert found.verdict == "aligned"
    assert len(Recording.load(tmp_path / "float64" / "train_paddle.npy").arrays["curve.loss"]) == 5
    again = twinalign.run(CASE, **asked).stages["train"]  # with the recordings that are there
    assert again.verdict == "aligned"
    metadata_path(tmp_path / "float64" / "train_paddle.npy").unlink()  # as if the port were edited
    assert twinalign.run(CASE, **asked).stages["train"].verdict == "aligned"
    assert len(Recording.load(tmp_path / "float64" / "train_paddle.npy").arrays["curve.loss"]) == 5
