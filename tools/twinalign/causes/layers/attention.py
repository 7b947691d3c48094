"""Faults of attention: scale, order of queries, keys and values, heads, masks, rotary embeddings."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from twinalign.backends.torch.reference_only.operations import LAYER, FunctionCall, Site
from twinalign.causes.layers.changed_calls import Changes, as_change, changing, enter_edits, forward, joined
from twinalign.causes.layers.generic import tensor_operand, with_constant
from twinalign.causes.layers.linear import channels_permuted, rows_permuted
from twinalign.causes.layers.subject import CallVariant, LayerSubject
from twinalign.causes.layers.ways import choice, made, taken_for_input

ORDERS = tuple(itertools.permutations(range(3)))[1:]
_MASKED = ("masked_fill", "scaled_dot_product_attention", "multi_head_attention_forward", "add")
_TAKING_APART = ("chunk", "split", "unbind", "permute")
_ATTENDING = ("matmul", "bmm", "einsum", "baddbmm", "scaled_dot_product_attention")
_TILED = "tiled where each is repeated"


@forward("mul", "div", float32_constants=True)
def attention_scale(site: Site, subject: LayerSubject) -> Changes:
    """The attention's scale differs."""
    # Any number before a softmax counts, in a unit that multiplies matrices, but not what a mask is made of.
    number = site.number or 0.0
    softmax = [other.position for other in subject.named("softmax") if other.position > site.position]
    if not 0.0 < number < 1e4 or not softmax or not subject.named(*_ATTENDING):
        return
    factor = number if site.name == "mul" else 1.0 / number
    yield f"left out (it is {factor:.6g})", tensor_operand
    widths = {size for other in subject.sites for size in other.output.shape if size > 1}
    usual = [factor**2, factor**0.5, 1.0 / factor, *(width**-0.5 for width in sorted(widths))]
    for value in dict.fromkeys((*usual, *(1.0 / width for width in sorted(widths)))):
        if not np.isclose(value, factor, rtol=1e-12):
            yield f"{value:.6g} in place of {factor:.6g}", with_constant(value if site.name == "mul" else 1 / value)


@forward(LAYER, "linear", "conv1d", *_TAKING_APART)
def qkv_order(site: Site, subject: LayerSubject) -> Changes:
    """Three parts of a tensor, such as queries, keys and values, are in another order."""
    shape, names = site.output.shape, "qkv" if _feeds_attention(site, subject) else "123"
    if site.name in _TAKING_APART and not subject.named(*_ATTENDING):
        return
    for order in ORDERS:
        detail = f"{', '.join(names[at] for at in order)} where {', '.join(names)} are meant"
        if site.name in (LAYER, "linear", "conv1d"):
            axis = 1 if site.name == "conv1d" else len(shape) - 1
            if len(shape) < 2 or shape[axis] % 3 or shape[axis] == 3:
                return
            channels = np.arange(shape[axis]).reshape(3, -1)[list(order)].ravel().tolist()
            yield from _rows_or_channels(site, subject, detail, channels, axis)
        elif site.name == "permute":
            if shape[0] == 3:
                yield detail, channels_permuted(order, 0)
        elif site.get("chunks", 3) == 3:
            yield detail, _parts_permuted(order)


def _feeds_attention(site: Site, subject: LayerSubject) -> bool:
    """Whether both sides of a product, of which the softmax is taken, come from a call, or attention's own function."""
    if subject.leads_to(site, "scaled_dot_product_attention", "multi_head_attention_forward"):
        return True
    behind = subject.behind(site)
    products = [one for one in subject.named(*_ATTENDING) if sum(key in behind for key in one.givers) > 1]
    return any(subject.leads_to(product, "softmax") for product in products)


def _rows_or_channels(site: Site, subject: LayerSubject, detail: str, channels: Sequence[int], axis: int) -> Changes:
    if site.name != LAYER and subject.backward:
        yield joined(detail, "in the stored values"), rows_permuted(channels)
    yield detail, channels_permuted(channels, axis)


@as_change
def _parts_permuted(call: FunctionCall, order: Sequence[int]) -> Any:
    parts = call.result
    if len(parts) != 3:
        raise ValueError("not three parts")
    return tuple(parts[at] for at in order)


@forward(LAYER, "linear", rank=1)
def heads_order(site: Site, subject: LayerSubject) -> Changes:
    """The stacked channels are taken apart in another order of axes."""
    # For example (3, heads, width) taken for (heads, 3, width).
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
                yield from _rows_or_channels(site, subject, detail, places.tolist(), -1)


def _numbers_of_heads(subject: LayerSubject, width: int) -> list[int]:
    known = {int(value) for name, value in subject.port_numbers.items() if "head" in name}
    for site in subject.named("reshape", "view"):
        known.update(size for size in site.output.shape[1:])
    known = {number for number in known if 1 < number < width and width % number == 0}
    return sorted(known) or [number for number in (2, 3, 4, 6, 8, 12, 16) if number < width and width % number == 0]


_MASKS = ("mask", "condition", "attn_mask", "key_padding_mask")


def _inverted_masks(site: Site, subject: LayerSubject) -> Changes:
    # True means "may be attended to" in one framework and "may not" in the other.
    for name in _MASKS:
        if site.tensor(name):
            yield f"{name} of {site.name}", lambda call, name=name: call.run(**{name: _opposite(call, call[name])})
    if site.name == "add":
        yield "the one that is added", lambda call: call.run(other=_opposite(call, call["other"], of_numbers=True))


def _opposite(call: FunctionCall, mask: Any, of_numbers: bool = False) -> Any:
    if mask.dtype == call.torch.bool and not of_numbers:
        return mask.logical_not()
    least = float(mask.detach().min())
    if not least < -1e3:
        raise ValueError("no mask")
    return call.torch.where(mask == least, 0.0, least).to(mask.dtype)


def _without_masks(site: Site, subject: LayerSubject) -> Changes:
    if site.name == "masked_fill":
        yield "", taken_for_input
    elif site.name == "add":
        yield "the one that is added", _without_mask
    else:
        yield from ((name, changing(**{name: None})) for name in _MASKS[2:] if site.tensor(name))
        if site.get("is_causal", False) and site.name == "scaled_dot_product_attention":
            yield "is_causal", changing(is_causal=False)


def _without_mask(call: FunctionCall) -> Any:
    _opposite(call, call["other"], of_numbers=True)
    return call["input"]


def _other_mask_values(site: Site, subject: LayerSubject) -> Changes:
    yield from choice("value", None, 0.0, -1.0, -100.0, -1e4, -1e9, float("-inf"), text="{:g}")(site, subject)
    for value in (-100.0, -1e4, -1e9):
        yield f"{value:g} added to them", lambda call, value=value: call["input"] + call["mask"] * value


@forward("softmax", difference="softmax_floor", rank=-1)
def softmax_floored(call: FunctionCall) -> Any:
    """The softmax gives no weight below exp(-64) of the largest, so that a masked one is not 0."""
    # Paddle's CPU kernel does so, which shows where weights are compared with 0 or with each other.
    weights = (call["input"] - call["input"].amax(call["dim"], keepdim=True)).clamp(min=-64.0).exp()
    return weights / weights.sum(call["dim"], keepdim=True)


@forward("softmax")
def causal_mask_added(call: FunctionCall) -> Any:
    """Attention is causal where it should not be."""
    scores = call["input"]
    if call.get("dim") not in (-1, scores.dim() - 1):
        raise ValueError("no attention")
    seen = call.torch.ones(scores.shape[-2:], dtype=call.torch.bool).tril()
    return scores.masked_fill(seen.logical_not(), float("-inf")).softmax(-1)


@forward(rank=1)
def window_shift_kept(subject: LayerSubject) -> Iterator[CallVariant]:
    """The window is shifted where it covers the whole map."""
    # Swin shifts by 0 there. Shifted, the map is rolled before the attention and back behind it, and parts that were
    # not neighbours before do not see each other.
    layers = [site.position for site in subject.named(LAYER) if len(site.output.shape) == 3]
    softmax = [site for site in subject.named("softmax") if _is_square(site.output.shape)]
    middle = layers[:1] or [site.position for site in softmax[:1]]
    shaped = ((site, site.output.shape) for site in subject.named("view", "reshape", "contiguous"))
    maps = [site for site, shape in shaped if len(shape) == 4 and 1 < shape[1] == shape[2]]
    before = [site for site in maps if middle and site.position < middle[0]][-1:]
    behind = [site for site in maps if before and middle and site.position > middle[0]]
    behind = [site for site in behind if site.output.shape == before[0].output.shape][:1]
    sides = {site.output.shape[1] for site in behind} | {math.isqrt(site.output.shape[-1]) for site in softmax}
    for side in sorted(sides):
        for shift in subject.candidates(("shift_size",), (side // 2, side // 2 + side % 2), current=0):
            by = int(shift)
            ends = {before[0].key: -by, behind[0].key: by} if behind else {}
            rolls: dict[Any, Any] = {
                key: lambda call, by=by: call.result.roll((by, by), (1, 2)) for key, by in ends.items()
            }
            masks = {site.key: _parted(by) for site in softmax if site.output.shape[-1] == side**2}
            for changes in (rolls, masks, {**rolls, **masks} if rolls and masks else {}):
                if changes:
                    yield subject.variant(f"by {shift:g}", changes)


def _is_square(shape: Sequence[int]) -> bool:
    return len(shape) > 2 and shape[-1] == shape[-2] == math.isqrt(shape[-1]) ** 2 > 1


@as_change
def _parted(call: FunctionCall, shift: int) -> Any:
    """Attention within the parts of a rolled window: what came from beyond its edge, along each axis, is one."""
    side = math.isqrt(call["input"].shape[-1])
    beyond = call.torch.arange(side) >= side - shift
    parts = (2 * beyond[:, None] + beyond).flatten()
    return call.run(input=call["input"] - 100.0 * (parts[:, None] != parts))


@forward("repeat_interleave", "reshape", together=True)
def grouped_heads(site: Site, subject: LayerSubject) -> Changes:
    """Query heads are given the keys and values of other groups."""
    # In grouped-query attention several query heads share one head of keys and values.
    given, made = site.shape(), site.output.shape
    if site.name == "repeat_interleave" and len(given) == len(made):
        times = [size // before for size, before in zip(made, given, strict=True)]
        yield _TILED, lambda call: call["input"].repeat(times)
    # x[:, :, None].expand(...).reshape(...)
    elif len(given) == len(made) + 1 and any(key[0] == "expand" for key in site.givers):
        for at in range(len(made) - 1):  # the last two are those of a merged head, which is another matter
            if given[:at] == made[:at] and given[at + 2 :] == made[at + 1 :]:
                yield _TILED, lambda call, at=at: call["input"].transpose(at, at + 1).reshape(made)


@forward("cat", "stack", "repeat_interleave", together=True)
def rotary_layout(site: Site) -> Changes:
    """The rotary embedding pairs other channels (halves or neighbours)."""
    if site.name == "repeat_interleave":
        yield "halves where neighbours are meant", lambda call: call.torch.cat([call["input"]] * 2, -1)
    given = site.get("tensors", ())
    if len(given) == 2 and site.get("dim", 0) in (-1, len(site.output.shape) - 1):
        if site.name == "cat":
            yield "neighbours where halves are meant", _neighbours
        else:
            yield "halves where neighbours are meant", _halves


def _neighbours(call: FunctionCall) -> Any:
    one, two = call["tensors"]
    if one is two or bool((one == two).all()):
        return one.repeat_interleave(2, -1)
    # What came in as (-second half, first half) belongs to this vector.
    x = call.torch.cat([two, -one], -1)
    return call.torch.stack([-x[..., 1::2], x[..., 0::2]], -1).flatten(-2)


def _halves(call: FunctionCall) -> Any:
    one, two = call["tensors"]
    x = call.torch.stack([two, -one], -1).flatten(-2)
    first, second = x.chunk(2, -1)
    return call.torch.cat([-second, first], -1).unflatten(-1, (-1, 2))


enter_edits("forward", (
    ("mask_inverted", "the mask is inverted", (*_MASKED, "where"), _inverted_masks, {"difference": "mha_packed_qkv"}),
    ("mask_missing", "the mask is not applied", _MASKED, _without_masks, {}),
    # Paddle's function takes [batch, length, heads, width], torch's [batch, heads, length, width].
    ("attention_layout", "attention runs over the heads, not over the tokens", ("scaled_dot_product_attention",),
     made({"": lambda call: call.run(
         **{name: call[name].transpose(1, 2) for name in ("query", "key", "value")}).transpose(1, 2)}),
     {"difference": "unfold_tensor_method"}),
    ("mask_added_as_numbers", "a boolean mask is added to the scores as ones and zeros", ("masked_fill",),
     made({"": lambda call: call["input"] + call["mask"].to(call["input"].dtype)}), {}),
    # A large negative number that is not large enough, or that is added.
    ("mask_value", "masked scores get another value", ("masked_fill",), _other_mask_values, {}),
    # A token sees its successor, or does not see itself.
    ("causal_mask_shifted", "the causal mask is off by one", ("tril", "triu"),
     lambda site, subject: [(f"diagonal {at}", changing(diagonal=at))
                            for at in (site.get("diagonal", 0) + 1, site.get("diagonal", 0) - 1)], {}),
))  # fmt: skip
