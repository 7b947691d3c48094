"""Precision modes of both twins: roundings against numpy's float16, the loss scale against torch's own scaler."""

from __future__ import annotations

import re
from argparse import Namespace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from PIL import Image

ARGS = Namespace(lr=1e-4, epochs=10, warmup_epochs=0, moco_m=0.9, moco_m_cos=False)


def small_moco(twin, mode: str, name: str = "sgd") -> tuple[Any, Any, Any]:
    twin.seed(3)
    model = twin.module("models.moco").build_moco("vit_digits", dim=8, mlp_dim=16)
    model.train()
    precision = twin.module("training.precision").Precision(mode, model)
    return model, twin.module("training.optimizer").build_optimizer(name, model.parameters(), 1e-3, 0.0), precision


def views(twin) -> list[Any]:
    return [twin.tensor(np.random.RandomState(seed).randn(8, 3, 32, 32).astype("float32")) for seed in (1, 2)]


def step(twin, model: Any, optimizer: Any, precision: Any) -> float:
    return twin.module("training.pretraining").train_step(model, optimizer, *views(twin), 1.0, ARGS, precision)[0]


@pytest.mark.parametrize("mode", ["o1", "bf16"])
def test_linear_layers_round_as_numpy_rounds(twin, mode: str) -> None:
    half = ml_dtypes.bfloat16 if mode == "bf16" else np.float16
    model, _, _ = small_moco(twin, mode)
    layer = model.base_encoder.blocks[0].mlp.fc1
    x = np.random.RandomState(0).randn(5, 64).astype("float32")
    weight = twin.state(model)["base_encoder.blocks.0.mlp.fc1.weight"]
    product = x.astype(half).astype("float64") @ weight.astype(half).astype("float64").T
    actual = twin.array(layer(twin.tensor(x)))
    assert actual.dtype == np.float32
    assert np.array_equal(actual, actual.astype(half).astype("float32"))
    # The sums are float32's in an order of the framework's own: a result may fall to the other side of a tie.
    steps = 2.0 ** (np.floor(np.log2(np.abs(product))) - (7 if mode == "bf16" else 10))
    assert (np.abs(actual - product) <= 0.51 * steps + 1e-6).all()
    assert np.abs(actual - x.astype("float64") @ weight.astype("float64").T).max() > 1e-5


def test_convolutions_round_as_numpy_rounds(twin) -> None:
    model = twin.module("models.moco").build_encoder("resnet18", 2)
    twin.module("training.precision").Precision("o1", model)
    layer = model.layer2[0].conv1
    weight = twin.state(model)["layer2.0.conv1.weight"]
    x = np.random.RandomState(0).randn(2, 64, 9, 9).astype("float32")
    operands = (torch.from_numpy(array.astype("float16").astype("float64")) for array in (x, weight))
    exact = torch.nn.functional.conv2d(*operands, stride=2, padding=1).numpy()
    actual = twin.array(layer(twin.tensor(x)))
    np.testing.assert_allclose(actual, exact, rtol=2**-11 * 1.02, atol=1e-6)


def test_gradients_are_rounded_on_their_way_back(twin) -> None:
    model, _, _ = small_moco(twin, "o1")
    # One view: the gradients of two are added in float32.
    (model.base_encoder(views(twin)[0]) ** 2).mean().backward()
    gradients = twin.gradients(model)
    gradient = gradients["base_encoder.blocks.0.mlp.fc1.weight"]
    assert np.array_equal(gradient, gradient.astype("float16").astype("float32"))
    norm = gradients["base_encoder.blocks.0.norm1.weight"]
    assert not np.array_equal(norm, norm.astype("float16").astype("float32"))


@pytest.mark.parametrize("mode", ["fp32", "half", "o1", "o2", "o3", "amp", "bf16"])
def test_every_mode_stays_near_float32_and_twins_agree(twins, mode: str) -> None:
    """Loss and direction of the gradient of one step; over more, noise images leave nothing to compare."""
    weights: dict[str, np.ndarray] = {}
    losses, directions = {}, {}
    for twin in twins:
        for name in ("fp32", mode):
            model, optimizer, precision = small_moco(twin, name)
            weights = weights or {key: value.copy() for key, value in twin.state(model).items()}
            twin.load(model, weights)
            if precision.scaler is not None:
                precision.scaler.scale = 1024.0
            losses[twin.package, name] = step(twin, model, optimizer, precision)
            gradients = twin.gradients(model)
            gradient = np.concatenate([gradients[key].ravel() for key in sorted(gradients)]).astype("float64")
            directions[twin.package, name] = gradient / np.linalg.norm(gradient)
            if name in ("half", "o3"):
                found = twin.state(model)["base_encoder.blocks.0.norm1.weight"]
                assert np.array_equal(found, found.astype("float16").astype("float32"))
                found = twin.state(model)["base_encoder.head.1.weight"]
                assert np.array_equal(found, found.astype("float16").astype("float32")) == (name == "o3")
    exact = mode == "fp32"
    for twin in twins:
        assert losses[twin.package, mode] == pytest.approx(losses[twin.package, "fp32"], rel=3e-2)
        assert (losses[twin.package, mode] == losses[twin.package, "fp32"]) == exact
        assert directions[twin.package, mode] @ directions[twin.package, "fp32"] > 0.95
    assert losses["moco_ref", mode] == pytest.approx(losses["moco_paddle", mode], rel=1e-5 if exact else 1e-2)
    assert directions["moco_ref", mode] @ directions["moco_paddle", mode] > (0.99999 if exact else 0.95)


@pytest.mark.parametrize(("name", "rate"), [("adamw", 1e-2), ("sgd", 1.0)])
def test_a_state_in_half_is_torchs_own_optimizer_on_half_tensors(twin, name: str, rate: float) -> None:
    """AdamW's quotient by a second moment that vanishes is not finite in either."""
    key = "base_encoder.blocks.0.mlp.fc1.weight"
    model, optimizer, precision = small_moco(twin, "half", name)

    def as_tensor(arrays: dict[str, np.ndarray]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(arrays[key]))

    before = as_tensor(twin.state(model)).clone()
    parameter = torch.nn.Parameter(before.half())
    options = {"momentum": 0.9} if name == "sgd" else {"weight_decay": 0.0}
    theirs = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[name]([parameter], rate, **options)
    args = Namespace(**{**vars(ARGS), "lr": rate})
    for _ in range(2 if name == "sgd" else 1):
        twin.module("training.pretraining").train_step(model, optimizer, *views(twin), 0.0, args, precision)
        parameter.grad = as_tensor(twin.gradients(model)).half()
        theirs.step()
    found, expected = as_tensor(twin.state(model)), parameter.detach().float()
    lost = ~expected.isfinite()
    assert torch.equal(~found.isfinite(), lost)
    assert (lost.float().mean() > 0.03) == (name == "adamw")
    assert not lost[parameter.grad.abs() > 8e-3].any()
    # torch rounds between the operations of a step too.
    step_size = (expected - before)[~lost].abs()
    assert step_size.max() > 1e-3
    is_near = (found - expected)[~lost].abs() < 2**-10 * expected[~lost].abs() + 2**-8 * step_size + 1e-7
    assert is_near.float().mean() > 0.99


def test_scale_moves_as_torchs_scaler_moves_it(twin) -> None:
    own = twin.module("training.precision").LossScaler(1024.0, growth_interval=3)
    theirs = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], 0.1)
    for overflowed in (False, False, True, False, False, False, False, True, True, False):
        own.update(overflowed)
        parameter.grad = torch.full((1,), float("inf") if overflowed else 1.0)
        theirs.scale(torch.zeros(1))
        theirs.step(optimizer)
        theirs.update()
        assert own.scale == theirs.get_scale()


def test_an_overflow_is_named_skips_the_step_and_halves_the_scale(twin) -> None:
    model, optimizer, precision = small_moco(twin, "amp")
    precision.scaler.scale = 2.0**60
    before = {key: value.copy() for key, value in twin.state(model).items()}
    step(twin, model, optimizer, precision)
    after = twin.state(model)
    assert precision.overflow in dict(model.named_parameters())
    assert (precision.skipped, precision.scaler.scale) == (1, 2.0**59)
    key = "base_encoder.blocks.0.mlp.fc1.weight"
    assert np.array_equal(before[key], after[key])
    precision.scaler.scale = 1024.0
    step(twin, model, optimizer, precision)
    assert precision.overflow is None
    assert not np.array_equal(before[key], twin.state(model)[key])


def test_a_loss_that_is_not_finite_names_the_first_layer(twin) -> None:
    model, optimizer, precision = small_moco(twin, "half")
    key = "base_encoder.blocks.1.mlp.fc2.weight"
    # Far above 65504, the largest number of float16.
    twin.load(model, {key: twin.state(model)[key] * np.float32(1e9)})
    # paddle's ReLU makes 0 of NaN on a CPU: there the loss stays finite.
    what = r"the loss is nan" if twin.is_torch else r"the gradient of \S+ is not finite"
    where = (
        r"at epoch 1\.0000, first in base_encoder\.blocks\.1\.mlp\.fc2; a lower --lr may help, or another --precision"
    )
    before = {name: value.copy() for name, value in twin.state(model).items()}
    with pytest.raises(FloatingPointError, match=f"^{what} {where}$"):
        step(twin, model, optimizer, precision)
    assert np.array_equal(twin.state(model)[key], before[key])


def test_a_gradient_that_overflows_without_a_scale_moves_nothing(twin) -> None:
    model, optimizer, precision = small_moco(twin, "half")
    before = {name: value.copy() for name, value in twin.state(model).items()}
    loss = model(*views(twin), 1.0) * 1e10
    assert np.isfinite(twin.array(loss))
    precision.step(loss, optimizer)
    assert precision.overflow in dict(model.named_parameters())
    after = twin.state(model)
    assert all(np.array_equal(before[key], after[key]) for key in dict(model.named_parameters()) if key in before)


def test_an_unknown_mode_is_refused(twin) -> None:
    with pytest.raises(ValueError, match=r"^--precision: 'fp8' is none of fp32, half, o1, o2, o3, amp, bf16$"):
        small_moco(twin, "fp8")


def test_the_program_says_that_it_emulates_and_keeps_the_scale(twin, tmp_path: Path, capsys) -> None:
    for number in range(8):
        path = tmp_path / "pictures" / f"class{number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.RandomState(number).randint(0, 256, (32, 32, 3), dtype="uint8")).save(path)
    text = "--arch vit_digits -b 8 --epochs 2 --warmup-epochs 0 --moco-dim 8 --moco-mlp-dim 16 -j 0 --device cpu"
    options = [str(tmp_path / "pictures"), *text.split(), "--precision", "o2", "--output", str(tmp_path)]
    assert twin.module("programs.train").main(options) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(
        "--precision o2: emulated, float32 values rounded to float16\noptions: program=train "
    )
    # As with the real one, the scale starts too high and comes down.
    steps = captured.err.splitlines()
    assert re.fullmatch(
        r"\[epoch 0, iter 0\] no step: the gradient of \S+ is not finite; loss scale now 32768", steps[0]
    )
    suffix = twin.module("files.checkpoint").SUFFIX
    last = tmp_path / f"checkpoint_0002{suffix}"
    read = twin.module("files.weights").read_weights
    _, expected = read(last)
    assert expected["loss_scaler"]["scale"] <= 32768
    last.unlink()
    assert twin.module("programs.train").main([*options, "--resume", str(tmp_path / f"checkpoint_0001{suffix}")]) == 0
    assert read(last)[1]["loss_scaler"] == expected["loss_scaler"]
