"""`twinalign run --ranks`: both sides through their frameworks' launchers, verdicts that name the rank."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import read_summary
from twinalign.case import Case
from twinalign.files.reader import read_arrays

pytestmark = pytest.mark.usefixtures("kept_processes")

Twinalign = Callable[..., subprocess.CompletedProcess[str]]
CASES = "tests.cases.ranks"


def of_the_joined_batch(folder: Path) -> tuple[float, np.ndarray]:
    """Loss and first bias gradient of the classifier on the whole batch, in float64 by numpy alone."""
    with np.load(folder / "weights" / "classifier_ref.npz") as stored:
        weights = {name: array.astype("float64") for name, array in stored.items()}
    with np.load(folder / "weights" / "classifier_ref_inputs.npz") as stored:
        x, label = stored["x"].astype("float64"), stored["label"]
    hidden = np.tanh(x @ weights["0.weight"].T + weights["0.bias"])
    logits = hidden @ weights["2.weight"].T + weights["2.bias"]
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    loss = -np.log(shares[np.arange(len(label)), label]).mean()
    behind = (shares - np.eye(4)[label]) / len(label) @ weights["2.weight"] * (1 - hidden**2)
    return loss, behind.sum(axis=0)


@pytest.mark.slow
def test_two_ranks_of_a_case_that_knows_nothing_of_ranks(twinalign: Twinalign, tmp_path: Path) -> None:
    finished = twinalign("run", f"{CASES}:Classifier", "--ranks", "2", "--stages", "loss,backward", "--out", "out")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    out = tmp_path / "out"
    summary = read_summary(out)
    assert summary["ranks"] == 2
    names = [tensor["name"] for tensor in summary["stages"]["backward"]["tensors"]]
    assert {name.partition(".")[0] for name in names} == {"rank0", "rank1"}
    assert "rank1.step1.parameter.2.weight" in names
    loss, gradient = of_the_joined_batch(out)
    for side in ("ref", "paddle"):
        found = read_arrays(out / "float64" / f"losses_{side}.npy")
        assert found["rank0.step0.loss"] != found["rank1.step0.loss"]
        assert np.mean([found[f"rank{rank}.step0.loss"] for rank in (0, 1)]) == pytest.approx(loss, rel=1e-12)
        for rank in (0, 1):
            np.testing.assert_allclose(found[f"rank{rank}.step0.gradient.0.bias"], gradient, rtol=1e-12)
        metadata = json.loads((out / f"loss_{side}.json").read_text())
        inputs = [rank["inputs_sha256"]["0"] for rank in metadata["ranks"]]
        assert len(set(inputs)) == 2
    assert not list(out.glob("**/*.rank*"))
    again = twinalign("run", f"{CASES}:Classifier", "--ranks", "2", "--stages", "loss,backward", "--out", "out")
    assert again.returncode == 0
    assert "starting 2 ranks" not in again.stderr
    assert all(rank["repeats"]["loss"] for rank in json.loads((out / "loss_ref.json").read_text())["ranks"])
    packed = twinalign("pack", "--partial", "out", "case.zip")
    assert packed.returncode == 0, packed.stderr
    verified = twinalign("verify", "case.zip")
    assert verified.returncode == 0, verified.stdout + verified.stderr


@pytest.mark.slow
def test_the_verdict_names_the_rank(twinalign: Twinalign, tmp_path: Path) -> None:
    finished = twinalign("run", f"{CASES}:WrongOnRank1", "--ranks", "2", "--stages", "loss", "--out", "out")
    assert finished.returncode == 1, finished.stdout + finished.stderr
    assert "not aligned on 1 of 2 ranks: rank 1: 1 of 1 tensors, loss first; aligned on rank 0" in finished.stdout
    located = read_summary(tmp_path / "out")["located"]["faults"]
    assert [(fault["paddle_layer"], fault["explanation"]) for fault in located] == [("ranks.loss", None)]
    assert located[0]["evidence"]["ranks"] == [1]


@pytest.mark.slow
def test_a_rank_that_raises_is_named(twinalign: Twinalign, tmp_path: Path) -> None:
    arguments = ("--side", "ref", "--ranks", "2", "--stages", "loss", "--out", "out")
    finished = twinalign("record", f"{CASES}:RaisesOnRank1", *arguments)
    assert finished.returncode == 4, finished.stdout + finished.stderr
    message = (
        "the ref side crashed while recording loss in float32 on rank 1 of 2: ArithmeticError: nothing to divide by"
    )
    assert message in finished.stderr
    assert not list((tmp_path / "out").glob("**/loss_ref*"))


@pytest.mark.slow
def test_a_rank_that_ends_is_named(twinalign: Twinalign) -> None:
    finished = twinalign("run", f"{CASES}:DiesOnRank1", "--ranks", "2", "--stages", "loss", "--precision", "float32")
    assert finished.returncode == 4, finished.stdout + finished.stderr
    message = r"the paddle side crashed while recording loss in float32: rank 1 of 2 \(process \d+\) has ended .*"
    assert re.search(message, finished.stderr), finished.stderr


def test_bad_numbers_of_ranks(twinalign: Twinalign) -> None:
    finished = twinalign("run", f"{CASES}:Classifier", "--ranks", "0")
    assert finished.returncode == 2
    assert "--ranks 0: give the number of processes a side, 1 or more" in finished.stderr
    finished = twinalign("run", f"{CASES}:Classifier", "--ranks", "2", "--seeds", "3")
    assert finished.returncode == 2
    assert "--seeds: trains as one process; leave --ranks 2 out" in finished.stderr


def test_the_batch_is_cut_in_order() -> None:
    inputs = {"x": np.arange(12).reshape(6, 2), "y": np.arange(6), "scale": np.float32(3), "table": np.arange(5)}
    pieces = [Case().share(inputs, rank, 3) for rank in range(3)]
    for name in ("x", "y"):
        np.testing.assert_array_equal(np.concatenate([one[name] for one in pieces]), inputs[name])
        assert {len(one[name]) for one in pieces} == {2}
    assert all(one["scale"] == 3 and len(one["table"]) == 5 for one in pieces)
    with pytest.raises(ValueError, match=r"x of shape \[6, 2\], which cannot be cut into 4 equal pieces; give a batch"):
        Case().share(inputs, 0, 4)
