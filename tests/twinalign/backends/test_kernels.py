"""Paddle's kernels with float32 constants are exact in float64, beside numpy; in float32 they stay what they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import paddle
import pytest
import torch
from paddle.nn import functional

from twinalign.backends.paddle.port_only.kernels import SOFTMAX_FLOOR, Called, kernels_called
from twinalign.backends.paddle.port_only.optimizer_kernels import OPTIMIZER_KERNELS

MOMENTA = [0.5, 0.9, 0.97, 0.99, 0.999, 0.3, 0.0, 1.0]


@pytest.fixture
def called() -> Iterator[Called]:
    with kernels_called() as found:
        yield found


@pytest.mark.parametrize("epsilon", [0.1, 0.05, 0.3])
@pytest.mark.parametrize("prior", [None, [[0.1, 0.2, 0.3, 0.4]]])
def test_label_smoothing(epsilon: float, prior: list | None, called: Called) -> None:
    rest = np.full(4, 0.25) if prior is None else np.array(prior)
    expected = np.eye(4) * (1 - epsilon) + epsilon * rest
    given = None if prior is None else paddle.to_tensor(np.array(prior))
    found = functional.label_smooth(paddle.to_tensor(np.eye(4)), given, epsilon)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-15)
    assert called == {"label_smooth": {"epsilon": {epsilon}}}
    single = paddle.eye(4)
    np.testing.assert_array_equal(
        functional.label_smooth(single, epsilon=epsilon).numpy(),
        paddle._C_ops.label_smooth.__wrapped__(single, None, epsilon).numpy(),
    )


def test_labels_that_are_float32_in_a_float64_run(called: Called) -> None:
    paddle.set_default_dtype("float64")
    try:
        found = functional.label_smooth(functional.one_hot(paddle.to_tensor([1, 2]), 3), epsilon=0.1)
    finally:
        paddle.set_default_dtype("float32")
    np.testing.assert_allclose(found.numpy(), np.eye(3)[[1, 2]] * 0.9 + 0.1 / 3, rtol=1e-15)


@pytest.mark.parametrize("momentum", MOMENTA)
def test_running_statistics(momentum: float, called: Called) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 3, 5, 5)) + 1
    mean, variance = rng.standard_normal(3), 1 + rng.random(3)
    layer = paddle.nn.BatchNorm2D(3, momentum=momentum)
    layer.to(dtype="float64")
    layer._mean.set_value(mean)
    layer._variance.set_value(variance)
    layer(paddle.to_tensor(x))
    for found, old, new in ((layer._mean, mean, x.mean((0, 2, 3))), (layer._variance, variance, x.var((0, 2, 3)))):
        np.testing.assert_allclose(found.numpy(), momentum * old + (1 - momentum) * new, rtol=0, atol=1e-14)
    assert called == {"batch_norm": {"epsilon": {1e-5}, "momentum": {momentum}}}
    layer.eval()
    called.clear()
    layer(paddle.to_tensor(x))
    assert called == {"batch_norm": {"epsilon": {1e-5}}}


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("decay", [None, 1e-4])
def test_momentum(nesterov: bool, decay: float | None, called: Called) -> None:
    rng, expected, velocity = np.random.default_rng(0), np.ones(3), np.zeros(3)
    parameter = paddle.create_parameter([3], "float64")
    parameter.set_value(expected)
    optimizer = paddle.optimizer.Momentum(0.1, 0.9, parameters=[parameter], use_nesterov=nesterov, weight_decay=decay)
    for _ in range(12):
        gradient = rng.standard_normal(3)
        (parameter * paddle.to_tensor(gradient)).sum().backward()
        optimizer.step()
        optimizer.clear_grad()
        gradient = gradient + (decay or 0.0) * expected
        velocity = 0.9 * velocity + gradient
        expected = expected - 0.1 * (gradient + 0.9 * velocity if nesterov else velocity)
        (kept,) = optimizer._accumulators["velocity"].values()
        np.testing.assert_allclose(kept.numpy(), velocity, rtol=0, atol=1e-14)
        np.testing.assert_allclose(parameter.numpy(), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("epsilon", [1e-5, 1e-3, 2.0**-10])
def test_the_epsilon_of_batch_norm(epsilon: float, training: bool, called: Called) -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((4, 3, 5, 5)) * 1e-2  # variances near epsilon
    port, reference = paddle.nn.BatchNorm2D(3, epsilon=epsilon), torch.nn.BatchNorm2d(3, eps=epsilon).double()
    port.to(dtype="float64")
    for layer in (port, reference):
        layer.train() if training else layer.eval()
    x, y = paddle.to_tensor(values, stop_gradient=False), torch.from_numpy(values).requires_grad_()
    upstream = rng.standard_normal(values.shape)
    found, expected = port(x), reference(y)
    found.backward(paddle.to_tensor(upstream))
    expected.backward(torch.from_numpy(upstream))
    for one, other in ((found, expected), (x.grad, y.grad), (port.weight.grad, reference.weight.grad)):
        np.testing.assert_allclose(one.numpy(), other.detach().numpy(), rtol=0, atol=1e-13 * np.abs(one.numpy()).max())
    np.testing.assert_allclose(port._mean.numpy(), reference.running_mean.numpy(), rtol=0, atol=1e-15)


@pytest.mark.parametrize("epsilon", [1e-5, 1e-6, 2.0**-10])
@pytest.mark.parametrize("kind", ["layer", "group", "instance"])
def test_the_epsilon_of_other_normalisations(kind: str, epsilon: float, called: Called) -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((4, 6, 5, 5)) * 1e-4  # variances below epsilon
    weight, upstream = rng.standard_normal(5 if kind == "layer" else 6), rng.standard_normal(values.shape)
    x, y = paddle.to_tensor(values, stop_gradient=False), torch.from_numpy(values).requires_grad_()
    v, w = paddle.to_tensor(weight, stop_gradient=False), torch.from_numpy(weight).requires_grad_()
    theirs = torch.nn.functional
    found, expected = {
        "layer": lambda: (functional.layer_norm(x, 5, v, v, epsilon), theirs.layer_norm(y, [5], w, w, epsilon)),
        "group": lambda: (functional.group_norm(x, 3, epsilon, v, v), theirs.group_norm(y, 3, w, w, epsilon)),
        "instance": lambda: (
            functional.instance_norm(x, weight=v, bias=v, eps=epsilon),
            theirs.instance_norm(y, weight=w, bias=w, eps=epsilon),
        ),
    }[kind]()
    found.backward(paddle.to_tensor(upstream))
    expected.backward(torch.from_numpy(upstream))
    for one, other in ((found, expected), (x.grad, y.grad), (v.grad, w.grad)):
        np.testing.assert_allclose(one.numpy(), other.detach().numpy(), rtol=0, atol=1e-13 * np.abs(one.numpy()).max())
    single = paddle.to_tensor(values[:1].astype("float32"))
    plain = paddle._C_ops.layer_norm.__wrapped__(single, None, None, epsilon, 3)
    np.testing.assert_array_equal(functional.layer_norm(single, 5, epsilon=epsilon).numpy(), plain.numpy())


@pytest.mark.parametrize(
    "pooled",
    [
        lambda f, x, whole: f.avg_pool2d(x, 3, 2, 1, **whole),
        lambda f, x, whole: f.avg_pool2d(x, (3, 7), 1, (1, 2), **whole),
        lambda f, x, whole: f.avg_pool1d(x.flatten(2), 3, 1, **whole),
        lambda f, x, whole: f.avg_pool3d(x.unsqueeze(2), (1, 3, 3), 1, (0, 1, 1), **whole),
        lambda f, x, whole: f.avg_pool2d(x, 3, 2, 0, ceil_mode=True, **whole),
        lambda f, x, _: f.adaptive_avg_pool2d(x, (3, 5)),
        lambda f, x, _: f.adaptive_avg_pool2d(x, 1),
    ],
)
@pytest.mark.parametrize("counted", [True, False])
def test_the_reciprocal_of_average_pooling(pooled: Callable[..., Any], counted: bool, called: Called) -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((2, 3, 13, 11))
    x, y = paddle.to_tensor(values, stop_gradient=False), torch.from_numpy(values).requires_grad_()
    found = pooled(functional, x, {"exclusive": not counted})
    expected = pooled(torch.nn.functional, y, {"count_include_pad": counted})
    upstream = rng.standard_normal(expected.shape)
    found.backward(paddle.to_tensor(upstream))
    expected.backward(torch.from_numpy(upstream))
    for one, other in ((found, expected), (x.grad, y.grad)):
        np.testing.assert_allclose(one.numpy(), other.detach().numpy(), rtol=0, atol=1e-14)
    assert set(called) == {"avg_pool"}


def test_average_pooling_by_kernels_that_are_exact_already(called: Called) -> None:
    flag = "FLAGS_use_accuracy_compatible_kernel"
    before = paddle.get_flags(flag)
    paddle.set_flags({flag: True})
    try:
        x = paddle.ones([1, 2, 7, 9], "float64")
        x.stop_gradient = False
        functional.adaptive_avg_pool2d(x, 1).sum().backward()
    finally:
        paddle.set_flags(before)
    np.testing.assert_allclose(x.grad.numpy(), 1 / 63, rtol=1e-15)


def test_average_pooling_in_a_float64_run_that_casts(called: Called, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorder lets casts to float32 be float64 in its float64 runs."""
    monkeypatch.setattr(paddle.Tensor, "astype", lambda tensor, _: tensor)
    x = paddle.ones([1, 2, 7, 9], "float64")
    x.stop_gradient = False
    functional.adaptive_avg_pool2d(x, 1).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 1 / 63, rtol=1e-15)


def test_average_pooling_of_channels_last(called: Called) -> None:
    values = np.random.default_rng(0).standard_normal((2, 13, 11, 3))
    for pool in (
        lambda x, layout: functional.avg_pool2d(x, 3, 2, 1, data_format=layout),
        lambda x, layout: functional.adaptive_avg_pool2d(x, (3, 5), data_format=layout),
    ):
        last, first = (paddle.to_tensor(values, stop_gradient=False) for _ in range(2))
        pool(last, "NHWC").sum().backward()
        pool(first.transpose([0, 3, 1, 2]), "NCHW").sum().backward()
        np.testing.assert_allclose(last.grad.numpy(), first.grad.numpy(), rtol=1e-14)


def _exponential(alpha: float, scale: float = 1.0, width: float = 1.0) -> tuple[Callable[[Any], Any], ...]:
    """An exponential unit and its derivative."""
    return (
        lambda x: scale * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / width)),
        lambda x: scale * np.where(x > 0, 1.0, alpha / width * np.exp(np.minimum(x, 0) / width)),
    )


SELU = (1.0507009873554805, 1.6732632423543772)


@pytest.mark.parametrize(
    ("name", "constants", "truth"),
    [
        ("elu", {"alpha": 0.7}, _exponential(0.7)),
        ("celu", {"alpha": 0.7}, _exponential(0.7, width=0.7)),
        ("selu", {}, _exponential(SELU[1], SELU[0])),
        ("hardtanh", {"min": -0.7, "max": 0.3}, (lambda x: x.clip(-0.7, 0.3), lambda x: (x > -0.7) & (x < 0.3))),
        ("softshrink", {"threshold": 0.3}, (lambda x: x - x.clip(-0.3, 0.3), lambda x: abs(x) > 0.3)),
    ],
)
def test_activations_with_constants(
    name: str, constants: dict[str, float], truth: tuple[Callable[[Any], Any], ...], called: Called
) -> None:
    x = np.append(np.random.default_rng(0).standard_normal(50) * 2, [-1000.0, 1000.0])
    tensor = paddle.to_tensor(x, stop_gradient=False)
    found = getattr(functional, name)(tensor, **constants)
    found.sum().backward()
    np.testing.assert_allclose(found.numpy(), truth[0](x), rtol=1e-15, atol=1e-15)
    np.testing.assert_allclose(tensor.grad.numpy(), truth[1](x), rtol=1e-15, atol=1e-15)
    single = paddle.to_tensor(x.astype(np.float32))
    kernel = getattr(paddle._C_ops, name).__wrapped__
    given = SELU if name == "selu" else constants.values()
    np.testing.assert_array_equal(
        getattr(functional, name)(single, **constants).numpy(), kernel(single, *given).numpy()
    )


@pytest.mark.parametrize("delta", [0.2, 0.3, 1.7])
def test_the_bound_of_huber_and_smooth_l1(delta: float, called: Called) -> None:
    arrays = np.random.default_rng(0).standard_normal((2, 40)) * 2
    for is_huber in (True, False):
        ours, theirs = paddle.to_tensor(arrays[0], stop_gradient=False), torch.tensor(arrays[0], requires_grad=True)
        found = functional.smooth_l1_loss(ours, paddle.to_tensor(arrays[1]), "sum", delta, is_huber)
        loss = torch.nn.functional.huber_loss if is_huber else torch.nn.functional.smooth_l1_loss
        right = loss(theirs, torch.tensor(arrays[1]), **{"delta" if is_huber else "beta": delta}, reduction="sum")
        found.backward()
        right.backward()
        np.testing.assert_allclose(found.item(), right.item(), rtol=1e-14)
        np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-13, atol=1e-15)
    single = paddle.to_tensor(arrays.astype(np.float32))
    assert functional.smooth_l1_loss(single[0], single[1], delta=delta).dtype == paddle.float32


@pytest.mark.parametrize("power", [paddle.pow, paddle.Tensor.pow, lambda x, y: x**y])
@pytest.mark.parametrize("exponent", [0.6, -0.4, 0.5, 2, 2.3])
def test_an_exponent(power: Callable[..., Any], exponent: float, called: Called) -> None:
    values = np.linspace(0.01, 3.0, 50)
    tensor = paddle.to_tensor(values, stop_gradient=False)
    found = power(tensor, exponent)
    found.sum().backward()
    np.testing.assert_allclose(found.numpy(), values**exponent, rtol=1e-14)
    np.testing.assert_allclose(tensor.grad.numpy(), exponent * values ** (exponent - 1), rtol=1e-14)
    assert power(paddle.to_tensor(values.astype(np.float32)), exponent).dtype == paddle.float32


def step_both(ours: Any, theirs: Any, optimizers: Sequence[Any], gradient: np.ndarray) -> None:
    """One step of paddle's optimizer and of torch's, on the same gradient."""
    (ours * paddle.to_tensor(gradient)).sum().backward()
    (theirs * torch.tensor(gradient)).sum().backward()
    optimizers[0].step()
    optimizers[0].clear_grad()
    optimizers[1].step()
    optimizers[1].zero_grad()


def test_adadelta(called: Called) -> None:
    values, gradients = (np.random.default_rng(seed).standard_normal(7) for seed in (0, 1))
    ours, theirs = paddle.nn.Layer().create_parameter([7], dtype="float64"), torch.nn.Parameter(torch.tensor(values))
    ours.set_value(values)
    optimizers = (
        paddle.optimizer.Adadelta(0.3, epsilon=1e-6, rho=0.9, parameters=[ours]),
        torch.optim.Adadelta([theirs], lr=0.3, eps=1e-6, rho=0.9),
    )
    for step in range(4):
        step_both(ours, theirs, optimizers, gradients * (step + 1))
    moved = theirs.detach().numpy() - values
    np.testing.assert_allclose(ours.numpy() - values, moved, rtol=1e-7)  # paddle keeps the rate in float32


RATE = 2.0**-6
"""paddle keeps the rate in float32, which has this one exactly."""


class Formula:
    """An optimizer of torch by a formula: `update(gradient, state, step)` is what the step takes off the weights."""

    def __init__(self, weight: torch.nn.Parameter, update: Callable[..., Any]) -> None:
        self.weight, self.update, self.state, self.steps = weight, update, dict[str, Any](), 0

    def step(self) -> None:
        self.steps += 1
        with torch.no_grad():
            self.weight -= self.update(self.weight, self.weight.grad, self.state, self.steps)

    def zero_grad(self) -> None:
        self.weight.grad = None


def adamax(weight: Any, gradient: Any, state: dict[str, Any], step: int) -> Any:
    """Kingma and Ba, 2015, algorithm 2, with paddle's epsilon: it is added to the largest gradient so far."""
    state["m"] = 0.8 * state.get("m", 0.0) + (1 - 0.8) * gradient
    state["u"] = torch.maximum(0.97 * state.get("u", torch.zeros(7)) + 1e-6, gradient.abs())
    return RATE / (1 - 0.8**step) * state["m"] / state["u"]


def rmsprop(weight: Any, gradient: Any, state: dict[str, Any], step: int) -> Any:
    """Graves, 2013, equations 38 to 41: epsilon is inside the root, the rate inside the momentum."""
    state["n"] = 0.93 * state.get("n", 0.0) + (1 - 0.93) * gradient**2
    state["g"] = 0.93 * state.get("g", 0.0) + (1 - 0.93) * gradient
    state["d"] = 0.7 * state.get("d", 0.0) + RATE * gradient / (state["n"] - state["g"] ** 2 + 1e-5).sqrt()
    return state["d"]


def lamb(weight: Any, gradient: Any, state: dict[str, Any], step: int) -> Any:
    """You et al., 2020, algorithm 2."""
    state["m"] = 0.8 * state.get("m", 0.0) + (1 - 0.8) * gradient
    state["v"] = 0.97 * state.get("v", 0.0) + (1 - 0.97) * gradient**2
    ratio = state["m"] / (1 - 0.8**step) / ((state["v"] / (1 - 0.97**step)).sqrt() + 1e-5) + 0.03 * weight
    return RATE * weight.norm() / ratio.norm() * ratio


OPTIMIZERS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    **{
        f"{name} {beta2}": (
            partial(getattr(paddle.optimizer, name), RATE, beta2=beta2),
            lambda weight, name=name, beta2=beta2: getattr(torch.optim, name)([weight], lr=RATE, betas=(0.9, beta2)),
        )
        for name in ("RAdam", "NAdam")
        for beta2 in (0.99, 0.999)
    },
    "AdamW": (
        partial(paddle.optimizer.AdamW, RATE, weight_decay=0.03),
        lambda weight: torch.optim.AdamW([weight], lr=RATE, weight_decay=0.03),
    ),
    "Adamax": (partial(paddle.optimizer.Adamax, RATE, 0.8, 0.97, 1e-6), lambda weight: Formula(weight, adamax)),
    "RMSProp": (
        partial(paddle.optimizer.RMSProp, RATE, 0.93, 1e-5, 0.7, True),
        lambda weight: Formula(weight, rmsprop),
    ),
    "Lamb": (partial(paddle.optimizer.Lamb, RATE, 0.03, 0.8, 0.97, 1e-5), lambda weight: Formula(weight, lamb)),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_is_exact_in_float64(name: str, called: Called) -> None:
    values, gradients = (np.random.default_rng(seed).standard_normal(7) for seed in (0, 1))
    ours, theirs = paddle.nn.Layer().create_parameter([7], dtype="float64"), torch.nn.Parameter(torch.tensor(values))
    ours.set_value(values)
    torch.set_default_dtype(torch.float64)  # NAdam of torch keeps the product of its momenta in it
    try:
        optimizers = OPTIMIZERS[name][0](parameters=[ours]), OPTIMIZERS[name][1](theirs)
        for step in range(9):  # RAdam's rectification begins with the sixth
            before = ours.numpy().copy(), theirs.detach().numpy().copy()
            step_both(ours, theirs, optimizers, gradients * (step + 1))
            np.testing.assert_allclose(ours.numpy() - before[0], theirs.detach().numpy() - before[1], rtol=1e-12)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_is_paddles_own_in_float32(name: str, called: Called, monkeypatch: pytest.MonkeyPatch) -> None:
    def weights() -> np.ndarray:
        parameter = paddle.nn.Layer().create_parameter([7], default_initializer=paddle.nn.initializer.Constant(0.7))
        optimizer = OPTIMIZERS[name][0](parameters=[parameter])
        for step in range(3):
            (parameter * paddle.arange(7, dtype="float32") * (step + 0.3)).sum().backward()
            optimizer.step()
            optimizer.clear_grad()
        return parameter.numpy()

    found = weights()
    for kernel in OPTIMIZER_KERNELS:
        monkeypatch.setattr(paddle._C_ops, kernel, getattr(paddle._C_ops, kernel).__wrapped__)
    np.testing.assert_array_equal(found, weights())


def test_kernels_are_noted_whoever_calls_them(called: Called) -> None:
    x = paddle.ones([1, 2, 4, 4])
    functional.hardswish(x)
    functional.max_pool2d(x, 2)
    assert set(called) == {"hardswish"}
    paddle.nn.AdaptiveAvgPool2D(1)(x)
    functional.hardsigmoid(x)
    functional.selu(x)
    functional.batch_norm(x, paddle.zeros([2]), paddle.ones([2]), epsilon=2.0**-10)
    assert set(called) == {"hardswish", "avg_pool", "hardsigmoid", "selu", "batch_norm"}
    assert called["batch_norm"] == {"epsilon": {2.0**-10}}


@pytest.mark.parametrize("limit", [0.5, 50.0])
def test_clipping_by_norm_in_float64_is_numpys(limit: float, called: Called) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4))
    tensor = paddle.to_tensor(x, stop_gradient=False)
    ((_, found),) = paddle.nn.ClipGradByNorm(limit)([(tensor, tensor.detach())])
    np.testing.assert_allclose(found.numpy(), x * min(1.0, limit / np.linalg.norm(x)), rtol=1e-14)
    assert called["clip_by_norm"] == {"limit": {limit}}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("scores", "noted"), [([0.0, -60.0], False), ([0.0, 0.0, -1e9], True), ([3.0, -90.0], True)])
def test_a_softmax_on_its_floor(scores: list[float], noted: bool, dtype: str, called: Called) -> None:
    x = paddle.to_tensor([scores], dtype)
    weights = functional.softmax(x).numpy()
    true = np.exp(np.array(scores) - max(scores)) / np.exp(np.array(scores) - max(scores)).sum()
    assert (np.abs(weights[0] - true).max() > 1e-29) == noted
    assert called == ({"softmax": {"floor": {SOFTMAX_FLOOR}}} if noted else {})
    called.clear()
    functional.cross_entropy(x, paddle.to_tensor([0]))
    assert ("softmax" in called) == noted
