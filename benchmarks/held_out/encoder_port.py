"""The encoder of `encoder_source`, in paddle."""

import paddle
from paddle import nn
from paddle.nn import functional as F


class RMSNorm(nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.weight = self.create_parameter([width])
        self.eps = 1e-5

    def forward(self, x):
        scale = paddle.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return x * scale * self.weight


def rotary(length, width, dtype):
    rates = 1.0 / (100.0 ** (paddle.arange(0, width, 2).astype(dtype) / width))
    angles = paddle.outer(paddle.arange(length).astype(dtype), rates)
    angles = paddle.concat([angles, angles], -1)
    return angles.cos(), angles.sin()


def rotate(x):
    first, second = x.chunk(2, -1)
    return paddle.concat([-second, first], -1)


class Attention(nn.Layer):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.q = nn.Linear(width, width)
        self.k = nn.Linear(width, width)
        self.v = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x, valid):
        batch, length, width = x.shape
        q, k, v = self.q(x), self.k(x), self.v(x)
        q = q.reshape([batch, length, self.heads, self.size]).transpose([0, 2, 1, 3])
        k = k.reshape([batch, length, self.heads, self.size]).transpose([0, 2, 1, 3])
        v = v.reshape([batch, length, self.heads, self.size]).transpose([0, 2, 1, 3])
        cos, sin = rotary(length, self.size, x.dtype)
        q = q * cos + rotate(q) * sin
        k = k * cos + rotate(k) * sin
        scores = paddle.matmul(q, k.transpose([0, 1, 3, 2])) * self.size**-0.5
        places = paddle.arange(length)
        ahead = places[None, :] > places[:, None]
        bias = paddle.where(ahead, paddle.full([], -1e4, x.dtype), paddle.zeros([length, length], x.dtype))
        bias = bias[None, None] + (1.0 - valid[:, None, None, :]) * -100.0
        weights = F.softmax(scores + bias, -1)
        mixed = paddle.matmul(weights, v).transpose([0, 2, 1, 3]).reshape([batch, length, width])
        return self.out(mixed)


class Gated(nn.Layer):
    def __init__(self, width, hidden):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.gate = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Layer):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)
        self.attn = Attention(width, heads)
        self.mlp = Gated(width, 2 * width)
        self.scale = self.create_parameter([width])

    def forward(self, x, valid):
        x = x + self.attn(self.norm1(x), valid)
        return x + self.scale * self.mlp(self.norm2(x))


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(6, 16)
        self.block = Block(16, 2)
        self.norm = RMSNorm(16)
        self.head = nn.Linear(16, 5)

    def forward(self, x, valid):
        x = self.embed(x) * 4.0
        x = self.norm(self.block(x, valid))
        pooled = (x * valid[..., None]).sum(1) / valid.sum(1, keepdim=True).clip(min=1.0)
        return self.head(pooled)


def loss(outputs, inputs):
    """Cross-entropy with temperature and smoothed labels, and a penalty on large logits."""
    logits = outputs / 0.7
    logs = F.log_softmax(logits, -1)
    picked = paddle.take_along_axis(logs, inputs["labels"][:, None], 1).squeeze(1)
    smooth = logs.mean(-1)
    entropy = -(0.9 * picked + 0.1 * smooth)
    return entropy.mean() + 1e-2 * paddle.logsumexp(logits, -1).pow(2).mean()
