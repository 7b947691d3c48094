"""Attention as one layer on one side and as several on the other; each answer is run in float64."""

from __future__ import annotations

import itertools

import numpy as np
import paddle
import pytest
import torch
from paddle import nn as p
from torch import nn as n

from tests.twinalign.conversion.test_match_layers import matched

F = paddle.nn.functional
WIDTH, HEADS = 8, 2
TOKENS = np.random.default_rng(0).standard_normal((2, 5, WIDTH))


def attend(q, k, v, softmax, join):
    """Scaled dot-product attention of 2 heads on (batch, heads, length, width of a head)."""
    scores = softmax(q @ k.swapaxes(-1, -2) / (WIDTH // HEADS) ** 0.5)
    return join((scores @ v).swapaxes(1, 2))


class TorchApart(n.Module):
    """One block whose projections are four Linear layers under names of its own."""

    def __init__(self):
        super().__init__()
        for name in ("second", "first", "third", "dense"):
            setattr(self, name, n.Linear(WIDTH, WIDTH))

    def forward(self, x):
        heads = [layer(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for layer in (self.first, self.second, self.third)]
        return x + self.dense(attend(*heads, lambda scores: scores.softmax(-1), lambda found: found.flatten(2)))


class TorchWhole(n.Module):
    """The same as torch's own layer."""

    def __init__(self):
        super().__init__()
        self.attention = n.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x):
        return x + self.attention(x, x, x, need_weights=False)[0]


class TorchPacked(n.Module):
    """The same with one Linear for queries, keys and values."""

    def __init__(self):
        super().__init__()
        self.together, self.dense = n.Linear(WIDTH, 3 * WIDTH), n.Linear(WIDTH, WIDTH)

    def forward(self, x):
        heads = [part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.together(x).chunk(3, -1)]
        return x + self.dense(attend(*heads, lambda scores: scores.softmax(-1), lambda found: found.flatten(2)))


class TorchGrouped(n.Module):
    """One Linear for two heads of queries and one of keys and values."""

    def __init__(self):
        super().__init__()
        self.together, self.dense = n.Linear(WIDTH, 2 * WIDTH, bias=False), n.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.together(x).split([WIDTH, WIDTH // 2, WIDTH // 2], -1)
        q = q.unflatten(-1, (HEADS, -1)).transpose(1, 2)
        found = attend(q, k[:, None], v[:, None], lambda scores: scores.softmax(-1), lambda found: found.flatten(2))
        return x + self.dense(found)


class PaddleApart(p.Layer):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.d = (p.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x):
        heads = [layer(x).reshape([0, 0, HEADS, -1]).swapaxes(1, 2) for layer in (self.a, self.b, self.c)]
        return x + self.d(attend(*heads, F.softmax, lambda found: found.flatten(2)))


class PaddleGrouped(p.Layer):
    def __init__(self):
        super().__init__()
        self.a = p.Linear(WIDTH, WIDTH, bias_attr=False)
        self.b, self.c = (p.Linear(WIDTH, WIDTH // 2, bias_attr=False) for _ in range(2))
        self.d = p.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q = self.a(x).reshape([0, 0, HEADS, -1]).swapaxes(1, 2)
        found = attend(q, self.b(x)[:, None], self.c(x)[:, None], F.softmax, lambda found: found.flatten(2))
        return x + self.d(found)


class PaddleWhole(p.Layer):
    def __init__(self):
        super().__init__()
        self.inner = p.MultiHeadAttention(WIDTH, HEADS)

    def forward(self, x):
        return x + self.inner(x, x, x)


class PaddlePacked(p.Layer):
    def __init__(self):
        super().__init__()
        self.one, self.last = p.Linear(WIDTH, 3 * WIDTH), p.Linear(WIDTH, WIDTH)

    def forward(self, x):
        heads = [part.reshape([0, 0, HEADS, -1]).swapaxes(1, 2) for part in self.one(x).chunk(3, -1)]
        return x + self.last(attend(*heads, F.softmax, lambda found: found.flatten(2)))


@pytest.mark.parametrize("port", [PaddleApart, PaddleWhole, PaddlePacked])
@pytest.mark.parametrize("reference", [TorchApart, TorchWhole, TorchPacked])
@pytest.mark.parametrize("blocks", [1, 3])
def test_projections_of_attention(tmp_path, reference, port, blocks):
    found, (mine, other) = matched(
        tmp_path,
        lambda: n.Sequential(*(reference() for _ in range(blocks))),
        lambda: p.Sequential(*(port() for _ in range(blocks))),
        TOKENS,
    )
    np.testing.assert_allclose(other, mine, rtol=1e-9, atol=1e-12)
    assert not any(found.alone)


def test_queries_may_have_more_rows_than_keys(tmp_path):
    _, (mine, other) = matched(tmp_path, TorchGrouped, PaddleGrouped, TOKENS)
    np.testing.assert_allclose(other, mine, rtol=1e-9, atol=1e-12)


class TorchGated(n.Module):
    """Projections of 16, 4 and 4 rows, and two gates of as many rows as these have together."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = n.Linear(WIDTH, 16), n.Linear(WIDTH, 4), n.Linear(WIDTH, 4)
        self.gate, self.up, self.down = n.Linear(WIDTH, 24), n.Linear(WIDTH, 24), n.Linear(24, WIDTH)

    def forward(self, x):
        mixed = self.q(x)[..., :4] * self.k(x) + self.v(x)
        x = x + mixed.repeat(1, 1, 2)
        return x + self.down(self.gate(x).sigmoid() * self.up(x))


class PaddleGated(p.Layer):
    def __init__(self):
        super().__init__()
        self.qkv, self.gates, self.last = p.Linear(WIDTH, 24), p.Linear(WIDTH, 48), p.Linear(24, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(x).split([16, 4, 4], -1)
        x = x + (q[..., :4] * k + v).tile([1, 1, 2])
        gate, up = self.gates(x).chunk(2, -1)
        return x + self.last(F.sigmoid(gate) * up)


def test_a_packed_layer_as_large_as_a_whole_one_of_the_other_side(tmp_path):
    _, (mine, other) = matched(
        tmp_path,
        lambda: n.Sequential(TorchGated(), TorchGated()),
        lambda: p.Sequential(PaddleGated(), PaddleGated()),
        TOKENS,
    )
    np.testing.assert_allclose(other, mine, rtol=1e-9, atol=1e-12)


class TorchField(n.Module):
    """Two heads on one trunk: one number, whose Linear has one row, and features as wide as the trunk's layers."""

    def __init__(self, third):
        super().__init__()
        self.trunk, self.deep = n.Linear(WIDTH, WIDTH), n.Linear(WIDTH, WIDTH)
        self.density, self.feature = n.Linear(WIDTH, 1), n.Linear(WIDTH, WIDTH)
        self.third = n.Linear(WIDTH, third) if third else None
        self.last = n.Linear(WIDTH, 2)

    def forward(self, x):
        x = self.deep(self.trunk(x).relu()).relu()
        more = self.third(x).sum(-1, keepdim=True) if self.third is not None else 0.0
        return self.last(self.feature(x).tanh()) * self.density(x).sigmoid() + more


class PaddleField(p.Layer):
    """The same with one Linear for all heads."""

    def __init__(self, third):
        super().__init__()
        self.enter, self.inner = p.Linear(WIDTH, WIDTH), p.Linear(WIDTH, WIDTH)
        self.heads, self.leave = p.Linear(WIDTH, 1 + WIDTH + third), p.Linear(WIDTH, 2)

    def forward(self, x):
        x = F.relu(self.inner(F.relu(self.enter(x))))
        both = self.heads(x)
        density, feature, third = both[..., :1], both[..., 1 : 1 + WIDTH], both[..., 1 + WIDTH :]
        return self.leave(feature.tanh()) * F.sigmoid(density) + third.sum(-1, keepdim=True)


@pytest.mark.parametrize("third", [0, 5])
def test_heads_of_other_widths_in_one_linear(tmp_path, third):
    found, (mine, other) = matched(
        tmp_path,
        lambda: n.ModuleList([TorchField(third)])[0],
        lambda: PaddleField(third),
        TOKENS,
    )
    np.testing.assert_allclose(other, mine, rtol=1e-9, atol=1e-12)
    assert not any(found.alone)


class TorchGatedMixing(n.Module):
    """Two gates in one Linear of 32 rows; queries, keys and values of 8, 4 and 4, each in its own."""

    def __init__(self):
        super().__init__()
        self.gates, self.close = n.Linear(WIDTH, 32, bias=False), n.Linear(16, WIDTH)
        self.q, self.k, self.v = (n.Linear(WIDTH, rows, bias=False) for rows in (8, 4, 4))
        self.end = n.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        left, right = self.gates(x).chunk(2, -1)
        x = x + self.close(left.sigmoid() * right)
        return x + self.end(self.q(x) * (self.k(x).sigmoid() * self.v(x)).repeat(1, 1, 2))


class PaddleGatedMixing(p.Layer):
    """The gates apart and the others packed, in a Linear of as many rows as one gate has."""

    def __init__(self):
        super().__init__()
        self.left, self.right = (p.Linear(WIDTH, 16, bias_attr=False) for _ in range(2))
        self.shut, self.packed = p.Linear(16, WIDTH), p.Linear(WIDTH, 16, bias_attr=False)
        self.last = p.Linear(WIDTH, WIDTH, bias_attr=False)

    def forward(self, x):
        x = x + self.shut(F.sigmoid(self.left(x)) * self.right(x))
        q, k, v = self.packed(x).split([8, 4, 4], -1)
        return x + self.last(q * (F.sigmoid(k) * v).tile([1, 1, 2]))


def test_one_layer_split_and_another_packed_of_the_same_sizes(tmp_path):
    _, (mine, other) = matched(
        tmp_path,
        lambda: n.Sequential(TorchGatedMixing(), TorchGatedMixing()),
        lambda: p.Sequential(PaddleGatedMixing(), PaddleGatedMixing()),
        TOKENS,
    )
    np.testing.assert_allclose(other, mine, rtol=1e-9, atol=1e-12)


class TorchGates(n.Module):
    """A convolutional GRU cell with a convolution for each gate."""

    def __init__(self):
        super().__init__()
        self.update, self.reset, self.new = (n.Conv2d(6, 3, 3, padding=1) for _ in range(3))

    def forward(self, x):
        h, both = x.tanh(), lambda h: torch.cat([h, x], 1)
        z, r = self.update(both(h)).sigmoid(), self.reset(both(h)).sigmoid()
        return (1 - z) * h + z * self.new(both(r * h)).tanh()


class PaddleGates(p.Layer):
    """The same with one convolution for update and reset."""

    def __init__(self):
        super().__init__()
        self.gates, self.candidate = p.Conv2D(6, 6, 3, padding=1), p.Conv2D(6, 3, 3, padding=1)

    def forward(self, x):
        h, both = F.tanh(x), lambda h: paddle.concat([h, x], 1)
        z, r = F.sigmoid(self.gates(both(h))).chunk(2, 1)
        return (1 - z) * h + z * F.tanh(self.candidate(both(r * h)))


def test_gates_in_one_convolution(tmp_path):
    images = np.random.default_rng(1).standard_normal((2, 3, 5, 4))
    found, (mine, other) = matched(tmp_path, TorchGates, PaddleGates, images)
    np.testing.assert_allclose(other, mine, rtol=1e-9, atol=1e-12)
    assert not any(found.alone)


def modulated(kind, one, flat, apart):
    """Blocks of many widths whose scale and shift come from one Linear or from two, and q, k and v from one convolution
    over points or from three."""
    is_port = kind is p

    class Block(kind.Layer if is_port else kind.Module):
        def __init__(self, before, width):
            super().__init__()
            self.skip = one(before, width)
            if apart:
                self.scale, self.shift = kind.Linear(20, width), kind.Linear(20, width)
                self.q, self.k, self.v = (one(width, width) for _ in range(3))
            else:
                self.film, self.qkv = kind.Linear(20, 2 * width), one(width, 3 * width)

        def forward(self, x, given):
            x = self.skip(x)
            scale, shift = (self.scale(given), self.shift(given)) if apart else self.film(given).chunk(2, -1)
            x = (x * (1 + scale[:, :, None]) + shift[:, :, None]).tanh()
            q, k, v = (self.q(x), self.k(x), self.v(x)) if apart else self.qkv(x).chunk(3, 1)
            return x + q * k.tanh() * v.sin()

    class Net(kind.Layer if is_port else kind.Module):
        def __init__(self):
            super().__init__()
            self.given = kind.Linear(12, 20)
            blocks = [Block(*widths) for widths in itertools.pairwise((3, 12, 16, 24, 48))]
            self.blocks = (kind.LayerList if is_port else kind.ModuleList)(blocks)

        def forward(self, x):
            given = self.given(flat(x))
            for block in self.blocks:
                x = block(x, given)
            return x

    return Net


def test_scale_and_shift_of_many_widths_and_convolutions_over_points(tmp_path):
    points = np.random.default_rng(1).standard_normal((2, 3, 4))
    found, (mine, other) = matched(
        tmp_path,
        modulated(n, lambda i, o: n.Conv1d(i, o, 1), lambda x: x.flatten(1), False),
        modulated(p, lambda i, o: p.Conv1D(i, o, 1), lambda x: x.flatten(1), True),
        points,
    )
    np.testing.assert_allclose(other, mine, rtol=1e-9, atol=1e-12)
    assert not any(found.alone)
