"""Training goes on in the other framework: ten steps here, ten there, against twenty in one."""

from __future__ import annotations

import types

import numpy as np
import paddle
import pytest
import torch

from moco_paddle.files import checkpoint as paddle_checkpoint
from moco_paddle.models import moco as paddle_builder
from moco_paddle.training import optimizer as paddle_optimizer
from moco_paddle.training import pretraining as paddle_training
from moco_ref.files import checkpoint as torch_checkpoint
from moco_ref.models import moco as torch_builder
from moco_ref.training import optimizer as torch_optimizer
from moco_ref.training import pretraining as torch_training
from twinalign.conversion import training_state
from twinalign.conversion.convert_file import convert_checkpoint
from twinalign.conversion.options import Options
from twinalign.errors import InputError

STEPS = {"vit_digits": 10, "resnet18": 4}
"""Before the conversion, and as many after it."""


def recipe(name):
    # paddle's kernels hold momentum and decay in float32. Both are powers of two or sums of few here, which float32
    # holds exactly: 0.9 differs by 2.6e-8, and a training may magnify that a hundredfold.
    decay, rate = (0.1, 1e-4) if name == "adamw" else (2.0**-20, 0.05)
    arguments = types.SimpleNamespace(lr=rate, epochs=5, warmup_epochs=1, moco_m=0.99, moco_m_cos=True)
    settings = {"optimizer": name, "weight_decay": decay, "momentum": 0.875, "seed": 3}
    return arguments, settings


def build_optimizer(module, name, model):
    arguments, settings = recipe(name)
    return module.build_optimizer(
        name, model.parameters(), arguments.lr, settings["weight_decay"], settings["momentum"]
    )


def views(step):
    generator = np.random.default_rng(step)
    return generator.standard_normal((16, 3, 32, 32)), generator.standard_normal((16, 3, 32, 32))


def torch_side(arch, name, dtype):
    torch.manual_seed(0)
    model = torch_builder.build_moco(arch, 16, 32).to(getattr(torch, dtype)).train()
    return model, build_optimizer(torch_optimizer, name, model)


def paddle_side(arch, name, dtype):
    paddle.seed(0)
    model = paddle_builder.build_moco(arch, 16, 32)
    model.to(dtype=dtype)
    model.train()
    return model, build_optimizer(paddle_optimizer, name, model)


def train(module, tensor, side, name, steps):
    arguments, _ = recipe(name)
    return [
        module.train_step(*side, *(tensor(view) for view in views(step)), step / 10, arguments)[0] for step in steps
    ]


def factories(arch):
    return {
        "ref": f"moco_ref:build_moco(arch={arch!r}, dim=16, mlp_dim=32)",
        "paddle": f"moco_paddle:build_moco(arch={arch!r}, dim=16, mlp_dim=32)",
    }


CASES = [
    ("resnet18", "lars", "float64", 1e-10),
    ("vit_digits", "adamw", "float64", 1e-8),
    ("vit_digits", "sgd", "float64", 1e-11),
    ("vit_digits", "adamw", "float32", 1e-3),
]


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(("arch", "name", "dtype", "limit"), CASES)
def test_training_goes_on_in_paddle(tmp_path, arch, name, dtype, limit):
    _, settings = recipe(name)
    steps = STEPS[arch]
    whole = train(torch_training, torch.from_numpy, torch_side(arch, name, dtype), name, range(2 * steps))
    side = torch_side(arch, name, dtype)
    train(torch_training, torch.from_numpy, side, name, range(steps))
    torch_checkpoint.save_checkpoint(tmp_path / "a.pth.tar", *side, 1, 0, settings)
    convert_checkpoint(tmp_path / "a.pth.tar", tmp_path / "a.npz", Options(factories=factories(arch)))
    other = paddle_side(arch, name, dtype)
    assert paddle_checkpoint.load_checkpoint(tmp_path / "a.npz", *other, settings) == (1, 0)
    continued = train(paddle_training, paddle.to_tensor, other, name, range(steps, 2 * steps))
    np.testing.assert_allclose(continued, whole[steps:], rtol=limit)


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(("arch", "name", "dtype", "limit"), CASES)
def test_training_goes_on_in_torch(tmp_path, arch, name, dtype, limit):
    _, settings = recipe(name)
    steps = STEPS[arch]
    side = paddle_side(arch, name, dtype)
    start = {key: value.numpy().copy() for key, value in side[0].state_dict().items()}
    train(paddle_training, paddle.to_tensor, side, name, range(steps))
    paddle_checkpoint.save_checkpoint(tmp_path / "a.npz", *side, 1, 0, settings)
    convert_checkpoint(tmp_path / "a.npz", tmp_path / "a.pth.tar", Options(factories=factories(arch)))
    again = paddle_side(arch, name, dtype)
    again[0].set_state_dict(start)
    whole = train(paddle_training, paddle.to_tensor, again, name, range(2 * steps))
    other = torch_side(arch, name, dtype)
    assert torch_checkpoint.load_checkpoint(tmp_path / "a.pth.tar", *other, settings) == (1, 0)
    continued = train(torch_training, torch.from_numpy, other, name, range(steps, 2 * steps))
    np.testing.assert_allclose(continued, whole[steps:], rtol=limit)


def official_checkpoint(path, arch, name):
    """A file of the official program's form: wrapped keys, a scaler, no settings."""
    model, optimizer = torch_side(arch, name, "float32")
    train(torch_training, torch.from_numpy, (model, optimizer), name, range(2))
    scaler = {
        "scale": 65536.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 2000,
        "_growth_tracker": 2,
    }
    torch.save(
        {
            "epoch": 4,
            "arch": arch,
            "state_dict": {f"module.{key}": value for key, value in model.state_dict().items()},
            "optimizer": optimizer.state_dict(),
            "scaler": scaler,
        },
        path,
    )
    return model, optimizer, scaler


@pytest.mark.usefixtures("in_process")
def test_official_checkpoint_to_pdparams_and_pdopt_and_back(tmp_path):
    model, optimizer, scaler = official_checkpoint(tmp_path / "a.pth.tar", "vit_digits", "adamw")
    options = Options(factories=factories("vit_digits"), settings={"weight_decay": 0.1, "lr": 1e-3})
    with paddle.utils.unique_name.guard():
        report = convert_checkpoint(tmp_path / "a.pth.tar", tmp_path / "a.pdparams", options)
    assert [path.name for path in report.written] == ["a.pdparams", "a.pdopt", "a.run.json"]
    # The optimizer names its accumulators from the same counters as the model its parameters, as in a fresh process.
    with paddle.utils.unique_name.guard():
        port = paddle_builder.build_moco("vit_digits", 16, 32)
        assert port.set_state_dict(paddle.load(str(tmp_path / "a.pdparams"))) == ([], [])
        resumed = paddle.optimizer.AdamW(1e-3, parameters=port.parameters(), weight_decay=0.1)
        resumed.set_state_dict(paddle.load(str(tmp_path / "a.pdopt")))
        loss = port(*(paddle.to_tensor(view.astype("float32")) for view in views(2)), 0.99)
        loss.backward()
        resumed.step()  # raises where a name of the state is not one of the model's
    with paddle.utils.unique_name.guard():
        convert_checkpoint(tmp_path / "a.pdparams", tmp_path / "b.pth.tar", options)
    back = torch.load(tmp_path / "b.pth.tar", weights_only=True)
    assert (back["epoch"], back["arch"], back["scaler"]) == (4, "vit_digits", scaler)
    again = torch_side("vit_digits", "adamw", "float32")
    again[0].load_state_dict(back["state_dict"])
    again[1].load_state_dict(back["optimizer"])
    expected, given = optimizer.state_dict(), again[1].state_dict()
    assert expected["state"].keys() == given["state"].keys()
    for number, values in expected["state"].items():
        for name, value in values.items():
            assert torch.equal(value, given["state"][number][name]), (number, name)
    assert given["param_groups"][0]["weight_decay"] == 0.1
    assert all(
        torch.equal(value, model.state_dict()[key]) or "num_batches" in key for key, value in back["state_dict"].items()
    )


@pytest.mark.usefixtures("in_process")
def test_the_way_back_finds_the_optimizers_settings_beside_paddles_files(tmp_path):
    _, optimizer, _ = official_checkpoint(tmp_path / "a.pth.tar", "vit_digits", "adamw")
    options = Options(factories=factories("vit_digits"))
    for source, target in (("a.pth.tar", "a.pdparams"), ("a.pdparams", "b.pth.tar")):
        with paddle.utils.unique_name.guard():
            convert_checkpoint(tmp_path / source, tmp_path / target, options)
    back = torch.load(tmp_path / "b.pth.tar", weights_only=True)
    assert back["optimizer"]["param_groups"] == optimizer.state_dict()["param_groups"]
    assert "optimizer_settings" not in back


@pytest.mark.usefixtures("in_process")
def test_official_checkpoint_is_resumed_in_paddle_without_any_settings(tmp_path):
    official_checkpoint(tmp_path / "a.pth.tar", "vit_digits", "adamw")
    convert_checkpoint(tmp_path / "a.pth.tar", tmp_path / "a.npz", Options(factories=factories("vit_digits")))
    _, settings = recipe("adamw")
    side = paddle_side("vit_digits", "adamw", "float32")
    assert paddle_checkpoint.load_checkpoint(tmp_path / "a.npz", *side, settings) == (4, 0)
    assert train(paddle_training, lambda view: paddle.to_tensor(view.astype("float32")), side, "adamw", range(2, 3))


def test_paddle_optimizer_without_settings_is_refused_with_the_remedy():
    state = training_state.OptimizerState("adamw", {}, {}, {})
    with pytest.raises(InputError) as error:
        training_state.write_torch(state, [], "a.pdparams")
    assert str(error.value) == (
        "a.pdparams: paddle stores no settings with an optimizer's state; give weight_decay with "
        "--setting NAME=VALUE, or leave the optimizer out with --weights-only"
    )


@pytest.mark.parametrize("steps", [0, 1, 17, 700, 900, 5000, 60000])
def test_steps_are_read_off_the_powers_of_the_betas(steps):
    powers = [np.float32(1.0), np.float32(1.0)]
    for _ in range(steps + 1):  # as paddle's kernel accumulates them
        powers = [np.float32(power * np.float32(beta)) for power, beta in zip(powers, (0.9, 0.999), strict=True)]
    assert training_state.steps_from_powers([np.array([power]) for power in powers], (0.9, 0.999)) == steps
    written = training_state.write_paddle(
        training_state.OptimizerState("adamw", {"moment1": {"w": np.zeros(1, "float32")}}, {"w": steps}, {})
    )
    assert [written[f"beta{i}_pow_acc"]["w"][0] for i in (1, 2)] == powers


def test_scaler_states_are_each_others_inverse():
    state = {"scale": 1024.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 100, "_growth_tracker": 7}
    assert training_state.scaler_to_torch(training_state.scaler_to_paddle(state)) == state
    paddle.amp.GradScaler(enable=True).load_state_dict(training_state.scaler_to_paddle(state))
    assert training_state.scaler_to_torch({}) == training_state.scaler_to_paddle({}) == {}
