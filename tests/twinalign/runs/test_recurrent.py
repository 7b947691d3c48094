"""Ports with paddle's recurrent layers, whose buffers hold no memory and whose operator keeps nothing in evaluation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import paddle
import pytest

import twinalign as api
from tests.conftest import ROOT, KeptRun
from twinalign.backends.paddle import backend
from twinalign.files.recordings import Recording
from twinalign.replay.forced_call import is_packed
from twinalign.replay.layer_calls import Call, Tensor

pytestmark = pytest.mark.usefixtures("kept_processes")


class Buffered(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = paddle.nn.LSTM(4, 3, dropout=0.5, num_layers=2)
        self.register_buffer("count", paddle.to_tensor(3, dtype="int64"))
        self.register_buffer("mean", paddle.ones([2]))


def test_a_buffer_without_memory_is_no_state() -> None:
    model = Buffered()
    assert not model.lstm._dropout_state._is_initialized()
    backend.prepare_model(model, "float64", "cpu")
    assert (model.count.dtype, model.mean.dtype) == (paddle.int64, paddle.float64)
    assert model.lstm.weight_ih_l0.dtype == paddle.float64
    assert "_dropout_state" in model.lstm._buffers
    assert backend.own_buffers(model.lstm) == {}
    assert "_dropout_state" not in backend.own_state(model.lstm)
    assert not any("_dropout_state" in entry["key"] for entry in backend.describe_state(model) if entry["persistent"])
    assert model.lstm(paddle.ones([2, 5, 4], dtype="float64"))[0].shape == [2, 5, 3]


def test_the_gradient_in_evaluation_mode_is_that_without_dropout() -> None:
    model = backend.prepare_model(Buffered(), "float64", "cpu").lstm
    x = paddle.to_tensor(np.random.default_rng(0).standard_normal((2, 5, 4)))
    gradients = []
    for training, dropout in ((False, 0.5), (True, 0.0)):
        backend.set_training(model, training)
        model.dropout = dropout
        x.stop_gradient = False
        output = model(x)[0]
        with paddle.no_grad():
            np.testing.assert_array_equal(output.numpy(), model(x)[0].numpy())
        (output * output).sum().backward()
        gradients.append((x.grad.numpy(), model.weight_hh_l1.grad.numpy()))
        assert (model.training, model.dropout) == (training, dropout)
        x.clear_gradient()
        backend.clear_gradients(model)
    for one, other in zip(*gradients, strict=True):
        assert np.abs(one).max() > 0
        np.testing.assert_array_equal(one, other)


def test_a_right_port_is_aligned_in_every_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_run: KeptRun
) -> None:
    monkeypatch.chdir(ROOT)
    result = kept_run("tests.cases.recurrent:Recurrent", out=tmp_path)
    assert {stage: found.verdict for stage, found in result.stages.items()} == dict.fromkeys(
        ("forward", "loss", "backward"), "aligned"
    )


def test_a_packed_sequence_is_not_handed_to_a_recurrent_layer_of_the_port() -> None:
    def call(shape: list[int]) -> Call:
        return Call(0, "enc", "GRU", None, 0, [Tensor(None, shape, "float64")])

    gru, padded = paddle.nn.GRU(4, 3), [paddle.ones([2, 5, 4])]
    assert is_packed(gru, padded, call([8, 4]))
    assert not is_packed(gru, padded, call([2, 5, 4]))
    assert not is_packed(paddle.nn.Linear(4, 3), padded, call([10, 4]))


@pytest.mark.slow
def test_swapped_gates_are_located_and_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (fault,) = api.locate("tests.cases.recurrent:SwappedGates", out=tmp_path).faults
    assert (fault.paddle_layer, fault.phase) == ("lstm", "forward")
    assert fault.explanation is not None
    assert fault.explanation.id == "gate_order"
    said, _, edit = fault.explanation.text.partition("; in the port ")
    assert said.endswith("forget, input, cell, output")
    # Edits that break the layer leave its weights exchanged: after each of them they are as they were.
    assert edit.startswith("`(first, second, *rest)` in place of `(second, first, *rest)`, line ")


@pytest.mark.slow
def test_a_training_records_each_weight_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_run: KeptRun
) -> None:
    monkeypatch.chdir(ROOT)
    result = kept_run("tests.cases.recurrent:RecurrentTraining", out=tmp_path, stages=["train"])
    assert result.stages["train"].verdict == "aligned"
    curves = Recording.load(tmp_path / "train_paddle.npy").arrays
    assert "curve.weight_norm.lstm.weight_hh_l1_reverse" in curves
    assert not any("buffer_norm" in name for name in curves)
