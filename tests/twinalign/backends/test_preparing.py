"""A model in another precision keeps its whole numbers, its truth values and its imaginary parts."""

from types import ModuleType

import numpy as np
import paddle
import pytest
import torch

from twinalign.backends.paddle import models as of_paddle
from twinalign.backends.torch import models as of_torch


def _model(layer: type, to_tensor) -> torch.nn.Module | paddle.nn.Layer:
    class Model(layer):
        def __init__(self) -> None:
            super().__init__()
            values = {
                "turn": np.array([1 + 2j], np.complex64),
                "places": np.array([2**25 + 1]),
                "kept": np.array([True]),
            }
            for name, value in values.items():
                self.register_buffer(name, to_tensor(value))

    return Model()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("models", "layer", "to_tensor"),
    [(of_torch, torch.nn.Module, torch.tensor), (of_paddle, paddle.nn.Layer, paddle.to_tensor)],
)
def test_buffers_keep_their_kind(models: ModuleType, layer: type, to_tensor, dtype: str) -> None:
    model = models.prepare_model(_model(layer, to_tensor), dtype, "cpu")
    found = {name: buffer.numpy() for name, buffer in model.named_buffers()}
    assert found["turn"].dtype == ("complex128" if dtype == "float64" else "complex64")
    assert found["turn"] == 1 + 2j
    assert found["places"] == 2**25 + 1
    assert found["kept"].dtype == bool


def test_the_reference_is_computed_without_tf32_though_its_code_allows_it() -> None:
    for flags in (torch.backends.cuda.matmul, torch.backends.cudnn):
        flags.allow_tf32 = True
    of_torch.prepare_model(torch.nn.Linear(2, 2), "float32", "cpu")  # which leaves them off, for other tests too
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cudnn.allow_tf32
