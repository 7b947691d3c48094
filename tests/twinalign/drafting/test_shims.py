"""Each shim computes what torch's layer of its name does, from the same arguments, in training mode as well."""

from __future__ import annotations

import ast
import builtins
import importlib.resources
import re
import symtable

import numpy as np
import paddle
import pytest
import torch

from twinalign.backends.paddle.models import prepare_model
from twinalign.drafting import native_rules, rules
from twinalign.drafting.absent_names import ABSENT
from twinalign.drafting.package import shims_source

FILES = importlib.resources.files("twinalign.drafting.shims").iterdir()
TEXT = "".join(file.read_text(encoding="utf-8") for file in FILES if file.name.endswith(".txt"))
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
    ("Conv1d", (6, 4, 4), {"padding": "same", "padding_mode": "circular"}, IMAGES[..., 0]),
    ("Conv2d", (6, 4, (3, 2)), {"padding": (2, 1), "padding_mode": "replicate"}, IMAGES),
    ("Conv2d", (6, 4, (4, 3)), {"padding": "same", "dilation": (1, 2), "padding_mode": "reflect"}, IMAGES),
    ("Conv2d", (6, 4, 3), {"padding": "valid", "padding_mode": "reflect"}, IMAGES),
    ("Conv3d", (6, 4, (3, 2, 1)), {}, IMAGES[..., None]),
    ("BatchNorm1d", (6,), {"eps": 1e-3, "momentum": 0.02}, IMAGES[..., 0]),
    ("BatchNorm1d", (6,), {}, IMAGES[:, :, 0, 0]),
    ("BatchNorm2d", (6,), {"momentum": 0.3}, IMAGES),
    ("BatchNorm2d", (6, 1e-2, 0.05, False), {}, IMAGES),
    ("BatchNorm2d", (6,), {"momentum": 3e-4}, IMAGES),
    ("BatchNorm2d", (6,), {"track_running_stats": False}, IMAGES),
    ("BatchNorm3d", (6,), {}, IMAGES[..., None]),
    ("LayerNorm", (8,), {"eps": 1e-3}, IMAGES),
    ("LayerNorm", ((9, 8),), {"bias": False}, IMAGES),
    ("GroupNorm", (3, 6), {"eps": 1e-2}, IMAGES),
    ("MaxPool2d", (3,), {"stride": 2, "padding": 1, "ceil_mode": True}, IMAGES),
    ("MaxPool1d", (2,), {}, IMAGES[..., 0]),
    ("MaxPool3d", ((1, 3, 2),), {"stride": (1, 2, 2)}, IMAGES[:, None]),
    ("AvgPool2d", (3, 2, 1), {}, IMAGES),
    ("AvgPool2d", (3,), {"padding": 1, "count_include_pad": False}, IMAGES),
    *((name, (), {"inplace": True}, IMAGES) for name in ("ReLU", "ReLU6", "SiLU", "Mish", "Hardswish", "Hardsigmoid")),
    ("LeakyReLU", (0.2,), {"inplace": True}, IMAGES),
    ("ELU", (0.5, True), {}, IMAGES),
    ("GELU", (), {}, IMAGES),
    ("GELU", ("tanh",), {}, IMAGES),
    ("Dropout", (0.0, True), {}, IMAGES),
    ("Dropout2d", (0.0,), {}, IMAGES),
    ("LSTM", (8, 5), {"bidirectional": True}, IMAGES[:, 0]),
    ("LSTM", (8, 5), {"batch_first": True}, IMAGES[:, 0]),
    ("GRU", (8, 5, 2, True, True), {}, IMAGES[:, 0]),
    ("LSTMCell", (8, 5), {}, (IMAGES[0, 0], (IMAGES[0, 1, :, :5], IMAGES[0, 2, :, :5]))),
    ("GRUCell", (8, 5), {}, (IMAGES[0, 0], IMAGES[0, 1, :, :5])),
    ("GroupNorm", (3, 6), {"affine": False}, IMAGES),
    ("RMSNorm", (8,), {}, IMAGES),
    ("RMSNorm", ((9, 8), 1e-3), {"elementwise_affine": False}, IMAGES),
    ("InstanceNorm1d", (6,), {"affine": True}, IMAGES[..., 0]),
    ("InstanceNorm2d", (6,), {"eps": 1e-3}, IMAGES),
    ("InstanceNorm3d", (6,), {}, IMAGES[..., None]),
    ("Upsample", (None, 1.5), {"mode": "bilinear", "align_corners": False}, IMAGES),
    ("Upsample", ((4, 5),), {}, IMAGES),
    ("UpsamplingBilinear2d", (), {"scale_factor": 2}, IMAGES),
    ("UpsamplingNearest2d", ((18, 16),), {}, IMAGES),
    ("TransformerEncoderLayer", (8, 2, 12, 0.0), {"activation": "gelu", "norm_first": True}, IMAGES[0]),
    ("TransformerEncoderLayer", (8, 2, 12, 0.0), {"batch_first": True, "bias": False}, IMAGES[0]),
    ("TransformerDecoderLayer", (8, 4, 12, 0.0), {}, (IMAGES[0], IMAGES[1])),
    ("Transformer", (8, 2, 2, 1, 12, 0.0), {"batch_first": True}, (IMAGES[0], IMAGES[1])),
    ("RNNCell", (8, 5), {"nonlinearity": "relu"}, (IMAGES[0, 0], IMAGES[0, 1, :, :5])),
    ("Embedding", (9, 4), {}, np.arange(12).reshape(4, 3) % 9),
    ("Bilinear", (9, 8, 5), {}, (IMAGES[0, 0].T, IMAGES[0, 1, :8])),
    ("MultiheadAttention", (8, 2), {"batch_first": True}, (IMAGES[0], IMAGES[1], IMAGES[1])),
    ("EmbeddingBag", (9, 4), {}, np.arange(12).reshape(4, 3) % 9),
    ("EmbeddingBag", (9, 4), {"mode": "sum"}, (np.arange(12) % 9, np.array([0, 5, 5]))),
    ("ConvTranspose1d", (6, 4, 3, 2, 1, 1, 2), {"bias": False}, IMAGES[..., 0]),
    ("ConvTranspose3d", (6, 4, (1, 2, 3)), {"stride": (1, 2, 2), "output_padding": (0, 1, 0)}, IMAGES[:, :, None]),
    ("ConvTranspose2d", (6, 4, 3), {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2}, IMAGES),
]


@pytest.fixture(scope="module")
def shims():
    names: dict = {}
    exec(compile(shims_source(NAMES), "shims.py", "exec"), names)
    return names


def test_every_rule_has_its_shim():
    texts = [text for rule in native_rules.CALLS.values() for text in (*rule.keywords.values(), *rule.absent.values())]
    beside = {name for text in texts for name in re.findall(r"shims\.(\w+)", text)}
    named = {rule.replacement for rule in (*rules.SHIMS, *rules.METHODS, *rules.ATTRIBUTES)}
    assert named | beside | {ABSENT} == set(NAMES)


TENSOR_TYPES = [f"{kind}Tensor" for kind in ("Bool", "Byte", "Double", "Float", "Half", "Int", "Long")]


def test_every_layer_is_compared():
    classes = {node.name for node in ast.parse(TEXT).body if isinstance(node, ast.ClassDef)} & set(NAMES)
    within = {"TransformerEncoder", "TransformerDecoder"}  # a Transformer has both
    beside = {*within, "PackedSequence", "CrossEntropyLoss", "GaussianNLLLoss", "KLDivLoss", "RMSprop", *TENSOR_TYPES}
    beside |= {"Function", "HuberLoss"}  # calls.txt has them
    assert {name for name, *_ in LAYERS} | beside == classes - {ABSENT}


@pytest.mark.parametrize("name", TENSOR_TYPES)
def test_the_type_of_a_tensor(shims, name):
    for dtype in ("bool", "uint8", "float64", "float32", "float16", "int32", "int64"):
        mine, other = torch.zeros(2, dtype=getattr(torch, dtype)), paddle.zeros([2], dtype)
        assert isinstance(other, shims[name]) == isinstance(mine, getattr(torch, name)), dtype
    assert not isinstance(2, shims[name])


def _as(make, given):
    return tuple(_as(make, one) for one in given) if isinstance(given, tuple) else make(given)


@pytest.mark.parametrize(("name", "arguments", "keywords", "given"), LAYERS)
def test_a_layer(shims, name, arguments, keywords, given):
    mine, other = getattr(torch.nn, name)(*arguments, **keywords).double(), shims[name](*arguments, **keywords)
    prepare_model(other, "float64", "cpu")  # Layer.to fails on a recurrent layer's empty buffer
    shapes = [sorted(tuple(parameter.shape) for parameter in layer.parameters()) for layer in (mine, other)]
    assert shapes[0] == shapes[1] or name in ("LayerNorm", "Bilinear")  # whose weight is flat, bias a row in paddle
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
        inputs = given if isinstance(given, tuple) else (given,)
        expected, found = mine(*_as(torch.tensor, inputs)), other(*_as(paddle.to_tensor, inputs))
        if isinstance(expected, tuple):
            expected, found = expected[0], found[0]
        expected, found = expected.detach().numpy(), found.numpy()
        np.testing.assert_allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE)
    for key, value in mine.named_buffers():
        if "batches" not in key:
            np.testing.assert_allclose(getattr(other, names[key]).numpy(), value.numpy(), rtol=TOLERANCE)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("total", [None, 11])
def test_packed_sequences(shims, kind, batch_first, total):
    """Lengths in any order, the longest shorter than the tensor; layers pay no heed to `batch_first` there."""
    mine = getattr(torch.nn, kind)(8, 5, 2, bidirectional=True, batch_first=not batch_first).double()
    other = shims[kind](8, 5, 2, bidirectional=True, batch_first=not batch_first)
    prepare_model(other, "float64", "cpu")
    other.set_state_dict({key: paddle.to_tensor(value.numpy()) for key, value in mine.state_dict().items()})
    lengths, x = [3, 7, 1, 6], IMAGES[:, 0] if batch_first else IMAGES[:, 0].transpose(1, 0, 2)

    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.tensor(x), torch.tensor(lengths), batch_first, False)
    expected, states = mine(packed)
    expected, counted = torch.nn.utils.rnn.pad_packed_sequence(expected, batch_first, 0.5, total)
    found, its_states = other(
        shims["pack_padded_sequence"](paddle.to_tensor(x), paddle.to_tensor(lengths), batch_first)
    )
    found, its_lengths = shims["pad_packed_sequence"](found, batch_first, 0.5, total)

    np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), rtol=TOLERANCE, atol=TOLERANCE)
    assert its_lengths.tolist() == counted.tolist()
    pairs = zip(its_states, states, strict=True) if kind == "LSTM" else [(its_states, states)]
    for its, own in pairs:
        np.testing.assert_allclose(its.numpy(), own.detach().numpy(), rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("arguments", [(6, 4, 3), (6, 4, (3, 2), 2, 1, 1, 2), (6, 4, 1, 1, "same")])
def test_attributes_of_a_convolution(shims, arguments):
    mine, other = torch.nn.Conv2d(*arguments), shims["Conv2d"](*arguments)
    for name in ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups"):
        assert getattr(other, name) == getattr(mine, name), name


@pytest.mark.parametrize("arguments", [(3,), ((3, 2), 2, 1)])
@pytest.mark.parametrize("name", ["MaxPool2d", "AvgPool2d"])
def test_attributes_of_pooling(shims, name, arguments):
    mine, other = getattr(torch.nn, name)(*arguments), shims[name](*arguments)
    for attribute in mine.__constants__:
        assert getattr(other, attribute) == getattr(mine, attribute), attribute


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("Conv2d", (64, 128, 3, 1, 0, 1, 2)),
        ("ConvTranspose1d", (64, 128, 3, 1, 0, 0, 2)),
        ("Linear", (200, 128)),
        ("Linear", (50, 3)),
    ],
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


@pytest.mark.parametrize(
    ("layer", "arguments", "fan"),
    [("Conv2D", (64, 128, 3), 576), ("Conv2DTranspose", (64, 128, 3), 1152), ("Linear", (200, 128), 200)],
)
def test_first_weights_of_paddles_layers(shims, layer, arguments, fan):
    made = getattr(paddle.nn, layer)(*arguments, **shims["first_weights"]())
    for found in (made.weight.numpy(), made.bias.numpy()):
        assert abs(found).max() <= fan**-0.5
        assert found.std() == pytest.approx((3 * fan) ** -0.5, rel=0.15)
    assert getattr(paddle.nn, layer)(*arguments, **shims["first_weights"](bias=False)).bias is None


@pytest.mark.parametrize("freeze", [True, False])
def test_an_embedding_is_trained_unless_it_is_frozen(shims, freeze):
    assert shims["Embedding"](9, 4, _freeze=freeze).weight.stop_gradient is freeze


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
    shims[f"{name}_"](tensor, 3.0)
    np.testing.assert_allclose(tensor.numpy(), getattr(torch.from_numpy(IMAGES.copy()), f"{name}_")(3.0).numpy())


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "floor_divide", "ne", "lt", "le", "gt", "ge"])
@pytest.mark.parametrize("other", [3, 0.5, IMAGES[0]])
def test_numbers_and_tensors(shims, name, other):
    array = isinstance(other, np.ndarray)
    expected = getattr(torch, name)(torch.from_numpy(IMAGES), torch.from_numpy(other) if array else other).numpy()
    found = shims[name](paddle.to_tensor(IMAGES), paddle.to_tensor(other) if array else other).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("mode", ["floor", "trunc"])
@pytest.mark.parametrize("given", [IMAGES, np.arange(-6, 6)])
def test_rounded_quotients(shims, mode, given):
    expected = torch.div(torch.from_numpy(given), 4, rounding_mode=mode).numpy()
    found = shims["div"](paddle.to_tensor(given), 4, rounding_mode=mode).numpy()
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_methods_of_others_of_the_same_name(shims):
    seen = {1}
    shims["add"](seen, 2)
    assert seen == {1, 2}
    assert shims["sub"](re.compile("a"), "b", "banana") == "bbnbnb"
    assert shims["max"](IMAGES) == IMAGES.max()


@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes(shims, name):
    given = torch.from_numpy(IMAGES)
    assert float(shims[name](paddle.to_tensor(IMAGES))) == float(getattr(given, name)())
    values, places = shims[name](paddle.to_tensor(IMAGES), 1)
    expected_values, expected_places = getattr(given, name)(1)
    np.testing.assert_array_equal(values.numpy(), expected_values.numpy())
    np.testing.assert_array_equal(places.numpy(), expected_places.numpy())


@pytest.mark.parametrize("leading", [(), (2,), (2, 3), (2, 3, 2)])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_of_any_dimensions(shims, leading, masked):
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal((*leading, 4, 5, 6)) for _ in range(3)]
    mask = rng.standard_normal((*leading, 4, 5, 5)) if masked else None
    attend = torch.nn.functional.scaled_dot_product_attention
    expected = attend(*map(torch.from_numpy, arrays), torch.from_numpy(mask) if masked else None).numpy()
    found = shims["scaled_dot_product_attention"](
        *map(paddle.to_tensor, arrays), paddle.to_tensor(mask) if masked else None
    )
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "asked",
    [
        {"size": (14, 5)},
        {"size": 5, "align_corners": True},
        {"scale_factor": 1.7},
        {"scale_factor": (1.3, 2.0), "recompute_scale_factor": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("antialias", [False, True])
def test_interpolation_in_float64(shims, asked, mode, antialias):
    asked = {"mode": mode, "antialias": antialias, **asked}
    expected = torch.nn.functional.interpolate(torch.from_numpy(IMAGES), **asked).numpy()
    found = shims["interpolate"](paddle.to_tensor(IMAGES), **asked).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "area"])
@pytest.mark.parametrize("size", [(14, 5), 5])
def test_other_modes_of_interpolation(shims, mode, size):
    expected = torch.nn.functional.interpolate(torch.from_numpy(IMAGES), size=size, mode=mode).numpy()
    found = shims["interpolate"](paddle.to_tensor(IMAGES), size=size, mode=mode).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("reshape_as", (np.zeros((24, 72)),)),
        ("movedim", (1, -1)),
        ("movedim", ((0, 1), (2, 3))),
        ("select", (-2, 3)),
        ("clamp_min", (0.1,)),
        ("clamp_max", (0.1,)),
    ],
)
def test_methods_that_paddle_lacks(shims, name, arguments):
    def given(framework):
        return [framework(one) if isinstance(one, np.ndarray) else one for one in arguments]

    expected = getattr(torch.from_numpy(IMAGES), name)(*given(torch.from_numpy)).numpy()
    np.testing.assert_array_equal(shims[name](paddle.to_tensor(IMAGES), *given(paddle.to_tensor)).numpy(), expected)


@pytest.mark.parametrize("name", ["addcmul", "addcdiv"])
def test_a_product_or_quotient_is_added(shims, name):
    arrays = [IMAGES, IMAGES + 10, IMAGES[:1] + 20]
    expected = getattr(torch, name)(*map(torch.from_numpy, arrays), value=0.3).numpy()
    np.testing.assert_allclose(shims[name](*map(paddle.to_tensor, arrays), value=0.3).numpy(), expected, rtol=1e-12)


def test_recurrent_layers_without_a_bias(shims):
    with pytest.raises(NotImplementedError, match=r"^paddle's recurrent layers fail without a bias$"):
        shims["LSTM"](8, 5, 2, bias=False)


def test_an_annotation_for_torchscript(shims):
    assert shims["annotate"](list, [3]) == [3]


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


def test_running_statistics_of_a_small_momentum(shims):
    mine, other = torch.nn.BatchNorm2d(6, momentum=3e-4), shims["BatchNorm2d"](6, momentum=3e-4)
    given = IMAGES.astype("float32")
    mine(torch.from_numpy(given))
    other(paddle.to_tensor(given))
    np.testing.assert_allclose(other._mean.numpy(), mine.running_mean.numpy(), rtol=3e-6)


def test_a_number_to_the_power_of_a_tensor(shims):
    expected = torch.pow(1.5, torch.from_numpy(IMAGES)).numpy()
    np.testing.assert_allclose(shims["pow"](1.5, paddle.to_tensor(IMAGES)).numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(shims["pow"](paddle.to_tensor(IMAGES), 2).numpy(), IMAGES**2, rtol=1e-12)


def test_batch_norm_without_running_statistics(shims):
    """As NFNet standardises its weights; paddle's own kernel ends the process in its backward pass."""
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal((1, 6, 20)), rng.standard_normal(6), rng.standard_normal(6)]
    mine = [torch.from_numpy(array).requires_grad_() for array in arrays]
    other = [paddle.to_tensor(array, stop_gradient=False) for array in arrays]
    expected = torch.nn.functional.batch_norm(mine[0], None, None, *mine[1:], training=True, momentum=0.0, eps=1e-6)
    found = shims["batch_norm"](other[0], None, None, *other[1:], training=True, momentum=0.0, eps=1e-6)
    np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), rtol=1e-12, atol=1e-12)
    expected.pow(3).sum().backward()
    found.pow(3).sum().backward()
    for one, two in zip(mine, other, strict=True):
        np.testing.assert_allclose(two.grad.numpy(), one.grad.numpy(), rtol=1e-10, atol=1e-10)


FILLS = {"constant_": {"val": 0.3}, "zeros_": {}, "ones_": {}, "eye_": {}, "dirac_": {}}


@pytest.mark.parametrize(
    "name", [name for name in NAMES if f"torch.nn.init.{name}" in {r.pattern for r in rules.SHIMS}]
)
def test_initialisers_give_what_they_filled(shims, name):
    shape = [20, 10, 3] if name == "dirac_" else [200, 100]
    tensors = torch.empty(shape), paddle.empty(shape)
    given = FILLS.get(name, {"generator": None})
    getattr(torch.nn.init, name)(tensors[0], **given)
    assert shims[name](tensors[1], **given) is tensors[1]
    if name in FILLS:
        assert shims[name](shims["BatchNorm2d"](3).num_batches_tracked, **given) is None
    assert float(tensors[1].std()) == pytest.approx(float(tensors[0].std()), rel=0.05, abs=1e-4)
    assert float(tensors[1].mean()) == pytest.approx(float(tensors[0].mean()), abs=0.05)


def test_types(shims):
    assert shims["get_default_dtype"]() is paddle.float32
    assert shims["is_floating_point"](paddle.bfloat16)
    assert not shims["is_floating_point"](paddle.int64)


def test_an_absent_name_speaks_where_it_is_called(shims):
    absent = shims[ABSENT]("torch.fx")
    assert not isinstance(3, absent.Proxy)

    class Mine(absent.Tracer):
        pass

    assert Mine.__mro__[1:] == (object,)
    with pytest.raises(NotImplementedError, match=r"^torch\.fx\.wrap: the port has nothing in its place$"):
        absent.wrap("f")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("max_pool2d", (3, 2, 1, 1, True)),
        ("max_pool2d", ((3, 2), None, (1, 0), (1, 1))),
        ("avg_pool2d", (3, 2, 1, True, False)),
        ("avg_pool2d", ((2, 3), None, 0, False, True, 5)),
    ],
)
def test_pooling_with_torch_s_order_of_arguments(shims, name, arguments):
    expected = getattr(torch.nn.functional, name)(torch.from_numpy(IMAGES), *arguments).numpy()
    found = shims[name](paddle.to_tensor(IMAGES), *arguments)
    np.testing.assert_allclose(found.numpy(), expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.slow
def test_what_a_shim_names_comes_along_and_no_more() -> None:
    for name in NAMES:
        text = shims_source([name])
        defined = {node.name for node in ast.parse(text).body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
        found = _globals_of(symtable.symtable(text, "shims.py", "exec"))
        assert found <= defined | {"copy", "math", "paddle", "re"} | vars(builtins).keys()
        assert defined <= found | {name}


def _globals_of(table: symtable.SymbolTable) -> set[str]:
    """Names of the module that its functions and classes read."""
    read = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global() and symbol.is_referenced()}
    if table.get_type() == "module":
        read = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_referenced()}
    return read.union(*map(_globals_of, table.get_children()))
