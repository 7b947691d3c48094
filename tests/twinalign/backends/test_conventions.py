"""Torch following paddle's conventions, where a case accepts them."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
import torch
from torch.overrides import TorchFunctionMode

from twinalign.backends.torch.training import following

BATCHES = [np.random.default_rng(seed).standard_normal((6, 3, 4)) for seed in range(3)]


class Watching(TorchFunctionMode):
    """Calls what it is told of, as recordings do: torch's function then calls itself by its name in the module."""

    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return func(*args, **(kwargs or {}))


def running_variance(conventions: tuple[str, ...], watched: bool = False) -> np.ndarray:
    norm = torch.nn.BatchNorm1d(3, momentum=0.2).double()
    with following(conventions):
        for batch in BATCHES:
            if watched:
                with Watching():
                    output = norm(torch.tensor(batch))
            else:
                output = norm(torch.tensor(batch))
            output.sum().backward()
    norm.eval()(torch.tensor(BATCHES[0]))
    assert norm.running_var is not None
    return norm.running_var.numpy()


@pytest.mark.parametrize("watched", [False, True])
def test_running_variances_are_paddles_where_the_convention_is_accepted(watched: bool) -> None:
    norm = paddle.nn.BatchNorm1D(3, momentum=0.8)
    norm.to(dtype="float64")
    for batch in BATCHES:
        norm(paddle.to_tensor(batch))
    expected = norm._variance.numpy()
    # Paddle holds the momentum in float32.
    np.testing.assert_allclose(running_variance(("bn_running_var_biased",), watched), expected, rtol=1e-7)
    assert np.abs(running_variance(()) / expected - 1).min() > 0.01
