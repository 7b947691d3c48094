"""The models of `ref.py` in paddle, as a person would port them."""

from __future__ import annotations

import math

import paddle
from paddle import nn
from paddle.nn import functional as F


class RMSNorm(nn.Layer):
    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = self.create_parameter([width], default_initializer=nn.initializer.Constant(1.0))
        self.eps = eps

    def forward(self, x):
        return x * paddle.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rotate_half(x):
    first, second = x.chunk(2, axis=-1)
    return paddle.concat((-second, first), axis=-1)


def rotate_neighbours(x):
    first, second = x[..., ::2], x[..., 1::2]
    return paddle.stack((-second, first), axis=-1).reshape(x.shape)


class Rotary(nn.Layer):
    interleaved = False

    def __init__(self, width: int, base: float = 10000.0) -> None:
        super().__init__()
        frequencies = base ** (-paddle.arange(0, width, 2).astype("float32") / width)
        self.register_buffer("frequencies", frequencies, persistable=False)

    def forward(self, q, k):
        angles = paddle.outer(paddle.arange(q.shape[-2]).astype(self.frequencies.dtype), self.frequencies)
        if self.interleaved:
            angles, rotate = angles.repeat_interleave(2, axis=-1), rotate_neighbours
        else:
            angles, rotate = paddle.concat((angles, angles), axis=-1), rotate_half
        cos, sin = angles.cos(), angles.sin()
        return q * cos + rotate(q) * sin, k * cos + rotate(k) * sin


class Attention(nn.Layer):
    def __init__(self, width: int, heads: int, kv_heads: int, causal: bool, rotary: bool, bias: bool) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim, self.causal = heads, kv_heads, width // heads, causal
        self.scale = 1 / math.sqrt(self.head_dim)
        self.q_proj = nn.Linear(width, heads * self.head_dim, bias_attr=None if bias else False)
        self.k_proj = nn.Linear(width, kv_heads * self.head_dim, bias_attr=None if bias else False)
        self.v_proj = nn.Linear(width, kv_heads * self.head_dim, bias_attr=None if bias else False)
        self.o_proj = nn.Linear(width, width, bias_attr=False if causal else None)
        self.rotary = Rotary(self.head_dim) if rotary else None

    def share(self, x):
        """One key or value head for each group of query heads."""
        return x.repeat_interleave(self.heads // self.kv_heads, axis=1)

    def forward(self, x, mask=None):
        batch, length, width = x.shape
        q = self.q_proj(x).reshape([batch, length, self.heads, self.head_dim]).transpose([0, 2, 1, 3])
        k = self.k_proj(x).reshape([batch, length, self.kv_heads, self.head_dim]).transpose([0, 2, 1, 3])
        v = self.v_proj(x).reshape([batch, length, self.kv_heads, self.head_dim]).transpose([0, 2, 1, 3])
        if self.rotary is not None:
            q, k = self.rotary(q, k)
        k, v = self.share(k), self.share(v)
        scores = paddle.matmul(q, k, transpose_y=True) * self.scale
        if self.causal:
            scores = scores + paddle.triu(paddle.full([length, length], -1e9, dtype=x.dtype), diagonal=1)
        if mask is not None:
            scores = paddle.where(mask[:, None, None, :], scores, paddle.full_like(scores, -1e9))
        mixed = paddle.matmul(F.softmax(scores, axis=-1), v)
        return self.o_proj(mixed.transpose([0, 2, 1, 3]).reshape([batch, length, width]))


class SwiGLU(nn.Layer):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, hidden, bias_attr=False)
        self.up_proj = nn.Linear(width, hidden, bias_attr=False)
        self.down_proj = nn.Linear(hidden, width, bias_attr=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Layer):
    def __init__(self, width: int, heads: int, kv_heads: int, bias: bool) -> None:
        super().__init__()
        self.input_norm = RMSNorm(width)
        self.attention = Attention(width, heads, kv_heads, causal=True, rotary=True, bias=bias)
        self.post_norm = RMSNorm(width)
        self.mlp = SwiGLU(width, 2 * width)

    def forward(self, x):
        x = x + self.attention(self.input_norm(x))
        return x + self.mlp(self.post_norm(x))


class Decoder(nn.Layer):
    def __init__(self, words: int = 50, width: int = 32, heads: int = 4, kv_heads: int = 2, bias: bool = True) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(words, width)
        self.layers = nn.LayerList([DecoderLayer(width, heads, kv_heads, bias) for _ in range(2)])
        self.norm = RMSNorm(width)

    def forward(self, input_ids):
        x = self.embed_tokens(input_ids)
        for layer in self.layers:
            x = layer(x)
        # A paddle Linear keeps its weight the other way round: the tied head is a product with the embedding.
        return paddle.matmul(self.norm(x), self.embed_tokens.weight, transpose_y=True)


class EncoderLayer(nn.Layer):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads, heads, causal=False, rotary=False, bias=True)
        self.attention_norm = nn.LayerNorm(width, epsilon=1e-12)
        self.intermediate = nn.Linear(width, 2 * width)
        self.output = nn.Linear(2 * width, width)
        self.output_norm = nn.LayerNorm(width, epsilon=1e-12)

    def forward(self, x, mask):
        x = self.attention_norm(x + self.attention(x, mask))
        return self.output_norm(x + self.output(F.gelu(self.intermediate(x))))


class Encoder(nn.Layer):
    def __init__(self, words: int = 50, width: int = 32, heads: int = 4, longest: int = 16) -> None:
        super().__init__()
        self.word = nn.Embedding(words, width)
        self.position = nn.Embedding(longest, width)
        self.kind = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, epsilon=1e-12)
        self.layers = nn.LayerList([EncoderLayer(width, heads) for _ in range(2)])
        self.pooler = nn.Linear(width, width)

    def forward(self, input_ids, token_type_ids, attention_mask):
        positions = paddle.arange(input_ids.shape[1])
        x = self.norm(self.word(input_ids) + self.position(positions) + self.kind(token_type_ids))
        for layer in self.layers:
            x = layer(x, attention_mask.astype("bool"))
        return {"last_hidden_state": x, "pooler_output": self.pooler(x[:, 0]).tanh()}
