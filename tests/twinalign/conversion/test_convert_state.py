"""Both directions of `convert_state`, on square weights, where no shape can save a wrong rule."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
import torch
from torch.nn.utils import parametrizations, spectral_norm, weight_norm

from tests.twinalign.conversion.ledgers import unaccounted
from twinalign.backends.paddle import backend as paddle_backend
from twinalign.backends.state_layout import group_layers
from twinalign.backends.torch import backend as torch_backend
from twinalign.conversion import StateEntry, Stored, convert_state, storage_rule
from twinalign.conversion.layout_of_counterpart import counterpart
from twinalign.conversion.rename_rules import Renaming
from twinalign.conversion.storage import absorbs
from twinalign.errors import InputError


def randomised(model):
    generator = torch.Generator().manual_seed(0)
    for name, value in model.state_dict().items():
        if value.dtype.is_floating_point:
            filled = torch.randn(value.shape, generator=generator)
            value.copy_(filled.abs() + 0.5 if name.endswith("running_var") else filled)
    return model.eval()


def convert_there_and_back(reference, port, rename=None):
    layouts = torch_backend.describe_state(reference), paddle_backend.describe_state(port)
    arrays = dict(torch_backend.state_items(reference))
    there = convert_state(arrays, *layouts, rename=rename)
    assert not unaccounted(there.ledger, list(arrays), list(there.arrays))
    assert list(there.arrays) == list(port.state_dict())
    paddle_backend.load_state_arrays(port, there.arrays)
    back = convert_state(there.arrays, *reversed(layouts), source="paddle", rename=rename)
    assert not unaccounted(back.ledger, list(there.arrays), list(back.arrays))
    for key, value in arrays.items():
        np.testing.assert_array_equal(back.arrays[key], value, err_msg=key)
    return there


def outputs_agree(reference, port, *inputs):
    port.eval()
    with torch.no_grad(), paddle.no_grad():
        expected = reference(*map(torch.from_numpy, inputs))
        given = port(*map(paddle.to_tensor, inputs))
    expected = expected[0] if isinstance(expected, tuple) else expected
    given = given[0] if isinstance(given, tuple) else given
    # float32: the order of summation is all that is left to differ.
    np.testing.assert_allclose(given.numpy(), expected.numpy(), rtol=1e-5, atol=1e-5)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype="float32")


class TorchInOut(torch.nn.Module):
    """A matrix of its own, kept (in, out), as GPT-2's `Conv1D` does."""

    def __init__(self, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(size, size))
        self.bias = torch.nn.Parameter(torch.zeros(size))

    def forward(self, x):
        return x @ self.weight + self.bias


class PaddleOutIn(paddle.nn.Linear):
    """Called Linear and derived from it, yet it keeps its weight (out, in)."""

    def forward(self, x):
        return x @ self.weight.T + self.bias


n, p = torch.nn, paddle.nn
LAYERS = {
    "linear": (lambda: n.Linear(4, 4), lambda: p.Linear(4, 4), (normal(2, 4),)),
    "compat linear": (lambda: n.Linear(4, 4), lambda: paddle.compat.nn.Linear(4, 4), (normal(2, 4),)),
    "subclass that keeps (out, in)": (lambda: n.Linear(4, 4), lambda: PaddleOutIn(4, 4), (normal(2, 4),)),
    "matrix kept (in, out)": (lambda: TorchInOut(4), lambda: p.Linear(4, 4), (normal(2, 4),)),
    "embedding": (lambda: n.Embedding(4, 4), lambda: p.Embedding(4, 4), (np.array([[0, 3]]),)),
    "conv1d": (lambda: n.Conv1d(4, 4, 1), lambda: p.Conv1D(4, 4, 1), (normal(2, 4, 5),)),
    "conv2d": (lambda: n.Conv2d(4, 4, 3, groups=2), lambda: p.Conv2D(4, 4, 3, groups=2), (normal(2, 4, 5, 5),)),
    "conv3d": (lambda: n.Conv3d(2, 2, 2), lambda: p.Conv3D(2, 2, 2), (normal(1, 2, 3, 3, 3),)),
    "conv2d transposed": (
        lambda: n.ConvTranspose2d(4, 4, 3),
        lambda: p.Conv2DTranspose(4, 4, 3),
        (normal(2, 4, 5, 5),),
    ),
    "batch norm": (lambda: n.BatchNorm2d(4), lambda: p.BatchNorm2D(4), (normal(2, 4, 3, 3),)),
    "batch norm without affine": (
        lambda: n.BatchNorm1d(4, affine=False),
        lambda: p.BatchNorm1D(4, weight_attr=False, bias_attr=False),
        (normal(2, 4),),
    ),
    "legacy batch norm": (lambda: n.BatchNorm2d(4), lambda: p.BatchNorm(4), (normal(2, 4, 3, 3),)),
    "layer norm of two axes": (lambda: n.LayerNorm((3, 4)), lambda: p.LayerNorm((3, 4)), (normal(2, 3, 4),)),
    "group norm": (lambda: n.GroupNorm(2, 4), lambda: p.GroupNorm(2, 4), (normal(2, 4, 3, 3),)),
    "instance norm": (
        lambda: n.InstanceNorm2d(4, affine=True),
        lambda: p.InstanceNorm2D(4),
        (normal(2, 4, 3, 3),),
    ),
    "prelu": (lambda: n.PReLU(4), lambda: p.PReLU(4), (normal(2, 4),)),
    "bilinear": (lambda: n.Bilinear(3, 3, 3), lambda: p.Bilinear(3, 3, 3), (normal(2, 3), normal(2, 3, seed=1))),
    "attention": (
        lambda: n.MultiheadAttention(4, 2, batch_first=True),
        lambda: p.MultiHeadAttention(4, 2),
        (normal(2, 3, 4),) * 3,
    ),
    "attention of three widths": (
        lambda: n.MultiheadAttention(4, 2, kdim=3, vdim=5, batch_first=True),
        lambda: p.MultiHeadAttention(4, 2, kdim=3, vdim=5),
        (normal(2, 3, 4), normal(2, 6, 3), normal(2, 6, 5)),
    ),
    "compat attention": (
        lambda: n.MultiheadAttention(4, 2, batch_first=True),
        lambda: paddle.compat.nn.MultiheadAttention(4, 2, batch_first=True),
        (normal(2, 3, 4),) * 3,
    ),
    "lstm": (
        lambda: n.LSTM(3, 3, num_layers=2, bidirectional=True, batch_first=True),
        lambda: p.LSTM(3, 3, num_layers=2, direction="bidirect"),
        (normal(2, 4, 3),),
    ),
    "gru": (lambda: n.GRU(3, 3, batch_first=True), lambda: p.GRU(3, 3), (normal(2, 4, 3),)),
    "simple rnn": (lambda: n.RNN(3, 3, batch_first=True), lambda: p.SimpleRNN(3, 3), (normal(2, 4, 3),)),
    "lstm cell": (lambda: n.LSTMCell(3, 3), lambda: p.LSTMCell(3, 3), (normal(2, 3),)),
    "weight norm": (
        lambda: weight_norm(n.Linear(4, 4)),
        lambda: p.utils.weight_norm(p.Linear(4, 4), dim=1),
        (normal(2, 4),),
    ),
    "weight norm as parametrisation": (
        lambda: parametrizations.weight_norm(n.Conv2d(4, 4, 3)),
        lambda: p.utils.weight_norm(p.Conv2D(4, 4, 3)),
        (normal(2, 4, 5, 5),),
    ),
    "spectral norm": (
        lambda: spectral_norm(n.Linear(4, 4)),
        lambda: p.utils.spectral_norm(p.Linear(4, 4)),
        (normal(2, 4),),
    ),
    "spectral norm as parametrisation": (
        lambda: parametrizations.spectral_norm(n.Linear(4, 4)),
        lambda: p.utils.spectral_norm(p.Linear(4, 4)),
        (normal(2, 4),),
    ),
    "decoder layer": (
        lambda: n.TransformerDecoderLayer(4, 2, 4, batch_first=True),
        lambda: p.TransformerDecoderLayer(4, 2, 4),
        (normal(2, 3, 4), normal(2, 5, 4)),
    ),
}


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize("name", LAYERS)
def test_layer_computes_the_same_after_conversion_and_comes_back_bit_for_bit(name):
    make_reference, make_port, inputs = LAYERS[name]
    reference, port = randomised(make_reference()), make_port()
    convert_there_and_back(reference, port)
    outputs_agree(reference, port, *inputs)


def test_synchronised_batch_norm_is_a_batch_norm():
    reference = randomised(n.SyncBatchNorm(4))
    there = convert_there_and_back(reference, p.SyncBatchNorm(4))
    assert there.ledger.totals() == {"copied": 2, "renamed": 2, "dropped": 1}


def test_subclass_of_batch_norm_is_recognised_by_its_bases():
    class CrossRankBatchNorm(p.BatchNorm1D):
        pass

    there = convert_there_and_back(randomised(n.BatchNorm1d(4)), CrossRankBatchNorm(4))
    assert list(there.arrays) == ["weight", "bias", "_mean", "_variance"]


def test_raw_parameters_are_not_transposed_and_a_square_one_is_marked_unproven():
    class Reference(n.Module):
        def __init__(self):
            super().__init__()
            self.table = n.Parameter(torch.zeros(4, 4))
            self.token = n.Parameter(torch.zeros(1, 1, 4))
            self.norm = n.LayerNorm(4)

    class Port(p.Layer):
        def __init__(self):
            super().__init__()
            self.table = self.create_parameter([4, 4])
            self.token = self.create_parameter([1, 1, 4])
            self.norm = p.LayerNorm(4)

    reference = randomised(Reference())
    there = convert_there_and_back(reference, Port())
    np.testing.assert_array_equal(there.arrays["table"], reference.table.detach().numpy())
    assert there.unproven == ["table"]


def test_the_reason_comes_first_and_three_names_of_a_kind_follow():
    reference = n.Sequential(n.Linear(2, 2), n.Linear(2, 2), n.BatchNorm1d(2))
    port = p.Sequential(p.Linear(2, 2), p.Linear(2, 2, bias_attr=False), p.Identity(), p.Linear(2, 2))
    with pytest.raises(InputError) as error:
        convert_state(
            dict(torch_backend.state_items(reference)),
            torch_backend.describe_state(reference),
            paddle_backend.describe_state(port),
        )
    assert str(error.value) == (
        "the two states do not fit: the target has 2 tensors that the source lacks (3.weight, 3.bias); the source has "
        "5 tensors that have no place in the target (1.bias, 2.weight, 2.bias and 2 more). Give rename rules where "
        "names differ, or allow a key by name"
    )
    assert error.value.lines == [
        *(f"missing: {key}" for key in ("3.weight", "3.bias")),
        *(f"unexpected: {key}" for key in ("1.bias", "2.weight", "2.bias", "2.running_mean", "2.running_var")),
    ]


def test_a_misshapen_key_is_named_with_both_shapes():
    reference, port = n.Sequential(n.Linear(2, 3)), p.Sequential(p.Linear(2, 5))
    with pytest.raises(InputError, match=r"'0\.weight' has shape \[3, 2\] \(Linear\), '0\.weight' wants \[2, 5\]"):
        convert_state(
            dict(torch_backend.state_items(reference)),
            torch_backend.describe_state(reference),
            paddle_backend.describe_state(port),
        )


def test_a_checkpoint_of_another_model_is_refused_before_anything_is_planned():
    reference, port = n.Sequential(n.Linear(2, 3)), p.Sequential(p.Linear(2, 3))
    arrays = {"0.weight": np.zeros((3, 4), "float32"), "0.extra": np.zeros(3, "float32")}
    with pytest.raises(InputError) as error:
        convert_state(arrays, torch_backend.describe_state(reference), paddle_backend.describe_state(port))
    assert str(error.value) == (
        "the checkpoint does not belong to the reference model: missing '0.bias'; unexpected '0.extra'; "
        "'0.weight' has shape [3, 4], the model has [3, 2]. Give the model that wrote it, or allow keys by name "
        "(--allow-missing, --allow-unexpected)"
    )


def test_rename_rules_take_keys_prefixes_and_wildcards():
    class Reference(n.Module):
        def __init__(self):
            super().__init__()
            self.layers = n.ModuleList([n.ModuleDict({"fc": n.Linear(2, 2)}) for _ in range(2)])
            self.final = n.LayerNorm(2)
            self.token = n.Parameter(torch.zeros(2))

    class Port(p.Layer):
        def __init__(self):
            super().__init__()
            self.blocks = p.LayerList([p.LayerDict({"dense": p.Linear(2, 2)}) for _ in range(2)])
            self.norm = p.LayerNorm(2)
            self.cls = self.create_parameter([2])

    rules = {"layers.*.fc": "blocks.*.dense", "final": "norm", "token": "cls"}
    there = convert_there_and_back(randomised(Reference()), Port(), rename=rules)
    assert there.ledger.totals()["renamed"] == 7


def test_a_rename_rule_that_fits_nothing_is_refused():
    reference, port = n.Sequential(n.Linear(2, 2)), p.Sequential(p.Linear(2, 2))
    with pytest.raises(InputError, match="rename rules that match no name of the reference: 'encoder'"):
        convert_state(
            dict(torch_backend.state_items(reference)),
            torch_backend.describe_state(reference),
            paddle_backend.describe_state(port),
            rename={"encoder": "backbone"},
        )


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"layer*": "stage*"}, "stage1.0.conv"),
        ({"layer*.*.conv": "stages.*.block*.c"}, "stages.1.block0.c"),
        ({"l*r1": "*"}, "aye.0.conv"),
        ({"layer1": ""}, "0.conv"),
        ({"ayer*": "stage*"}, "layer1.0.conv"),
    ],
)
def test_a_star_stands_for_a_step_or_a_part_of_one(rule, expected):
    assert Renaming(rule).apply("layer1.0.conv") == expected


def test_a_pattern_that_fails_is_explained():
    for rule, reason in (
        (
            {"layer*": "stage.*.*"},
            r"^rename rule 'layer\*': 'stage\.\*\.\*' has another number of \* on each side\. A \*",
        ),
        (
            {"stage*": "block*"},
            r"^rename rules that match no name of the reference: 'stage\*'\. A \* stands for one step",
        ),
    ):
        with pytest.raises(InputError, match=reason):
            Renaming(rule).check_used()


def tied_models(tie_target):
    class Reference(n.Module):
        def __init__(self):
            super().__init__()
            self.embedding = n.Embedding(4, 4)
            self.decoder = n.Linear(4, 4, bias=False)
            self.decoder.weight = self.embedding.weight

    class Port(p.Layer):
        def __init__(self):
            super().__init__()
            self.embedding = p.Embedding(4, 4)
            if tie_target:
                self.decoder = paddle.compat.nn.Linear(4, 4, bias=False)
                self.decoder.weight = self.embedding.weight

    return randomised(Reference()), Port()


@pytest.mark.parametrize("tie_target", [True, False])
def test_tied_weights_stay_one_tensor_whether_the_port_lists_them_once_or_twice(tie_target):
    there = convert_there_and_back(*tied_models(tie_target))
    assert there.ledger.totals() == ({"copied": 1, "tied": 1} if tie_target else {"copied": 1, "dropped": 1})


def test_a_checkpoint_that_parts_what_its_model_ties_is_refused():
    reference, port = tied_models(tie_target=False)
    layouts = torch_backend.describe_state(reference), paddle_backend.describe_state(port)
    arrays = {key: value.copy() for key, value in dict(torch_backend.state_items(reference)).items()}
    arrays["decoder.weight"][0, 0] += 1
    with pytest.raises(InputError) as error:
        convert_state(arrays, *layouts)
    assert str(error.value) == (
        "the source's model ties 'decoder.weight' to 'embedding.weight', but the checkpoint holds different numbers "
        "for them: give the model that wrote it"
    )


def test_a_port_that_ties_what_the_reference_does_not_is_refused():
    _, port = tied_models(tie_target=True)
    reference = randomised(n.ModuleDict({"embedding": n.Embedding(4, 4), "decoder": n.Linear(4, 4, bias=False)}))
    with pytest.raises(InputError, match=r"the target ties 'decoder\.weight' to 'embedding\.weight', but the source"):
        convert_state(
            dict(torch_backend.state_items(reference)),
            torch_backend.describe_state(reference),
            paddle_backend.describe_state(port),
        )


def test_buffers_outside_of_the_state_dict_are_left_to_the_model():
    class Reference(n.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("index", torch.arange(3))
            self.register_buffer("scratch", torch.zeros(3), persistent=False)
            self.scale = n.Parameter(torch.ones(3))

    class Port(p.Layer):
        def __init__(self):
            super().__init__()
            self.register_buffer("index", paddle.arange(3), persistable=False)
            self.scale = self.create_parameter([3])

    reference, port = Reference(), Port()
    there = convert_state(
        dict(torch_backend.state_items(reference)),
        torch_backend.describe_state(reference),
        paddle_backend.describe_state(port),
    )
    assert list(there.arrays) == ["scale"]
    assert (
        there.ledger.entries[-1].reason == "the target does not keep this buffer in its state dict and makes it itself"
    )


def test_floating_point_keeps_its_dtype_unless_asked():
    reference, port = n.Linear(2, 2).double(), p.Linear(2, 2)
    layouts = torch_backend.describe_state(reference), paddle_backend.describe_state(port)
    arrays = dict(torch_backend.state_items(reference))
    assert convert_state(arrays, *layouts).arrays["weight"].dtype == np.float64
    cast = convert_state(arrays, *layouts, cast=True)
    assert cast.arrays["weight"].dtype == np.float32
    assert cast.ledger.totals() == {"transposed": 1, "cast": 2}


def test_rename_rules_for_whole_keys_of_either_framework():
    reference, port = n.Sequential(n.BatchNorm1d(3)), p.Sequential(p.BatchNorm1D(3))
    rules = {"0.running_mean": "0._mean", "0.running_var": "0._variance", "0.weight": "0.weight"}
    convert_there_and_back(randomised(reference), port, rename=rules)


def test_the_arrays_are_the_callers_own():
    reference, port = n.Sequential(n.Linear(2, 2), n.LayerNorm(2)), p.Sequential(p.Linear(2, 2), p.LayerNorm(2))
    arrays = dict(torch_backend.state_items(reference))
    there = convert_state(arrays, torch_backend.describe_state(reference), paddle_backend.describe_state(port))
    assert not any(np.may_share_memory(there.arrays[key], arrays[key]) for key in arrays)


ONE_SIDED = set(LAYERS) - {
    # These ports are not what the other framework's own layer would be.
    "compat linear",
    "subclass that keeps (out, in)",
    "compat attention",
    "decoder layer",
}


# What paddle stores does not tell which of torch's ways is meant.
SEVERAL_IN_TORCH = {
    "layer norm of two axes",
    "matrix kept (in, out)",
    "weight norm as parametrisation",
    "spectral norm as parametrisation",
}


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize("name", sorted(ONE_SIDED))
def test_the_layout_derived_from_one_model_is_the_other_models(name):
    make_reference, make_port, _ = LAYERS[name]
    layouts = torch_backend.describe_state(make_reference()), paddle_backend.describe_state(make_port())
    for framework, given, wanted in (("torch", *layouts), ("paddle", *reversed(layouts))):
        if framework == "paddle" and name in SEVERAL_IN_TORCH:
            continue
        entries = [StateEntry.of(entry) for entry in given]
        layers = group_layers(entries, lambda bases, framework=framework: absorbs(framework, bases))
        derived = {entry.key: entry.shape for entry in counterpart(framework, layers)}
        assert derived == {entry["key"]: tuple(entry["shape"]) for entry in wanted if entry["persistent"]}


def test_a_rule_for_a_layer_of_ones_own():
    class Scaled(p.Layer):
        """Keeps weight and bias in one tensor, the bias as its last row."""

        def __init__(self):
            super().__init__()
            self.both = self.create_parameter([5, 4])

    @storage_rule("paddle", f"{Scaled.__module__}.{Scaled.__qualname__}", kind="linear")
    def scaled(layer):
        return [Stored.packed(layer, "both", ["weight", "bias"], [4, 1])]

    reference = randomised(n.Linear(4, 4))
    there = convert_state(
        dict(torch_backend.state_items(reference)),
        torch_backend.describe_state(reference),
        paddle_backend.describe_state(Scaled()),
    )
    expected = np.vstack([reference.weight.detach().numpy(), reference.bias.detach().numpy()])
    np.testing.assert_array_equal(there.arrays["both"], expected)
    assert there.ledger.totals() == {"renamed": 1, "merged": 1}
