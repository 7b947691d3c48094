"""The rules for the layer classes of both frameworks, one small function each; see `storage` for what they return.

Sources: each framework's own layer documentation, and measurements of torch 2.15.0 against paddlepaddle 3.3.1.
"""

from __future__ import annotations

import re

from twinalign.convert.layout import Layer
from twinalign.convert.storage import Stored, storage_rule

_TORCH = "torch.nn.modules."
_PADDLE = "paddle.nn.layer."

COUNTER_NOTE = "paddle's batch norm keeps no counter of batches; only torch's momentum=None would read it"


def names_of(layer: Layer) -> list[str]:
    """Names of the layer's tensors relative to it, in registration order."""
    return [layer.local_name(entry) for entry in layer.entries]


def as_it_is(layer: Layer) -> list[Stored]:
    """Every tensor stored in canonical form under its canonical name."""
    return [Stored.of(layer, name) for name in names_of(layer)]


def renamed(layer: Layer, slots: dict[str, str]) -> list[Stored]:
    """Every tensor in canonical form, some under a name of the framework's own: `slots` maps it to the canonical."""
    return [Stored.of(layer, name, slots.get(name)) for name in names_of(layer)]


# Linear: y = x Wᵀ + b with W (out, in) in torch and paddle.compat, y = x W + b with W (in, out) in paddle.nn.


@storage_rule("torch", _TORCH + "linear.Linear", kind="linear")
@storage_rule("paddle", "paddle.compat.nn.Linear", kind="linear")
def linear_out_in(layer: Layer) -> list[Stored]:
    """Linear whose weight is (out, in)."""
    return as_it_is(layer)


@storage_rule("paddle", _PADDLE + "common.Linear", kind="linear")
def linear_in_out(layer: Layer) -> list[Stored]:
    """Linear whose weight is (in, out)."""
    return [Stored.of(layer, name, transposed=name == "weight") for name in names_of(layer)]


@storage_rule("torch", _TORCH + "linear.Bilinear", kind="bilinear")
@storage_rule("paddle", _PADDLE + "common.Bilinear", kind="bilinear")
def bilinear(layer: Layer) -> list[Stored]:
    """Bilinear: weight (out, in1, in2) in both; paddle's bias is (1, out)."""
    return as_it_is(layer)


@storage_rule("torch", _TORCH + "sparse.Embedding", _TORCH + "sparse.EmbeddingBag", kind="embedding")
@storage_rule("paddle", _PADDLE + "common.Embedding", kind="embedding")
def embedding(layer: Layer) -> list[Stored]:
    """Embedding: (rows, width) in both, whatever its shape looks like."""
    return as_it_is(layer)


@storage_rule("torch", *(f"{_TORCH}conv.Conv{n}d" for n in (1, 2, 3)), kind="convolution")
@storage_rule("paddle", *(f"{_PADDLE}conv.Conv{n}D" for n in (1, 2, 3)), kind="convolution")
def convolution(layer: Layer) -> list[Stored]:
    """Convolution: (out, in / groups, *kernel) in both."""
    return as_it_is(layer)


@storage_rule("torch", *(f"{_TORCH}conv.ConvTranspose{n}d" for n in (1, 2, 3)), kind="transposed convolution")
@storage_rule("paddle", *(f"{_PADDLE}conv.Conv{n}DTranspose" for n in (1, 2, 3)), kind="transposed convolution")
def transposed_convolution(layer: Layer) -> list[Stored]:
    """Transposed convolution: (in, out / groups, *kernel) in both."""
    return as_it_is(layer)


@storage_rule("torch", _TORCH + "batchnorm._BatchNorm", kind="batch norm")
def torch_batch_norm(layer: Layer) -> list[Stored]:
    """Batch norm with its counter of batches, which has no partner."""
    return [
        Stored.of(layer, name, fill=0, note=COUNTER_NOTE) if name == "num_batches_tracked" else Stored.of(layer, name)
        for name in names_of(layer)
    ]


@storage_rule("paddle", _PADDLE + "norm._BatchNormBase", _PADDLE + "norm.BatchNorm", kind="batch norm")
def paddle_batch_norm(layer: Layer) -> list[Stored]:
    """Batch norm, the legacy class and SyncBatchNorm too: the running statistics have names of their own."""
    return renamed(layer, {"_mean": "running_mean", "_variance": "running_var"})


@storage_rule("torch", _TORCH + "instancenorm._InstanceNorm", kind="instance norm")
def torch_instance_norm(layer: Layer) -> list[Stored]:
    """Instance norm; paddle's tracks no running statistics at all."""
    return torch_batch_norm(layer)


@storage_rule("paddle", _PADDLE + "norm._InstanceNormBase", kind="instance norm")
def paddle_instance_norm(layer: Layer) -> list[Stored]:
    """Instance norm, whose weight is called `scale`."""
    return renamed(layer, {"scale": "weight"})


@storage_rule("torch", _TORCH + "normalization.LayerNorm", _TORCH + "normalization.RMSNorm", kind="layer norm")
@storage_rule("paddle", _PADDLE + "norm.LayerNorm", kind="layer norm")
def layer_norm(layer: Layer) -> list[Stored]:
    """Layer norm: paddle flattens the weight of a normalised shape of several dimensions."""
    return [Stored.of(layer, name, flexible=True) for name in names_of(layer)]


@storage_rule("torch", _TORCH + "normalization.GroupNorm", kind="group norm")
@storage_rule("paddle", _PADDLE + "norm.GroupNorm", kind="group norm")
def group_norm(layer: Layer) -> list[Stored]:
    """Group norm: the same in both."""
    return as_it_is(layer)


@storage_rule("torch", _TORCH + "activation.PReLU", kind="prelu")
@storage_rule("paddle", _PADDLE + "activation.PReLU", kind="prelu")
def prelu(layer: Layer) -> list[Stored]:
    """PReLU: `weight` in torch, `_weight` in paddle."""
    return renamed(layer, {"_weight": "weight"})


@storage_rule("torch", _TORCH + "activation.MultiheadAttention", kind="multi-head attention", absorbs=True)
@storage_rule("paddle", "paddle.compat.nn.transformer.MultiheadAttention", kind="multi-head attention", absorbs=True)
def packed_attention(layer: Layer) -> list[Stored]:
    """Attention with q, k and v packed in one tensor, or in three where their widths differ; (out, in) throughout."""
    own = {"out_proj.weight": "out.weight", "out_proj.bias": "out.bias"}
    own |= {f"{part}_proj_{what}": f"{part}.{what}" for part in "qkv" for what in ("weight", "bias")}
    stored = []
    for name in names_of(layer):
        if name in ("in_proj_weight", "in_proj_bias"):
            what = name.removeprefix("in_proj_")
            stored.append(Stored.packed(layer, name, [f"{part}.{what}" for part in "qkv"]))
        else:
            stored.append(Stored.of(layer, name, own.get(name)))
    return stored


@storage_rule("paddle", _PADDLE + "transformer.MultiHeadAttention", kind="multi-head attention", absorbs=True)
def separate_attention(layer: Layer) -> list[Stored]:
    """Attention with four Linear layers of paddle's own layout."""
    return [
        Stored.of(layer, name, name.replace("_proj.", "."), transposed=name.endswith(".weight"))
        for name in names_of(layer)
    ]


@storage_rule("torch", _TORCH + "rnn.RNNBase", kind="recurrent", absorbs=True)
def torch_recurrent(layer: Layer) -> list[Stored]:
    """LSTM, GRU and RNN: a weight a layer and direction, gates stacked in the same order as paddle's."""
    return as_it_is(layer)


@storage_rule("paddle", _PADDLE + "rnn.RNNBase", kind="recurrent", absorbs=True)
def paddle_recurrent(layer: Layer) -> list[Stored]:
    """LSTM, GRU and SimpleRNN: the state dict lists every weight twice, by layer and by cell."""
    stored = []
    for name in names_of(layer):
        cell = re.fullmatch(r"(\d+)\.cell(_fw|_bw)?\.(weight|bias)_(ih|hh|ho)", name)
        if cell is None:
            stored.append(Stored.of(layer, name))
            continue
        depth, direction, what, where = cell.groups()
        slot = f"{what}_{'hr' if where == 'ho' else where}_l{depth}{'_reverse' if direction == '_bw' else ''}"
        # The projection of an LSTM is the one weight that the two keep transposed to each other.
        stored.append(Stored.of(layer, name, slot, transposed=where == "ho"))
    return stored


@storage_rule("torch", _TORCH + "rnn.RNNCellBase", kind="recurrent cell")
@storage_rule("paddle", _PADDLE + "rnn.RNNCellBase", kind="recurrent cell")
def recurrent_cell(layer: Layer) -> list[Stored]:
    """A single cell: the same names, shapes and order of gates in both."""
    return as_it_is(layer)


def raw(framework: str, layer: Layer) -> list[Stored]:
    """Tensors of a class that nobody described: parameters under their own names, in the same layout on both sides.

    That is a convention, not a proof, for a matrix: such tensors are marked, and settled by shape or by trial.
    """
    names = names_of(layer)
    slots = {}
    if framework == "paddle" and {"_mean", "_variance"} <= set(names):
        slots = {"_mean": "running_mean", "_variance": "running_var"}  # a batch norm written by hand
    return [
        Stored.of(layer, name, slots.get(name), proven=len(entry.shape) != 2)
        for name, entry in zip(names, layer.entries, strict=True)
    ]
