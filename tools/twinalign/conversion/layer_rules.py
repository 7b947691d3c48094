"""The rules for the layer classes of both frameworks; see `storage` for what they return.

The first class with a rule of a kind is the one that a conversion without the target's model expects.

Sources: each framework's own layer documentation, and measurements of torch 2.15.0 against paddlepaddle 3.3.1.
"""

import re

from twinalign.backends.state_layout import Layer
from twinalign.conversion import storage
from twinalign.conversion.storage import Stored, storage_rule

_TORCH = "torch.nn.modules."
_PADDLE = "paddle.nn.layer."

COUNTER_NOTE = "paddle's batch norm keeps no counter of batches; only torch's momentum=None would read it"


def names_of(layer: Layer) -> list[str]:
    """Names of the layer's tensors relative to it, in registration order."""
    return [layer.local_name(entry) for entry in layer.entries]


# Linear: y = x Wᵀ + b with W (out, in) in torch and paddle.compat, y = x W + b with W (in, out) in paddle.nn.


@storage_rule("paddle", _PADDLE + "common.Linear", kind="linear")
def linear_in_out(layer: Layer) -> list[Stored]:
    """Linear whose weight is (in, out)."""
    return [Stored.of(layer, name, transposed=name == "weight") for name in names_of(layer)]


@storage_rule("torch", _TORCH + "linear.Linear", kind="linear")
@storage_rule("paddle", "paddle.compat.nn.Linear", kind="linear")
@storage_rule("torch", _TORCH + "linear.Bilinear", kind="bilinear")  # weight (out, in1, in2) in both
@storage_rule("paddle", _PADDLE + "common.Bilinear", kind="bilinear")  # its bias is (1, out)
@storage_rule("torch", _TORCH + "sparse.Embedding", _TORCH + "sparse.EmbeddingBag", kind="embedding")
@storage_rule("paddle", _PADDLE + "common.Embedding", kind="embedding")  # (rows, width), even if it is square
@storage_rule("torch", *(f"{_TORCH}conv.Conv{n}d" for n in (2, 1, 3)), kind="convolution")
@storage_rule("paddle", *(f"{_PADDLE}conv.Conv{n}D" for n in (2, 1, 3)), kind="convolution")
@storage_rule("torch", *(f"{_TORCH}conv.ConvTranspose{n}d" for n in (2, 1, 3)), kind="transposed convolution")
@storage_rule("paddle", *(f"{_PADDLE}conv.Conv{n}DTranspose" for n in (2, 1, 3)), kind="transposed convolution")
@storage_rule("torch", _TORCH + "normalization.GroupNorm", kind="group norm")
@storage_rule("paddle", _PADDLE + "norm.GroupNorm", kind="group norm")
@storage_rule("torch", _TORCH + "activation.PReLU", kind="prelu")
@storage_rule("torch", _TORCH + "rnn.RNNBase", kind="recurrent", absorbs=True)  # gates in the same order as paddle's
@storage_rule("torch", _TORCH + "rnn.RNNCellBase", kind="recurrent cell")
@storage_rule("paddle", _PADDLE + "rnn.RNNCellBase", kind="recurrent cell")
def canonical(layer: Layer) -> list[Stored]:
    """Every tensor is stored in canonical form under its canonical name."""
    return [Stored.of(layer, name) for name in names_of(layer)]


@storage_rule("torch", _TORCH + "batchnorm._BatchNorm", kind="batch norm")
@storage_rule("torch", _TORCH + "instancenorm._InstanceNorm", kind="instance norm")
def torch_batch_norm(layer: Layer) -> list[Stored]:
    """Batch or instance norm with its counter of batches, which paddle lacks."""
    return [
        Stored.of(layer, name, fill=0, note=COUNTER_NOTE) if name == "num_batches_tracked" else Stored.of(layer, name)
        for name in names_of(layer)
    ]


_STATISTICS = {"_mean": "running_mean", "_variance": "running_var"}
PADDLE_SLOTS = {
    "batch norm": _STATISTICS,
    "instance norm": {**_STATISTICS, "scale": "weight"},  # paddle's own tracks no statistics
    "prelu": {"_weight": "weight"},
}
"""Kind → paddle's own names of tensors → their slots."""


@storage_rule("paddle", _PADDLE + "norm._BatchNormBase", _PADDLE + "norm.BatchNorm", kind="batch norm")
@storage_rule("paddle", _PADDLE + "norm._InstanceNormBase", kind="instance norm")
@storage_rule("paddle", _PADDLE + "activation.PReLU", kind="prelu")
def renamed(layer: Layer) -> list[Stored]:
    """Every tensor is stored in canonical form, some under a name of paddle's own."""
    slots = PADDLE_SLOTS[storage.kind_of("paddle", layer)]
    return [Stored.of(layer, name, slots.get(name)) for name in names_of(layer)]


@storage_rule("torch", _TORCH + "normalization.LayerNorm", _TORCH + "normalization.RMSNorm", kind="layer norm")
@storage_rule("paddle", _PADDLE + "norm.LayerNorm", kind="layer norm")
def layer_norm(layer: Layer) -> list[Stored]:
    """Layer norm: paddle flattens the weight of a normalised shape of several dimensions."""
    return [Stored.of(layer, name, flexible=True) for name in names_of(layer)]


@storage_rule("paddle", _PADDLE + "transformer.MultiHeadAttention", kind="multi-head attention", absorbs=True)
def separate_attention(layer: Layer) -> list[Stored]:
    """Attention with four Linear layers of paddle's own layout."""
    return [
        Stored.of(layer, name, name.replace("_proj.", "."), transposed=name.endswith(".weight"))
        for name in names_of(layer)
    ]


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


def raw(framework: str, layer: Layer) -> list[Stored]:
    """Tensors of a class without a rule: parameters under their own names, in the same layout on both sides.

    For a matrix this is an assumption: it is marked as unproven, and decided by shape or by trial.
    """
    names = names_of(layer)
    by_hand = framework == "paddle" and set(_STATISTICS) <= set(names)  # a batch norm of the user's own
    slots = _STATISTICS if by_hand else {}
    return [
        Stored.of(layer, name, slots.get(name), proven=len(entry.shape) != 2)
        for name, entry in zip(names, layer.entries, strict=True)
    ]
