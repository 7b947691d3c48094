"""Faults of linear layers, embeddings and convolution weights: layout, order of channels, biases."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from twinalign.explain.calls import Call, Change, Site
from twinalign.explain.registry import register
from twinalign.explain.rewrite import Rewrite, changing, joined, stored
from twinalign.explain.subject import LayerSubject

CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
WEIGHTED = ("linear", *CONVOLUTIONS)
_MOST_CHANNELS = 4096


def both_ways(subject: LayerSubject, change_values: Any, argument: str = "weight") -> Iterator[tuple[str, Change]]:
    """A parameter whose stored values are changed; where gradients are examined, also one that is used changed."""
    yield "", lambda call: call.run(**{argument: stored(change_values)(call[argument])})
    if subject.backward:
        yield (
            "in the code, not in the stored values",
            lambda call: call.run(**{argument: change_values(call[argument])}),
        )


@register
class WeightTransposed(Rewrite):
    """Paddle keeps [in, out], torch [out, in]; a square weight goes in either way round."""

    id = "weight_transposed"
    phase = "forward"
    text = "the weight is transposed"
    difference = "linear_weight_transposed"
    functions = ("linear", "matmul", "conv1d", "conv2d", "conv3d")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Both channel axes swapped; of a product, the operand that is a parameter."""
        argument = "weight" if site.name != "matmul" else "other"
        if site.name == "matmul" and not site.parameter("other"):
            return
        yield from both_ways(subject, lambda weight: weight.transpose(0, 1), argument)


@register
class KernelTransposed(Rewrite):
    """Height and width of a kernel in the other order, as after a transposition of all axes."""

    id = "kernel_transposed"
    phase = "forward"
    text = "the kernel's height and width are swapped"
    functions = ("conv2d", "conv_transpose2d")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """The last two axes swapped."""
        yield from both_ways(subject, lambda weight: weight.transpose(-2, -1))


@register
class KernelFlipped(Rewrite):
    """A convolution in the sense of mathematics, which turns the kernel round."""

    id = "kernel_flipped"
    phase = "forward"
    text = "the kernel is turned round"
    functions = CONVOLUTIONS

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """All spatial axes flipped."""
        axes = tuple(range(2, len(site.shape("weight"))))
        yield from both_ways(subject, lambda weight: weight.flip(axes))


@register
class BiasMissing(Rewrite):
    """Not loaded, not made, or not added."""

    id = "bias_missing"
    phase = "forward"
    text = "the bias is not applied"
    difference = "bias_keyword"
    functions = (*WEIGHTED, "layer_norm", "batch_norm", "group_norm", "instance_norm")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """No bias, or one of zeros that learns."""
        if site.shape("bias"):
            yield "", changing(bias=None)
            if subject.backward:
                yield "it is zero", lambda call: call.run(bias=stored(lambda bias: bias * 0.0)(call["bias"]))


@register
class BiasTwice(Rewrite):
    """Say once inside the layer and once after it."""

    id = "bias_twice"
    phase = "forward"
    text = "the bias is added twice"
    functions = WEIGHTED

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Twice the bias."""
        if site.shape("bias"):
            yield "", lambda call: call.run(bias=2.0 * call["bias"])


@register
class InputChannelsPermuted(Rewrite):
    """RGB and BGR, halves swapped, pairs split; each known order is tried."""

    id = "input_channels_permuted"
    phase = "forward"
    text = "the weight's input channels are in another order"
    functions = WEIGHTED
    rank = 1

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Known orders of the weight's channels on the input's side."""
        shape = site.shape("weight")
        axis = 0 if "transpose" in site.name else 1
        if len(shape) < 2:
            return
        for name, order in known_orders(shape[axis]):
            for detail, change in both_ways(subject, _selected(axis, order)):
                yield joined(name, detail), change


@register
class OutputChannelsPermuted(Rewrite):
    """The order is read off the port's output, and proven by its every element."""

    id = "output_channels_permuted"
    phase = "forward"
    text = "the output channels are in another order"
    functions = (*WEIGHTED, "embedding")
    rank = 2

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """With the bias or without it, by comparing channels; known orders where that says nothing."""
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


@register
class BiasPermuted(Rewrite):
    """The order is read off what the port's output has more or less than the reference's."""

    id = "bias_permuted"
    phase = "forward"
    text = "the bias's elements are in another order"
    functions = (*WEIGHTED, "batch_norm", "layer_norm", "group_norm")
    rank = 2

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """By the mean difference of each channel."""
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


def rows_permuted(order: Sequence[int], names: Sequence[str] = ("weight", "bias")) -> Change:
    """The change that keeps the rows of a weight and a bias in this order, gradients included."""

    def change(call: Call) -> Any:
        axis = 1 if "transpose" in call.name or call.name == "embedding" else 0
        permuted = {
            name: stored(_selected(axis if name == "weight" else 0, order))(call[name])
            for name in names
            if call.get(name) is not None
        }
        return call.run(**permuted)

    return change


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
    """Which of the reference's channels each of the port's is, None where the port's are no permutation of them.

    A `bias` is taken off both before.
    """
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
        found["halves swapped"] = np.roll(everything, channels // 2)
        found["even and odd apart"] = everything.reshape(-1, 2).T.ravel()
        found["halves interleaved"] = everything.reshape(2, -1).T.ravel()
    if channels % 3 == 0 and channels > 3:
        thirds = everything.reshape(3, -1)
        for order in list(itertools.permutations(range(3)))[1:]:
            found[f"thirds in the order {order}"] = thirds[list(order)].ravel()
        found["interleaved by three"] = thirds.T.ravel()
        found["of three put apart"] = everything.reshape(-1, 3).T.ravel()
    found["shifted by one"] = np.roll(everything, 1)
    found["shifted back by one"] = np.roll(everything, -1)
    return [(name, [int(at) for at in order]) for name, order in found.items()]


@register
class EmbeddingPadding(Rewrite):
    """Paddle returns zeros for the padding index, whatever the row holds."""

    id = "embedding_padding_zeroed"
    phase = "forward"
    text = "the embedding returns zeros at the padding index"
    difference = "embedding_padding_idx"
    functions = ("embedding",)

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """At the reference's padding index, at the port's, at the first and last row."""
        rows = site.shape("weight")[0]
        own = subject.port_numbers.get("padding_idx")
        known = (site.get("padding_idx"), None if own is None else int(own), 0, rows - 1)
        for at in dict.fromkeys(at % rows for at in known if at is not None):
            yield f"index {at}", _zero_at(at)


def _zero_at(at: int) -> Change:
    def change(call: Call) -> Any:
        return call.result * (call["input"] != at).unsqueeze(-1).to(call["weight"].dtype)

    return change


@register
class EmbeddingPaddingLearns(Rewrite):
    """No `padding_idx` in the port: the row gets a gradient."""

    id = "embedding_padding_gradient"
    phase = "backward"
    text = "the embedding's row at the padding index gets a gradient, or does not"
    functions = ("embedding",)

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """With another padding index, or none."""
        if site.get("padding_idx") is not None:
            yield "it does", changing(padding_idx=None)
        for at in (0, site.shape("weight")[0] - 1, int(subject.port_numbers.get("padding_idx", 0))):
            yield f"index {at} does not", changing(padding_idx=at)


@register
class EmbeddingShifted(Rewrite):
    """Indices that count from one, or from zero."""

    id = "embedding_index_shifted"
    phase = "forward"
    text = "embedding indices are shifted"
    functions = ("embedding",)

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """By one or two, either way, around the end of the table."""
        rows = site.shape("weight")[0]
        for shift in (1, -1, 2, -2):
            yield f"by {shift}", _shifted(shift, rows)


def _shifted(shift: int, rows: int) -> Change:
    return lambda call: call.run(input=(call["input"] + shift) % rows)
