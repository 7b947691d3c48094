"""Causes about attention and on what stands around it, each against a wrong twin of the layer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.twinalign.causes.units import Case, case, doing, explained, identified, unit

TOKENS = (2, 5, 12)


def gates(order):
    """A step of a recurrent unit, with its three gates in this order and a product of matrices that is no attention."""

    def forward(self, x):
        parts = self.gates(x).chunk(3, -1)
        reset, update, new = (parts[at] for at in order)
        return torch.sigmoid(update) * torch.tanh(new @ self.mix + torch.sigmoid(reset) * x).softmax(-1)

    return forward


def attention(
    order=(0, 1, 2),
    scale=lambda width: width**-0.5,
    axis=-1,
    layout="three heads width",
    swap_back=True,
    mask=None,
    over_heads=False,
):
    """Self-attention of a ViT with 2 heads of width 6, written out, wrong where told."""

    def forward(self, x):
        batch, length, dim = x.shape
        qkv = self.qkv(x)
        if layout == "three heads width":
            qkv = qkv.reshape(batch, length, 3, 2, 6).permute(2, 0, 3, 1, 4)
        else:
            qkv = qkv.reshape(batch, length, 2, 3, 6).permute(3, 0, 2, 1, 4)
        q, k, v = (qkv[at] for at in order)
        if over_heads:
            q, k, v = (item.transpose(1, 2) for item in (q, k, v))
        scores = (q @ k.transpose(-2, -1)) * scale(6)
        if mask is not None:
            scores = mask(scores)
        mixed = scores.softmax(axis) @ v
        mixed = mixed.transpose(1, 2) if over_heads else mixed
        mixed = mixed.transpose(1, 2) if swap_back else mixed
        return self.proj(mixed.reshape(batch, length, dim))

    return forward


def fused(self, x):
    """The same by torch's own function."""
    batch, length, dim = x.shape
    q, k, v = self.qkv(x).reshape(batch, length, 3, 2, 6).permute(2, 0, 3, 1, 4).unbind(0)
    return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, dim))


def split(self, x):
    """The same with heads taken apart after the split."""
    batch, length, dim = x.shape
    q, k, v = (part.reshape(batch, length, 2, 6).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
    return self.proj((((q / math.sqrt(6)) @ k.mT).softmax(-1) @ v).transpose(1, 2).reshape(batch, length, dim))


CAUSAL = torch.ones(5, 5, dtype=torch.bool).tril()


def masked(fill=-math.inf, mask=CAUSAL):
    return lambda scores: scores.masked_fill(mask.logical_not(), fill)


def parts():
    return {"qkv": nn.Linear(12, 36), "proj": nn.Linear(12, 12)}


def planted(identifier, wrong, right=None, name="", **options):
    return case(
        identifier,
        unit(right or attention(), **parts()),
        doing(wrong),
        TOKENS,
        name=name,
        forced=["qkv", "proj"],
        **options,
    )


def window(shift: int) -> Callable[..., Any]:
    """A block of one window of 4 by 4 tokens, whose map is rolled; the attention is a layer of its own."""

    def block(self: Any, x: torch.Tensor) -> torch.Tensor:
        grid = x.view(-1, 4, 4, 8)
        if shift:
            grid = torch.cat([grid[:, shift:], grid[:, :shift]], 1)
            grid = torch.cat([grid[:, :, shift:], grid[:, :, :shift]], 2)
        windows = self.attention(grid.reshape(-1, 16, 8)).view(-1, 4, 4, 8)
        if shift:
            windows = torch.cat([windows[:, -shift:], windows[:, :-shift]], 1)
            windows = torch.cat([windows[:, :, -shift:], windows[:, :, :-shift]], 2)
        return x + windows.reshape(x.shape)

    return block


def seen(shift: int) -> Callable[..., Any]:
    """Attention of 16 tokens with a table of positions, and with the mask of a window shifted by `shift`."""

    def attend(self: Any, x: torch.Tensor) -> torch.Tensor:
        scores = x @ x.transpose(1, 2) + self.table
        if shift:
            part = torch.zeros(4, 4)
            part[4 - shift :] += 1
            part[:, 4 - shift :] += 2
            part = part.flatten()
            scores = scores.masked_fill(part[None] != part[:, None], -1e9)
        return scores.softmax(-1) @ x

    return attend


TABLE = torch.linspace(-1.0, 1.0, 256, dtype=torch.float64).reshape(16, 16)

CASES: list[Case] = [
    case(
        "window_shift_kept",
        unit(window(0), attention=nn.Linear(8, 8)),
        doing(window(2)),
        (2, 16, 8),
        forced=["attention"],
        name="rolled",
    ),
    case(
        "window_shift_kept",
        unit(seen(0), table=nn.Parameter(TABLE)),
        doing(seen(2)),
        (2, 16, 8),
        name="masked",
    ),
    *(
        planted("qkv_order", attention(order=order), right, name=f"{order}-{right.__name__}")
        for order in ((0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
        for right in (fused, split)
    ),
    planted("qkv_order", attention(order=(1, 0, 2)), phase="backward"),
    planted("attention_scale", attention(scale=lambda width: 1.0), fused, name="forgotten"),
    planted("attention_scale", attention(scale=lambda width: 12**-0.5), fused, name="of the model"),
    planted("attention_scale", attention(scale=lambda width: 1 / width), split, name="squared"),
    planted("attention_scale", attention(scale=lambda width: 12**-0.5), phase="backward"),
    planted("softmax_axis", attention(axis=-2), fused),
    planted("softmax_axis", attention(axis=-2), split, name="written-out"),
    planted("heads_order", attention(layout="heads three width"), fused),
    planted("reshaped_not_transposed", attention(swap_back=False), fused),
    planted("attention_layout", attention(over_heads=True), fused),
    planted("causal_mask_added", attention(mask=masked()), fused),
    planted("mask_missing", attention(), attention(mask=masked())),
    planted("mask_inverted", attention(mask=masked(-1e9, CAUSAL.logical_not())), attention(mask=masked(-1e9))),
    planted("mask_value", attention(mask=masked(0.0)), attention(mask=masked())),
    planted(
        "mask_added_as_numbers",
        attention(mask=lambda scores: scores + CAUSAL.logical_not().double()),
        attention(mask=masked()),
    ),
    planted(
        "causal_mask_shifted",
        attention(mask=masked(mask=torch.ones(5, 5, dtype=torch.bool).tril(1))),
        attention(mask=lambda scores: scores.masked_fill(torch.ones_like(scores).tril() == 0, -math.inf)),
    ),
    case(
        "mask_missing",
        unit(lambda s, x, m: F.scaled_dot_product_attention(x, x, x, attn_mask=m)),
        doing(lambda s, x, m: (x @ x.mT / math.sqrt(12)).softmax(-1) @ x),
        TOKENS,
        CAUSAL.numpy(),
        name="fused",
    ),
]


def mha_right():
    return nn.MultiheadAttention(12, 2, batch_first=True)


def self_attention(right):
    return unit(lambda s, x: s.attention(x, x, x, need_weights=False)[0], attention=right)


def rows_permuted(right):
    with torch.no_grad():
        for tensor in (right.attention.in_proj_weight, right.attention.in_proj_bias):
            tensor.copy_(torch.cat([tensor[12:24], tensor[:12], tensor[24:]]))
    return right


def repeated(x):
    return x.repeat_interleave(2, dim=1)


def expanded(x):
    batch, heads, length, width = x.shape
    return x[:, :, None].expand(batch, heads, 2, length, width).reshape(batch, 2 * heads, length, width)


def tiled(x):
    return x.repeat(1, 2, 1, 1)


def grouped(share):
    """Four query heads of width three, and two heads that are keys and values at once."""

    def forward(self, x):
        batch, length, _ = x.shape
        q = x.reshape(batch, length, 4, 3).transpose(1, 2)
        k = share(x[..., :6].reshape(batch, length, 2, 3).transpose(1, 2))
        return (q @ k.transpose(-2, -1) / math.sqrt(3)).softmax(-1) @ k

    return forward


def rope(interleaved):
    """Rotary embedding of pairs of halves, or of neighbours."""

    def forward(self, x):
        length, width = x.shape[-2:]
        angles = torch.arange(length)[:, None] / 10 ** (torch.arange(width // 2) / width)
        if interleaved:
            angles = angles.repeat_interleave(2, -1)
            turned = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
        else:
            angles = torch.cat([angles, angles], -1)
            turned = torch.cat([-x[..., width // 2 :], x[..., : width // 2]], -1)
        return x * angles.cos() + turned * angles.sin()

    return forward


CASES += [
    case("qkv_order", self_attention(mha_right()), rows_permuted, TOKENS, name="packed"),
    case("rotary_layout", unit(rope(False)), doing(rope(True)), TOKENS),
    case("grouped_heads", unit(grouped(repeated)), doing(grouped(tiled)), TOKENS),
    case("grouped_heads", unit(grouped(expanded)), doing(grouped(tiled)), TOKENS, name="expanded"),
    case("rotary_layout", unit(rope(True)), doing(rope(False)), TOKENS, name="neighbours"),
]


@pytest.mark.parametrize("fault", CASES, ids=str)
def test_the_cause_is_found(fault: Case) -> None:
    assert identified(fault) == fault.id


@pytest.mark.parametrize("seed", range(3))
def test_attention_written_out_in_single_calls_is_torchs(seed: int) -> None:
    from twinalign.backends.torch.reference_only.rewriting import intercepting

    torch.manual_seed(seed)
    layer = nn.MultiheadAttention(12, 2, batch_first=seed % 2 == 0).double()
    x, y = torch.randn(2, 4, 5, 12, dtype=torch.float64).unbind(0)
    mask, padding = torch.randn(x.shape[-2], y.shape[-2]).bool().triu(1), None
    if seed == 2:
        mask, padding = None, torch.zeros(4, 5, dtype=torch.bool)
        padding[1, 3:] = True
    if not layer.batch_first:
        mask = torch.rand(4, 4, dtype=torch.float64)
    expected = layer(x, y, y, key_padding_mask=padding, attn_mask=mask)
    seen = []
    with intercepting(layer, lambda call: (seen.append(call.name), call.run())[1]):
        found = layer(x, y, y, key_padding_mask=padding, attn_mask=mask)
    assert {"softmax", "matmul", "linear"} <= set(seen)
    np.testing.assert_allclose(found[0].detach(), expected[0].detach(), rtol=0, atol=1e-14)
    np.testing.assert_allclose(found[1].detach(), expected[1].detach(), rtol=0, atol=1e-14)


def test_a_parameter_that_a_change_returns_is_not_registered_by_the_layer() -> None:
    from twinalign.backends.torch.reference_only.rewriting import intercepting

    layer = torch.nn.utils.weight_norm(torch.nn.Linear(3, 2))
    names = list(layer.state_dict())
    seen: list[str] = []

    def changed(call: Any) -> Any:
        seen.append(call.name)
        return call["input"]

    with intercepting(layer, changed):
        layer(torch.ones(1, 3))
    assert "weight_norm" in seen
    assert list(layer.state_dict()) == names


def test_only_what_feeds_an_attention_is_called_queries_keys_and_values() -> None:
    found = explained(planted("qkv_order", attention(order=(1, 0, 2)), fused))
    assert found is not None
    assert found.text.endswith("k, q, v where q, k, v are meant")
    right = unit(gates((0, 1, 2)), gates=nn.Linear(12, 36), mix=nn.Parameter(torch.eye(12)))
    found = explained(case("qkv_order", right, doing(gates((1, 0, 2))), TOKENS, forced=["gates"]))
    assert found is not None
    assert found.id == "qkv_order"
    assert found.text.endswith(": 2, 1, 3 where 1, 2, 3 are meant")
