"""Pieces of models, each as a function of its layer `s` and its inputs: what two edits at once are planted into."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


def attention(s: Any, x: Any) -> Any:
    batch, length, width = x.shape
    q, k, v = s.qkv(x).reshape(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4).unbind(0)
    scores = (q @ k.transpose(-2, -1)) * (width // 4) ** -0.5
    scores = scores + s.bias
    mixed = scores.softmax(-1) @ v
    return s.proj(mixed.transpose(1, 2).reshape(batch, length, width))


def rotary(s: Any, q: Any, k: Any) -> Any:
    half = q.shape[-1] // 2
    rates = 10000.0 ** (-torch.arange(half, dtype=q.dtype) / half)
    angles = torch.arange(q.shape[-2], dtype=q.dtype)[:, None] * rates
    cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
    turned = []
    for x in (q, k):
        first, second = x.chunk(2, -1)
        turned.append(x * cos + torch.cat([-second, first], -1) * sin)
    return turned[0] @ turned[1].transpose(-2, -1) / math.sqrt(q.shape[-1])


def swiglu(s: Any, x: Any) -> Any:
    normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * s.scale
    gate, up = (normed @ s.wide.T).chunk(2, -1)
    return x + (F.silu(gate) * up) @ s.narrow.T


def convnext(s: Any, x: Any) -> Any:
    y = F.conv2d(x, s.depth, padding=1, groups=x.shape[1]).permute(0, 2, 3, 1)
    y = F.layer_norm(y, (y.shape[-1],), s.gain, s.shift, 1e-6)
    y = F.gelu(F.linear(y, s.wide))
    y = F.linear(y, s.narrow) * s.gamma
    return x + y.permute(0, 3, 1, 2)


def squeeze(s: Any, x: Any) -> Any:
    pooled = x.mean((2, 3))
    gate = torch.sigmoid(s.out(F.relu(s.reduce(pooled))))
    y = F.hardswish(x) * gate[:, :, None, None]
    return F.max_pool2d(y, 2), gate


def lstm_cell(s: Any, x: Any, h: Any, c: Any) -> Any:
    gates = x @ s.w.T + h @ s.u.T + s.b
    i, f, g, o = gates.chunk(4, -1)
    new_c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    new_h = torch.sigmoid(o) * torch.tanh(new_c)
    return new_h, new_c


def gru_cell(s: Any, x: Any, h: Any) -> Any:
    rx, zx, nx = (x @ s.w.T + s.b).chunk(3, -1)
    rh, zh, nh = (h @ s.u.T + s.d).chunk(3, -1)
    reset, update = torch.sigmoid(rx + rh), torch.sigmoid(zx + zh)
    new = torch.tanh(nx + reset * nh)
    return (1 - update) * new + update * h


def window(s: Any, x: Any) -> Any:
    batch, height, width, channels = x.shape
    shifted = torch.roll(x, (-1, -1), (1, 2))
    parts = shifted.view(batch, height // 2, 2, width // 2, 2, channels).permute(0, 1, 3, 2, 4, 5)
    mixed = s.mix(parts.reshape(-1, 4, channels))
    back = mixed.view(batch, height // 2, width // 2, 2, 2, channels).permute(0, 1, 3, 2, 4, 5)
    return x + torch.roll(back.reshape(batch, height, width, channels), (1, 1), (1, 2))


def router(s: Any, x: Any) -> Any:
    chances = F.softmax(x @ s.gate.T, -1)
    weights, chosen = torch.topk(chances, 2, -1)
    weights = weights / weights.sum(-1, keepdim=True)
    outputs = torch.einsum("bi,eio->beo", x, s.experts)
    picked = outputs.gather(1, chosen[..., None].expand(-1, -1, outputs.shape[-1]))
    used = F.one_hot(chosen[:, 0], 4).to(x.dtype).mean(0)
    return (picked * weights[..., None]).sum(1), 4.0 * (used * chances.mean(0)).sum()


def scan(s: Any, x: Any, delta: Any, b: Any, c: Any) -> Any:
    step = F.softplus(delta + s.bias)
    decay = torch.exp(step[..., None] * -torch.exp(s.log_a))
    state, outputs = torch.zeros(x.shape[0], x.shape[2], b.shape[2], dtype=x.dtype), []
    for t in range(x.shape[1]):
        state = decay[:, t] * state + (step[:, t] * x[:, t])[..., None] * b[:, t, None]
        outputs.append((state * c[:, t, None]).sum(-1))
    return torch.stack(outputs, 1) + x * s.skip


def boxes(s: Any, a: Any, b: Any) -> Any:
    a_low, a_high = a[:, :2] - 0.5 * a[:, 2:].exp(), a[:, :2] + 0.5 * a[:, 2:].exp()
    b_low, b_high = b[:, :2] - 0.5 * b[:, 2:].exp(), b[:, :2] + 0.5 * b[:, 2:].exp()
    overlap = (torch.minimum(a_high, b_high) - torch.maximum(a_low, b_low)).clamp(min=0).prod(-1)
    union = (a_high - a_low).prod(-1) + (b_high - b_low).prod(-1) - overlap
    hull = (torch.maximum(a_high, b_high) - torch.minimum(a_low, b_low)).prod(-1)
    return overlap / (union + 1e-7) - (hull - union) / (hull + 1e-7)


def focal(s: Any, logits: Any, targets: Any) -> Any:
    t = (targets > 0).to(logits.dtype)
    p = torch.sigmoid(logits)
    entropy = F.binary_cross_entropy_with_logits(logits, t, reduction="none")
    p_t = p * t + (1 - p) * (1 - t)
    alpha_t = 0.25 * t + 0.75 * (1 - t)
    return (alpha_t * (1 - p_t) ** 2.0 * entropy).sum(-1) / t.sum(-1).clamp(min=1.0)


def contrast(s: Any, x: Any, y: Any) -> Any:
    a, b = F.normalize(x, dim=-1), F.normalize(y, dim=-1)
    logits = a @ b.T / 0.07
    one, other = F.log_softmax(logits, 1).diagonal(), F.log_softmax(logits, 0).diagonal()
    return -(one + other) / 2, logits


def decode(s: Any, x: Any) -> Any:
    batch, _, height, width = x.shape
    y = x.view(batch, 3, 7, height, width).permute(0, 1, 3, 4, 2)
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    grid = torch.stack([columns, rows], -1).to(x.dtype)
    centres = (torch.sigmoid(y[..., :2]) * 2.0 - 0.5 + grid) * 8.0
    sizes = (torch.sigmoid(y[..., 2:4]) * 2.0) ** 2 * s.anchors[:, None, None]
    return torch.cat([centres, sizes, torch.sigmoid(y[..., 4:])], -1)


def upward(s: Any, low: Any, high: Any) -> Any:
    grown = F.interpolate(low, scale_factor=2, mode="bilinear", align_corners=False)
    joined = torch.cat([high, grown], 1)
    y = F.conv2d(F.pad(joined, (1, 1, 1, 1), mode="reflect"), s.kernel, s.offset)
    y = F.group_norm(y, 2, s.gain, s.shift, 1e-5)
    return F.leaky_relu(y, 0.1) + grown


def slopes(s: Any, q: Any, k: Any, v: Any) -> Any:
    heads, length = q.shape[1], q.shape[2]
    slope = 2.0 ** (-8.0 * torch.arange(1, heads + 1, dtype=q.dtype) / heads)
    places = torch.arange(length, dtype=q.dtype)
    distance = (places[None, :] - places[:, None]).clamp(max=0)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + slope[:, None, None] * distance
    later = torch.ones(length, length, dtype=torch.bool).triu(1)
    return scores.masked_fill(later, -1e9).softmax(-1) @ v


def patches(s: Any, x: Any) -> Any:
    y = F.conv2d(x, s.kernel, s.offset, stride=4).flatten(2).transpose(1, 2)
    y = torch.cat([s.token.expand(y.shape[0], -1, -1), y], 1) + s.places
    normed = F.layer_norm(y, (y.shape[-1],), s.gain, s.shift, 1e-6)
    return s.head(normed[:, 0]), normed[:, 1:].mean(1)


def graph(s: Any, x: Any, edges: Any) -> Any:
    h = (x @ s.w).view(x.shape[0], 2, -1)
    left, right = (h * s.a).sum(-1), (h * s.b).sum(-1)
    scores = F.leaky_relu(left[:, None] + right[None], 0.2)
    linked = (edges > -0.3)[..., None]
    weights = torch.softmax(scores.masked_fill(~linked, -1e30), 1)
    return F.elu(torch.einsum("ijh,jhd->ihd", weights, h).flatten(1))


def latent(s: Any, x: Any, noise: Any) -> Any:
    mean, log_var = s.encode(x).chunk(2, -1)
    z = mean + noise * torch.exp(0.5 * log_var)
    restored = torch.tanh(z @ s.back)
    divergence = -0.5 * (1 + log_var - mean.pow(2) - log_var.exp()).sum(-1)
    return (restored - x).pow(2).mean(-1) + 0.1 * divergence, z


def timestep(s: Any, t: Any, x: Any) -> Any:
    half = 4
    rates = torch.exp(-math.log(1000.0) * torch.arange(half, dtype=x.dtype) / half)
    angles = t[:, None] * rates
    embedded = torch.cat([angles.cos(), angles.sin()], -1)
    scale, shift = s.project(F.silu(embedded)).chunk(2, -1)
    normed = (x - x.mean(1, keepdim=True)) / torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-6)
    return normed * (1 + scale) + shift


def shuffle(s: Any, x: Any) -> Any:
    batch, channels, height, width = x.shape
    kept, branch = x.chunk(2, 1)
    branch = F.relu(F.batch_norm(branch, s.mean.detach(), s.variance.detach(), s.gain, s.shift, False, 0.0, 1e-5))
    branch = F.conv2d(branch, s.kernel, padding=1, groups=2)
    joined = torch.cat([kept, branch], 1).view(batch, 2, channels // 2, height, width)
    return joined.transpose(1, 2).reshape(batch, channels, height, width)


def linear_attention(s: Any, q: Any, k: Any, v: Any) -> Any:
    q, k = F.elu(q) + 1.0, F.elu(k) + 1.0
    memory = torch.einsum("bhnd,bhne->bhde", k, v)
    total = torch.einsum("bhnd,bhd->bhn", q, k.sum(2))
    return torch.einsum("bhnd,bhde->bhne", q, memory) / (total[..., None] + 1e-6)


def relative(s: Any, x: Any, y: Any) -> Any:
    offsets = torch.arange(6)[None, :] - torch.arange(6)[:, None]
    bucket = torch.where(offsets > 0, 4, 0) + offsets.abs().clamp(max=3)
    scores = torch.einsum("bid,bjd->bij", x, y) + s.table[bucket]
    chances = torch.softmax(scores / 0.5, -1)
    return chances @ y - x, -(chances * torch.log(chances + 1e-9)).sum(-1)


def standardised(s: Any, x: Any) -> Any:
    flat = s.kernel.flatten(1)
    mean, var = flat.mean(1, keepdim=True), flat.var(1, keepdim=True, unbiased=False)
    kernel = ((flat - mean) * torch.rsqrt(var * flat.shape[1] + 1e-4) * s.gain).view_as(s.kernel)
    y = F.conv2d(F.gelu(x) * 1.7, kernel, s.offset, stride=2, padding=1)
    return y * 0.2 + F.avg_pool2d(x, 2)


def _p(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(shape))


PARTS: dict[str, tuple[dict[str, Any], list[tuple[int, ...]]]] = {
    "attention": (
        {"qkv": nn.Linear(8, 24), "proj": nn.Linear(8, 8), "bias": _p(4, 5, 5)}, [(2, 5, 8)],
    ),
    "rotary": ({}, [(2, 2, 5, 8), (2, 2, 5, 8)]),
    "swiglu": ({"scale": _p(6), "wide": _p(16, 6), "narrow": _p(6, 8)}, [(2, 4, 6)]),
    "convnext": (
        {"depth": _p(6, 1, 3, 3), "gain": _p(6), "shift": _p(6), "wide": _p(12, 6), "narrow": _p(6, 12),
         "gamma": _p(6)}, [(2, 6, 5, 5)],
    ),
    "squeeze": ({"reduce": nn.Linear(6, 3), "out": nn.Linear(3, 6)}, [(2, 6, 4, 4)]),
    "lstm_cell": ({"w": _p(20, 6), "u": _p(20, 5), "b": _p(20)}, [(3, 6), (3, 5), (3, 5)]),
    "gru_cell": ({"w": _p(15, 6), "u": _p(15, 5), "b": _p(15), "d": _p(15)}, [(3, 6), (3, 5)]),
    "window": ({"mix": nn.Linear(6, 6)}, [(2, 4, 4, 6)]),
    "router": ({"gate": _p(4, 6), "experts": _p(4, 6, 5)}, [(7, 6)]),
    "scan": (
        {"bias": _p(4), "log_a": _p(4, 3), "skip": _p(4)}, [(2, 5, 4), (2, 5, 4), (2, 5, 3), (2, 5, 3)],
    ),
    "boxes": ({}, [(9, 4), (9, 4)]),
    "focal": ({}, [(4, 7), (4, 7)]),
    "contrast": ({}, [(6, 5), (6, 5)]),
    "decode": ({"anchors": _p(3, 2)}, [(2, 21, 3, 4)]),
    "upward": ({"kernel": _p(4, 7, 3, 3), "offset": _p(4), "gain": _p(4), "shift": _p(4)},
               [(2, 4, 3, 3), (2, 3, 6, 6)]),
    "slopes": ({}, [(2, 4, 5, 3), (2, 4, 5, 3), (2, 4, 5, 3)]),
    "patches": (
        {"kernel": _p(6, 3, 4, 4), "offset": _p(6), "token": _p(1, 1, 6), "places": _p(1, 5, 6), "gain": _p(6),
         "shift": _p(6), "head": nn.Linear(6, 3)}, [(2, 3, 8, 8)],
    ),
    "graph": ({"w": _p(5, 8), "a": _p(2, 4), "b": _p(2, 4)}, [(6, 5), (6, 6)]),
    "latent": ({"encode": nn.Linear(6, 8), "back": _p(4, 6)}, [(5, 6), (5, 4)]),
    "timestep": ({"project": nn.Linear(8, 12)}, [(4,), (4, 6)]),
    "shuffle": (
        {"mean": _p(4), "variance": _p(4), "gain": _p(4), "shift": _p(4), "kernel": _p(4, 2, 3, 3)}, [(2, 8, 4, 4)],
    ),
    "linear_attention": ({}, [(2, 2, 5, 4), (2, 2, 5, 4), (2, 2, 5, 3)]),
    "relative": ({"table": _p(8)}, [(2, 6, 4), (2, 6, 4)]),
    "standardised": ({"kernel": _p(4, 4, 3, 3), "gain": _p(4, 1), "offset": _p(4)}, [(2, 4, 6, 6)]),
}  # fmt: skip
"""Parameters and child layers of each piece, which return what they returned in the reference; shapes of its inputs."""
