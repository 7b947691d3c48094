"""Trainers in float64, by `paddle.Model.fit`, of two processes, of two models; faults of them, also by `locate`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from twinalign import InputError, compare, locate

ROOT = Path(__file__).parents[3]
CASES = "tests.cases.attached"
LAUNCH = {
    "torch": ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"],
    "paddle": ["-m", "paddle.distributed.launch", "--nproc_per_node=2", "--backend=gloo"],
}


def record(
    framework: str,
    out: Path,
    *,
    trainer: str = "classifier",
    ranks: int = 1,
    weights: Path | None = None,
    **settings: object,
) -> Path:
    attach = {"out": str(out), **({"weights": str(weights)} if weights else {})}
    given = json.dumps({"attach": attach, **settings})
    script = str(ROOT / "tests" / "cases" / "attached" / f"{framework}_{trainer}.py")
    launch = [*LAUNCH[framework], *([f"--log_dir={out}_log"] if framework == "paddle" else [])] if ranks > 1 else []
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launch, script, given]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record("torch", tmp_path_factory.mktemp("classifier") / "ref")


@pytest.mark.slow
def test_float64_recordings_of_model_fit_judge(reference: Path, tmp_path: Path) -> None:
    port = record("paddle", tmp_path / "fit", weights=reference, fit=True)
    partners = {
        "reference64": record("torch", tmp_path / "ref64", weights=reference, dtype="float64"),
        "reproduced64": record("paddle", tmp_path / "fit64", weights=reference, fit=True, dtype="float64"),
    }
    found = compare(reference, port, **partners)
    assert found.verdict == "diverged"
    assert [cause["id"] for cause in (found.attached or {})["causes"]] == ["bn_running_var_biased"]
    accepting = compare(reference, port, accept=["bn_running_var_biased"], **partners)
    assert accepting.verdict == "aligned"
    assert {tensor.basis for tensor in accepting.tensors if ".gradient." in tensor.name} == {"float64"}
    with pytest.raises(InputError, match=r"begins with other values.*record it with weights="):
        compare(reference, port, reference64=record("torch", tmp_path / "own64", dtype="float64"))


@pytest.mark.slow
def test_two_models_two_optimizers_and_an_average(tmp_path: Path) -> None:
    reference = record("torch", tmp_path / "ref", trainer="gan")
    found = {}
    for fault in ("", "not_detached", "generator_first", "average_never", "average_of_statistics"):
        port = record("paddle", tmp_path / f"port{fault}", trainer="gan", weights=reference, fault=fault)
        attached = compare(reference, port, accept=["bn_running_var_biased"]).attached or {}
        first = attached["first"] or {}
        found[fault] = (first.get("step"), first.get("quantity"), [cause["id"] for cause in attached["causes"]])
    assert found == {
        "": (None, None, []),
        "not_detached": (0, "first_gradient", ["not_detached", "gradients_not_cleared"]),
        "generator_first": (0, "input", ["optimizers_order", "model_calls"]),
        "average_never": (2, "untrained", ["average_never_moves", "average_of_statistics"]),
        "average_of_statistics": (2, "buffer", ["average_of_statistics"]),
    }


@pytest.mark.slow
def test_a_teacher_smoothed_labels_and_checkpointing(tmp_path: Path) -> None:
    reference = record("torch", tmp_path / "ref", trainer="detector")
    found = {}
    for fault in ("", "no_smoothing", "body_detached", "schedule_each_step", "average_each_epoch"):
        port = record("paddle", tmp_path / f"port{fault}", trainer="detector", weights=reference, fault=fault)
        attached = compare(reference, port).attached or {}
        first = attached["first"] or {}
        found[fault] = (first.get("step"), first.get("quantity"), [cause["id"] for cause in attached["causes"]])
    assert found == {
        "": (None, None, []),
        "no_smoothing": (0, "labels", ["label_smoothing"]),
        "body_detached": (0, "first_gradient", ["no_gradient"]),
        "schedule_each_step": (1, "setting", ["schedule_interval"]),
        "average_each_epoch": (1, "untrained", ["average_interval"]),
    }


@pytest.mark.slow
def test_two_ranks_are_judged_together(tmp_path: Path) -> None:
    reference = record("torch", tmp_path / "ref", ranks=2)
    found = {}
    for fault in ("", "not_parallel", "same_share"):
        port = record("paddle", tmp_path / f"port{fault}", ranks=2, weights=reference, fault=fault)
        attached = compare(reference, port).attached or {}
        found[fault] = [cause["id"] for cause in attached["causes"]]
    # DistributedDataParallel gives every rank the buffers of rank 0, paddle.DataParallel does not.
    assert found == {
        "": ["rank_buffers", "bn_running_var_biased"],
        "not_parallel": ["rank_gradient_average", "rank_buffers"],
        "same_share": ["rank_inputs"],
    }


@pytest.mark.slow
def test_locate_finds_a_layer_and_an_optimizer(reference: Path, tmp_path: Path) -> None:
    found = {}
    for fault in ("", "leaky", "momentum"):
        port = record("paddle", tmp_path / f"port{fault}", weights=reference, fault=fault, fit=True)
        faults = locate(reference, port, out=tmp_path / "out").faults
        found[fault] = {(one.paddle_layer, one.explanation.id if one.explanation else "") for one in faults}
    convention = ("1", "running_variance_biased")
    assert found == {
        "": {convention},
        "leaky": {convention, ("2", "leaky_slope")},
        "momentum": {convention, ("optimizer", "momentum_value")},
    }
