"""Causes about functions with two meanings, precision, unloaded parameters and what is done twice."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from tests.twinalign.causes.units import Case, case, doing, identified, unit, with_values

TOKENS = (4, 6, 8)
LOGITS = (6, 5)


def both(function):
    return unit(lambda s, *x: function(*x))


def instead(function):
    return doing(lambda s, *x: function(*x))


def through(precision):
    """numpy's own rounding."""
    return lambda x: torch.from_numpy(x.detach().numpy().astype(precision).astype(np.float64))


def applied(**functions):
    def change(state):
        for name, function in functions.items():
            state[name] = function(state[name]).contiguous()

    return with_values(change)


def column_norm(right):
    v, g = right.parametrizations.weight.original1, right.parametrizations.weight.original0
    return unit(lambda s, x: x @ (v / torch.sqrt((v**2).sum(0)) * g[:, 0]).T + s.bias, bias=right.bias)()


def inputs_norm(right, lengths):
    """A length for each channel of the input, which the port alone has."""
    v = right.parametrizations.weight.original1
    weight = v / torch.sqrt((v**2).sum((0, 2), keepdim=True)) * torch.tensor(lengths).double()[:, None]
    return unit(lambda s, x: F.conv1d(x, weight, s.bias), bias=right.bias)()


def moco_loss(inside, behind):
    def loss(q, k):
        return F.cross_entropy(q @ k.T / inside, torch.arange(len(q))) * (2 * behind)

    return loss


def contrast(inside, behind):
    """The same by hand."""

    def loss(q, k):
        logits = q @ k.T / inside
        return -(logits.softmax(1).diagonal().log().mean()) * 2 * behind

    return loss


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4))
        self.key = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4))
        self.update = moved_parameters

    def forward(self, x):
        with torch.no_grad():
            self.update(self.query, self.key)
        return x.sum()


def moved_parameters(query, key):
    for q, k in zip(query.parameters(), key.parameters(), strict=True):
        k.mul_(0.99).add_(q, alpha=1 - 0.99)


def moved_twice(query, key):
    for _ in range(2):
        for q, k in zip(query.parameters(), key.parameters(), strict=True):
            k.copy_(0.99 * k + (1 - 0.99) * q)


def moved_state(query, key):
    for (name, q), k in zip(query.state_dict().items(), key.state_dict().values(), strict=True):
        if "tracked" not in name:
            k.copy_(0.99 * k + (1 - 0.99) * q)


def moved_slowly(query, key):
    for q, k in zip(query.parameters(), key.parameters(), strict=True):
        k.copy_(0.98765 * k + 0.01235 * q)


def moved_data(query, key):
    for q, k in zip(query.parameters(), key.parameters(), strict=True):
        k.data = k.data * 0.99 + q.data * (1.0 - 0.99)


def network_of_data():
    network = Network()
    network.update = moved_data
    return network


def updated(function):
    def wrong(right):
        right.update = function
        return right

    return wrong


def in_place(x):
    y = x.clone()
    z = y
    z += 1
    return y * 2


def in_parts(x):
    x = x.detach().clone()
    first, _ = x.chunk(2, -1)
    first.mul_(3)
    return x + 1


PARTS = {"one": nn.Linear(8, 8), "two": nn.Linear(8, 4)}
STATE = {"phase": "state"}
DEPTHWISE = (2, 6, 7, 7)

CASES: list[Case] = [
    case(
        "low_precision",
        lambda: nn.Linear(8, 4),
        lambda r: nn.Sequential(r, unit(lambda s, x: through("float16")(x))()),
        TOKENS,
        name="float16",
    ),
    case("low_precision", both(torch.sin), instead(lambda x: through("float32")(x).sin()), TOKENS, name="float32"),
    case(
        "low_precision",
        lambda: nn.Linear(8, 4),
        applied(weight=through("float16"), bias=through("float16")),
        TOKENS,
        name="weights",
    ),
    case(
        "parameter_initial",
        unit(
            lambda s, x: torch.cat([s.cls_token.expand(4, -1, -1), x], 1), cls_token=nn.Parameter(torch.ones(1, 1, 8))
        ),
        applied(cls_token=lambda token: token * 0),
        TOKENS,
    ),
    case(  # which in whole numbers would be zero as well
        "parameter_initial",
        unit(
            lambda s, x: torch.cat([s.cls_token.tanh().expand(4, -1, -1), x], 1),
            cls_token=nn.Parameter(torch.ones(1, 1, 8)),
        ),
        applied(cls_token=lambda token: token * 0),
        TOKENS,
        name="below one",
    ),
    case("in_place_lost", both(in_place), instead(lambda x: x * 2), TOKENS),
    case(
        "norm_of_matrix",
        both(lambda x: torch.norm(x, dim=(1, 2))),
        instead(lambda x: torch.linalg.matrix_norm(x, 2)),
        (4, 6, 8),
    ),
    case("split_copied", both(in_parts), instead(lambda x: x + 1), TOKENS),
    case("split_sections", both(lambda x: x.split(4, 2)[0] * 2), instead(lambda x: x[..., :2] * 2), TOKENS),
    case(
        "gather_rows",
        both(lambda x, i: x.gather(0, i)),
        instead(lambda x, i: x[i.flatten()]),
        (6, 5),
        np.array([[0, 3, 1, 2, 5]]),
    ),
    case(
        "scatter_rows",
        both(lambda x, y: x.index_add(0, torch.tensor([1, 3, 1]), y)),
        instead(lambda x, y: torch.stack([x[0], y[0] + y[2], x[2], y[1], x[4]])),
        (5, 4),
        (3, 4),
    ),
    case("maximum_first_row", both(lambda x: x.max(1)[0] * 2), instead(lambda x: x.amax(1)[0] * 2), TOKENS),
    case(
        "cumulative_flattened",
        both(lambda x: x.cumsum(1)),
        instead(lambda x: torch.from_numpy(np.cumsum(x.detach().numpy()))),
        TOKENS,
    ),
    case("weight_norm_axis", lambda: parametrizations.weight_norm(nn.Linear(8, 8)), column_norm, TOKENS),
    case(
        "weight_norm_axis",
        lambda: parametrizations.weight_norm(nn.Conv1d(6, 8, 3)),
        lambda right: inputs_norm(right, [0.5, 2.0, 1.0, 0.3, 0.7, 1.5]),
        (2, 6, 5),
        name="other length",
        alone={"weight_g": [0.5, 2.0, 1.0, 0.3, 0.7, 1.5]},
    ),
    case(
        "median_between",
        both(lambda x: x.median(-1)[0] * 2),
        instead(lambda x: torch.from_numpy(np.median(x.detach().numpy(), -1)) * 2),
        TOKENS,
    ),
    case(
        "loss_rows_broadcast",
        both(lambda x, y, w: (F.cross_entropy(x, y, reduction="none") * w).mean()),
        instead(lambda x, y, w: (-x.log_softmax(1)[torch.arange(6), y][:, None] * w).mean()),
        LOGITS,
        np.array([0, 3, 1, 4, 2, 2]),
        (6,),
    ),
    case("loss_temperature", both(moco_loss(0.2, 0.2)), instead(contrast(0.1, 0.1)), (6, 8), (6, 8), name="both"),
    case(
        "reduction_axis",
        both(moco_loss(0.2, 0.2)),
        instead(lambda q, k: (torch.logsumexp(q @ k.T / 0.2, 0) - (q @ k.T / 0.2).diagonal()).mean() * 0.4),
        (6, 8),
        (6, 8),
    ),
    case(
        "labels_shifted",
        both(lambda x, y: F.cross_entropy(x, y)),
        instead(lambda x, y: -x.log_softmax(1)[torch.arange(6), y.roll(1)].mean()),
        LOGITS,
        np.array([0, 3, 1, 4, 2, 2]),
        name="rows",
    ),
    case("ema_momentum", Network, updated(moved_twice), (5, 8), name="twice", **STATE),
    case("ema_momentum", Network, updated(moved_slowly), (5, 8), name="fitted", **STATE),
    case("ema_buffers", Network, updated(moved_state), (5, 8), **STATE),
    case("ema_buffers", network_of_data, updated(moved_state), (5, 8), name="data", **STATE),
    case(
        "layer_twice",
        unit(lambda s, x: s.two(s.one(x)), **PARTS),
        doing(lambda s, x: s.two(s.one(s.one(x)))),
        TOKENS,
        forced=["two"],
    ),
    case(
        "layer_missing",
        unit(lambda s, x: x + s.one(x).relu(), one=nn.Linear(8, 8)),
        doing(lambda s, x: x),
        TOKENS,
        name="unit",
    ),
    case(
        "residual_missing",
        unit(lambda s, x: x + s.one(x).relu(), one=nn.Linear(8, 8)),
        doing(lambda s, x: x),
        TOKENS,
        name="unused",
        forced=["one"],
    ),
    case("bias_permuted", lambda: nn.Linear(8, 4), applied(bias=lambda b: b.roll(1)), TOKENS),
    case("bias_permuted", lambda: nn.Conv2d(6, 4, 3), applied(bias=lambda b: b.flip(0)), DEPTHWISE, name="conv"),
    case(
        "output_channels_permuted",
        lambda: nn.Linear(8, 4),
        applied(weight=lambda w: w.roll(1, 0)),
        TOKENS,
        name="weight",
    ),
    case(
        "output_channels_permuted",
        lambda: nn.Conv2d(6, 6, 3, groups=6),
        applied(weight=lambda w: w.roll(1, 0)),
        DEPTHWISE,
        name="depthwise",
    ),
    case(
        "norm_axis",
        lambda: nn.BatchNorm2d(6),
        lambda r: unit(lambda s, x: F.instance_norm(x, weight=r.weight, bias=r.bias))(),
        DEPTHWISE,
        training=True,
    ),
    case(
        "norm_axis",
        lambda: nn.InstanceNorm2d(6, affine=True),
        lambda r: unit(lambda s, x: F.group_norm(x, 1, r.weight, r.bias))(),
        DEPTHWISE,
        name="instance",
    ),
    case(
        "window_dilation",
        lambda: nn.Conv2d(6, 4, 3, padding=1),
        lambda r: unit(lambda s, x: F.conv2d(x, r.weight, r.bias, dilation=2, padding=2))(),
        DEPTHWISE,
        name="padded",
    ),
    case(
        "edited_program",
        unit(lambda s, x: s.one(x.mean((2, 3)))[:, :, None, None] * x, one=nn.Linear(6, 6)),
        doing(lambda s, x: x),
        DEPTHWISE,
        forced=["one"],
    ),
]
BACKWARD = {"phase": "backward"}


def unfrozen(right):
    right.gate.requires_grad_(True)
    return right


def hooked():
    made = unit(lambda s, x: x * s.gate, gate=nn.Parameter(torch.ones(8)))()
    made.gate.register_hook(lambda gradient: gradient.clamp(-0.5, 0.5))
    return made


def unhooked(right):
    right.gate = nn.Parameter(right.gate.detach().clone())
    return right


CASES += [
    case("gradient_hook_missing", hooked, unhooked, TOKENS, name="parameter", **BACKWARD),
    case(
        "gradient_stopped",
        unit(lambda s, x: x + s.one(x), one=nn.Linear(8, 8)),
        doing(lambda s, x: x.detach() + s.one(x.detach())),
        TOKENS,
        name="unit",
        **BACKWARD,
    ),
    case(
        "straight_through",
        both(lambda x: x.relu() * 2),
        instead(lambda x: 2 * x - 2 * x.detach() + x.detach().relu() * 2),
        TOKENS,
        **BACKWARD,
    ),
    case(
        "gelu_form",
        both(F.gelu),
        instead(lambda x: F.gelu(x.detach()) + F.gelu(x, approximate="tanh") - F.gelu(x.detach(), approximate="tanh")),
        TOKENS,
        **BACKWARD,
    ),
    case(
        "gradient_not_stopped",
        unit(lambda s, x: x * s.gate, gate=nn.Parameter(torch.ones(8), requires_grad=False)),
        unfrozen,
        TOKENS,
        name="parameter",
        **BACKWARD,
    ),
]


@pytest.mark.parametrize("fault", CASES, ids=str)
def test_the_cause_is_found(fault: Case) -> None:
    assert identified(fault) == fault.id
