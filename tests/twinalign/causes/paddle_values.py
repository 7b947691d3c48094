"""What paddle computes: run as `python paddle_values.py INPUTS.npz OUTPUTS.npz`, in a process without torch."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import paddle
from paddle.nn import functional as F

Arrays = dict[str, np.ndarray]


def filled(layer: Any, arrays: Arrays) -> Any:
    """The layer in float64 with values by its own parameter names."""
    layer.to(dtype="float64")
    for name, tensor in layer.state_dict().items():
        tensor.set_value(arrays[name])
    return layer


def gradient(function: Any, x: Any, seed: np.ndarray) -> Any:
    x.stop_gradient = False
    output = function(x)
    return paddle.grad(output, x, paddle.to_tensor(seed))[0]


def batch_norm(momentum: float):
    def run(x: Any, arrays: Arrays) -> Any:
        layer = filled(paddle.nn.BatchNorm1D(8, momentum=momentum), arrays)
        layer.train()
        layer(x)
        return {"buffer.running_mean": layer._mean, "buffer.running_var": layer._variance}

    return run


def attention(x: Any, arrays: Arrays) -> Any:
    layer = paddle.nn.MultiHeadAttention(12, 2)
    layer.to(dtype="float64")
    for name, part in (("q_proj", 0), ("k_proj", 1), ("v_proj", 2)):
        getattr(layer, name).weight.set_value(arrays["in_proj_weight"][12 * part : 12 * part + 12].T)
        getattr(layer, name).bias.set_value(arrays["in_proj_bias"][12 * part : 12 * part + 12])
    layer.out_proj.weight.set_value(arrays["out_proj.weight"].T)
    layer.out_proj.bias.set_value(arrays["out_proj.bias"])
    layer.eval()
    return layer(x, x, x, attn_mask=paddle.to_tensor(arrays["mask"]))


def lenient_layer_norm(x: Any, arrays: Arrays) -> Any:
    """Weights of [3, 4] do not fit paddle's flattened ones: they are left out with a warning."""
    layer = paddle.nn.LayerNorm([3, 4])
    layer.to(dtype="float64")
    layer.set_state_dict({"weight": arrays["weight"], "bias": arrays["bias"].reshape(-1)})
    return layer(x)


RUNS = {
    "layer_norm_epsilon": lambda x, a: filled(paddle.nn.LayerNorm(8), a)(x),
    "layer_norm_lenient": lenient_layer_norm,
    "average_pool": lambda x, a: F.avg_pool2d(x, 3, 2, 1),
    "average_pool_ceil": lambda x, a: F.avg_pool2d(x, 3, 2, ceil_mode=True),
    "hard_sigmoid": lambda x, a: F.hardsigmoid(x),
    "gelu": lambda x, a: F.gelu(x, approximate=True),
    "linear": lambda x, a: F.linear(x, paddle.to_tensor(a["weight"]), paddle.to_tensor(a["bias"])),
    "prelu": lambda x, a: paddle.nn.PReLU().to(dtype="float64")(x),
    "embedding": lambda x, a: filled(paddle.nn.Embedding(6, 8, padding_idx=0), a)(x),
    "momentum": batch_norm(0.1),
    "biased": batch_norm(0.9),
    "grid": lambda x, a: F.grid_sample(x, paddle.to_tensor(a["grid"])),
    "softmax": lambda x, a: F.softmax(x),
    "cosine": lambda x, a: F.cosine_similarity(x, paddle.to_tensor(a["y"])),
    "pad": lambda x, a: F.pad(x, [0, 0, 0, 0, 1, 0, 2, 3], pad_from_left_axis=True),
    "smooth_l1": lambda x, a: F.smooth_l1_loss(x, paddle.to_tensor(a["y"]), delta=0.5),
    "ignored": lambda x, a: F.cross_entropy(x, paddle.to_tensor(a["labels"])),
    "clipped": lambda x, a: F.cross_entropy(x * 100, paddle.to_tensor(a["labels"])),
    "floored": lambda x, a: (F.softmax(paddle.where(x > 0, x, paddle.full_like(x, -1e9))) > 0).astype(x.dtype) * x,
    "class_axis": lambda x, a: F.cross_entropy(x, paddle.to_tensor(a["labels"])),
    "soft_weighted": lambda x, a: F.cross_entropy(
        x, F.softmax(paddle.to_tensor(a["y"])), weight=paddle.to_tensor(a["weight"]), soft_label=True
    ),
    "attention": lambda x, a: F.scaled_dot_product_attention(x, x, x),
    "mask": attention,
    "align_mode": lambda x, a: F.interpolate(x, [9, 9], mode="bilinear", align_mode=1),
    "dropout": lambda x, a: F.dropout(x, 0.3, training=False, mode="downscale_in_infer"),
    "same": lambda x, a: F.conv2d(x, paddle.to_tensor(a["weight"]), stride=2, padding="SAME"),
    "transpose": lambda x, a: x.transpose(2, 0, 1),
    "broadcast": lambda x, a: F.mse_loss(x.unsqueeze(-1), paddle.to_tensor(a["y"])),
    "cumsum": lambda x, a: x.cumsum(),
    "split": lambda x, a: paddle.split(x, 4, axis=2)[0] * 2,
    "gather": lambda x, a: paddle.gather(x, paddle.to_tensor(a["index"]).flatten(), axis=0),
    "maximum": lambda x, a: x.max(1)[0] * 2,
    "norm": lambda x, a: paddle.norm(x, axis=[1, 2]) * 2,
    "median": lambda x, a: paddle.median(x, axis=-1) * 2,
    "ties": lambda x, a: {"gradient.input.0": gradient(lambda x: x.max(axis=-1), x, a["seed"])},
    "leaky": lambda x, a: {"gradient.input.0": gradient(lambda x: F.leaky_relu(x), x, a["seed"])},
    "clip": lambda x, a: {"gradient.input.0": gradient(lambda x: x.clip(-1.0, 1.0), x, a["seed"])},
    "deviation": lambda x, a: {"gradient.input.0": gradient(lambda x: x.std(axis=-1), x, a["seed"])},
    "product": lambda x, a: {"gradient.input.0": gradient(lambda x: x.prod(axis=-1), x, a["seed"])},
    "bfloat16": lambda x, a: (x.astype("bfloat16").astype("float64")).sin(),
    "flat_maximum_pool": lambda x, a: F.max_pool2d(x, 2, 3, 1, ceil_mode=True),
}


def main(given: str, returned: str) -> None:
    values: dict[str, np.ndarray] = {}
    with np.load(given) as stored:
        arrays = dict(stored)
    for name, run in RUNS.items():
        own = {key.split("/", 1)[1]: value for key, value in arrays.items() if key.startswith(f"{name}/")}
        found = run(paddle.to_tensor(own["x"]), own)
        found = found if isinstance(found, dict) else {"output.0": found}
        values.update({f"{name}/{key}": tensor.numpy() for key, tensor in found.items()})
    np.savez(returned, **values)


if __name__ == "__main__":
    main(*sys.argv[1:])
