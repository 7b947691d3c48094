"""Causes about activation functions, each against other code."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.twinalign.causes.units import Case, case, changed, doing, explained, identified, unit, with_values

X = (4, 6, 8)


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def paddle_hard_sigmoid(x):
    return torch.clamp(x * float(np.float32(0.1666667)) + 0.5, 0, 1)


def prelu_untrained(state):
    state["weight"].fill_(0.25)


CASES: list[Case] = [
    case(
        "gate_halves_swapped",
        unit(lambda s, x: F.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1]),
        doing(lambda s, x: x[..., :4] * x[..., 4:] / (1 + torch.exp(-x[..., 4:]))),
        X,
        name="swiglu",
    ),
    case("gelu_form", unit(lambda s, x: F.gelu(x)), doing(lambda s, x: gelu_tanh(x)), X, name="tanh"),
    case("gelu_form", nn.GELU, changed(approximate="tanh"), X, name="layer"),
    case("gelu_form", lambda: nn.GELU("tanh"), changed(approximate="none"), X, name="exact", phase="backward"),
    case("gelu_form", nn.GELU, lambda _: unit(lambda s, x: x / (1 + torch.exp(-1.702 * x)))(), X, name="quick"),
    case("activation_swapped", nn.ReLU, lambda _: unit(lambda s, x: x / (1 + torch.exp(-x)))(), X, name="silu"),
    case(
        "layer_swapped",
        nn.Softplus,
        lambda _: nn.LayerNorm(8, eps=1e-3, elementwise_affine=False),
        (4, 8),
        port_class="paddle.nn.layer.norm.LayerNorm",
        facts={"normalized_shape": [8], "epsilon": 1e-3, "extra_repr": ""},
    ),
    case(
        "layer_with_own_weights",
        lambda: nn.LeakyReLU(0.1),
        lambda _: nn.PReLU(),
        (4, 8),
        port_class="paddle.nn.layer.activation.PReLU",
        facts={"num_parameters": 1, "data_format": "NCHW", "extra_repr": ""},
        alone={"weight": [0.25]},
    ),
    case("activation_swapped", nn.SiLU, lambda _: nn.Hardswish(), X, name="hard swish"),
    case("activation_swapped", nn.GELU, lambda _: nn.ReLU(), X, name="relu", phase="backward"),
    case("activation_swapped", nn.ReLU6, lambda _: nn.ReLU(), np.linspace(-9, 9, 40), name="relu6"),
    case("activation_missing", nn.Tanh, lambda _: nn.Identity(), X),
    case(
        "activation_missing",
        unit(lambda s, x: s.two(s.act(s.one(x))), one=nn.Linear(8, 8), act=nn.ReLU(), two=nn.Linear(8, 4)),
        doing(lambda s, x: s.two(s.one(x))),
        X,
        name="child",
        forced=["one", "two"],
    ),
    case(
        "activation_twice",
        unit(lambda s, x: F.softmax(x, -1)),
        doing(lambda s, x: F.softmax(torch.exp(x) / torch.exp(x).sum(-1, keepdim=True), -1)),
        X,
    ),
    case("leaky_slope", lambda: nn.LeakyReLU(0.01), changed(negative_slope=0.2), X),
    case(
        "leaky_slope",
        lambda: nn.LeakyReLU(0.01),
        changed(negative_slope=0.17),
        X,
        name="of-the-port",
        facts={"negative_slope": 0.17},
    ),
    case("hard_activation_slope", nn.Hardsigmoid, lambda _: unit(lambda s, x: paddle_hard_sigmoid(x))(), X),
    case(
        "hard_activation_slope",
        nn.Hardswish,
        lambda _: unit(lambda s, x: x * torch.clip(x / 5 + 0.5, 0, 1))(),
        X,
        name="old",
    ),
    case("elu_alpha", nn.ELU, changed(alpha=0.5), X),
    case("softplus_beta", nn.Softplus, changed(beta=2.0), X),
    case("activation_added", unit(lambda s, x: x.cumsum(-1)), doing(lambda s, x: x.cumsum(-1).tanh()), X),
    case("clamp_upper", nn.ReLU6, lambda _: unit(lambda s, x: x.clamp(0, 1))(), np.linspace(-9, 9, 40)),
    case("prelu_initial", nn.PReLU, with_values(prelu_untrained), X),
    case("softmax_axis", unit(lambda s, x: x.softmax(-1)), doing(lambda s, x: F.softmax(x, 1)), X),
    case("softmax_axis", lambda: nn.LogSoftmax(1), changed(dim=2), X, name="layer"),
    case("softmax_kind", unit(lambda s, x: x.softmax(-1)), doing(lambda s, x: torch.log(F.softmax(x, -1))), X),
    case(
        "edited_program",  # not softmax for sigmoid, which is 1 over a single element
        unit(lambda s, x: x * x.mean((2, 3), keepdim=True).sigmoid()),
        doing(lambda s, x: x),
        (2, 4, 5, 5),
        name="gate-computed-and-not-used",
    ),
    case(
        "gate_halves_swapped",
        unit(lambda s, x: F.glu(x)),
        doing(lambda s, x: torch.sigmoid(x[..., :4]) * x[..., 4:]),
        X,
    ),
]


@pytest.mark.parametrize("fault", CASES, ids=str)
def test_the_cause_is_found(fault: Case) -> None:
    assert identified(fault) == fault.id


def test_an_upper_bound_that_is_missing_is_no_bound_that_no_value_reaches() -> None:
    bounded = unit(lambda s, x: x.exp().clamp(0.1, 1.5) + x.cos())
    found = explained(case("", bounded, doing(lambda s, x: x.exp().clamp(min=0.1) + x.cos()), X))
    assert found is not None
    assert found.text == "values are cut off at another upper bound: none in place of 1.5"
