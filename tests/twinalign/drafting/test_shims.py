"""Each shim computes what torch's layer of its name does, from the same arguments, in training mode as well."""

from __future__ import annotations

import ast
import importlib.resources

import numpy as np
import paddle
import pytest
import torch

from twinalign.drafting import rules
from twinalign.drafting.package import shims_source

TEXT = importlib.resources.files("twinalign.drafting").joinpath("shims.txt").read_text(encoding="utf-8")
NAMES = [
    node.name
    for node in ast.parse(TEXT).body
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_")
]
IMAGES = np.random.default_rng(0).standard_normal((4, 6, 9, 8))
TOLERANCE = 2e-7
"""paddle's kernels keep epsilon, momentum, slope and scale in float32."""
LAYERS = [
    ("Linear", (8, 5), {}, IMAGES),
    ("Linear", (8, 5, False), {}, IMAGES),
    ("Conv1d", (6, 4, 3), {"padding": 1}, IMAGES[..., 0]),
    ("Conv2d", (6, 4, (3, 2)), {"stride": 2, "padding": (1, 0), "groups": 2, "bias": False}, IMAGES),
    ("Conv2d", (6, 4, 3), {"padding": "same", "dilation": 2}, IMAGES),
    ("Conv2d", (6, 4, 3, 1, 1), {"padding_mode": "reflect"}, IMAGES),
    ("Conv3d", (6, 4, (3, 2, 1)), {}, IMAGES[..., None]),
    ("BatchNorm1d", (6,), {"eps": 1e-3, "momentum": 0.02}, IMAGES[..., 0]),
    ("BatchNorm1d", (6,), {}, IMAGES[:, :, 0, 0]),
    ("BatchNorm2d", (6,), {"momentum": 0.3}, IMAGES),
    ("BatchNorm2d", (6, 1e-2, 0.05, False), {}, IMAGES),
    ("BatchNorm3d", (6,), {}, IMAGES[..., None]),
    ("LayerNorm", (8,), {"eps": 1e-3}, IMAGES),
    ("LayerNorm", ((9, 8),), {"bias": False}, IMAGES),
    ("GroupNorm", (3, 6), {"eps": 1e-2}, IMAGES),
    ("MaxPool2d", (3,), {"stride": 2, "padding": 1, "ceil_mode": True}, IMAGES),
    ("AvgPool2d", (3, 2, 1), {}, IMAGES),
    ("AvgPool2d", (3,), {"padding": 1, "count_include_pad": False}, IMAGES),
    *((name, (), {"inplace": True}, IMAGES) for name in ("ReLU", "ReLU6", "SiLU", "Mish", "Hardswish", "Hardsigmoid")),
    ("LeakyReLU", (0.2,), {"inplace": True}, IMAGES),
    ("ELU", (0.5, True), {}, IMAGES),
    ("GELU", (), {}, IMAGES),
    ("GELU", ("tanh",), {}, IMAGES),
    ("Dropout", (0.0, True), {}, IMAGES),
    ("Dropout2d", (0.0,), {}, IMAGES),
    ("ConvTranspose2d", (6, 4, 3), {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2}, IMAGES),
]


@pytest.fixture(scope="module")
def shims():
    names: dict = {}
    exec(compile(shims_source(NAMES), "shims.py", "exec"), names)
    return names


def test_every_rule_has_its_shim():
    assert {rule.replacement for rule in (*rules.SHIMS, *rules.METHODS)} == set(NAMES)


def test_every_layer_is_compared():
    classes = {node.name for node in ast.parse(TEXT).body if isinstance(node, ast.ClassDef)}
    assert {name for name, *_ in LAYERS} == classes


@pytest.mark.parametrize(("name", "arguments", "keywords", "given"), LAYERS)
def test_a_layer(shims, name, arguments, keywords, given):
    mine, other = getattr(torch.nn, name)(*arguments, **keywords).double(), shims[name](*arguments, **keywords)
    other.to(dtype="float64")
    with torch.no_grad():
        state = {key: value + 0.3 for key, value in mine.state_dict().items() if "batches" not in key}
        mine.load_state_dict(state, strict=False)
        names = {"running_mean": "_mean", "running_var": "_variance"}
        shapes = {key: value.shape for key, value in other.state_dict().items()}  # a LayerNorm's weight is flat
        arrays = {names.get(key, key): value.numpy() for key, value in state.items()}
        other.set_state_dict({key: paddle.to_tensor(value.reshape(shapes[key])) for key, value in arrays.items()})
    for training in (True, False):
        mine.train(training)
        (other.train if training else other.eval)()
        expected = mine(torch.from_numpy(given.copy())).detach().numpy()
        found = other(paddle.to_tensor(given)).numpy()
        np.testing.assert_allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE)
    for key, value in mine.named_buffers():
        if "batches" not in key:
            np.testing.assert_allclose(getattr(other, names[key]).numpy(), value.numpy(), rtol=TOLERANCE)


@pytest.mark.parametrize("arguments", [(6, 4, 3), (6, 4, (3, 2), 2, 1, 1, 2), (6, 4, 1, 1, "same")])
def test_attributes_of_a_convolution(shims, arguments):
    mine, other = torch.nn.Conv2d(*arguments), shims["Conv2d"](*arguments)
    for name in ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups"):
        assert getattr(other, name) == getattr(mine, name), name


@pytest.mark.parametrize(
    ("name", "arguments"), [("Conv2d", (64, 128, 3, 1, 0, 1, 2)), ("Linear", (200, 128)), ("Linear", (50, 3))]
)
def test_first_weights(shims, name, arguments):
    mine, other = getattr(torch.nn, name)(*arguments), shims[name](*arguments)
    for name in ("weight", "bias"):
        expected, found = getattr(mine, name).detach().numpy(), getattr(other, name).numpy()
        assert found.shape == expected.shape
        bound = np.prod(mine.weight.shape[1:]) ** -0.5
        assert abs(expected).max() <= bound  # as torch's source says it
        assert abs(found).max() <= bound
        assert found.size < 100 or found.std() == pytest.approx(bound / 3**0.5, rel=0.15)


@pytest.mark.parametrize("size", [2, 4, [1, 2, 3]])
def test_split(shims, size):
    expected = torch.from_numpy(IMAGES).split(size, dim=1)
    found = shims["split"](paddle.to_tensor(IMAGES), size, dim=1)
    assert [tuple(part.shape) for part in found] == [tuple(part.shape) for part in expected]
    assert shims["split"]("a b", " ") == ["a", "b"]


def test_chunk(shims):
    expected = torch.from_numpy(IMAGES).chunk(4, dim=1)
    found = shims["chunk"](paddle.to_tensor(IMAGES), 4, dim=1)
    assert [tuple(part.shape) for part in found] == [tuple(part.shape) for part in expected]


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_numbers_in_place(shims, name):
    tensor = paddle.to_tensor(IMAGES)
    shims[name](tensor, 3.0)
    np.testing.assert_allclose(tensor.numpy(), getattr(torch.from_numpy(IMAGES.copy()), f"{name}_")(3.0).numpy())


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_functions(shims, approximate):
    given = torch.from_numpy(IMAGES)
    expected = torch.nn.functional.gelu(given, approximate=approximate).numpy()
    np.testing.assert_allclose(shims["gelu"](paddle.to_tensor(IMAGES), approximate).numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(
        shims["hardsigmoid"](paddle.to_tensor(IMAGES)).numpy(),
        torch.nn.functional.hardsigmoid(given).numpy(),
        atol=1e-6,
    )


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_as_a_function(shims, training):
    statistics = [np.linspace(0.5, 1.5, 6), np.linspace(1.0, 2.0, 6)]
    mine = [torch.from_numpy(array.copy()) for array in statistics]
    other = [paddle.to_tensor(array) for array in statistics]
    expected = torch.nn.functional.batch_norm(torch.from_numpy(IMAGES), *mine, training=training, momentum=0.3)
    found = shims["batch_norm"](paddle.to_tensor(IMAGES), *other, training=training, momentum=0.3)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=TOLERANCE, atol=TOLERANCE)
    for left, right in zip(mine, other, strict=True):
        np.testing.assert_allclose(right.numpy(), left.numpy(), rtol=TOLERANCE)


def test_a_number_to_the_power_of_a_tensor(shims):
    expected = torch.pow(1.5, torch.from_numpy(IMAGES)).numpy()
    np.testing.assert_allclose(shims["pow"](1.5, paddle.to_tensor(IMAGES)).numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(shims["pow"](paddle.to_tensor(IMAGES), 2).numpy(), IMAGES**2, rtol=1e-12)
