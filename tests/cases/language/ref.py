"""Small language models in torch: a decoder as Llama and Qwen2 have it, an encoder as BERT has it."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rotate_half(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


class Rotary(nn.Module):
    def __init__(self, width: int, base: float = 10000.0) -> None:
        super().__init__()
        frequencies = base ** (-torch.arange(0, width, 2).float() / width)
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(self, q, k):
        angles = torch.outer(torch.arange(q.shape[-2]).to(self.frequencies.dtype), self.frequencies)
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos(), angles.sin()
        return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


class Attention(nn.Module):
    """Grouped-query attention: several query heads share a key and value head."""

    def __init__(self, width: int, heads: int, kv_heads: int, causal: bool, rotary: bool, bias: bool) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim, self.causal = heads, kv_heads, width // heads, causal
        self.q_proj = nn.Linear(width, heads * self.head_dim, bias=bias)
        self.k_proj = nn.Linear(width, kv_heads * self.head_dim, bias=bias)
        self.v_proj = nn.Linear(width, kv_heads * self.head_dim, bias=bias)
        self.o_proj = nn.Linear(width, width, bias=not causal)
        self.rotary = Rotary(self.head_dim) if rotary else None

    def forward(self, x, mask=None):
        batch, length, width = x.shape
        q = self.q_proj(x).reshape(batch, length, self.heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(x).reshape(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(x).reshape(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        if self.rotary is not None:
            q, k = self.rotary(q, k)
        k = k.repeat_interleave(self.heads // self.kv_heads, dim=1)
        v = v.repeat_interleave(self.heads // self.kv_heads, dim=1)
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)
        if self.causal:
            scores = scores + torch.triu(torch.full((length, length), -1e9, dtype=x.dtype), diagonal=1)
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None, :], -1e9)
        mixed = scores.softmax(-1) @ v
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, width))


class SwiGLU(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    def __init__(self, width: int, heads: int, kv_heads: int, bias: bool) -> None:
        super().__init__()
        self.input_norm = RMSNorm(width)
        self.attention = Attention(width, heads, kv_heads, causal=True, rotary=True, bias=bias)
        self.post_norm = RMSNorm(width)
        self.mlp = SwiGLU(width, 2 * width)

    def forward(self, x):
        x = x + self.attention(self.input_norm(x))
        return x + self.mlp(self.post_norm(x))


class Decoder(nn.Module):
    """`bias` in queries, keys and values is Qwen2's; without it this is Llama's."""

    def __init__(self, words: int = 50, width: int = 32, heads: int = 4, kv_heads: int = 2, bias: bool = True) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(words, width)
        self.layers = nn.ModuleList([DecoderLayer(width, heads, kv_heads, bias) for _ in range(2)])
        self.norm = RMSNorm(width)
        self.lm_head = nn.Linear(width, words, bias=False)
        self.lm_head.weight = self.embed_tokens.weight

    def forward(self, input_ids):
        x = self.embed_tokens(input_ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


class EncoderLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads, heads, causal=False, rotary=False, bias=True)
        self.attention_norm = nn.LayerNorm(width, eps=1e-12)
        self.intermediate = nn.Linear(width, 2 * width)
        self.output = nn.Linear(2 * width, width)
        self.output_norm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x, mask):
        x = self.attention_norm(x + self.attention(x, mask))
        return self.output_norm(x + self.output(F.gelu(self.intermediate(x))))


class Encoder(nn.Module):
    def __init__(self, words: int = 50, width: int = 32, heads: int = 4, longest: int = 16) -> None:
        super().__init__()
        self.word = nn.Embedding(words, width)
        self.position = nn.Embedding(longest, width)
        self.kind = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList([EncoderLayer(width, heads) for _ in range(2)])
        self.pooler = nn.Linear(width, width)

    def forward(self, input_ids, token_type_ids, attention_mask):
        positions = torch.arange(input_ids.shape[1])
        x = self.norm(self.word(input_ids) + self.position(positions) + self.kind(token_type_ids))
        for layer in self.layers:
            x = layer(x, attention_mask.bool())
        return {"last_hidden_state": x, "pooler_output": self.pooler(x[:, 0]).tanh()}
