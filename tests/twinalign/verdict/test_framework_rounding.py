"""Float32 that a framework computes worse, while float64 agrees: allowed where it is derived, and no further."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import paddle
import pytest
import torch

from twinalign.backends import backend_of_side
from twinalign.backends.paddle.port_only.kernels import kernels_called, make_float64_exact
from twinalign.verdict import Comparison, compare_arrays
from twinalign.verdict.allowances import Allowance
from twinalign.verdict.case_allowances import allowances_for, momentum_error

STEPS, RATE = 6, 1e-3
PORT_METADATA: dict[str, Any] = {"layer_classes": {}}


def adam_steps(framework: str, dtype: str, start: np.ndarray, kind: str = "Adam") -> dict[str, np.ndarray]:
    """The parameter and what is kept of it after every step of Adam, from gradients that float32 holds exactly."""
    gradients = np.random.default_rng(1).standard_normal((STEPS, *start.shape)).astype(np.float32).astype(dtype)
    found = {}
    if framework == "torch":
        parameter: Any = torch.nn.Parameter(torch.from_numpy(start.astype(dtype)))
        optimizer: Any = getattr(torch.optim, kind)([parameter], lr=RATE)
    else:
        parameter = paddle.create_parameter(list(start.shape), dtype=dtype)
        parameter.set_value(start.astype(dtype))
        optimizer = getattr(paddle.optimizer, kind)(RATE, parameters=[parameter])
    for step, gradient in enumerate(gradients):
        if framework == "torch":
            parameter.grad = torch.from_numpy(gradient.copy())
        else:
            (parameter * paddle.to_tensor(gradient)).sum().backward()
        optimizer.step()
        if framework == "paddle":
            optimizer.clear_grad(set_to_zero=False)
        found[f"step{step}.parameter.layer.bias"] = parameter.detach().numpy().copy()
        side = "ref" if framework == "torch" else "paddle"
        for quantity, average in backend_of_side(side).optimizer_averages(optimizer, parameter):
            found[f"step{step}.{quantity}.layer.bias"] = average.numpy().copy()
    return found


def judged(arrays: list[dict[str, np.ndarray]], stage: str = "backward") -> Comparison:
    reference, reproduced, reference64, reproduced64 = arrays
    return compare_arrays(
        reference,
        reproduced,
        reference64=reference64,
        reproduced64=reproduced64,
        allowances=[a for a in allowances_for(stage, PORT_METADATA, {}) if a != "paddle_long_sums"],
    )


PAIRS = [("torch", "float32"), ("paddle", "float32"), ("torch", "float64"), ("paddle", "float64")]


@pytest.fixture(scope="module")
def steps() -> list[dict[str, np.ndarray]]:
    return [adam_steps(framework, dtype, np.zeros((32, 2))) for framework, dtype in PAIRS]


@pytest.mark.parametrize("kind", ["NAdam", "RAdam"])
def test_betas_in_float32_are_no_alarm_in_float64(kind: str) -> None:
    make_float64_exact()  # as a recorder does
    arrays = [adam_steps(framework, dtype, np.ones((32, 2)), kind) for framework, dtype in PAIRS]
    found = judged(arrays)
    assert [(t.name, t.reason) for t in found.tensors if t.verdict == "diverged"] == []
    allowed = {tensor.name.split(".")[1]: tensor.allowed for tensor in found.tensors}
    assert allowed["moment1"] is None
    assert allowed["moment2"] == "paddle_adam_second_moment"
    # A beta that somebody wrote otherwise by a ten thousandth is far from that.
    for name in arrays[1]:
        if "moment2" in name:
            for at in (1, 3):
                arrays[at][name] = arrays[at][name] * (1 - 0.9991) / (1 - 0.999)
    assert judged(arrays).verdict == "diverged"


def test_adamax_keeps_averages_of_the_same_names_on_both_sides() -> None:
    first, second = (adam_steps(framework, "float64", np.ones((4, 2)), "Adamax") for framework in ("torch", "paddle"))
    assert list(first) == list(second)
    assert {name.split(".")[1] for name in first} == {"parameter", "moment1", "infinity_norm"}


def test_a_number_of_asgd_is_not_taken_for_a_velocity() -> None:
    assert {name.split(".")[1] for name in adam_steps("torch", "float64", np.ones((4, 2)), "ASGD")} == {"parameter"}


def test_a_parameter_that_begins_at_zero_under_adam_is_no_alarm(steps: list[dict[str, np.ndarray]]) -> None:
    found = judged(steps)
    assert found.verdict in ("aligned", "rounding"), [tensor.reason for tensor in found.tensors]
    assert "paddle_adam_bias_correction" in {tensor.allowed for tensor in found.tensors}


def test_it_is_an_alarm_without_the_allowance(steps: list[dict[str, np.ndarray]]) -> None:
    reference, reproduced, reference64, reproduced64 = steps
    found = compare_arrays(reference, reproduced, reference64=reference64, reproduced64=reproduced64)
    assert found.verdict == "diverged"


@pytest.mark.parametrize("share", [1e-4, 1e-3])
def test_a_larger_share_of_the_way_is_a_divergence(steps: list[dict[str, np.ndarray]], share: float) -> None:
    reference, reproduced, reference64, reproduced64 = steps
    spoiled = {name: array * np.float32(1 + share) for name, array in reproduced.items()}
    found = judged([reference, spoiled, reference64, reproduced64])
    assert found.verdict == "diverged"


def test_in_float64_nothing_of_it_is_allowed(steps: list[dict[str, np.ndarray]]) -> None:
    reference, reproduced, reference64, reproduced64 = steps
    spoiled = {name: array * (1 + 1e-5) for name, array in reproduced64.items()}
    assert judged([reference, reproduced, reference64, spoiled]).verdict == "diverged"


def long_sum(shape: tuple[int, ...], times: float, name: str = "step0.gradient.layer.bias") -> tuple[str, str | None]:
    """Verdict on a tensor whose port is so many times as far from the truth as the reference."""
    rng = np.random.default_rng(2)
    truth = rng.standard_normal(shape)
    errors = 2.0**-22 * rng.standard_normal(shape)
    arrays = [(truth * (1 + factor * errors)).astype(np.float32) for factor in (1.0, times)]
    found = compare_arrays(
        {name: arrays[0]},
        {name: arrays[1]},
        reference64={name: truth},
        reproduced64={name: truth},
        allowances=allowances_for("backward", PORT_METADATA, {}),
    ).tensors[0]
    return found.verdict, found.allowed


def test_sums_over_a_batch_may_be_added_one_after_the_other() -> None:
    assert long_sum((64,), 100) in {("aligned", "paddle_long_sums"), ("rounding", "paddle_long_sums")}
    assert long_sum((), 100, "step0.loss") in {("aligned", "paddle_long_sums"), ("rounding", "paddle_long_sums")}


@pytest.mark.parametrize("shape", [(64, 1, 1), (64, 1, 1, 1), (1, 64)])
def test_dimensions_of_length_1_make_no_product_of_a_long_sum(shape: tuple[int, ...]) -> None:
    """One scale for each head (Swin v2), and the kernel of a depthwise 1x1 convolution (MobileOne)."""
    assert long_sum(shape, 20) in {("aligned", "paddle_long_sums"), ("rounding", "paddle_long_sums")}


@pytest.mark.parametrize(
    ("shape", "times", "name"),
    [
        ((64,), 1500, "step0.gradient.layer.bias"),  # as half precision is
        ((64, 8), 100, "step0.gradient.layer.weight"),  # a product of matrices adds in blocks in both frameworks
        ((8,), 100, "step0.gradient.layer.weight (projections)"),
    ],
)
def test_what_is_no_long_sum_or_off_by_more_diverges(shape: tuple[int, ...], times: float, name: str) -> None:
    assert long_sum(shape, times, name) == ("diverged", None)


def test_the_forward_stage_allows_neither() -> None:
    named = {item if isinstance(item, str) else item.id for item in allowances_for("forward", PORT_METADATA, {})}
    assert not named & {"paddle_long_sums", "paddle_adam_bias_correction"}


@pytest.mark.parametrize("share", [0.1, 0.01])
@pytest.mark.parametrize(("coarse", "verdict"), [(1.0, "aligned"), (2.0**6, "diverged"), (2.0**13, "diverged")])
def test_a_running_mean_that_cancels_may_have_the_roundings_of_what_it_adds(
    coarse: float, verdict: str, share: float
) -> None:
    """torch adds a channel's values in double, paddle in float32: 32 768 values of size 1 whose mean is nearly 0."""
    x = np.random.default_rng(4).standard_normal((2, 64, 128, 128))
    x = (x - x.mean((0, 2, 3), keepdims=True) + 1e-4).astype(np.float32)
    port = paddle.nn.BatchNorm2D(64, momentum=1 - share)
    port(paddle.to_tensor(x))
    reference = {dtype: torch.nn.BatchNorm2d(64, momentum=share).to(dtype) for dtype in (torch.float32, torch.float64)}
    for dtype, layer in reference.items():
        layer(torch.from_numpy(x).to(dtype))
    rounded, exact = ({f"norm.{name}": b.numpy() for name, b in layer.named_buffers()} for layer in reference.values())
    name, momentum = "norm.running_mean", 1 - share
    off = coarse * (port._mean.numpy() - exact[name])
    assert np.sqrt(np.mean(off**2)) > 8 * np.sqrt(np.mean((rounded[name] - exact[name]) ** 2))

    found = compare_arrays(
        rounded,
        rounded | {name: (exact[name] + off).astype(np.float32)},
        reference64=exact,
        reproduced64=exact,
        allowances=allowances_for("forward", {"kernels": {"batch_norm": {"momentum": [momentum]}}}, {}),
    )
    (judged_mean,) = [tensor for tensor in found.tensors if tensor.name == name]
    assert judged_mean.verdict == verdict
    assert judged_mean.allowed == ("paddle_batch_norm_mean" if verdict == "aligned" else None)


def test_paddle_adds_the_gradient_of_an_offset_one_after_the_other() -> None:
    """What the allowance is for: group norm's, over 32 768 positions, beside torch's, by the judge of float64."""
    generator = np.random.default_rng(3)
    x, upstream = (generator.standard_normal((2, 8, 128, 128)).astype(np.float32) + shift for shift in (0, 1))
    port, reference = paddle.nn.GroupNorm(4, 8), torch.nn.GroupNorm(4, 8)
    port(paddle.to_tensor(x)).backward(paddle.to_tensor(upstream))
    reference(torch.from_numpy(x)).backward(torch.from_numpy(upstream))
    exact = upstream.astype(np.float64).sum(axis=(0, 2, 3))
    own, theirs = (np.sqrt(np.mean((bias.grad.numpy() / exact - 1) ** 2)) for bias in (port.bias, reference.bias))
    assert own > 5 * theirs


def trained(framework: str, dtype: str, seed: int, kind: str = "AdamW", **changed: float) -> dict[str, np.ndarray]:
    """Six steps of a small network with biases that begin at zero, after a loss with label smoothing.

    `changed` are the port's mistakes: `smoothing` and `momentum`.
    """
    rng, sizes, is_torch = np.random.default_rng(seed), (8, 16, 16, 4), framework == "torch"
    smoothing, momentum = changed.get("smoothing", 0.1), changed.get("momentum", 0.9)
    parameters: dict[str, Any] = {}
    for number, (rows, columns) in enumerate(itertools.pairwise(sizes)):
        weight = (rng.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32)
        for name, array in ((f"{number}.weight", weight), (f"{number}.bias", np.zeros(columns))):
            if is_torch:
                parameters[name] = torch.nn.Parameter(torch.from_numpy(array.astype(dtype)))
            else:
                parameters[name] = paddle.create_parameter(list(array.shape), dtype=dtype)
                parameters[name].set_value(array.astype(dtype))
    values = list(parameters.values())
    optimizer: Any
    if is_torch:
        settings = {"lr": 0.1, "momentum": momentum} if kind == "SGD" else {"lr": RATE}
        optimizer = getattr(torch.optim, kind)(values, **settings)
    elif kind == "SGD":
        optimizer = paddle.optimizer.Momentum(0.1, momentum, parameters=values)
    else:
        optimizer = paddle.optimizer.AdamW(RATE, parameters=values)
    library: Any = torch if is_torch else paddle
    found = {}
    for step in range(STEPS):
        inputs, labels = rng.standard_normal((4, 8)).astype(np.float32), rng.integers(0, 4, 4)
        x = library.as_tensor(inputs.astype(dtype)) if is_torch else paddle.to_tensor(inputs.astype(dtype))
        for number in range(3):
            x = x @ parameters[f"{number}.weight"] + parameters[f"{number}.bias"]
            x = library.nn.functional.gelu(x) if number < 2 else x
        target = torch.from_numpy(labels) if is_torch else paddle.to_tensor(labels)
        loss = library.nn.functional.cross_entropy(x, target, label_smoothing=smoothing)
        found[f"step{step}.loss"] = loss.detach().numpy().copy().reshape(())
        loss.backward()
        found |= {f"step{step}.gradient.{name}": p.grad.numpy().copy() for name, p in parameters.items()}
        optimizer.step()
        optimizer.zero_grad() if is_torch else optimizer.clear_grad(set_to_zero=False)
        for name, parameter in parameters.items():
            found[f"step{step}.parameter.{name}"] = parameter.detach().numpy().copy()
            averages = backend_of_side("ref" if is_torch else "paddle").optimizer_averages(optimizer, parameter)
            found |= {f"step{step}.{quantity}.{name}": a.detach().numpy().copy() for quantity, a in averages}
    return found


def trained_as_run(framework: str, dtype: str, seed: int, kind: str = "AdamW", **changed: float) -> Any:
    """The same as a run records it: in the precision's default dtype, with exact constants in float64."""
    backend = backend_of_side("ref" if framework == "torch" else "paddle")
    with backend.default_dtype(dtype), kernels_called():
        return trained(framework, dtype, seed, kind, **({} if framework == "torch" else changed))


@pytest.mark.parametrize("kind", ["AdamW", "SGD"])
def test_smoothed_labels_and_zero_biases_are_no_alarm_with_any_seed(kind: str) -> None:
    for seed in range(10):
        found = judged([trained_as_run(*pair, seed, kind) for pair in PAIRS])
        assert [(t.name, t.reason) for t in found.tensors if t.verdict == "diverged"] == [], seed
        # Nothing that depends on label smoothing or momentum is allowed in float64, so that nothing is hidden there.
        assert {t.allowed for t in found.tensors if (t.fp64_ratio or 0.0) > 1.0} <= {"float32_epsilon"}


@pytest.mark.parametrize(
    ("changed", "quantity"), [({"smoothing": 0.1 + 1.5e-9}, "step0.loss"), ({"momentum": 0.9 - 2.4e-8}, "velocity")]
)
def test_a_constant_that_is_really_off_by_what_float32_makes_of_it_is_caught(
    changed: dict[str, float], quantity: str
) -> None:
    reference, port, reference64, port64 = (trained_as_run(*pair, 0, "SGD", **changed) for pair in PAIRS)
    found = compare_arrays(reference, port, reference64=reference64, reproduced64=port64, only=[f"*{quantity}*"])
    assert found.verdict == "diverged"


def batch_norm_steps(framework: str, dtype: str, momentum: float, kind: Any = None) -> dict[str, np.ndarray]:
    """Running statistics after each of four batches whose means differ from zero; `momentum` as torch counts it."""
    rng, found = np.random.default_rng(4), {}
    layer = torch.nn.BatchNorm2d(16, momentum=momentum) if framework == "torch" else kind(16, momentum=1 - momentum)
    layer = layer.to(getattr(torch, dtype)) if framework == "torch" else layer
    if framework == "paddle":
        layer.to(dtype=dtype)
    for step in range(4):
        x = (rng.standard_normal((8, 16, 4, 4)) + rng.standard_normal((16, 1, 1))).astype(np.float32).astype(dtype)
        layer(torch.from_numpy(x) if framework == "torch" else paddle.to_tensor(x))
        mean = layer.running_mean if framework == "torch" else layer._mean
        found[f"step{step}.buffer.norm.running_mean"] = mean.numpy().copy()
    return found


class OwnNorm(paddle.nn.BatchNorm2D):
    """A subclass that adds to the layer and leaves its computation alone."""

    def forward(self, x: Any) -> Any:
        return paddle.nn.functional.relu(super().forward(x))


@pytest.mark.parametrize("kind", [paddle.nn.BatchNorm2D, OwnNorm])
@pytest.mark.parametrize("momentum", [0.5, 0.1, 0.03, 0.01, 0.001, 3e-4, 1e-4])
def test_any_momentum_of_batch_norm_is_no_alarm(momentum: float, kind: type) -> None:
    with kernels_called() as called:
        arrays = [batch_norm_steps(*pair, momentum, kind) for pair in PAIRS]
    allowed = allowances_for("forward", {"kernels": called}, {})
    reference, port, reference64, port64 = arrays

    def verdict(port: dict[str, np.ndarray], port64: dict[str, np.ndarray]) -> str:
        return compare_arrays(reference, port, reference64=reference64, reproduced64=port64, allowances=allowed).verdict

    assert verdict(port, port64) in ("aligned", "rounding")
    # A little more than the float32 share of a batch is off by, and than what rounding is, is caught in float32.
    error = momentum_error(1 - momentum)
    more = {name: (array * (1 + 2 * error + 4e-6)).astype(np.float32) for name, array in port.items()}
    assert verdict(more, port64) == "diverged"
    # In float64 the momentum is exact: more of its share is caught than what a float32 epsilon may do, 1e-7.
    with kernels_called():
        other = batch_norm_steps("paddle", "float64", momentum * (1 + 3e-7), kind)
    assert verdict(port, other) == "diverged"


def test_the_error_of_a_momentum_is_that_of_its_float32_share() -> None:
    assert momentum_error(0.5) == 0.0
    assert momentum_error(1.0) == 0.0
    for momentum in (0.9, 0.97, 0.99, 0.999):
        share = 1 - float(np.float32(momentum))
        assert momentum_error(momentum) == pytest.approx(abs(share / (1 - momentum) - 1), rel=1e-6)
    # No momentum that a recording claims is allowed more than the slowest that anybody uses.
    (claimed,) = [
        allowance
        for allowance in allowances_for("train", {"kernels": {"batch_norm": {"momentum": [1 - 1e-7]}}}, {})
        if isinstance(allowance, Allowance)
    ]
    assert claimed.low_of_movement == 2.0**-25 / 1e-4


def without_float64(scale: float, quantity: str = "moment2", repeated: bool = True) -> Comparison:
    """Float32 alone: Adam's second moments in the port scaled, judged by a repeat of the reference or by tolerances."""
    reference, port = (
        {name: array * (100 if "moment2" in name else 1) for name, array in adam_steps(f, "float32", ZEROS).items()}
        for f in ("torch", "paddle")
    )
    port = {name: array * np.float32(scale) if quantity in name else array for name, array in port.items()}
    repeat = {name: array * np.float32(1 + 2.0**-22) for name, array in reference.items()}
    return compare_arrays(
        reference,
        port,
        reference_repeat=repeat if repeated else None,
        allowances=allowances_for("backward", PORT_METADATA, {}),
    )


ZEROS = np.zeros((32, 2))


@pytest.mark.parametrize("repeated", [True, False])
def test_adam_is_no_alarm_where_float64_does_not_run(repeated: bool) -> None:
    found = without_float64(1.0, repeated=repeated)
    assert found.verdict in ("aligned", "rounding"), [t.reason for t in found.tensors if t.verdict == "diverged"]
    assert "paddle_adam_second_moment" in {tensor.allowed for tensor in found.tensors}
    assert without_float64(1 + 1e-4, repeated=repeated).verdict == "diverged"
    share = 1e-4 if repeated else 1e-2  # tolerances have an absolute part
    assert without_float64(1 + share, "parameter", repeated=repeated).verdict == "diverged"


def test_the_criterion_that_failed_is_said() -> None:
    truth = np.linspace(1, 2, 64)
    low = {"step0.velocity.bias": truth.astype(np.float32)}

    def reason(low_factor: float, high_factor: float) -> str:
        port = {name: (truth * low_factor).astype(np.float32) for name in low}
        return (
            compare_arrays(
                low,
                port,
                reference64=dict.fromkeys(low, truth),
                reproduced64=dict.fromkeys(low, truth * high_factor),
                allowances=["paddle_optimizer_scalars"],
            )
            .tensors[0]
            .reason
        )

    assert "; 1.5 times what paddle_optimizer_scalars allows in RMS" in reason(1, 1 + 1.5e-7)
    assert "at most 8 in RMS and 16 in the worst element is rounding" in reason(1 + 1e-5, 1)


def test_the_advice_can_be_followed() -> None:
    """Where the reference has no float64 run, recording the port in float64 tells nothing."""
    rng = np.random.default_rng(0)
    reference = {"step0.loss": np.array(1.0, np.float32), "w": rng.standard_normal(64).astype(np.float32)}
    repeat = {name: array * np.float32(1 + 2.0**-22) for name, array in reference.items()}
    port = {**reference, "step0.loss": np.array(1.001, np.float32)}
    found = compare_arrays(reference, port, reference_repeat=repeat).tensors[0]
    assert found.verdict == "inconclusive"
    assert "too few to decide: let both models run in the dtype of their inputs, without casts to float32, or try" in (
        found.reason
    )


@pytest.mark.parametrize(("share", "verdict"), [(0.1, "rounding"), (0.5, "diverged")])
def test_what_training_makes_of_a_pool_s_reciprocal_is_measured_by_rounding(share: float, verdict: str) -> None:
    """Of ConvMixer's gradients after a step the reciprocal moves 4.6e-3 in float64: 0.003 of the rounding there."""
    rng, name = np.random.default_rng(4), "step1.gradient.layer.weight"
    truth = rng.standard_normal((64, 8))
    rounding = 0.01 * rng.standard_normal((3, 64, 8))
    found = compare_arrays(
        {name: (truth + rounding[0]).astype(np.float32)},
        {name: (truth + rounding[1]).astype(np.float32)},
        reference64={name: truth},
        reproduced64={name: truth + share * rounding[2]},
        allowances=["paddle_average_pool"],
    ).tensors[0]
    assert found.verdict == verdict
    assert (found.allowed == "paddle_average_pool") == (verdict == "rounding")


def with_gradients(steps: list[dict[str, np.ndarray]], off: float = 1.0) -> list[dict[str, np.ndarray]]:
    """The steps with a gradient of each but the first that is computed with the parameter before; the port's is off."""
    made = []
    for port, arrays in enumerate(steps):
        more = dict(arrays)
        for step in range(1, STEPS):
            before, end = (
                arrays[f"step{step - 1}.parameter.layer.bias"],
                steps[2][f"step{step - 1}.parameter.layer.bias"],
            )
            error = (before.astype(np.float64) - end) * (off if port == 1 else 1.0)
            more[f"step{step}.gradient.layer.bias"] = np.tanh(end + error).astype(before.dtype)
        made.append(more)
    return made


def test_a_later_step_inherits_what_is_allowed_of_the_parameters_before(steps: list[dict[str, np.ndarray]]) -> None:
    found = {tensor.name: tensor for tensor in judged(with_gradients(steps)).tensors}
    later = found[f"step{STEPS - 1}.gradient.layer.bias"]
    parameter = found[f"step{STEPS - 2}.parameter.layer.bias"]
    assert parameter.allowed is not None
    assert (parameter.noise_ratio or 0.0) > 8
    assert (later.noise_ratio or 0.0) > 8
    assert later.verdict == "aligned"
    assert "that of the parameters before was allowed at" in later.reason


def test_what_is_less_accurate_than_what_it_inherits_is_none_of_it(steps: list[dict[str, np.ndarray]]) -> None:
    found = {tensor.name: tensor for tensor in judged(with_gradients(steps, off=3.0)).tensors}
    assert found[f"step{STEPS - 1}.gradient.layer.bias"].verdict == "diverged"
