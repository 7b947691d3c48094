"""A model's attributes that are no tensors are what they were when it was built, whatever passes have made of them."""

from __future__ import annotations

from typing import Any

import paddle
import pytest
import torch

from twinalign.backends.paddle import backend as paddle_backend
from twinalign.backends.torch import backend as torch_backend
from twinalign.recorder.plain_attributes import PlainAttributes


@pytest.mark.parametrize(
    ("backend", "base"), [(torch_backend, torch.nn.Module), (paddle_backend, paddle.nn.Layer)], ids=["torch", "paddle"]
)
def test_they_are_set_back(backend, base):
    class Inner(base):
        def __init__(self):
            super().__init__()
            self._first, self.step, self.seen, self.table, self.cache = True, 0, [1], {"a": 1}, None

    class Outer(base):
        def __init__(self):
            super().__init__()
            self.inner = Inner()
            self.shared = self.inner.seen

    model = Outer()
    kept = PlainAttributes(backend, model)
    inner = model.inner
    inner._first, inner.step, inner.cache, inner.late = False, 3, object(), 7
    inner.seen.append(2)
    inner.table["b"] = 2
    inner.table = {}
    model.eval()
    kept.restore()
    assert (inner._first, inner.step, inner.seen, inner.table, inner.cache) == (True, 0, [1], {"a": 1}, None)
    assert model.shared is inner.seen
    assert not hasattr(inner, "late")
    assert not inner.training  # the mode belongs to the pass
    assert model.inner is inner


def test_what_an_optimizer_writes_into_parameters_is_set_back() -> None:
    """Its groups' rates and weight decay are attributes of the parameters, and would hold in every later optimizer."""
    model = paddle.nn.Linear(2, 2)
    kept = PlainAttributes(paddle_backend, model)
    groups = [{"params": [model.weight], "learning_rate": 0.1, "weight_decay": 0.5}, {"params": [model.bias]}]
    paddle.optimizer.Adam(parameters=groups)
    assert model.weight.optimize_attr["learning_rate"] == 0.1
    assert model.weight.regularizer is not None
    kept.restore()
    assert model.weight.optimize_attr["learning_rate"] == 1.0
    assert model.weight.regularizer is None


@pytest.mark.parametrize("backend", [torch_backend, paddle_backend], ids=["torch", "paddle"])
def test_parameters_that_a_training_has_frozen_train_again(backend: Any) -> None:
    library = torch if backend is torch_backend else paddle
    model = library.nn.Linear(2, 2)
    backend.set_trainable(model.bias, False)
    kept = PlainAttributes(backend, model)
    backend.set_trainable(model.weight, False)
    backend.set_trainable(model.bias, True)
    kept.restore()
    assert [backend.trainable(one) for one in (model.weight, model.bias)] == [True, False]
