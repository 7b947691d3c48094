"""Causes about normalisation, each against a unit that does the same wrong in other code."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.twinalign.causes.units import Case, case, changed, doing, identified, unit, with_values


def swap(one: str, two: str):
    def change(state):
        state[one], state[two] = state[two], state[one]

    return with_values(change)


def fill(**values: float):
    def change(state):
        for name, value in values.items():
            state[name].fill_(value)

    return with_values(change)


def apply(**functions):
    def change(state):
        for name, function in functions.items():
            state[name] = function(state[name])

    return with_values(change)


def layer_norm(unbiased=False, outside=False, centred=True, axes=(-1,)):
    """LayerNorm written out, wrong where told."""

    def forward(self, x):
        mean = x.mean(axes, keepdim=True) if centred else 0.0
        if centred:
            variance = torch.var(x, axes, correction=int(unbiased), keepdim=True)
        else:
            variance = (x**2).mean(axes, keepdim=True)
        root = torch.sqrt(variance) + 1e-5 if outside else torch.sqrt(variance + 1e-5)
        return (x - mean) / root * self.weight + self.bias

    return forward


def norm():
    return unit(
        lambda self, x: F.layer_norm(x, (8,), self.weight, self.bias),
        weight=nn.Parameter(torch.ones(8)),
        bias=nn.Parameter(torch.zeros(8)),
    )


def rms_norm():
    return unit(lambda self, x: F.rms_norm(x, (8,), self.weight, 1e-6), weight=nn.Parameter(torch.ones(8)))


TOKENS = (4, 6, 8)
IMAGES = (3, 8, 5, 5)
TINY = np.random.default_rng(1).standard_normal((4, 8)) * 1e-6

SIZES = np.array([[1.0], [30.0], [100.0], [1e5]])

CASES: list[Case] = [
    case("norm_epsilon", lambda: nn.LayerNorm(8), changed(eps=1e-6), TOKENS, name="layer"),
    case("norm_epsilon", lambda: nn.BatchNorm2d(8), changed(eps=1e-3), IMAGES, name="batch"),
    case("norm_epsilon", lambda: nn.BatchNorm2d(8), changed(eps=1e-3), IMAGES, name="train", training=True),
    case("norm_epsilon", lambda: nn.GroupNorm(2, 8), changed(eps=1e-6), IMAGES, name="group"),
    case("norm_epsilon", lambda: nn.InstanceNorm2d(8), changed(eps=1e-6), IMAGES, name="instance"),
    case("norm_epsilon", rms_norm(), doing(lambda s, x: F.rms_norm(x, (8,), s.weight, 1e-5)), TOKENS, name="rms"),
    case("norm_epsilon", lambda: nn.LayerNorm(8), changed(eps=1e-6), TOKENS, name="grad", phase="backward"),
    case(
        "norm_epsilon",
        lambda: nn.LayerNorm(8),
        changed(eps=float(np.float32(3.7e-4))),
        TOKENS,
        name="of-the-port",
        facts={"extra_repr": "normalized_shape=[8], epsilon=0.00037"},
    ),
    case(
        "norm_epsilon",
        unit(lambda s, x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)),
        doing(lambda s, x: x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5)),
        TOKENS,
        name="written-out",
    ),
    case("norm_affine_swapped", lambda: nn.LayerNorm(8), swap("weight", "bias"), TOKENS),
    case("norm_affine_swapped", lambda: nn.BatchNorm2d(8), swap("weight", "bias"), IMAGES, phase="backward"),
    case("norm_weight_missing", lambda: nn.LayerNorm(8), fill(weight=1.0), TOKENS),
    case("norm_weight_missing", rms_norm(), fill(weight=1.0), TOKENS, name="rms"),
    case("norm_weight_offset", rms_norm(), apply(weight=lambda w: w + 1), TOKENS),
    case("bias_missing", lambda: nn.GroupNorm(4, 8), fill(bias=0.0), IMAGES, name="group"),
    case("running_statistics_swapped", lambda: nn.BatchNorm2d(8), swap("running_mean", "running_var"), IMAGES),
    case("running_statistics_initial", lambda: nn.BatchNorm1d(8), fill(running_mean=0, running_var=1), (4, 8)),
    case("running_statistics_initial", lambda: nn.BatchNorm1d(8), fill(running_var=1), (4, 8), name="variance"),
    case("running_variance_form", lambda: nn.BatchNorm2d(8), apply(running_var=torch.sqrt), IMAGES),
    case(
        "batch_norm_mode",
        lambda: nn.BatchNorm2d(8),
        changed(track_running_stats=False, running_mean=None, running_var=None),
        IMAGES,
        name="batch",
    ),
    case("norm_epsilon_outside_root", norm(), doing(layer_norm(outside=True)), TOKENS),
    case("norm_variance_unbiased", norm(), doing(layer_norm(unbiased=True)), TOKENS),
    case("norm_variance_unbiased", norm(), doing(layer_norm(unbiased=True, outside=True)), TOKENS, name="outside"),
    case("norm_mean_kept", norm(), doing(layer_norm(centred=False)), TOKENS),
    case("norm_axis", norm(), doing(layer_norm(axes=(1,))), TOKENS),
    case("norm_axis", norm(), doing(layer_norm(axes=(1, 2))), TOKENS, name="all"),
    case(
        "norm_mean_subtracted",
        rms_norm(),
        doing(lambda s, x: (x - x.mean(-1, True)) / (x.var(-1, False, True) + 1e-6).sqrt() * s.weight),
        TOKENS,
    ),
    case("group_norm_groups", lambda: nn.GroupNorm(2, 8), changed(num_groups=4), IMAGES),
    case("local_response_alpha", lambda: nn.LocalResponseNorm(3, 0.5), changed(alpha=1.5), IMAGES),
    case(
        "clamp_lower",
        unit(lambda s, x: x.abs().clamp(min=1e-6).log()),
        doing(lambda s, x: x.abs().clamp(min=1e-3).log()),
        TINY,
    ),
    case("normalize_epsilon", unit(lambda s, x: F.normalize(x)), doing(lambda s, x: F.normalize(x, eps=1e-5)), TINY),
    case(
        "normalize_epsilon_form",
        unit(lambda s, x: F.normalize(x)),
        doing(lambda s, x: x / torch.sqrt((x**2).sum(1, keepdim=True) + 1e-12)),
        TINY,
    ),
    case(
        "cosine_epsilon_form",
        unit(lambda s, x, y: F.cosine_similarity(x, y)),
        doing(lambda s, x, y: (x * y).sum(1) / torch.clamp(x.norm(dim=1) * y.norm(dim=1), min=1e-8)),
        TINY * SIZES,
        TINY[::-1] * 1000.0,
    ),
    case("normalize_axis", unit(lambda s, x: F.normalize(x)), doing(lambda s, x: F.normalize(x, dim=0)), (4, 8)),
    case("normalize_missing", unit(lambda s, x: F.normalize(x)), doing(lambda s, x: x), (4, 8)),
    case(
        "normalize_power",
        unit(lambda s, x: F.normalize(x)),
        doing(lambda s, x: x / x.abs().sum(1, keepdim=True)),
        (4, 8),
    ),
]


@pytest.mark.parametrize("fault", CASES, ids=str)
def test_the_cause_is_found(fault: Case) -> None:
    assert identified(fault) == fault.id
