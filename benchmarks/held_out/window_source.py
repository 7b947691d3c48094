"""A small vision transformer with shifted windows, a table of relative positions and local patches, in torch."""

import torch
from torch import nn
from torch.nn import functional as F


def windows(x, side):
    batch, high, wide, width = x.shape
    x = x.reshape(batch, high // side, side, wide // side, side, width)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, side * side, width)


def unwindowed(x, side, high, wide):
    x = x.reshape(-1, high // side, wide // side, side, side, x.shape[-1])
    return x.permute(0, 1, 3, 2, 4, 5).reshape(x.shape[0], high, wide, -1)


def places(side):
    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    both = torch.stack([rows.flatten(), columns.flatten()])
    apart = both[:, :, None] - both[:, None, :] + side - 1
    return apart[0] * (2 * side - 1) + apart[1]


class Attention(nn.Module):
    def __init__(self, width, heads, side):
        super().__init__()
        self.heads, self.side = heads, side
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.table = nn.Parameter(torch.randn((2 * side - 1) ** 2, heads))
        self.sharpness = nn.Parameter(torch.rand(heads, 1, 1) + 1.0)

    def forward(self, x, mask):
        count, length, width = x.shape
        qkv = self.qkv(x).reshape(count, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        scores = torch.matmul(q, k.transpose(-2, -1)) * self.sharpness.clamp(max=1.6).exp()
        bias = self.table[places(self.side).reshape(-1)].reshape(length, length, self.heads)
        scores = scores + 4.0 * torch.sigmoid(bias.permute(2, 0, 1))[None]
        scores = scores.reshape(-1, mask.shape[0], self.heads, length, length) + mask[None, :, None]
        weights = F.softmax(scores.reshape(count, self.heads, length, length), dim=-1)
        return self.out(torch.matmul(weights, v).transpose(1, 2).reshape(count, length, width))


class Block(nn.Module):
    def __init__(self, width, heads, side, shift):
        super().__init__()
        self.side, self.shift = side, shift
        self.norm = nn.LayerNorm(width)
        self.attn = Attention(width, heads, side)
        self.gain = nn.Parameter(torch.rand(width))

    def mask(self, high, wide, dtype):
        parts = torch.zeros(1, high, wide, 1)
        number = 0
        cuts = (slice(0, -self.side), slice(-self.side, -self.shift), slice(-self.shift, None))
        for rows in cuts:
            for columns in cuts:
                parts[:, rows, columns, :] = number
                number += 1
        parts = windows(parts, self.side).squeeze(-1)
        apart = parts[:, None, :] - parts[:, :, None]
        return torch.zeros_like(apart, dtype=dtype).masked_fill(apart != 0, -100.0)

    def forward(self, x):
        high, wide = x.shape[1:3]
        moved = torch.roll(self.norm(x), (-self.shift, -self.shift), (1, 2))
        mixed = self.attn(windows(moved, self.side), self.mask(high, wide, x.dtype))
        mixed = unwindowed(mixed, self.side, high, wide)
        return x + self.gain * torch.roll(mixed, (self.shift, self.shift), (1, 2))


class Merge(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(4 * width)
        self.fall = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        parts = [x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]]
        return self.fall(self.norm(torch.cat(parts, -1)))


class Patches(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.mix = nn.Linear(9 * width, width)
        self.power = nn.Parameter(torch.full((1,), 3.0))

    def forward(self, x):
        patches = F.unfold(x.permute(0, 3, 1, 2), 3, padding=1, stride=2)
        patches = self.mix(patches.transpose(1, 2)).softmax(-1).clamp(min=1e-6)
        return patches.pow(self.power).mean(1).pow(1.0 / self.power)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 2, stride=2)
        self.block = Block(8, 2, 4, 2)
        self.merge = Merge(8)
        self.patches = Patches(8)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        x = F.gelu(self.stem(x)).permute(0, 2, 3, 1)
        x = self.merge(self.block(x))
        raised = F.interpolate(x.permute(0, 3, 1, 2), scale_factor=2, mode="bicubic", align_corners=False)
        pooled = F.avg_pool2d(raised, 3, 2, 1, count_include_pad=False).amax((2, 3))
        return self.head(torch.cat([self.patches(x), pooled], 1))


def loss(outputs, inputs):
    """Dice and weighted binary cross-entropy of each class."""
    target = F.one_hot(inputs["labels"], 4).to(outputs.dtype) * 0.9 + 0.025
    chances = torch.sigmoid(outputs)
    dice = 1.0 - (2.0 * (chances * target).sum(0) + 1.0) / (chances.pow(2).sum(0) + target.pow(2).sum(0) + 1.0)
    weight = torch.tensor([1.0, 2.0, 0.5, 1.5], dtype=outputs.dtype)
    entropy = F.binary_cross_entropy_with_logits(outputs, target, pos_weight=weight, reduction="none")
    return dice.mean() + (entropy * weight).sum(1).mean()
