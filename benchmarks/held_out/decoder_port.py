"""The decoder of `decoder_source`, in paddle, with names of its own."""

import paddle
import paddle.nn.functional as F
from paddle import nn


def rotate_pairs(t, position_ids, theta):
    dim = t.shape[-1] // 2
    inv_freq = theta ** (-paddle.arange(dim).astype(t.dtype) / dim)
    freqs = position_ids.astype(t.dtype)[:, None, :, None] * inv_freq
    t1, t2 = t[..., 0::2], t[..., 1::2]
    out = paddle.stack([t1 * freqs.cos() - t2 * freqs.sin(), t2 * freqs.cos() + t1 * freqs.sin()], axis=-1)
    return out.flatten(-2)


class Norm(nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.weight = self.create_parameter([width])

    def forward(self, hidden_states):
        variance = hidden_states.square().mean(-1, keepdim=True)
        return hidden_states / paddle.sqrt(variance + 1e-6) * (1.0 + self.weight)


class Attention(nn.Layer):
    def __init__(self, width, heads, shared, window):
        super().__init__()
        self.num_heads, self.num_kv_heads, self.window = heads, shared, window
        self.head_dim = width // heads
        self.q = nn.Linear(width, width)
        self.kv = nn.Linear(width, 2 * shared * self.head_dim)
        self.out = nn.Linear(width, width, bias_attr=False)
        self.q_norm, self.k_norm = Norm(self.head_dim), Norm(self.head_dim)
        self.sinks = self.create_parameter([heads])

    def forward(self, hidden_states, position_ids, attention_mask):
        bsz, q_len, _ = hidden_states.shape
        query = self.q(hidden_states).reshape([bsz, q_len, self.num_heads, self.head_dim]).transpose([0, 2, 1, 3])
        key, value = self.kv(hidden_states).reshape([bsz, q_len, 2, self.num_kv_heads, self.head_dim]).unbind(2)
        query, key = self.q_norm(query), self.k_norm(key.transpose([0, 2, 1, 3]))
        query = rotate_pairs(query, position_ids, 50.0)
        key = rotate_pairs(key, position_ids, 50.0)
        groups = self.num_heads // self.num_kv_heads
        key = key.repeat_interleave(groups, axis=1)
        value = value.transpose([0, 2, 1, 3]).repeat_interleave(groups, axis=1)
        attn = paddle.matmul(query, key.transpose([0, 1, 3, 2])) / self.head_dim**0.5
        attn = 5.0 * paddle.tanh(attn / 5.0)
        rows = paddle.arange(q_len)
        distance = rows[:, None] - rows[None, :]
        blocked = (distance < 0) | (distance >= self.window) | (attention_mask == 0)[:, None, None, :]
        attn = attn.masked_fill(blocked, -1e9)
        sink = self.sinks.reshape([1, -1, 1, 1]).expand([bsz, self.num_heads, q_len, 1])
        probs = F.softmax(paddle.concat([attn, sink], axis=-1), axis=-1)[..., :-1]
        context = paddle.matmul(probs, value).transpose([0, 2, 1, 3]).flatten(2)
        return self.out(context)


class Experts(nn.Layer):
    def __init__(self, width, hidden, count):
        super().__init__()
        self.route = nn.Linear(width, count, bias_attr=False)
        self.up = self.create_parameter([count, width, 2 * hidden])
        self.down = self.create_parameter([count, hidden, width])

    def forward(self, hidden_states):
        probs = F.softmax(self.route(hidden_states), axis=-1)
        top_probs, top_index = paddle.topk(probs, 2, axis=-1)
        top_probs = top_probs / top_probs.sum(-1, keepdim=True)
        share = paddle.put_along_axis(paddle.zeros_like(probs), top_index, top_probs, -1)
        gate, value = paddle.einsum("blw,ewh->bleh", hidden_states, self.up).chunk(2, -1)
        out = paddle.einsum("bleh,ehw->blew", F.gelu(gate, approximate=True) * value, self.down)
        return (share.unsqueeze(-1) * out).sum(2)


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 16)
        self.attn = Attention(16, 4, 2, 3)
        self.experts = Experts(16, 8, 4)
        self.norm1, self.norm2, self.norm3 = Norm(16), Norm(16), Norm(16)

    def forward(self, input_ids, attention_mask):
        position_ids = (attention_mask.astype("int64").cumsum(-1) - 1).clip(min=0)
        hidden_states = self.embed(input_ids) * 16**0.5
        hidden_states = hidden_states + self.attn(self.norm1(hidden_states), position_ids, attention_mask)
        hidden_states = hidden_states + self.experts(self.norm2(hidden_states)) * 0.5
        return paddle.matmul(self.norm3(hidden_states), self.embed.weight, transpose_y=True) / 16**0.5


def loss(outputs, inputs):
    """Cross-entropy of the next token where there is one, and divergence from a teacher."""
    shift_logits, shift_labels = outputs[:, :-1], inputs["tokens"][:, 1:]
    shift_labels = shift_labels.masked_fill(inputs["valid"][:, 1:] == 0, -100)
    ce = F.cross_entropy(shift_logits, shift_labels, ignore_index=-100, reduction="sum")
    ce = ce / (shift_labels != -100).astype(outputs.dtype).sum()
    target = F.softmax(inputs["teacher"] / 2.0, axis=-1)
    kl = F.kl_div(F.log_softmax(outputs / 2.0, axis=-1), target, reduction="batchmean") * 4.0
    return ce + 0.1 * kl + 1e-3 * paddle.logsumexp(outputs, axis=-1).square().mean()
