"""Causes about weights, channels, embeddings and convolutions, each against other values or other code."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.twinalign.causes.units import Case, case, changed, doing, identified, unit, with_values

TOKENS = (4, 6, 8)
IMAGES = (2, 8, 9, 9)
INDICES = np.array([[0, 3, 1, 2], [4, 0, 0, 5]])


def applied(**functions):
    def change(state):
        for name, function in functions.items():
            state[name] = function(state[name]).contiguous()

    return with_values(change)


def rows(order):
    return applied(weight=lambda w: w[order], bias=lambda b: b[order])


SHUFFLED = np.random.default_rng(3).permutation(24)
THIRDS = np.arange(24).reshape(3, 8)
HEADS = np.arange(24).reshape(3, 2, 4).transpose(1, 0, 2).ravel()


def same_padding(self, x):
    """TensorFlow's: as much as is needed, the odd one at the end."""
    return F.conv2d(F.pad(x, (0, 1, 0, 1)), self.weight, self.bias, stride=2)


def in_turn(*names):
    def function(self, x):
        for name in names:
            x = torch.relu(getattr(self, name)(x))
        return x

    return function


CASES: list[Case] = [
    case(
        "layers_exchanged",
        unit(in_turn("one", "other"), one=nn.Linear(8, 8), other=nn.Linear(8, 8)),
        doing(in_turn("other", "one")),
        TOKENS,
    ),
    case("weight_transposed", lambda: nn.Linear(8, 8), applied(weight=lambda w: w.T), TOKENS),
    case("weight_transposed", lambda: nn.Linear(8, 8), applied(weight=lambda w: w.T), TOKENS, phase="backward"),
    case(
        "weight_transposed",
        lambda: nn.Conv2d(8, 8, 3),
        applied(weight=lambda w: w.transpose(0, 1)),
        IMAGES,
        name="conv",
    ),
    case("kernel_transposed", lambda: nn.Conv2d(8, 4, 3), applied(weight=lambda w: w.mT), IMAGES),
    case("kernel_flipped", lambda: nn.Conv2d(8, 4, 3), applied(weight=lambda w: w.flip(2, 3)), IMAGES),
    case("bias_missing", lambda: nn.Linear(8, 4), applied(bias=lambda b: b * 0), TOKENS),
    case("bias_missing", lambda: nn.Linear(8, 4), changed(bias=None), TOKENS, name="none"),
    case("bias_missing", lambda: nn.Conv2d(8, 4, 3), applied(bias=lambda b: b * 0), IMAGES, name="conv"),
    case("bias_twice", lambda: nn.Linear(8, 4), applied(bias=lambda b: b * 2), TOKENS),
    case(
        "input_channels_permuted",
        lambda: nn.Conv2d(3, 4, 3),
        applied(weight=lambda w: w[:, [2, 1, 0]]),
        (2, 3, 9, 9),
        name="bgr",
    ),
    case(
        "input_channels_permuted",
        lambda: nn.Linear(8, 4),
        applied(weight=lambda w: w.roll(4, 1)),
        TOKENS,
        name="halves",
    ),
    case("output_channels_permuted", lambda: nn.Linear(8, 24), rows(SHUFFLED), TOKENS),
    case("output_channels_permuted", lambda: nn.Conv2d(8, 24, 3), rows(SHUFFLED), IMAGES, name="conv"),
    case("output_channels_permuted", lambda: nn.Linear(8, 4), rows([3, 2, 1, 0]), TOKENS, phase="backward"),
    case("qkv_order", lambda: nn.Linear(8, 24), rows(THIRDS[[1, 0, 2]].ravel()), TOKENS, name="stored"),
    case("qkv_order", lambda: nn.Linear(8, 24), rows(THIRDS[[2, 0, 1]].ravel()), TOKENS, phase="backward"),
    case("heads_order", lambda: nn.Linear(8, 24), rows(HEADS), TOKENS, name="stored"),
    case(
        "embedding_padding_zeroed",
        lambda: nn.Embedding(6, 8, padding_idx=0),
        lambda right: unit(lambda s, i: s.e(i) * (i != 0)[..., None], e=right)(),
        INDICES,
    ),
    case(
        "embedding_padding_gradient",
        lambda: nn.Embedding(6, 8, padding_idx=0),
        changed(padding_idx=None),
        INDICES,
        phase="backward",
    ),
    case("embedding_index_shifted", lambda: nn.Embedding(6, 8), applied(weight=lambda w: w.roll(-1, 0)), INDICES),
    case("window_stride", lambda: nn.Conv2d(8, 4, 3, stride=1), changed(stride=(2, 2)), IMAGES),
    case("window_stride", lambda: nn.MaxPool2d(3), changed(stride=2), IMAGES, name="pool"),
    case("window_padding", lambda: nn.Conv2d(8, 4, 3, padding=1), changed(padding=(0, 0)), IMAGES),
    case("window_dilation", lambda: nn.Conv2d(8, 4, 3, dilation=2, padding=2), changed(dilation=(1, 1)), IMAGES),
    case(
        "window_padding", lambda: nn.Conv2d(8, 4, (3, 1), padding=(1, 0)), changed(padding=(0, 1)), IMAGES, name="axes"
    ),
    case("pool_kernel", lambda: nn.AvgPool2d(3, 2), changed(kernel_size=2), IMAGES),
    case("output_padding", lambda: nn.ConvTranspose2d(8, 4, 3, stride=2), changed(output_padding=(1, 1)), IMAGES),
    case(
        "convolution_groups",
        lambda: nn.Conv2d(8, 8, 3, groups=2),
        lambda right: unit(lambda s, x: s.c(x[:, [0, 2, 4, 6, 1, 3, 5, 7]]), c=right)(),
        IMAGES,
    ),
    case(
        "padding_same",
        unit(
            lambda s, x: F.conv2d(x, s.weight, s.bias, stride=2, padding=1),
            weight=nn.Parameter(torch.ones(4, 8, 3, 3)),
            bias=nn.Parameter(torch.ones(4)),
        ),
        doing(same_padding),
        (2, 8, 8, 8),
    ),
    case(
        "padding_mode",
        lambda: nn.Conv2d(8, 4, 3, padding=1),
        lambda right: unit(lambda s, x: F.conv2d(F.pad(x, (1,) * 4, "reflect"), s.c.weight, s.c.bias), c=right)(),
        IMAGES,
    ),
    case(
        "padding_mode",
        unit(lambda s, x: F.pad(x, (1, 1, 2, 2), "replicate")),
        doing(lambda s, x: torch.from_numpy(np.pad(x.detach().numpy(), ((0, 0), (0, 0), (2, 2), (1, 1)), "wrap"))),
        IMAGES,
        name="numpy",
    ),
    case(
        "padding_value", unit(lambda s, x: F.pad(x, (1, 1), value=-1.0)), doing(lambda s, x: F.pad(x, (1, 1))), TOKENS
    ),
    case(
        "padding_order",
        unit(lambda s, x: F.pad(x, (1, 0, 2, 3))),
        doing(lambda s, x: F.pad(x, (2, 3, 1, 0))),
        (2, 3, 5, 5),
    ),
    case("pool_padding_counted", lambda: nn.AvgPool2d(3, 2, 1), changed(count_include_pad=False), IMAGES),
    case("pool_ceil_mode", lambda: nn.MaxPool2d(3, 2), changed(ceil_mode=True), (2, 8, 8, 8)),
    case("pool_ceil_mode", lambda: nn.AvgPool2d(2, 2, ceil_mode=True), changed(ceil_mode=False), IMAGES, name="down"),
    case("pool_kind", lambda: nn.MaxPool2d(2), lambda _: nn.AvgPool2d(2), IMAGES),
    case("pool_kind", lambda: nn.AdaptiveAvgPool2d(1), lambda _: nn.AdaptiveMaxPool2d(1), IMAGES, name="adaptive"),
    case("pool_divisor", lambda: nn.AvgPool2d(2), changed(divisor_override=1), IMAGES),
]


@pytest.mark.parametrize("fault", CASES, ids=str)
def test_the_cause_is_found(fault: Case) -> None:
    assert identified(fault) == fault.id
