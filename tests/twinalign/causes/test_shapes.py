"""Causes about axes, order, sums, positions, resizing and recurrent layers, each against other code."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.twinalign.causes.units import Case, case, changed, doing, identified, unit, with_values

TOKENS = (2, 5, 12)
IMAGES = (2, 4, 6, 6)


def both(function):
    """A unit without parts."""
    return unit(lambda s, *x: function(*x))


def instead(function):
    return doing(lambda s, *x: function(*x))


def vit(position=lambda table: table, pooled=lambda x: x[:, 0], first=True):
    """What a ViT does between its embedding and its blocks, and at its end."""

    def forward(self, x):
        token = self.cls_token.expand(x.shape[0], -1, -1)
        x = torch.cat([token, x] if first else [x, token], 1)
        table = position(self.pos_embed)
        return self.norm(pooled(x if table is None else x + table))

    return forward


def vit_parts():
    return {
        "cls_token": nn.Parameter(torch.zeros(1, 1, 12)),
        "pos_embed": nn.Parameter(torch.zeros(1, 10, 12)),
        "norm": nn.LayerNorm(12),
    }


def planted_vit(identifier, name="", **wrong):
    right = vit(pooled=wrong.pop("right", lambda x: x))
    wrong.setdefault("pooled", lambda x: x)
    return case(identifier, unit(right, **vit_parts()), doing(vit(**wrong)), (2, 9, 12), name=name, forced=["norm"])


def grid_transposed(table):
    grid = table[:, 1:].reshape(1, 3, 3, 12).transpose(1, 2).reshape(1, 9, 12)
    return torch.cat([table[:, :1], grid], 1)


def block(residual=lambda self, x, h: x + h):
    """A pre-norm residual branch."""

    def forward(self, x):
        return residual(self, x, self.mlp(self.norm(x)))

    return forward


def planted_block(identifier, residual, name="", right=None):
    parts = {"norm": nn.LayerNorm(12), "mlp": nn.Linear(12, 12), "gamma": nn.Parameter(torch.ones(12))}
    builder = unit(block(right) if right else block(), **parts)
    return case(identifier, builder, doing(block(residual)), TOKENS, name=name, forced=["norm", "mlp"])


def scaled_by_gamma(self, x, h):
    return x + self.gamma * h


def bilinear_by_hand(x, size, source):
    """Bilinear interpolation, point by point in numpy."""
    x = x.detach().numpy()
    out = np.zeros((*x.shape[:2], size, size))
    old = x.shape[2]
    for i in range(size):
        for j in range(size):
            (y0, wy), (x0, wx) = (divmod(min(max(source(at, old, size), 0), old - 1), 1) for at in (i, j))
            y0, x0 = int(y0), int(x0)
            y1, x1 = min(y0 + 1, old - 1), min(x0 + 1, old - 1)
            top = x[:, :, y0, x0] * (1 - wx) + x[:, :, y0, x1] * wx
            low = x[:, :, y1, x0] * (1 - wx) + x[:, :, y1, x1] * wx
            out[:, :, i, j] = top * (1 - wy) + low * wy
    return torch.from_numpy(out)


def resize(**options):
    return both(lambda x: F.interpolate(x, (9, 9), mode="bilinear", **options))


def gates_in_order(order, names=("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")):
    def change(state):
        for name in names:
            blocks = state[name].chunk(len(order))
            state[name] = torch.cat([blocks[at] for at in order])

    return with_values(change)


def without(*names):
    def change(state):
        for name in names:
            state[name] *= 0

    return with_values(change)


class SimpleGru(nn.Module):
    """A GRU with the reset gate before the recurrent matrix (Cho et al., first version)."""

    def __init__(self, right):
        super().__init__()
        self.gru = right

    def forward(self, x):
        g, state, outputs = self.gru, torch.zeros(x.shape[1], 3, dtype=x.dtype), []
        w = [m.chunk(3) for m in (g.weight_ih_l0, g.weight_hh_l0, g.bias_ih_l0, g.bias_hh_l0)]
        for step in x:
            r, z = (torch.sigmoid(step @ w[0][i].T + w[2][i] + state @ w[1][i].T + w[3][i]) for i in (0, 1))
            n = torch.tanh(step @ w[0][2].T + w[2][2] + (r * state) @ w[1][2].T + w[3][2])
            state = (1 - z) * n + z * state
            outputs.append(state)
        return torch.stack(outputs), state[None]


CASES: list[Case] = [
    case("reduction_axis", both(lambda x: x.mean(1)), instead(lambda x: x.sum(2) / 5), (2, 5, 5)),
    case("reduction_axis", both(lambda x: x.mean((2, 3))), instead(lambda x: x.mean((1, 2, 3))), IMAGES, name="all"),
    case("reduction_kind", both(lambda x: x.mean(1)), instead(lambda x: x.sum(1)), TOKENS, name="sum"),
    case("reduction_kind", both(lambda x: x.amax((2, 3))), instead(lambda x: x.mean((2, 3))), IMAGES, name="mean"),
    case(
        "reduction_kind",
        both(lambda x: x.std(1)),
        instead(lambda x: x.var(1, correction=0).sqrt()),
        TOKENS,
        name="biased",
    ),
    case("flatten_order", both(lambda x: x.flatten(1)), instead(lambda x: x.permute(0, 2, 3, 1).flatten(1)), IMAGES),
    case(
        "flatten_order",
        both(lambda x: x.flatten(2).transpose(1, 2)),
        instead(lambda x: torch.stack([x[:, :, i, j] for j in range(6) for i in range(6)], 1)),
        IMAGES,
        name="columns",
    ),
    case(
        "merged_in_reverse",
        both(lambda x: x.reshape(2, 5, 3, 4).transpose(1, 2).reshape(2, 3, 20)),
        instead(
            lambda x: torch.stack(
                [torch.cat([x[:, i, 4 * h : 4 * h + 4] for i in range(4, -1, -1)], 1) for h in range(3)], 1
            )
        ),
        TOKENS,
    ),
    case("reshaped_not_transposed", both(lambda x: x.transpose(1, 2)), instead(lambda x: x.reshape(2, 12, 5)), TOKENS),
    case("axes_order", both(lambda x: x.permute(2, 0, 1)), instead(lambda x: x.transpose(0, 2)), (5, 5, 5)),
    case(
        "concatenation_order",
        both(lambda x, y: torch.cat([x, y], 1)),
        instead(lambda x, y: torch.cat([y, x], 1)),
        TOKENS,
        TOKENS,
    ),
    case("parts_order", both(lambda x: x.chunk(2, -1)[0]), instead(lambda x: x[..., 6:]), TOKENS),
    case("split_interleaved", both(lambda x: x.chunk(2, -1)[0] * 2), instead(lambda x: x[..., ::2] * 2), TOKENS),
    case(
        "axis_wrong",
        both(lambda x: x.cumsum(1)),
        instead(lambda x: torch.from_numpy(np.cumsum(x.detach().numpy(), -1))),
        TOKENS,
    ),
    case("roll_direction", both(lambda x: x.roll(2, 1)), instead(lambda x: torch.cat([x[:, 2:], x[:, :2]], 1)), TOKENS),
    case("slice_shifted", both(lambda x: x[:, 1:] * 2), instead(lambda x: x[:, :-1] * 2), TOKENS),
    planted_vit("token_chosen", pooled=lambda x: x[:, 1:].mean(1), right=lambda x: x[:, 0]),
    planted_vit("token_chosen", pooled=lambda x: x[:, -1], right=lambda x: x[:, 0], name="last"),
    planted_vit("class_token_position", first=False),
    planted_vit("position_embedding_missing", position=lambda table: None),
    planted_vit("position_embedding_shifted", position=lambda t: torch.cat([t[:, 1:], t[:, :1]], 1)),
    planted_vit("position_embedding_shifted", position=lambda t: torch.cat([t[:, :1] * 0, t[:, 1:]], 1), name="row"),
    planted_vit("position_embedding_grid", position=grid_transposed),
    planted_vit("position_embedding_scaled", position=lambda table: 2 * table),
    planted_block("residual_missing", lambda self, x, h: h),
    planted_block(
        "operand_activated", lambda self, x, h: torch.relu(x + h.relu()), right=lambda self, x, h: torch.relu(x + h)
    ),
    planted_block("residual_scaled", lambda self, x, h: x + 0.5 * h),
    planted_block("residual_source", lambda self, x, h: F.layer_norm(x, (12,), self.norm.weight, self.norm.bias) + h),
    planted_block("learned_factor_missing", lambda self, x, h: x + h, right=scaled_by_gamma),
    planted_block("learned_factor_form", lambda self, x, h: x + h + self.gamma * h, right=scaled_by_gamma),
    case(
        "layer_missing",
        unit(lambda s, x: s.two(s.drop(s.one(x))), one=nn.Linear(12, 12), drop=nn.LayerNorm(12), two=nn.Linear(12, 4)),
        doing(lambda s, x: s.two(s.one(x))),
        TOKENS,
        forced=["one", "drop", "two"],
    ),
    case("factor_forgotten", both(lambda x: torch.sin(x * 3.0)), instead(torch.sin), TOKENS),
    case(
        "factor_forgotten",
        unit(lambda s, x: F.linear(x, s.l.weight, s.l.bias * 0.5), l=nn.Linear(12, 4)),
        doing(lambda s, x: F.linear(x, s.l.weight, s.l.bias)),
        TOKENS,
        name="of a bias",
    ),
    case("added_constant", both(lambda x: torch.sin(x + 0.5)), instead(lambda x: torch.sin(x + 0.75)), TOKENS),
    case("added_constant", both(lambda x: (1 - x) * x), instead(lambda x: (2 - x) * x), TOKENS, name="reversed"),
    case("factor_wrong", both(lambda x: torch.sin(x / 4.0)), instead(lambda x: torch.sin(4 * x)), TOKENS),
    case("factor_wrong", both(lambda x: torch.sin(x / 4.0)), instead(lambda x: torch.sin(x / 3.0)), TOKENS, name="1"),
    case("sign_wrong", both(lambda x, y: torch.sin(x - y)), instead(lambda x, y: torch.sin(y + x)), TOKENS, TOKENS),
    case(
        "sign_wrong",
        both(lambda x, y: torch.sin(x + y).exp()),
        instead(lambda x, y: torch.sin(y - x).exp()),
        TOKENS,
        TOKENS,
        name="first term",
    ),
    case(
        "operation_swapped", both(lambda x, y: torch.sin(x * y)), instead(lambda x, y: torch.sin(x / y)), TOKENS, TOKENS
    ),
    case("edited_program", both(lambda x: torch.sin(x) + 1), instead(lambda x: x + 1), TOKENS),
    case("edited_program", both(lambda x: torch.sin(x) + 1), instead(lambda x: torch.sin(torch.sin(x)) + 1), TOKENS),
    case("output_scaled", lambda: nn.Linear(12, 4), lambda r: unit(lambda s, x: s.l(x) * 1.37, l=r)(), TOKENS),
    case(
        "interpolate_align_corners",
        resize(),
        instead(lambda x: bilinear_by_hand(x, 9, lambda at, old, new: at * (old - 1) / (new - 1))),
        IMAGES,
    ),
    case(
        "interpolate_align_mode",
        resize(),
        instead(lambda x: bilinear_by_hand(x, 9, lambda at, old, new: at * old / new)),
        IMAGES,
    ),
    case(
        "interpolate_mode",
        both(lambda x: F.interpolate(x, scale_factor=2)),
        instead(lambda x: bilinear_by_hand(x, 12, lambda at, old, new: (at + 0.5) * old / new - 0.5)),
        IMAGES,
    ),
    case(
        "interpolate_antialias",
        both(lambda x: F.interpolate(x, (4, 4), mode="bilinear", antialias=True)),
        instead(lambda x: bilinear_by_hand(x, 4, lambda at, old, new: (at + 0.5) * old / new - 0.5)),
        IMAGES,
    ),
    case(
        "interpolate_scale_factor",
        both(lambda x: F.interpolate(x, scale_factor=1.6, mode="bilinear")),
        instead(lambda x: F.interpolate(x, (9, 9), mode="bilinear")),
        IMAGES,
    ),
    case(
        "grid_align_corners",
        both(lambda x, g: F.grid_sample(x, g, align_corners=False)),
        instead(lambda x, g: F.grid_sample(x, g * 5 / 6, align_corners=False)),
        IMAGES,
        (2, 5, 5, 2),
    ),
    case(
        "grid_sample_mode",
        both(lambda x, g: F.grid_sample(x, g, align_corners=False)),
        instead(lambda x, g: F.grid_sample(x, g.clamp(-5 / 6, 5 / 6), align_corners=False)),
        IMAGES,
        (2, 5, 5, 2),
    ),
    case(
        "pixel_shuffle_order",
        both(lambda x: F.pixel_shuffle(x, 2)),
        instead(lambda x: F.pixel_shuffle(x[:, [0, 2, 4, 6, 1, 3, 5, 7]], 2)),
        (2, 8, 3, 3),
    ),
    case("gate_order", lambda: nn.LSTM(4, 3), gates_in_order([0, 1, 3, 2]), (5, 2, 4)),
    case("gate_order", lambda: nn.GRU(4, 3), gates_in_order([1, 0, 2]), (5, 2, 4), name="gru", phase="backward"),
    case("recurrent_bias", lambda: nn.LSTM(4, 3), without("bias_hh_l0"), (5, 2, 4)),
    case(
        "recurrent_direction",
        lambda: nn.LSTM(4, 3),
        lambda r: unit(lambda s, x: s.l(x.flip(0))[0].flip(0), l=r)(),
        (5, 2, 4),
    ),
    case("recurrent_batch_first", lambda: nn.LSTM(4, 3), changed(batch_first=True), (5, 5, 4)),
    case("recurrent_batch_first", lambda: nn.LSTM(4, 3), changed(batch_first=True), (5, 2, 4)),
    case("recurrent_batch_first", lambda: nn.GRU(4, 3, batch_first=True), changed(batch_first=False), (5, 2, 4)),
    case("recurrent_batch_first", lambda: nn.RNN(4, 3, num_layers=2), changed(batch_first=True), (5, 2, 4)),
    case("recurrent_bias", lambda: nn.RNN(4, 3, nonlinearity="relu"), without("bias_hh_l0"), (5, 2, 4)),
    case("gru_reset_before", lambda: nn.GRU(4, 3), SimpleGru, (5, 2, 4)),
    case("dropout_mode", lambda: nn.Dropout(0.3), lambda _: unit(lambda s, x: x * 0.7)(), TOKENS),
]


@pytest.mark.parametrize("fault", CASES, ids=str)
def test_the_cause_is_found(fault: Case) -> None:
    assert identified(fault) == fault.id
