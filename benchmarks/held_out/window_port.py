"""The vision transformer of `window_source`, in paddle."""

import paddle
from paddle import nn
from paddle.nn import functional as F


def windows(x, side):
    batch, high, wide, width = x.shape
    x = x.reshape([batch, high // side, side, wide // side, side, width])
    return x.transpose([0, 1, 3, 2, 4, 5]).reshape([-1, side * side, width])


def unwindowed(x, side, high, wide):
    x = x.reshape([-1, high // side, wide // side, side, side, x.shape[-1]])
    return x.transpose([0, 1, 3, 2, 4, 5]).reshape([x.shape[0], high, wide, -1])


def places(side):
    rows, columns = paddle.meshgrid(paddle.arange(side), paddle.arange(side))
    both = paddle.stack([rows.flatten(), columns.flatten()])
    apart = both[:, :, None] - both[:, None, :] + side - 1
    return apart[0] * (2 * side - 1) + apart[1]


class Attention(nn.Layer):
    def __init__(self, width, heads, side):
        super().__init__()
        self.heads, self.side = heads, side
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.table = self.create_parameter([(2 * side - 1) ** 2, heads])
        self.sharpness = self.create_parameter([heads, 1, 1])

    def forward(self, x, mask):
        count, length, width = x.shape
        qkv = self.qkv(x).reshape([count, length, 3, self.heads, width // self.heads])
        q, k, v = qkv.transpose([2, 0, 3, 1, 4]).unbind(0)
        q, k = F.normalize(q, axis=-1), F.normalize(k, axis=-1)
        scores = paddle.matmul(q, k, transpose_y=True) * self.sharpness.clip(max=1.6).exp()
        bias = self.table[places(self.side).reshape([-1])].reshape([length, length, self.heads])
        scores = scores + 4.0 * F.sigmoid(bias.transpose([2, 0, 1])).unsqueeze(0)
        scores = scores.reshape([-1, mask.shape[0], self.heads, length, length]) + mask[None, :, None]
        weights = F.softmax(scores.reshape([count, self.heads, length, length]), axis=-1)
        return self.out(paddle.matmul(weights, v).transpose([0, 2, 1, 3]).reshape([count, length, width]))


class Block(nn.Layer):
    def __init__(self, width, heads, side, shift):
        super().__init__()
        self.side, self.shift = side, shift
        self.norm = nn.LayerNorm(width)
        self.attn = Attention(width, heads, side)
        self.gain = self.create_parameter([width])

    def mask(self, high, wide, dtype):
        parts = paddle.zeros([1, high, wide, 1])
        number = 0
        cuts = (slice(0, -self.side), slice(-self.side, -self.shift), slice(-self.shift, None))
        for rows in cuts:
            for columns in cuts:
                parts[:, rows, columns, :] = number
                number += 1
        parts = windows(parts, self.side).squeeze(-1)
        apart = parts[:, None, :] - parts[:, :, None]
        return paddle.zeros(apart.shape, dtype=dtype).masked_fill(apart != 0, -100.0)

    def forward(self, x):
        high, wide = x.shape[1:3]
        moved = paddle.roll(self.norm(x), (-self.shift, -self.shift), (1, 2))
        mixed = self.attn(windows(moved, self.side), self.mask(high, wide, x.dtype))
        mixed = unwindowed(mixed, self.side, high, wide)
        return x + self.gain * paddle.roll(mixed, (self.shift, self.shift), (1, 2))


class Merge(nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(4 * width)
        self.fall = nn.Linear(4 * width, width, bias_attr=False)

    def forward(self, x):
        parts = [x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]]
        return self.fall(self.norm(paddle.concat(parts, -1)))


class Patches(nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.mix = nn.Linear(9 * width, width)
        self.power = self.create_parameter([1])

    def forward(self, x):
        patches = F.unfold(x.transpose([0, 3, 1, 2]), 3, strides=2, paddings=1)
        patches = F.softmax(self.mix(patches.transpose([0, 2, 1])), -1).clip(min=1e-6)
        return patches.pow(self.power).mean(1).pow(1.0 / self.power)


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2D(3, 8, 2, stride=2)
        self.block = Block(8, 2, 4, 2)
        self.merge = Merge(8)
        self.patches = Patches(8)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        x = F.gelu(self.stem(x)).transpose([0, 2, 3, 1])
        x = self.merge(self.block(x))
        raised = F.interpolate(x.transpose([0, 3, 1, 2]), scale_factor=2, mode="bicubic", align_corners=False)
        pooled = F.avg_pool2d(raised, 3, 2, 1, exclusive=True).amax((2, 3))
        return self.head(paddle.concat([self.patches(x), pooled], 1))


def loss(outputs, inputs):
    """Dice and weighted binary cross-entropy of each class."""
    target = F.one_hot(inputs["labels"], 4).astype(outputs.dtype) * 0.9 + 0.025
    chances = F.sigmoid(outputs)
    dice = 1.0 - (2.0 * (chances * target).sum(0) + 1.0) / (chances.pow(2).sum(0) + target.pow(2).sum(0) + 1.0)
    weight = paddle.to_tensor([1.0, 2.0, 0.5, 1.5], dtype=outputs.dtype)
    entropy = F.binary_cross_entropy_with_logits(outputs, target, pos_weight=weight, reduction="none")
    return dice.mean() + (entropy * weight).sum(1).mean()
