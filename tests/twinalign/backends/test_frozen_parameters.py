"""What paddle's gradients do with parameters that are frozen or have hooks, against torch's."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
import torch

from twinalign.backends.paddle import backend
from twinalign.backends.paddle.port_only.leaf_hooks import keep_hooks_of_leaves


@pytest.fixture(autouse=True)
def _hooks_are_kept() -> None:
    keep_hooks_of_leaves()


def hooked_parameter(hooks: int = 1) -> paddle.Tensor:
    parameter = paddle.create_parameter([3], "float64")
    parameter.set_value(paddle.to_tensor([1.0, 2.0, 3.0], dtype="float64"))
    for _ in range(hooks):
        parameter.register_hook(lambda gradient: paddle.clip(gradient * 2, -0.75, 0.75))
    return parameter


@pytest.mark.parametrize("hooks", [0, 1, 2])
def test_gradients_are_what_backward_leaves_behind_hooks(hooks: int) -> None:
    parameter, x = hooked_parameter(hooks), paddle.to_tensor([10.0, 0.1, -20.0], dtype="float64")
    loss = (x * parameter).sum() + (x * parameter * parameter).sum()  # used twice: hooks see the sum
    seed = paddle.ones_like(loss)
    (found,) = backend.gradients([loss], [parameter], [seed], again=True)
    loss.backward()
    assert found is not None
    np.testing.assert_array_equal(found.numpy(), parameter.grad.numpy())
    assert (np.abs(found.numpy()).max() <= 0.75) == bool(hooks)


def test_a_hook_that_is_removed_changes_nothing() -> None:
    parameter = hooked_parameter(0)
    parameter.register_hook(lambda gradient: gradient * 2).remove()
    (found,) = backend.gradients([parameter.sum()], [parameter], [paddle.ones([], dtype="float64")])
    assert found is not None
    np.testing.assert_array_equal(found.numpy(), np.ones(3))


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_layer_norm_leaves_a_frozen_weight_out_of_the_gradient_of_its_input(is_frozen: bool) -> None:
    """docs/how-to/port-a-model.md says so; on a CPU."""
    values, weight = np.random.default_rng(0).standard_normal((3, 4)), np.array([1.0, 2.0, 3.0, 4.0])
    x, w, b = (paddle.to_tensor(array) for array in (values, weight, np.zeros(4)))
    x.stop_gradient, w.stop_gradient, b.stop_gradient = False, is_frozen, is_frozen
    (paddle.nn.functional.layer_norm(x, [4], w, b) ** 3).sum().backward()
    theirs = torch.tensor(values, requires_grad=True)
    (
        torch.nn.functional.layer_norm(theirs, [4], torch.tensor(weight), torch.zeros(4, dtype=torch.float64)) ** 3
    ).sum().backward()
    assert np.allclose(x.grad.numpy(), theirs.grad.numpy(), rtol=1e-6) != is_frozen
