"""A small decoder: few key heads, rotary pairs, a sliding window, capped scores, experts; in torch."""

import torch
from torch import nn
from torch.nn import functional as F


def turned(x, places, base):
    half = x.shape[-1] // 2
    rates = base ** (-torch.arange(half, dtype=x.dtype) / half)
    angles = places.to(x.dtype)[:, None, :, None] * rates
    even, odd = x[..., 0::2], x[..., 1::2]
    pairs = torch.stack([even * angles.cos() - odd * angles.sin(), odd * angles.cos() + even * angles.sin()], -1)
    return pairs.flatten(-2)


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) - 0.5)

    def forward(self, x):
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * (1.0 + self.weight)


class Attention(nn.Module):
    def __init__(self, width, heads, shared, window):
        super().__init__()
        self.heads, self.shared, self.window = heads, shared, window
        self.size = width // heads
        self.q = nn.Linear(width, width)
        self.kv = nn.Linear(width, 2 * shared * self.size)
        self.out = nn.Linear(width, width, bias=False)
        self.q_norm, self.k_norm = Norm(self.size), Norm(self.size)
        self.sinks = nn.Parameter(torch.randn(heads))

    def forward(self, x, places, valid):
        batch, length, _ = x.shape
        q = self.q(x).reshape(batch, length, self.heads, self.size).transpose(1, 2)
        k, v = self.kv(x).reshape(batch, length, 2, self.shared, self.size).unbind(2)
        q, k = self.q_norm(q), self.k_norm(k.transpose(1, 2))
        q, k = turned(q, places, 50.0), turned(k, places, 50.0)
        k = k.repeat_interleave(self.heads // self.shared, dim=1)
        v = v.transpose(1, 2).repeat_interleave(self.heads // self.shared, dim=1)
        scores = torch.matmul(q, k.transpose(2, 3)) / self.size**0.5
        scores = 5.0 * torch.tanh(scores / 5.0)
        steps = torch.arange(length)[:, None] - torch.arange(length)[None, :]
        hidden = (steps < 0) | (steps >= self.window) | ~valid.bool()[:, None, None, :]
        scores = scores.masked_fill(hidden, -1e9)
        sinks = self.sinks.reshape(1, -1, 1, 1).expand(batch, -1, length, 1)
        weights = torch.softmax(torch.cat([scores, sinks], -1), -1)[..., :-1]
        return self.out(torch.matmul(weights, v).transpose(1, 2).flatten(2))


class Experts(nn.Module):
    def __init__(self, width, hidden, count):
        super().__init__()
        self.route = nn.Linear(width, count, bias=False)
        self.up = nn.Parameter(torch.randn(count, width, 2 * hidden) * 0.3)
        self.down = nn.Parameter(torch.randn(count, hidden, width) * 0.3)

    def forward(self, x):
        chances = torch.softmax(self.route(x), -1)
        best, which = chances.topk(2, -1)
        best = best / best.sum(-1, keepdim=True)
        share = torch.zeros_like(chances).scatter(-1, which, best)
        gate, value = torch.einsum("blw,ewh->bleh", x, self.up).chunk(2, -1)
        done = torch.einsum("bleh,ehw->blew", F.gelu(gate, approximate="tanh") * value, self.down)
        return (share[..., None] * done).sum(2)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 16)
        self.attn = Attention(16, 4, 2, 3)
        self.experts = Experts(16, 8, 4)
        self.norm1, self.norm2, self.norm3 = Norm(16), Norm(16), Norm(16)

    def forward(self, tokens, valid):
        places = (valid.long().cumsum(-1) - 1).clamp(min=0)
        x = self.embed(tokens) * 16**0.5
        x = x + self.attn(self.norm1(x), places, valid)
        x = x + self.experts(self.norm2(x)) * 0.5
        return torch.matmul(self.norm3(x), self.embed.weight.t()) / 16**0.5


def loss(outputs, inputs):
    """Cross-entropy of the next token where there is one, and divergence from a teacher."""
    logits, labels = outputs[:, :-1], inputs["tokens"][:, 1:]
    labels = labels.masked_fill(inputs["valid"][:, 1:] == 0, -100)
    entropy = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=-100, reduction="sum")
    entropy = entropy / (labels != -100).sum()
    teacher = torch.softmax(inputs["teacher"] / 2.0, -1)
    apart = F.kl_div(torch.log_softmax(outputs / 2.0, -1), teacher, reduction="batchmean") * 4.0
    return entropy + 0.1 * apart + 1e-3 * torch.logsumexp(outputs, -1).square().mean()
