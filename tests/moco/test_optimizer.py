"""Optimizers of both twins against their update rules, written down once more in numpy float64."""

from __future__ import annotations

from argparse import Namespace

import numpy as np
import paddle
import pytest
import timm.optim
import torch

from moco_paddle.training.optimizer import clip_gradients, euclidean_norm

RATES = (0.0, 0.3, 0.1)


def gradients_of(shape: tuple[int, ...]) -> list[np.ndarray]:
    return [np.random.RandomState(step).randn(*shape) for step in range(len(RATES))]


def run(twin, name: str, weight: np.ndarray, gradients: list[np.ndarray], weight_decay: float) -> np.ndarray:
    """The weight after a step a gradient, at the rates of `RATES`."""
    parameter = twin.parameter(weight)
    optimizer = twin.module("training.optimizer").build_optimizer(name, [parameter], 1.0, weight_decay)
    for rate, gradient in zip(RATES, gradients, strict=True):
        (parameter * twin.tensor(gradient)).sum().backward()
        if twin.is_torch:
            optimizer.param_groups[0]["lr"] = rate
        else:
            optimizer.set_lr(rate)
        optimizer.step()
        twin.clear_gradients(optimizer)
    return twin.array(parameter)


def lars(weight: np.ndarray, gradients: list[np.ndarray], weight_decay: float) -> np.ndarray:
    velocity = np.zeros_like(weight)
    for rate, gradient in zip(RATES, gradients, strict=True):
        if weight.ndim > 1:
            gradient = gradient + weight_decay * weight
            norms = np.linalg.norm(weight), np.linalg.norm(gradient)
            gradient = gradient * (0.001 * norms[0] / norms[1] if min(norms) > 0 else 1.0)
        velocity = 0.9 * velocity + gradient
        weight = weight - rate * velocity
    return weight


def adamw(weight: np.ndarray, gradients: list[np.ndarray], weight_decay: float) -> np.ndarray:
    first, second = np.zeros_like(weight), np.zeros_like(weight)
    for step, (rate, gradient) in enumerate(zip(RATES, gradients, strict=True), start=1):
        weight = weight * (1 - rate * weight_decay)
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        corrected = np.sqrt(second / (1 - 0.999**step)) + 1e-8
        weight = weight - rate * first / (1 - 0.9**step) / corrected
    return weight


def sgd(weight: np.ndarray, gradients: list[np.ndarray], weight_decay: float) -> np.ndarray:
    velocity = np.zeros_like(weight)
    for rate, gradient in zip(RATES, gradients, strict=True):
        velocity = 0.9 * velocity + gradient + weight_decay * weight
        weight = weight - rate * velocity
    return weight


@pytest.mark.parametrize("rule", [lars, adamw, sgd])
@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 3, 3), (5,)], ids=str)
def test_steps_equal_the_rule(twin, rule, shape: tuple[int, ...]) -> None:
    weight, gradients = np.random.RandomState(9).randn(*shape), gradients_of(shape)
    actual = run(twin, rule.__name__, weight, gradients, 0.1)
    assert actual.dtype == np.float64
    # Float32 scalars in paddle's kernels, see optimizer.py; its LARS is the twin's own and has none.
    tolerance = 1e-12 if twin.is_torch or rule is lars else 2e-7
    np.testing.assert_allclose(actual, rule(weight, gradients, 0.1), rtol=tolerance, atol=tolerance)


def test_lars_leaves_the_gradient_of_zero_weights_as_it_is(twin) -> None:
    weight, gradients = np.zeros((3, 2)), gradients_of((3, 2))
    np.testing.assert_allclose(run(twin, "lars", weight, gradients, 0.1), lars(weight, gradients, 0.1), rtol=1e-12)


def test_norm_of_millions_of_elements() -> None:
    """By paddle's own operator of norms it is 0.16 % too small; benchmarks/norms.py has the sizes."""
    values = np.random.RandomState(9).randn(2048, 2048).astype("float32")
    exact = np.linalg.norm(values.astype("float64"))
    assert float(euclidean_norm(paddle.to_tensor(values))) == pytest.approx(exact, rel=1e-6)
    assert abs(float(paddle.linalg.norm(paddle.to_tensor(values))) / exact - 1) > 1e-4


@pytest.mark.parametrize("largest", [0.5, 100.0])
def test_clipping_is_torchs(largest: float) -> None:
    arrays = [np.random.RandomState(seed).randn(*shape) for seed, shape in enumerate([(4, 3), (5,), ()])]
    ours = [paddle.to_tensor(array, stop_gradient=False) for array in map(np.asarray, arrays)]
    theirs = [torch.zeros(array.shape, dtype=torch.float64, requires_grad=True) for array in ours]
    for array, one, other in zip(arrays, ours, theirs, strict=True):
        (one * paddle.to_tensor(np.asarray(array))).sum().backward()
        other.grad = torch.from_numpy(np.array(array))
    without = paddle.to_tensor([1.0], stop_gradient=False)
    clip_gradients([*ours, without], largest)
    norm = float(torch.nn.utils.clip_grad_norm_(theirs, largest))
    assert 0.5 < norm < 100.0
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one.grad.numpy(), other.grad.numpy(), rtol=1e-12)
    assert without.grad is None


def test_weight_decay_as_l2_would_be_noticed() -> None:
    weight, gradients = np.random.RandomState(9).randn(4, 3), gradients_of((4, 3))
    as_l2 = adamw(weight, [gradient + 0.1 * weight for gradient in gradients], 0.0)
    assert np.abs(as_l2 - adamw(weight, gradients, 0.1)).max() > 1e-3


@pytest.mark.parametrize("name", ["lars", "adamw", "sgd"])
def test_parameters_without_gradient_stay(twin, name: str) -> None:
    used, unused = twin.parameter(np.ones((2, 2))), twin.parameter(np.ones((2, 2)))
    optimizer = twin.module("training.optimizer").build_optimizer(name, [used, unused], 0.1, 0.1)
    for _ in range(2):
        (used * used).sum().backward()
        optimizer.step()
        twin.clear_gradients(optimizer)
    assert (twin.array(unused) == 1).all()
    assert (twin.array(used) != 1).all()


@pytest.mark.parametrize("rule", [adamw, sgd])
@pytest.mark.parametrize("arch", ["vit_digits", "resnet18"])
def test_decay_can_leave_out_what_timm_leaves_out(twin, twins, arch: str, rule) -> None:
    """Which parameters of a network: timm's own grouping; how they move: the rules with and without decay."""
    reference = twins[0].module("models.moco").build_encoder(arch, 3)
    groups = timm.optim.param_groups_weight_decay(reference, 0.1, no_weight_decay_list={"cls_token", "pos_embed"})
    without = {id(parameter) for group in groups if not group["weight_decay"] for parameter in group["params"]}
    names = {name for name, parameter in reference.named_parameters() if id(parameter) in without}
    model = twin.module("models.moco").build_encoder(arch, 3)
    twin.load(model, {name: np.full(array.shape, 0.7, "float32") for name, array in twin.state(model).items()})
    parameters = {name: value for name, value in model.named_parameters() if twin.is_trainable(value)}
    assert 0 < len(names & parameters.keys()) < len(parameters)
    optimizer = twin.module("training.optimizer").build_optimizer(
        rule.__name__, parameters.values(), 1.0, 0.1, decays_all=False
    )
    gradients = [0.3, -0.2, 0.4]
    for rate, gradient in zip(RATES, gradients, strict=True):
        sum((value * gradient).sum() for value in parameters.values()).backward()
        twin.module("training.schedule").adjust_learning_rate(
            optimizer, 0, Namespace(lr=rate, warmup_epochs=0, epochs=1)
        )
        optimizer.step()
        twin.clear_gradients(optimizer)
    steps = [np.full((1,), gradient) for gradient in gradients]
    decayed, other = (float(rule(np.full((1,), 0.7), steps, decay)[0]) for decay in (0.1, 0.0))
    assert abs(decayed - other) > 1e-3
    for name, value in parameters.items():
        expected = other if name in names else decayed
        np.testing.assert_allclose(twin.array(value), expected, rtol=1e-5, err_msg=name)


def test_unknown_name(twin) -> None:
    with pytest.raises(ValueError, match=r"^no optimizer is called 'adam'; there are lars, adamw, sgd$"):
        twin.module("training.optimizer").build_optimizer("adam", [twin.parameter(np.ones(2))], 0.1, 0.0)
