"""Faults of linear layers, embeddings and convolution weights: layout, order of channels, biases."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from twinalign.backends.torch.reference_only.operations import Change, FunctionCall, Site
from twinalign.causes.layers.changed_calls import (
    Changes,
    as_change,
    backward,
    changing,
    enter_edits,
    forward,
    joined,
    nested,
    stored,
)
from twinalign.causes.layers.subject import LayerSubject
from twinalign.causes.layers.ways import made
from twinalign.replay.own_weights import in_place_of

CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
WEIGHTED = ("linear", *CONVOLUTIONS)
_MOST_CHANNELS = 4096


def both_ways(subject: LayerSubject, change_values: Any, argument: str = "weight") -> Changes:
    """A parameter, or several, whose stored values are changed; where gradients are examined, also used changed."""
    yield "", lambda call: call.run(**{argument: nested(call[argument], stored(change_values))})
    if subject.backward:
        detail = "in the code, not in the stored values"
        yield detail, lambda call: call.run(**{argument: nested(call[argument], change_values)})


@forward(*WEIGHTED, "layer_norm", "batch_norm", "group_norm", "instance_norm", difference="bias_keyword")
def bias_missing(site: Site, subject: LayerSubject) -> Changes:
    """The bias is not applied."""
    if site.shape("bias"):
        yield "", changing(bias=None)
        if subject.backward:
            yield "it is zero", lambda call: call.run(bias=stored(lambda bias: bias * 0.0)(call["bias"]))


@forward(*WEIGHTED, rank=1)
def input_channels_permuted(site: Site, subject: LayerSubject) -> Changes:
    """The weight's input channels are in another order."""
    # RGB for BGR, halves swapped, pairs split: each known order is tried.
    shape = site.shape("weight")
    axis = 0 if "transpose" in site.name else 1
    if len(shape) < 2:
        return
    for name, order in known_orders(shape[axis]):
        for detail, change in both_ways(subject, _selected(axis, order)):
            yield joined(name, detail), change


@forward(*WEIGHTED, "embedding", rank=2)
def output_channels_permuted(site: Site, subject: LayerSubject) -> Changes:
    """The output channels are in another order."""
    # The order is read off the port's output; the proof then checks every element.
    axis = -1 if site.name in ("linear", "embedding") else 1
    channels = site.output.shape[axis]
    bias = subject.values_of(site.parameter("bias") or "")
    for names, offset in ((("weight", "bias"), None), (("weight",), bias)):
        found = _order_of(subject.port.get("output.0"), subject.reference.get("output.0"), axis, offset)
        orders = [] if found is None or len(found) != channels else [(_described(found), found)]
        if found is None and (subject.backward or site.get("groups", 1) > 1):
            orders = known_orders(channels, site.get("groups", 1))
        for name, order in orders:
            yield f"{name}, in the stored {' and '.join(names)}", rows_permuted(order, names)
            if "bias" in names:
                yield name, channels_permuted(order, axis)


@forward(*WEIGHTED, "batch_norm", "layer_norm", "group_norm", rank=2)
def bias_permuted(site: Site, subject: LayerSubject) -> Changes:
    """The bias's elements are in another order."""
    # The order is read off the difference between both outputs.
    port, reference = subject.port.get("output.0"), subject.reference.get("output.0")
    bias = subject.values_of(site.parameter("bias") or "")
    if bias is None or port is None or reference is None or port.shape != reference.shape or port.ndim < 2:
        return
    axis = port.ndim - 1 if site.name in ("linear", "layer_norm") else 1
    if port.shape[axis] != len(bias):
        return
    theirs = bias + (port - reference).mean(tuple(at for at in range(port.ndim) if at != axis))
    order = np.argsort(bias, kind="stable")[np.argsort(np.argsort(theirs, kind="stable"))].tolist()
    if order != list(range(len(bias))):
        yield _described(order), rows_permuted(order, ("bias",))


@as_change
def rows_permuted(call: FunctionCall, order: Sequence[int], names: Sequence[str] = ("weight", "bias")) -> Any:
    """The change that keeps the rows of a weight and a bias in this order, gradients included."""
    axis = 1 if "transpose" in call.name or call.name == "embedding" else 0
    permuted = {
        name: stored(_selected(axis if name == "weight" else 0, order))(call[name])
        for name in names
        if call.get(name) is not None
    }
    return call.run(**permuted)


def channels_permuted(order: Sequence[int], axis: int) -> Change:
    """The change that returns a call's result with the elements along an axis in this order."""
    return lambda call: call.result.index_select(axis, _index(call.result, order))


def _selected(axis: int, order: Sequence[int]) -> Any:
    return lambda tensor: tensor.index_select(axis, _index(tensor, order))


def _index(tensor: Any, order: Sequence[int]) -> Any:
    return tensor.new_tensor(list(order)).long()


def _described(order: Sequence[int]) -> str:
    shown = ", ".join(str(at) for at in order[:8])
    return f"[{shown}{', ...' if len(order) > 8 else ''}]"


def _order_of(
    port: np.ndarray | None, reference: np.ndarray | None, axis: int, bias: np.ndarray | None
) -> list[int] | None:
    """Which of the reference's channels each of the port's is, None where the port's are no permutation of them;
    a `bias` is taken off both before."""
    if port is None or reference is None or port.shape != reference.shape or port.ndim < 2:
        return None
    if bias is not None and len(bias) == port.shape[axis]:
        added = bias.reshape(-1, *(1,) * (port.ndim - 1 - axis % port.ndim))
        port, reference = port - added, reference - added
    ours, theirs = (np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1) for array in (port, reference))
    if len(ours) > _MOST_CHANNELS or not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return None
    # Two coordinates of each channel suffice to order them; whether it is a permutation the proof decides.
    rng = np.random.default_rng(0)
    weights = rng.standard_normal(ours.shape[1])
    order = np.argsort(theirs @ weights, kind="stable")[np.argsort(np.argsort(ours @ weights, kind="stable"))]
    close = np.abs(theirs[order] - ours).max() <= 1e-5 * np.abs(theirs).max()
    return [int(at) for at in order] if close and (order != np.arange(len(order))).any() else None


def known_orders(channels: int, groups: int = 1) -> list[tuple[str, list[int]]]:
    """Orders that channels get by known mistakes, by what they are called."""
    everything = np.arange(channels)
    found: dict[str, np.ndarray] = {"reversed": everything[::-1]}
    if groups > 1 and channels % groups == 0:
        found["shifted by one group"] = np.roll(everything, channels // groups)
        found["shifted back by one group"] = np.roll(everything, -(channels // groups))
        found["dealt out to the groups in turn"] = everything.reshape(-1, groups).T.ravel()
        found["gathered from the groups in turn"] = everything.reshape(groups, -1).T.ravel()
    if channels % 2 == 0:
        halves = everything.reshape(2, -1)
        found |= {"halves swapped": halves[::-1].ravel(), "halves interleaved": halves.T.ravel()}
        found["even and odd apart"] = everything.reshape(-1, 2).T.ravel()
    if channels % 3 == 0 and channels > 3:
        thirds = everything.reshape(3, -1)
        for order in list(itertools.permutations(range(3)))[1:]:
            found[f"thirds in the order {order}"] = thirds[list(order)].ravel()
        found["interleaved by three"] = thirds.T.ravel()
        found["of three put apart"] = everything.reshape(-1, 3).T.ravel()
    found |= {"shifted by one": np.roll(everything, 1), "shifted back by one": np.roll(everything, -1)}
    return [(name, [int(at) for at in order]) for name, order in found.items()]


@forward("embedding", difference="embedding_padding_idx")
def embedding_padding_zeroed(site: Site, subject: LayerSubject) -> Changes:
    """The embedding returns zeros at the padding index."""
    rows = site.shape("weight")[0]
    own = subject.port_numbers.get("padding_idx")
    known = (site.get("padding_idx"), None if own is None else int(own), 0, rows - 1)
    for at in dict.fromkeys(at % rows for at in known if at is not None):
        yield f"index {at}", lambda call, at=at: call.result * (call["input"] != at).unsqueeze(-1)


@backward("embedding")
def embedding_padding_gradient(site: Site, subject: LayerSubject) -> Changes:
    """The embedding's row at the padding index gets a gradient, or does not."""
    if site.get("padding_idx") is not None:
        yield "it does", changing(padding_idx=None)
    for at in (0, site.shape("weight")[0] - 1, int(subject.port_numbers.get("padding_idx", 0))):
        yield f"index {at} does not", changing(padding_idx=at)


enter_edits("forward", (
    # Paddle keeps [in, out], torch [out, in]; a square weight fits either way.
    ("weight_transposed", "the weight is transposed", ("linear", "matmul", "conv1d", "conv2d", "conv3d"),
     lambda site, subject: both_ways(
         subject, lambda weight: weight.transpose(0, 1), "other" if site.name == "matmul" else "weight")
     if site.name != "matmul" or site.parameter("other") else (), {"difference": "linear_weight_transposed"}),
    ("weight_of_its_own", "a layer has a weight of its own where the reference uses another's once more",
     ("linear", "matmul"), lambda site, subject: in_place_of(site, subject.weights_alone()), {"rank": -1}),
    # This is what a transposition of all axes does.
    ("kernel_transposed", "the kernel's height and width are swapped", ("conv2d", "conv_transpose2d"),
     lambda site, subject: both_ways(subject, lambda weight: weight.transpose(-2, -1)), {}),
    # This is a convolution in the mathematical sense.
    ("kernel_flipped", "the kernel is turned by 180 degrees", CONVOLUTIONS,
     lambda site, subject: both_ways(subject, lambda weight: weight.flip(tuple(range(2, weight.dim())))), {}),
    ("embedding_index_shifted", "embedding indices are shifted", ("embedding",),
     made({f"by {by}": lambda call, by=by: call.run(input=(call["input"] + by) % call["weight"].shape[0])
           for by in (1, -1, 2, -2)}), {}),
    # Of a bias that is computed, a factor of two is one of the code before.
    ("bias_twice", "the bias is added twice", WEIGHTED, lambda site, subject:
     {"": lambda call: call.run(bias=2.0 * call["bias"])}.items() if site.parameter("bias") else (), {}),
))  # fmt: skip
