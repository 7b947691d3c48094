"""The main job on a tiny MoCo v3: aligned as it stands, and each planted fault is found in the stage where it acts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT, read_summary
from tests.recorded_once import recorded_once

pytestmark = pytest.mark.usefixtures("kept_processes")

STAGES = ["forward", "data", "metric", "loss", "backward"]
Twinalign = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def clean_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run of the faultless case, in processes of its own, shared by the tests that only read it."""

    def record(folder: Path) -> None:
        command = [sys.executable, "-m", "twinalign", "run", "tests.cases.tiny:TinyMoCo", "--out", str(folder)]
        finished = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        assert finished.returncode == 0, finished.stdout + finished.stderr

    return recorded_once(tmp_path_factory, "clean", record)


def test_clean_twins_are_aligned_in_every_stage(clean_run: Path) -> None:
    summary = read_summary(clean_run)
    assert summary["case"] == "tiny_moco"
    assert summary["verdict"] == "aligned"
    assert list(summary["stages"]) == STAGES
    assert {stage["verdict"] for stage in summary["stages"].values()} == {"aligned"}
    assert summary["not_checked"] == ["train"]  # the case has no train(), and runs in training mode


def test_float64_differences_are_far_below_any_bug(clean_run: Path) -> None:
    for name, stage in read_summary(clean_run)["stages"].items():
        measured = [tensor["fp64_rel"] for tensor in stage["tensors"] if tensor["fp64_rel"] is not None]
        assert name == "data" or max(measured) <= 1e-7, name


def test_data_stage_is_bit_equal(clean_run: Path) -> None:
    tensors = read_summary(clean_run)["stages"]["data"]["tensors"]
    assert {name.split(".")[0] for name in (t["name"] for t in tensors)} == {"train", "val", "order"}
    assert all(tensor["max_abs"] == 0 for tensor in tensors)


def test_files_have_the_names_that_reviewers_know(clean_run: Path) -> None:
    stems = ["forward", "data", "metric", "loss", "losses"]
    for side in ("ref", "paddle"):
        assert all((clean_run / f"{stem}_{side}.npy").is_file() for stem in stems)
    for stage in STAGES:
        log = (clean_run / "log" / f"{stage}_diff.log").read_text()
        assert "root INFO: " in log
        assert "diff check" in log.splitlines()[-1]


def test_recordings_are_read_by_numpy_as_reprod_log_reads_them(clean_run: Path) -> None:
    stored = np.load(clean_run / "forward_ref.npy", allow_pickle=True).item()
    assert {"features", "q1", "q2", "k1", "k2"} <= set(stored)
    assert stored["q1"].shape == (8, 16)


def test_backward_records_everything_that_a_step_moves(clean_run: Path) -> None:
    names = set(np.load(clean_run / "losses_paddle.npy", allow_pickle=True).item())
    weight = "base_encoder.blocks.0.attn.qkv.weight"
    for step in range(3):
        assert {f"step{step}.{name}" for name in ("loss.loss", "learning_rate", "moco_momentum")} <= names
        assert {f"step{step}.{kind}.{weight}" for kind in ("gradient", "parameter", "moment1", "moment2")} <= names
        assert f"step{step}.parameter.momentum_encoder.blocks.0.attn.qkv.weight" in names
        assert f"step{step}.buffer.base_encoder.head.1.running_var" in names


def test_schedules_move_and_the_first_step_has_rate_zero(clean_run: Path) -> None:
    stored = np.load(clean_run / "losses_paddle.npy", allow_pickle=True).item()
    rates = [float(stored[f"step{step}.learning_rate"]) for step in range(3)]
    assert rates[0] == 0
    assert len(set(rates)) == 3
    momenta = [float(stored[f"step{step}.moco_momentum"]) for step in range(3)]
    assert momenta == sorted(set(momenta))


def test_weights_are_accounted_for_in_a_ledger(clean_run: Path) -> None:
    import json

    ledger = json.loads((clean_run / "weights" / "tiny_moco_ledger.json").read_text())
    assert ledger["totals"]["transposed"] == 24
    assert ledger["totals"]["dropped"] > 0


def test_environment_of_both_sides_is_recorded(clean_run: Path) -> None:
    environment = read_summary(clean_run)["environment"]
    assert environment["ref"]["versions"]["torch"]
    assert environment["paddle"]["versions"]["paddle"]
    assert "threads" in environment["ref"]["flags"]


def test_the_reference_alone_repeats_its_losses(clean_run: Path) -> None:
    recorded = np.load(clean_run / "loss_ref.npy", allow_pickle=True).item()
    repeats = json.loads((clean_run / "loss_ref.json").read_text())["repeats"]
    assert repeats.keys() == recorded.keys()
    for name, draws in repeats.items():
        assert len(draws) == 4
        assert len({value for (value,) in draws} | {float(recorded[name])}) > 2
        np.testing.assert_allclose(draws, float(recorded[name]), rtol=1e-4)
    for other in ("loss_paddle.json", "float64/loss_ref.json"):
        assert "repeats" not in json.loads((clean_run / other).read_text())


def test_second_run_records_nothing(clean_run: Path, twinalign: Twinalign) -> None:
    before = {path: path.stat().st_mtime_ns for path in clean_run.rglob("*.npy")}
    finished = twinalign("run", "tests.cases.tiny:TinyMoCo", "--out", clean_run, cwd=ROOT)
    assert finished.returncode == 0
    assert "recorded" not in finished.stderr
    assert {path: path.stat().st_mtime_ns for path in clean_run.rglob("*.npy")} == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "stage", "tensor", "place", "cause"),
    [
        (
            "UntransposedLinear",
            "forward",
            "features",
            ("base_encoder.blocks.0.attn.proj", "forward"),
            "weight_transposed",
        ),
        ("LayerNormEpsilon", "forward", "features", ("base_encoder.blocks.1.norm1", "forward"), "norm_epsilon"),
        ("KeysBeforeUpdate", "forward", "k1", ("momentum_encoder", "state"), "ema_not_moved"),
        ("ForgottenTwoT", "loss", "loss", ("loss", "forward"), "loss_factor"),
        ("LateSchedule", "backward", "step1.learning_rate", ("schedule", "optimizer"), "schedule_off_by"),
        (
            "DecayAsL2",
            "backward",
            "step1.parameter.base_encoder.blocks.0.attn.qkv.weight",
            ("optimizer", "optimizer"),
            "decay_as_l2",
        ),
        ("WrongProbability", "data", "train.0.view2", ("dataset.train", "data"), "step_missing"),
    ],
)
def test_fault_is_found_in_its_stage_and_place(
    fault: str,
    stage: str,
    tensor: str,
    place: tuple[str, str],
    cause: str,
    twinalign: Twinalign,
    tmp_path: Path,
) -> None:
    stages = {"loss": "forward,loss", "backward": "forward,loss,backward"}.get(stage, stage)
    finished = twinalign("run", f"tests.cases.tiny:{fault}", "--stages", stages, "--out", tmp_path / "out")
    assert finished.returncode == 1, finished.stdout + finished.stderr
    summary = read_summary(tmp_path / "out")
    assert summary["verdict"] == "diverged"
    diverged = [name for name, found in summary["stages"].items() if found["verdict"] == "diverged"]
    assert diverged[0] == stage
    wrong = {t["name"] for t in summary["stages"][stage]["tensors"] if t["verdict"] == "diverged"}
    assert tensor in wrong
    located = summary["located"]["faults"]
    assert [(found["paddle_layer"], found["phase"]) for found in located] == [place]
    assert located[0]["explanation"]["id"] == cause
    assert cause in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert f"{stage}: " in finished.stdout


@pytest.mark.slow
def test_training_is_aligned_and_learns(twinalign: Twinalign, tmp_path: Path) -> None:
    finished = twinalign("run", "tests.cases.tiny:Training", "--stages", "train", "--out", tmp_path / "out")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    tensors = {tensor["name"]: tensor for tensor in read_summary(tmp_path / "out")["stages"]["train"]["tensors"]}
    assert tensors["curve.loss"]["shape"] == [84]
    assert tensors["curve.learning_rate"]["max_abs"] == 0
    assert tensors["curve.loss (float64)"]["fp64_rel"] < 1e-8
    # It really trains, on both sides: ten points better than the untrained encoder.
    for side in ("reference_value", "reproduced_value"):
        assert tensors["outcome.knn_top1"][side] > tensors["outcome.knn_top1_untrained"][side] + 10
