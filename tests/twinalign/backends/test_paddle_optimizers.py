"""Torch's optimizers, as lines of a port make paddle's, step as paddle's own do."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

from twinalign.backends.torch.reference_only.paddle_spelling import PADDLE

WEIGHTS = [np.random.default_rng(seed).standard_normal((3, 4)) for seed in range(2)]
GRADIENTS = [np.random.default_rng(10 + seed).standard_normal((3, 4)) for seed in range(6)]


def stepped(framework: Any, make: Any) -> list[np.ndarray]:
    """Both weights after three steps."""
    if framework is paddle:
        own = [paddle.create_parameter([3, 4], "float64") for _ in WEIGHTS]
        for parameter, value in zip(own, WEIGHTS, strict=True):
            parameter.set_value(paddle.to_tensor(value))
    else:
        own = [torch.nn.Parameter(torch.tensor(value)) for value in WEIGHTS]
    optimizer = make(own)
    for step in range(3):
        for parameter, gradient in zip(own, GRADIENTS[2 * step :], strict=False):
            given = framework.to_tensor(gradient) if framework is paddle else torch.tensor(gradient)
            (parameter * given).sum().backward()
        optimizer.step()
        (optimizer.clear_grad if framework is paddle else optimizer.zero_grad)()
    return [parameter.detach().numpy() for parameter in own]


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("SGD", {"learning_rate": 0.1}),
        ("SGD", {"learning_rate": 0.1, "weight_decay": 0.02}),
        ("Momentum", {"learning_rate": 0.1, "momentum": 0.8, "use_nesterov": True}),
        ("Adam", {"learning_rate": 0.1, "beta1": 0.8}),
        ("AdamW", {"learning_rate": 0.1}),
        ("AdamW", {"learning_rate": 0.1, "weight_decay": 0.0, "epsilon": 1e-3}),
    ],
)
@pytest.mark.parametrize("in_groups", [False, True])
def test_an_optimizer_steps_as_paddles_own(name: str, given: dict[str, Any], in_groups: bool) -> None:
    def parameters(own: list[Any]) -> list[Any]:
        return [{"params": own[:1]}, {"params": own[1:], "learning_rate": 0.5}] if in_groups else own

    ours = stepped(paddle, lambda own: getattr(paddle.optimizer, name)(parameters=parameters(own), **given))
    theirs = stepped(torch, lambda own: getattr(PADDLE.optimizer, name)(parameters=parameters(own), **given))
    for one, other in zip(ours, theirs, strict=True):
        # Paddle holds the rate in float32, which is off by up to 6e-8 of what a weight moves.
        np.testing.assert_allclose(one, other, rtol=0.0, atol=1e-7)


def test_what_torch_has_no_word_for_raises() -> None:
    weights = [torch.nn.Parameter(torch.ones(2))]
    with pytest.raises(NotImplementedError, match="weight decay that is no number"):
        PADDLE.optimizer.SGD(parameters=weights, weight_decay=object())
    with pytest.raises(NotImplementedError, match=r"a group of parameters with \['beta1'\]"):
        PADDLE.optimizer.Adam(parameters=[{"params": weights, "beta1": 0.5}])
