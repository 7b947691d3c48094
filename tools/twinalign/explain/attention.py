"""Faults of attention: scale, order of queries, keys and values, heads, masks, rotary embeddings."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from twinalign.explain.calls import LAYER, Call, Change, Site, TensorFacts
from twinalign.explain.generic import constant_of, tensor_operand, with_constant
from twinalign.explain.linear import channels_permuted, rows_permuted
from twinalign.explain.registry import register
from twinalign.explain.rewrite import Rewrite, any_of, changing, joined
from twinalign.explain.subject import LayerSubject

ORDERS = tuple(itertools.permutations(range(3)))[1:]
_LETTERS = "qkv"
_TILED = "tiled where each is repeated"


@register
class AttentionScale(Rewrite):
    """A number before a softmax, in a unit that multiplies matrices."""

    id = "attention_scale"
    phase = "forward"
    text = "the attention's scale is another"
    float32_constants = True
    functions = ("mul", "div")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Left out, and one over the root of every width that occurs."""
        number = constant_of(site)
        softmax = [other.position for other in subject.named("softmax") if other.position > site.position]
        if not number or not softmax or not subject.named("matmul", "bmm", "einsum", "baddbmm"):
            return
        factor = number if site.name == "mul" else 1.0 / number
        yield f"left out (it is {factor:.6g})", tensor_operand
        widths = {size for other in subject.sites for size in other.output.shape if size > 1}
        usual = [factor**2, factor**0.5, 1.0 / factor, *(width**-0.5 for width in sorted(widths))]
        for value in dict.fromkeys((*usual, *(1.0 / width for width in sorted(widths)))):
            if not np.isclose(value, factor, rtol=1e-12):
                yield f"{value:.6g} in place of {factor:.6g}", with_constant(value if site.name == "mul" else 1 / value)


@register
class QueryKeyValueOrder(Rewrite):
    """In the stacked weight, or in the code that takes it apart."""

    id = "qkv_order"
    phase = "forward"
    text = "queries, keys and values are in another order"
    functions = (LAYER, "linear", "chunk", "split", "unbind", "permute", "conv1d")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """The five other orders of three parts."""
        shape = site.output.shape
        for order in ORDERS:
            detail = f"{', '.join(_LETTERS[at] for at in order)} where q, k, v are meant"
            if site.name in (LAYER, "linear", "conv1d"):
                axis = 1 if site.name == "conv1d" else len(shape) - 1
                if len(shape) < 2 or shape[axis] % 3 or shape[axis] == 3:
                    return
                channels = np.arange(shape[axis]).reshape(3, -1)[list(order)].ravel().tolist()
                if site.name != LAYER and subject.backward:
                    yield joined(detail, "in the stored values"), rows_permuted(channels)
                yield detail, _last_permuted(channels) if site.name == LAYER else channels_permuted(channels, axis)
            elif site.name == "permute":
                if shape[0] == 3:
                    yield detail, channels_permuted(order, 0)
            elif site.get("chunks", 3) == 3:
                yield detail, _parts_permuted(order)


def _last_permuted(channels: Sequence[int]) -> Change:
    def change(call: Call) -> Any:
        index = call["output"].new_tensor(list(channels)).long()
        return call["output"].index_select(-1, index)

    return change


def _parts_permuted(order: Sequence[int]) -> Change:
    def change(call: Call) -> Any:
        parts = call.result
        if len(parts) != 3:
            raise ValueError("not three parts")
        return tuple(parts[at] for at in order)

    return change


@register
class HeadsOrder(Rewrite):
    """(3, heads, width) taken for (heads, 3, width), and the like."""

    id = "heads_order"
    phase = "forward"
    text = "the stacked channels are taken apart in another order of axes"
    functions = (LAYER, "linear")
    rank = 1

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Every order of the three axes, for the numbers of heads that the code or the port names."""
        shape = site.output.shape
        channels = shape[-1] if len(shape) > 1 else 0
        if not channels or channels % 3 or channels == 3:
            return
        for heads in _numbers_of_heads(subject, channels // 3):
            axes = np.arange(channels).reshape(3, heads, -1)
            for order in ORDERS:
                names = [("three", "heads", "width")[at] for at in order]
                stored = axes.transpose(order).ravel()
                for places, verb in ((np.argsort(stored), "taken for"), (stored, "stored as")):
                    detail = f"{verb} ({', '.join(names)}) with {heads} heads"
                    if site.name == "linear" and subject.backward:
                        yield joined(detail, "in the stored values"), rows_permuted(places.tolist())
                    moved = _last_permuted if site.name == LAYER else _last_of_result_permuted
                    yield detail, moved(places.tolist())


def _last_of_result_permuted(channels: Sequence[int]) -> Change:
    return channels_permuted(channels, -1)


def _numbers_of_heads(subject: LayerSubject, width: int) -> list[int]:
    known = {int(value) for name, value in subject.port_numbers.items() if "head" in name}
    for site in subject.named("reshape", "view"):
        known.update(size for size in site.output.shape[1:])
    known = {number for number in known if 1 < number < width and width % number == 0}
    return sorted(known) or [number for number in (2, 3, 4, 6, 8, 12, 16) if number < width and width % number == 0]


@register
class AttentionLayout(Rewrite):
    """Paddle's function takes [batch, length, heads, width], torch's [batch, heads, length, width]."""

    id = "attention_layout"
    phase = "forward"
    text = "attention runs over the heads, not over the tokens"
    difference = "unfold_tensor_method"
    functions = ("scaled_dot_product_attention",)
    ways = any_of(
        {
            "": lambda call: call.run(
                **{name: call[name].transpose(1, 2) for name in ("query", "key", "value")}
            ).transpose(1, 2)
        }
    )


@register
class MaskInverted(Rewrite):
    """True means "may be attended to" here and "may not" there."""

    id = "mask_inverted"
    phase = "forward"
    text = "the mask is inverted"
    difference = "mha_packed_qkv"
    functions = ("masked_fill", "where", "scaled_dot_product_attention", "multi_head_attention_forward", "add")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Of a boolean mask, or of one of zeros and minus infinities that is added."""
        for name in ("mask", "condition", "attn_mask", "key_padding_mask"):
            value = site.get(name)
            if isinstance(value, TensorFacts):
                yield f"{name} of {site.name}", _inverted(name)
        if site.name == "add":
            yield "the one that is added", _additive_inverted


def _inverted(name: str) -> Change:
    def change(call: Call) -> Any:
        mask = call[name]
        inverted = mask.logical_not() if mask.dtype == call.torch.bool else _opposite(call, mask)
        return call.run(**{name: inverted})

    return change


def _opposite(call: Call, mask: Any) -> Any:
    least = float(mask.detach().min())
    if not least < -1e3:
        raise ValueError("no mask")
    return call.torch.where(mask == least, 0.0, least).to(mask.dtype)


def _additive_inverted(call: Call) -> Any:
    return call["input"] + _opposite(call, call["other"])


@register
class MaskMissing(Rewrite):
    """Everything attends to everything, padding included."""

    id = "mask_missing"
    phase = "forward"
    text = "the mask is not applied"
    functions = ("masked_fill", "scaled_dot_product_attention", "multi_head_attention_forward", "add")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Each mask that a function takes."""
        if site.name == "masked_fill":
            yield "", lambda call: call["input"]
        elif site.name == "add":
            yield "the one that is added", _without_mask
        else:
            for name in ("attn_mask", "key_padding_mask"):
                if isinstance(site.get(name), TensorFacts):
                    yield name, changing(**{name: None})
            if site.get("is_causal", False) and site.name == "scaled_dot_product_attention":
                yield "is_causal", changing(is_causal=False)


def _without_mask(call: Call) -> Any:
    _opposite(call, call["other"])
    return call["input"]


@register
class MaskAsNumbers(Rewrite):
    """True and False added as 1 and 0."""

    id = "mask_added_as_numbers"
    phase = "forward"
    text = "a boolean mask is added to the scores as ones and zeros"
    functions = ("masked_fill",)
    ways = any_of({"": lambda call: call["input"] + call["mask"].to(call["input"].dtype)})


@register
class MaskValue(Rewrite):
    """A large negative number that is not large enough, or that is added."""

    id = "mask_value"
    phase = "forward"
    text = "masked scores get another value"
    functions = ("masked_fill",)

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Usual ones, put in or added."""
        for value in (0.0, -1.0, -100.0, -1e4, -1e9, float("-inf")):
            if value != site.get("value"):
                yield f"{value:g}", changing(value=value)
        for value in (-100.0, -1e4, -1e9):
            yield f"{value:g} added to them", _added(value)


def _added(value: float) -> Change:
    return lambda call: call["input"] + call["mask"].to(call["input"].dtype) * value


@register
class CausalMaskAdded(Rewrite):
    """Every token sees only what came before it."""

    id = "causal_mask_added"
    phase = "forward"
    text = "attention is causal where it should not be"
    functions = ("softmax",)
    ways = any_of({"": lambda call: _causal(call)})


def _causal(call: Call) -> Any:
    scores = call["input"]
    if call.get("dim") not in (-1, scores.dim() - 1):
        raise ValueError("no attention")
    seen = call.torch.ones(scores.shape[-2:], dtype=call.torch.bool).tril()
    return scores.masked_fill(seen.logical_not(), float("-inf")).softmax(-1)


@register
class CausalMaskShifted(Rewrite):
    """A token that sees its successor, or not itself."""

    id = "causal_mask_shifted"
    phase = "forward"
    text = "the causal mask is off by one"
    functions = ("tril", "triu")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """The diagonal moved either way."""
        name = "diagonal" if "diagonal" in site.arguments else "1"
        for shift in (1, -1):
            moved = site.get(name, 0) + shift
            yield f"diagonal {moved}", changing(**{name if name in site.arguments else "diagonal": moved})


@register
class GroupedHeads(Rewrite):
    """Which group of query heads gets which head of keys and values, in grouped-query attention."""

    id = "grouped_heads"
    phase = "forward"
    text = "query heads are given the keys and values of other groups"
    functions = ("repeat_interleave", "reshape")
    together = True

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """All heads one after the other, as often as needed, where each is to be repeated."""
        given, made = site.shape(), site.output.shape
        if site.name == "repeat_interleave" and len(given) == len(made):
            times = [size // before for size, before in zip(made, given, strict=True)]
            yield _TILED, lambda call: call["input"].repeat(times)
        elif site.name == "reshape" and len(given) == len(made) + 1:  # x[:, :, None].expand(...).reshape(...)
            for at in range(len(made) - 1):  # the last two are those of a merged head, which is another matter
                if given[:at] == made[:at] and given[at + 2 :] == made[at + 1 :]:
                    yield _TILED, functools.partial(_other_order, at, made)


def _other_order(at: int, shape: tuple[int, ...], call: Call) -> Any:
    return call["input"].transpose(at, at + 1).reshape(shape)


@register
class RotaryLayout(Rewrite):
    """Pairs of neighbours, or one channel of each half."""

    id = "rotary_layout"
    phase = "forward"
    text = "the rotary embedding pairs other channels (halves or neighbours)"
    functions = ("cat", "stack", "repeat_interleave")
    together = True

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """The rotation of a vector, and the angles, in the other layout."""
        if site.name == "repeat_interleave":
            yield "halves where neighbours are meant", lambda call: call.torch.cat([call["input"]] * 2, -1)
        given = site.get("tensors", ())
        if len(given) == 2 and site.get("dim", 0) in (-1, len(site.output.shape) - 1):
            if site.name == "cat":
                yield "neighbours where halves are meant", _neighbours
            else:
                yield "halves where neighbours are meant", _halves


def _neighbours(call: Call) -> Any:
    one, two = call["tensors"]
    if one is two or bool((one == two).all()):
        return one.repeat_interleave(2, -1)
    # What came in as (-second half, first half) belongs to this vector.
    x = call.torch.cat([two, -one], -1)
    return call.torch.stack([-x[..., 1::2], x[..., 0::2]], -1).flatten(-2)


def _halves(call: Call) -> Any:
    one, two = call["tensors"]
    x = call.torch.stack([two, -one], -1).flatten(-2)
    first, second = x.chunk(2, -1)
    return call.torch.cat([-second, first], -1).unflatten(-1, (-1, 2))
