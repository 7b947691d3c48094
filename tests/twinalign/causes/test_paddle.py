"""Differences between the frameworks, as real layers and functions of paddle show them, are explained."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.twinalign.causes.module_unit import ModuleUnit
from tests.twinalign.causes.units import explain, unit

RNG = np.random.default_rng(7)
TIES = np.round(RNG.standard_normal((4, 6)))
LABELS = np.array([0, 3, 1, 4, 2, 2])
SIZES = np.array([[1.0], [30.0], [100.0], [1e5]]) * 1e-6


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


@dataclasses.dataclass
class Pair:
    """What torch runs beside a run of `paddle_values.py`.

    Attributes:
        id: what is to be found.
        right: the unit.
        x: its input.
        more: other arrays that paddle's side needs; those named in `inputs` are torch's further inputs.
        weights: of the unit, as paddle's side calls them.
        options: of the examined.
    """

    id: str
    right: Callable[[], nn.Module]
    x: np.ndarray
    more: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    weights: Mapping[str, str] = dataclasses.field(default_factory=dict)
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def of(function: Callable[..., Any], **parts: Any) -> Callable[[], nn.Module]:
    return unit(lambda self, *x: function(*x), **parts)


NORM = {"weight": "weight", "bias": "bias"}
BATCH_NORM = {**NORM, "running_mean": "_mean", "running_var": "_variance"}
STATE = {"phase": "state", "training": True}
BACKWARD = {"phase": "backward"}
SEED = "seed"


def attention_layer() -> nn.Module:
    attention = nn.MultiheadAttention(12, 2, batch_first=True)
    return unit(lambda s, x, m: s.a(x, x, x, attn_mask=m, need_weights=False)[0], a=attention)()


PACKED = {name: name for name in ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")}
MASK = np.roll(np.tri(5, dtype=bool), 1, 1) ^ np.eye(5, dtype=bool)
WEIGHTS = np.array([1.0, 2.0, 3.0, 4.0, 5.0])

PAIRS: dict[str, Pair] = {
    "layer_norm_epsilon": Pair("norm_epsilon", lambda: nn.LayerNorm(8, eps=1e-6), normal(4, 6, 8), weights=NORM),
    "layer_norm_lenient": Pair("norm_weight_missing", lambda: nn.LayerNorm([3, 4]), normal(5, 3, 4), weights=NORM),
    "average_pool": Pair("pool_padding_counted", lambda: nn.AvgPool2d(3, 2, 1), normal(2, 3, 9, 9)),
    "average_pool_ceil": Pair("pool_ceil_mode", lambda: nn.AvgPool2d(3, 2), normal(2, 3, 8, 8)),
    "flat_maximum_pool": Pair("pool_ceil_mode", lambda: nn.MaxPool2d(2, 3, 1, ceil_mode=True), normal(2, 3, 5, 5)),
    "hard_sigmoid": Pair("hard_activation_slope", nn.Hardsigmoid, normal(4, 9)),
    "gelu": Pair("gelu_form", nn.GELU, normal(4, 9)),
    "linear": Pair("weight_transposed", lambda: nn.Linear(8, 8), normal(4, 8), weights=NORM),
    "prelu": Pair("prelu_initial", lambda: nn.PReLU(init=0.1), normal(4, 9)),
    "embedding": Pair(
        "embedding_padding_zeroed",
        lambda: nn.Embedding(6, 8, padding_idx=0),
        np.array([[0, 3, 1], [4, 0, 5]]),
        weights={"weight": "weight"},
    ),
    "momentum": Pair(
        "batch_norm_momentum+running_variance_biased",
        lambda: nn.BatchNorm1d(8),
        normal(10, 8),
        weights=BATCH_NORM,
        options=STATE,
    ),
    "biased": Pair(
        "running_variance_biased", lambda: nn.BatchNorm1d(8), normal(10, 8), weights=BATCH_NORM, options=STATE
    ),
    "grid": Pair("grid_align_corners", of(F.grid_sample), normal(2, 3, 6, 6), {"grid": normal(2, 5, 5, 2)}, ("grid",)),
    "softmax": Pair("softmax_axis", of(F.softmax), normal(4, 6, 8)),
    "cosine": Pair(
        "cosine_epsilon_form", of(F.cosine_similarity), normal(4, 8) * SIZES, {"y": normal(4, 8) * 1e-3}, ("y",)
    ),
    "pad": Pair("padding_order", of(lambda x: F.pad(x, [0, 0, 0, 0, 1, 0, 2, 3])), normal(2, 3, 4, 5)),
    "smooth_l1": Pair(
        "smooth_l1_form", of(lambda x, y: F.smooth_l1_loss(x, y, beta=0.5)), normal(4, 5), {"y": normal(4, 5)}, ("y",)
    ),
    "ignored": Pair(
        "ignored_rows_counted",
        of(F.cross_entropy),
        normal(6, 5),
        {"labels": np.array([0, -100, 1, 4, -100, 2])},
        ("labels",),
    ),
    "clipped": Pair(
        "cross_entropy_clipped",
        of(lambda x, y: F.cross_entropy(x * 100, y)),
        normal(6, 5),
        {"labels": LABELS},
        ("labels",),
    ),
    "class_axis": Pair(
        "cross_entropy_axis",
        of(F.cross_entropy),
        normal(2, 5, 5),
        {"labels": LABELS[None, :5].repeat(2, 0)},
        ("labels",),
    ),
    "soft_weighted": Pair(
        "class_weights",
        of(lambda x, y: F.cross_entropy(x, y.softmax(1), torch.from_numpy(WEIGHTS))),
        normal(6, 5),
        {"y": normal(6, 5), "weight": WEIGHTS},
        ("y",),
    ),
    "attention": Pair("attention_layout", of(lambda x: F.scaled_dot_product_attention(x, x, x)), normal(2, 4, 4, 6)),
    "mask": Pair(
        "mask_inverted",
        attention_layer,
        normal(2, 5, 12),
        {"mask": MASK},
        ("mask",),
        {f"a.{name}": other for name, other in PACKED.items()},
    ),
    "align_mode": Pair(
        "interpolate_align_mode", of(lambda x: F.interpolate(x, (9, 9), mode="bilinear")), normal(2, 3, 6, 6)
    ),
    "dropout": Pair("dropout_mode", lambda: nn.Dropout(0.3), normal(4, 6)),
    "same": Pair(
        "padding_same",
        lambda: nn.Conv2d(3, 4, 3, stride=2, padding=1, bias=False),
        normal(2, 3, 8, 8),
        weights={"weight": "weight"},
    ),
    "transpose": Pair("axes_order", of(lambda x: x.permute(2, 0, 1)), normal(5, 5, 5)),
    "broadcast": Pair("loss_broadcast", of(F.mse_loss), normal(6), {"y": normal(6)}, ("y",)),
    "cumsum": Pair("cumulative_flattened", of(lambda x: x.cumsum(1)), normal(4, 6)),
    "split": Pair("split_sections", of(lambda x: x.split(4, 2)[0] * 2), normal(4, 6, 8)),
    "gather": Pair(
        "gather_rows", of(lambda x, i: x.gather(0, i)), normal(6, 5), {"index": np.array([[0, 3, 1, 2, 5]])}, ("index",)
    ),
    "maximum": Pair("maximum_first_row", of(lambda x: x.max(1)[0] * 2), normal(4, 6, 8)),
    "norm": Pair("norm_of_matrix", of(lambda x: torch.norm(x, dim=(1, 2)) * 2), normal(4, 6, 8)),
    "median": Pair("median_between", of(lambda x: x.median(-1)[0] * 2), normal(4, 6)),
    "ties": Pair("maximum_ties", of(lambda x: x.max(-1)[0]), TIES, options=BACKWARD),
    "leaky": Pair("gradient_at_kink", of(F.leaky_relu), TIES, options=BACKWARD),
    "clip": Pair("gradient_at_kink", of(lambda x: x.clamp(-1.0, 1.0)), TIES, options=BACKWARD),
    "deviation": Pair(
        "deviation_of_constant", of(lambda x: x.std(-1)), np.array([[1.0, 2, 4, 3], [2.0] * 4]), options=BACKWARD
    ),
    "product": Pair(
        "product_with_zero", of(lambda x: x.prod(-1)), np.array([[1.0, 2.0, 3.0], [2.0, 0.0, 4.0]]), options=BACKWARD
    ),
    "bfloat16": Pair("low_precision", of(torch.sin), normal(4, 6)),
    "floored": Pair(
        "softmax_floored", of(lambda x: (x.masked_fill(x <= 0, -1e9).softmax(-1) > 0).to(x.dtype) * x), normal(6, 5)
    ),
}


def prepared(name: str) -> tuple[ModuleUnit, dict[str, np.ndarray]]:
    """The examined of one pair, and the arrays that paddle's side needs."""
    pair = PAIRS[name]
    rng = np.random.default_rng([*name.encode()])
    right = pair.right().double()
    arrays = {"x": pair.x, **pair.more}
    with torch.no_grad():
        for key, tensor in (*right.named_parameters(), *right.named_buffers()):
            if key in pair.weights:
                values = rng.standard_normal(tuple(tensor.shape))
                tensor.copy_(torch.from_numpy(values**2 + 0.3 if "var" in key else values))
                arrays[pair.weights[key]] = tensor.numpy().copy()
    examined = ModuleUnit(right, [arrays[key] for key in ("x", *pair.inputs)], {}, **pair.options)
    if pair.options.get("phase") == "backward":
        arrays[SEED] = np.random.default_rng(list(b"output.0")).standard_normal(examined.reference["output.0"].shape)
    return examined, arrays


@pytest.fixture(scope="session")
def paddles_values(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """What paddle makes of every pair, by `NAME/VALUE`."""
    folder = tmp_path_factory.mktemp("paddle")
    arrays = {f"{name}/{key}": value for name in PAIRS for key, value in prepared(name)[1].items()}
    np.savez(folder / "given.npz", **arrays)
    script = Path(__file__).with_name("paddle_values.py")
    command = [sys.executable, str(script), str(folder / "given.npz"), str(folder / "returned.npz")]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    with np.load(folder / "returned.npz") as stored:
        return dict(stored)


@pytest.mark.parametrize("name", PAIRS)
def test_the_difference_is_explained(name: str, paddles_values: dict[str, np.ndarray]) -> None:
    examined, _ = prepared(name)
    examined.port = {key.split("/", 1)[1]: v for key, v in paddles_values.items() if key.startswith(f"{name}/")}
    found = explain(examined)
    assert (found.id if found else "unexplained") == PAIRS[name].id
