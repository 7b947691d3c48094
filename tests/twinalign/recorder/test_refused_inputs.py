"""What is said where neither model can be called: the case's inputs, or its samples in the metric stage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from twinalign.processes.side_process import ChildError
from twinalign.recorder.refused_inputs import is_of_call, refused_inputs


@pytest.mark.parametrize(
    ("stage", "words"),
    [("forward", "change inputs(rng): neither model takes x [2, 3] float32"), ("metric", "change dataset(framework,")],
)
def test_the_place_to_change_is_named(stage: str, words: str, tmp_path: Path) -> None:
    inputs = tmp_path / "inputs.npz"
    np.savez(inputs, x=np.zeros((2, 3), np.float32))
    errors = {side: ChildError("asked", "TypeError: 'y' is missing", died=False) for side in ("ref", "paddle")}
    said = str(refused_inputs("net", stage, inputs, errors))
    assert said.startswith(f"case net: {words}")
    assert said.count("TypeError: 'y' is missing") == 2


def test_a_training_has_its_own_inputs(tmp_path: Path) -> None:
    """What it raises in twinalign's own code, such as an outcome of another form, is no fault of `inputs`."""
    error = ChildError("asked", "InputError: train returned 'loss' = 2.1", died=False)
    assert is_of_call(error, "backward")
    assert not is_of_call(error, "train")
    np.savez(tmp_path / "inputs.npz", x=np.zeros((2, 3), np.float32))
    assert refused_inputs("net", "train", tmp_path / "inputs.npz", {"ref": error, "paddle": error}) is None


def test_a_model_that_differentiates_without_gradients_is_told_apart_from_wrong_inputs(tmp_path: Path) -> None:
    inputs = tmp_path / "inputs.npz"
    np.savez(inputs, x=np.zeros((2, 3), np.float32))
    torchs = "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn"
    paddles = "ValueError: (InvalidArgument) The 0-th input does not appear in the backward graph."
    errors = {side: ChildError("asked", text, died=False) for side, text in (("ref", torchs), ("paddle", paddles))}
    said = str(refused_inputs("net", "forward", inputs, errors))
    assert said.startswith("case net: the model differentiates in its forward pass, and is called without gradients; ")
    assert "inside torch.enable_grad() and paddle.enable_grad()" in said
