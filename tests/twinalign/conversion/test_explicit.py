"""Conversion without a model: explicit rules only."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
import torch

from tests.twinalign.conversion.ledgers import unaccounted
from twinalign.conversion.convert_file import convert_checkpoint
from twinalign.conversion.options import Options
from twinalign.errors import InputError


def save(tmp_path, model):
    torch.manual_seed(0)
    torch.save(model.state_dict(), tmp_path / "a.pth")
    return tmp_path / "a.pth", tmp_path / "a.pdparams"


def test_ambiguous_matrices_are_refused_with_the_question(tmp_path):
    paths = save(tmp_path, torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Embedding(4, 4)))
    with pytest.raises(InputError) as error:
        convert_checkpoint(*paths, Options())
    assert str(error.value) == (
        f"{paths[0]}: are these weights of Linear layers, of Embeddings, or matrices of the model's own? A Linear's is "
        "transposed, the others are not, and the file does not tell: 0.weight [4, 4], 1.weight [4, 4]. Answer with "
        "--layer PATTERN=Linear, =Embedding or =Parameter, or give the model with --ref or --paddle"
    )


def test_answers_settle_it_and_batch_norms_are_known_by_their_statistics(tmp_path):
    n, p = torch.nn, paddle.nn
    reference = n.Sequential(
        n.Embedding(4, 4), n.Linear(4, 4), n.BatchNorm1d(4), n.PReLU(), n.MultiheadAttention(4, 2), n.LSTM(4, 4)
    )
    port = p.Sequential(
        p.Embedding(4, 4), p.Linear(4, 4), p.BatchNorm1D(4), p.PReLU(), p.MultiHeadAttention(4, 2), p.LSTM(4, 4)
    )
    paths = save(tmp_path, reference)
    layers = {"0": "Embedding", "1": "Linear", "3": "PReLU", "4": "MultiHeadAttention", "5": "Recurrent"}
    report = convert_checkpoint(*paths, Options(layers=layers))
    loaded = paddle.load(str(paths[1]))
    assert {key: list(value.shape) for key, value in loaded.items()} == {
        key: list(value.shape) for key, value in port.state_dict().items()
    }
    state = {key: value.numpy() for key, value in reference.state_dict().items()}
    np.testing.assert_array_equal(loaded["0.weight"].numpy(), state["0.weight"])
    np.testing.assert_array_equal(loaded["1.weight"].numpy(), state["1.weight"].T)
    np.testing.assert_array_equal(loaded["4.k_proj.weight"].numpy(), state["4.in_proj_weight"][4:8].T)
    assert unaccounted(report.ledger, list(state), list(loaded)) == []
    convert_checkpoint(paths[1], tmp_path / "b.pth", Options(layers=layers))
    back = torch.load(tmp_path / "b.pth", weights_only=True)
    assert set(back) == set(state)
    assert all(np.array_equal(back[key].numpy(), value) for key, value in state.items())


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ({"0": "Dense"}, "--layer 0=Dense: no such class; there are Linear, LinearOutIn, Embedding"),
        ({"0": "Linear", "9": "Linear"}, "--layer 9=Linear: no key of"),
    ],
)
def test_answers_that_make_no_sense(tmp_path, layers, expected):
    paths = save(tmp_path, torch.nn.Sequential(torch.nn.Linear(4, 4)))
    with pytest.raises(InputError, match=expected):
        convert_checkpoint(*paths, Options(layers=layers))


def test_answers_beside_a_model_are_refused(tmp_path, in_process):
    paths = save(tmp_path, torch.nn.Linear(3, 3))
    options = Options(layers={"0": "Linear"}, factories=in_process("torch_mlp", "paddle_mlp"))
    with pytest.raises(InputError, match="--layer is for conversions without a model"):
        convert_checkpoint(*paths, options)
