"""Torch's optimizers, as lines of a port make paddle's, step as paddle's own do."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

from twinalign.backends.torch.reference_only.paddle_spelling import PADDLE, attribute

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
        ("Adamax", {"learning_rate": 0.1}),
        ("Adagrad", {"learning_rate": 0.1, "weight_decay": 0.01}),
        ("RMSProp", {"learning_rate": 0.1}),
        ("RMSProp", {"learning_rate": 0.1, "epsilon": 0.01, "momentum": 0.9, "centered": True, "weight_decay": 0.1}),
    ],
)
@pytest.mark.parametrize("in_groups", [False, True])
def test_an_optimizer_steps_as_paddles_own(name: str, given: dict[str, Any], in_groups: bool) -> None:
    def parameters(own: list[Any]) -> list[Any]:
        return [{"params": own[:1]}, {"params": own[1:], "learning_rate": 0.5}] if in_groups else own

    ours = stepped(paddle, lambda own: getattr(paddle.optimizer, name)(parameters=parameters(own), **given))
    theirs = stepped(torch, lambda own: getattr(PADDLE.optimizer, name)(parameters=parameters(own), **given))
    for one, other in zip(ours, theirs, strict=True):
        # Paddle holds the rate in float32, which is off by up to 6e-8 of what a weight moves; RMSProp's rho as well, so
        # that 1 - rho is off by 2.4e-7.
        np.testing.assert_allclose(one, other, rtol=0.0, atol=3e-7 if name == "RMSProp" else 1e-7)


def test_decay_is_for_the_parameters_whose_names_are_chosen() -> None:
    def make(own: Any, module: Any) -> Any:
        decayed = {own[0].name if module is paddle else attribute({}, own[0], "name")}
        return module.optimizer.AdamW(0.1, parameters=own, weight_decay=0.5, apply_decay_param_fun=decayed.__contains__)

    ours = stepped(paddle, lambda own: make(own, paddle))
    theirs = stepped(torch, lambda own: make(own, PADDLE))
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=0.0, atol=1e-7)


@pytest.mark.parametrize(
    ("clip", "given"),
    [
        ("ClipGradByGlobalNorm", {"clip_norm": 0.5}),
        ("ClipGradByGlobalNorm", {"clip_norm": 100.0}),
        ("ClipGradByValue", {"max": 0.3}),
        ("ClipGradByValue", {"max": 0.3, "min": -0.1}),
    ],
)
def test_gradients_are_clipped_within_the_step_alone(clip: str, given: dict[str, float]) -> None:
    def make(own: Any, module: Any) -> Any:
        return module.optimizer.SGD(0.1, parameters=own, grad_clip=getattr(module.nn, clip)(**given))

    ours = stepped(paddle, lambda own: make(own, paddle))
    theirs = stepped(torch, lambda own: make(own, PADDLE))
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=0.0, atol=1e-7)
    weight = torch.nn.Parameter(torch.ones(3))
    weight.grad = gradient = torch.full((3,), 9.0)
    make([weight], PADDLE).step()
    assert weight.grad is gradient
    assert torch.equal(gradient, torch.full((3,), 9.0))


@pytest.mark.parametrize("norm", [0.5, 100.0])
def test_gradients_are_clipped_one_by_one_as_torch_does_it(norm: float) -> None:
    """Paddle's own works in float32 alone."""
    pairs = [(torch.zeros(3, 4), torch.tensor(gradient)) for gradient in GRADIENTS[:2]]
    for gradient, (_, one) in zip(GRADIENTS, PADDLE.nn.ClipGradByNorm(norm)(pairs), strict=False):
        weight = torch.nn.Parameter(torch.zeros(3, 4, dtype=torch.float64))
        weight.grad = torch.tensor(gradient)
        torch.nn.utils.clip_grad_norm_([weight], norm)
        torch.testing.assert_close(one, weight.grad, rtol=1e-5, atol=0.0)  # torch adds 1e-6 to the norm


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("StepDecay", {"learning_rate": 0.3, "step_size": 3}),
        ("MultiStepDecay", {"learning_rate": 0.3, "milestones": [2, 5], "gamma": 0.5}),
        ("ExponentialDecay", {"learning_rate": 0.3, "gamma": 0.9}),
        ("NaturalExpDecay", {"learning_rate": 0.3, "gamma": 0.2}),
        ("InverseTimeDecay", {"learning_rate": 0.3, "gamma": 0.2}),
        ("PolynomialDecay", {"learning_rate": 0.3, "decay_steps": 5}),
        ("PolynomialDecay", {"learning_rate": 0.3, "decay_steps": 4, "end_lr": 0.01, "power": 2.0, "cycle": True}),
        ("CosineAnnealingDecay", {"learning_rate": 0.3, "T_max": 7, "eta_min": 0.1}),
        ("LambdaDecay", {"learning_rate": 0.3, "lr_lambda": lambda step: 0.9 ** (step // 2)}),
        ("MultiplicativeDecay", {"learning_rate": 0.3, "lr_lambda": lambda step: 1.0 - 0.01 * step}),
        ("PiecewiseDecay", {"boundaries": [2, 6], "values": [0.3, 0.2, 0.1]}),
        ("NoamDecay", {"d_model": 64, "warmup_steps": 4, "learning_rate": 2.0}),
        ("LinearWarmup", {"learning_rate": 0.3, "warmup_steps": 4, "start_lr": 0.01, "end_lr": 0.3}),
        ("LinearLR", {"learning_rate": 0.3, "total_steps": 6}),
    ],
)
def test_a_schedule_gives_the_rates_of_paddles_own(name: str, given: dict[str, Any]) -> None:
    ours, theirs = (getattr(module.optimizer.lr, name)(**given) for module in (paddle, PADDLE))
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = PADDLE.optimizer.SGD(theirs, parameters=[{"params": [weight], "learning_rate": 0.5}])
    for _ in range(10):
        assert theirs() == pytest.approx(ours(), rel=1e-12) == attribute({}, optimizer, "get_lr")()
        assert optimizer.param_groups[0]["lr"] == 0.5 * theirs()
        ours.step()
        theirs.step()


def test_a_warmup_goes_on_with_another_schedule_and_a_plateau_is_told_the_metric() -> None:
    def rates(module: Any) -> list[float]:
        inner = module.optimizer.lr.CosineAnnealingDecay(0.3, T_max=5)
        warm = module.optimizer.lr.LinearWarmup(inner, 3, 0.0, 0.3)
        flat = module.optimizer.lr.ReduceOnPlateau(0.3, factor=0.5, patience=1)
        found = []
        for metric in (3.0, 2.0, 2.0, 2.5, 2.1, 1.0, 1.5, 1.5, 1.5):
            found += [warm(), flat()]
            warm.step()
            flat.step(metric)
        return found

    assert rates(PADDLE) == pytest.approx(rates(paddle), rel=1e-12)


def test_what_torch_has_no_word_for_raises() -> None:
    weights = [torch.nn.Parameter(torch.ones(2))]
    with pytest.raises(NotImplementedError, match="weight decay that is no number"):
        PADDLE.optimizer.SGD(parameters=weights, weight_decay=object())
    with pytest.raises(NotImplementedError, match=r"a group of parameters with \['beta1'\]"):
        PADDLE.optimizer.Adam(parameters=[{"params": weights, "beta1": 0.5}])


def test_the_statistics_of_a_batch_norm_are_among_its_parameters_as_in_paddle() -> None:
    ours = paddle.nn.Sequential(paddle.nn.Linear(2, 3), paddle.nn.BatchNorm1D(3))
    theirs = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    shapes = [[*one.shape][::-1] for one in ours.parameters()]
    assert [[*one.shape] for one in attribute({}, theirs, "parameters")()] == shapes
    trained = [not one.stop_gradient for one in ours.parameters()]
    assert [attribute({}, one, "trainable") for one in attribute({}, theirs, "parameters")()] == trained
    assert len(shapes) == 6


def test_a_layer_in_another_dtype_and_its_state_as_paddle_gives_them() -> None:
    layer = torch.nn.Linear(2, 2)
    state = attribute({}, layer, "state_dict")()
    assert state["weight"] is layer.weight  # no copy, and trained
    assert attribute({}, attribute({}, layer, "to")(dtype="float64"), "weight").dtype == torch.float64
