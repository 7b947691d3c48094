"""Planted faults: one small network in torch, its port in paddle, and what ports get wrong, one at a time.

`record(fault)` runs forward, loss, backward and one AdamW step of both in float32 and float64 from the same numbers.
A fault changes the port alone. `CLEAN` are ports without a fault that compute in another order, `FAULTS` those that a
comparison must flag, `SPOILED` recordings that are damaged after the fact.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as paddle_functional
import torch
import torch.nn.functional as torch_functional

Arrays = dict[str, np.ndarray]
BATCH, CHANNELS, WIDTH, HEADS, CLASSES = 6, 8, 16, 4, 10


@dataclasses.dataclass(frozen=True)
class Recordings:
    """The four recordings that a verdict is made of."""

    reference: Arrays
    reproduced: Arrays
    reference64: Arrays
    reproduced64: Arrays


class Torch:
    """The operations of the network in torch."""

    functional = torch_functional
    softmax = staticmethod(lambda x, axis: torch.softmax(x, dim=axis))
    mean = staticmethod(lambda x, axis: x.mean(dim=axis, keepdim=True))
    gelu = staticmethod(lambda x, tanh: torch_functional.gelu(x, approximate="tanh" if tanh else "none"))
    transpose = staticmethod(lambda x, axes: x.permute(*axes))
    max_pool = staticmethod(lambda x, padding: torch_functional.max_pool2d(x, 3, 2, padding))
    average_pool = staticmethod(lambda x, count: torch_functional.avg_pool2d(x, 3, 1, 1, count_include_pad=count))
    sqrt = staticmethod(torch.sqrt)

    @staticmethod
    def tensor(array: np.ndarray) -> Any:
        return torch.from_numpy(np.array(array))

    @staticmethod
    def parameter(array: np.ndarray) -> Any:
        return torch.from_numpy(np.array(array)).requires_grad_()

    @staticmethod
    def cross_entropy(logits: Any, labels: Any, smoothing: float, reduction: str) -> Any:
        return torch_functional.cross_entropy(logits, labels, label_smoothing=smoothing, reduction=reduction)

    @staticmethod
    def array(value: Any) -> np.ndarray:
        return value.detach().numpy().copy()

    @staticmethod
    def low(x: Any, dtype: str) -> Any:
        return x.to(getattr(torch, dtype)).to(x.dtype)

    @staticmethod
    def adamw(parameters: list[Any], rate: float, decay: float, betas: tuple[float, float], epsilon: float) -> Any:
        return torch.optim.AdamW(parameters, rate, betas, epsilon, decay)


class Paddle:
    """The same in paddle."""

    functional = paddle_functional
    softmax = staticmethod(lambda x, axis: paddle_functional.softmax(x, axis=axis))
    mean = staticmethod(lambda x, axis: x.mean(axis=axis, keepdim=True))
    gelu = staticmethod(lambda x, tanh: paddle_functional.gelu(x, approximate=tanh))
    transpose = staticmethod(lambda x, axes: x.transpose(list(axes)))
    max_pool = staticmethod(lambda x, padding: paddle_functional.max_pool2d(x, 3, 2, padding))
    average_pool = staticmethod(lambda x, count: paddle_functional.avg_pool2d(x, 3, 1, 1, exclusive=not count))
    sqrt = staticmethod(paddle.sqrt)
    tensor = staticmethod(paddle.to_tensor)

    @staticmethod
    def parameter(array: np.ndarray) -> Any:
        return paddle.base.framework.EagerParamBase.from_tensor(paddle.to_tensor(array), trainable=True)

    @staticmethod
    def cross_entropy(logits: Any, labels: Any, smoothing: float, reduction: str) -> Any:
        return paddle_functional.cross_entropy(logits, labels, label_smoothing=smoothing, reduction=reduction)

    @staticmethod
    def array(value: Any) -> np.ndarray:
        return value.numpy().copy()

    @staticmethod
    def low(x: Any, dtype: str) -> Any:
        return x.astype(dtype).astype(x.dtype)

    @staticmethod
    def adamw(parameters: list[Any], rate: float, decay: float, betas: tuple[float, float], epsilon: float) -> Any:
        return paddle.optimizer.AdamW(rate, *betas, epsilon, parameters, decay)


def make_weights(rng: np.random.Generator) -> Arrays:
    """Weights of the network, float32, in torch's layouts."""

    def normal(*shape: int) -> np.ndarray:
        fan = int(np.prod(shape[1:])) or 1
        return (rng.standard_normal(shape) / np.sqrt(fan)).astype(np.float32)

    weights = {
        "conv.weight": normal(CHANNELS, 3, 3, 3),
        "conv.bias": normal(CHANNELS) * np.float32(0.1),
        "grouped.weight": normal(WIDTH, CHANNELS // 2, 3, 3),
        "qkv.weight": normal(3 * WIDTH, WIDTH),
        "qkv.bias": normal(3 * WIDTH) * np.float32(0.1),
        "projection.weight": normal(WIDTH, WIDTH),
        "projection.bias": normal(WIDTH) * np.float32(0.1),
        "hidden.weight": normal(2 * WIDTH, WIDTH),
        "hidden.bias": normal(2 * WIDTH) * np.float32(0.1),
        "head.weight": normal(CLASSES, 2 * WIDTH),
        "head.bias": normal(CLASSES) * np.float32(0.1),
    }
    for name, width in (("bn", CHANNELS), ("ln", WIDTH)):
        weights[f"{name}.weight"] = (1 + 0.3 * rng.standard_normal(width)).astype(np.float32)
        weights[f"{name}.bias"] = (0.3 * rng.standard_normal(width)).astype(np.float32)
    weights["bn.bias"][0] = 5.0  # so that some activations exceed 6
    weights["position"] = (0.5 * rng.standard_normal((1, 16, WIDTH))).astype(np.float32)
    return weights


@dataclasses.dataclass(frozen=True)
class Fault:
    """What is changed in the port: `options` of `forward` and the step, weights, or inputs."""

    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    weights: Callable[[Arrays], None] | None = None
    inputs: Callable[[np.ndarray], np.ndarray] | None = None


def forward(f: Any, w: dict[str, Any], x: Any, **o: Any) -> Any:
    """Convolutions, batch norm, pooling, one block of attention and a head; `o` holds what a fault changes."""
    functional = f.functional
    if o.get("low_input"):
        x = f.low(x, o["low_input"])
    x = functional.conv2d(x, w["conv.weight"], w["conv.bias"], 1, o.get("padding", 1))
    axes = (0, 2, 3) if o.get("train", True) else (2, 3)
    mean = f.mean(x, axes)
    variance = f.mean((x - mean) ** 2, axes)
    if o.get("unbiased"):
        count = x.shape[0] * x.shape[2] * x.shape[3]
        variance = variance * (count / (count - 1))
    if o.get("naive_variance"):
        shifted = x + 300.0
        variance = f.mean(shifted**2, axes) - f.mean(shifted, axes) ** 2
    x = (x - mean) / f.sqrt(variance + o.get("bn_epsilon", 1e-5))
    scale, bias = w["bn.weight"].reshape([1, -1, 1, 1]), w["bn.bias"].reshape([1, -1, 1, 1])
    x = x * bias + scale if o.get("bn_swapped") else x * scale + bias
    x = (
        functional.relu6(x)
        if o.get("relu6")
        else functional.leaky_relu(x, o["leak"])
        if "leak" in o
        else functional.relu(x)
    )
    if o.get("order_of_pools"):
        x = f.average_pool(f.max_pool(x, 1), o.get("count_pad", True))
    else:
        x = f.max_pool(f.average_pool(x, o.get("count_pad", True)), 1)
    x = functional.conv2d(x, w["grouped.weight"], None, 1, 1, o.get("dilation", 1), 2)
    x = f.transpose(x.reshape([BATCH, WIDTH, 16]), (0, 2, 1))
    x = x + w["position"] * o.get("position_scale", 1.0)
    x = attention(f, w, x, o) * o.get("branch_scale", 1.0) + (0 if o.get("no_residual") else x)
    x = x[:, 0] if o.get("first_token") else x.mean(1)
    x = f.gelu(functional.linear(x, *matrix(f, w, "hidden", o)), o.get("tanh", False))
    if o.get("low_hidden"):
        x = f.low(x, o["low_hidden"])
    return functional.linear(x, *matrix(f, w, "head", o)) * o.get("logit_scale", 1.0)


def matrix(f: Any, w: dict[str, Any], name: str, o: Mapping[str, Any]) -> tuple[Any, Any]:
    """Weight and bias of a linear layer as the framework's `linear` takes them."""
    weight = w[f"{name}.weight"]
    if f is Paddle:
        weight = weight.t()
    if o.get("transposed") == name:
        weight = weight.t()
    return weight, (None if o.get("no_bias") == name else w[f"{name}.bias"])


def attention(f: Any, w: dict[str, Any], x: Any, o: Mapping[str, Any]) -> Any:
    """Layer norm and multi-head self-attention."""
    mean = f.mean(x, -1)
    variance = f.mean((x - mean) ** 2, -1)
    normal = (x - mean) / f.sqrt(variance + o.get("ln_epsilon", 1e-6)) * w["ln.weight"] + w["ln.bias"]
    packed = f.functional.linear(normal, *matrix(f, w, "qkv", o))
    depth = WIDTH // HEADS
    shape, axes = ([BATCH, 16, 3, HEADS, depth], (2, 0, 3, 1, 4))
    if o.get("heads_first"):
        shape, axes = ([BATCH, 16, HEADS, 3, depth], (3, 0, 2, 1, 4))
    parts = f.transpose(packed.reshape(shape), axes)
    query, key, value = (parts[i] for i in o.get("qkv_order", (0, 1, 2)))
    scores = query @ f.transpose(key, (0, 1, 3, 2)) * o.get("attention_scale", depth**-0.5)
    mixed = f.softmax(scores, o.get("softmax_axis", -1)) @ value
    if not o.get("heads_unmerged"):
        mixed = f.transpose(mixed, (0, 2, 1, 3))
    return f.functional.linear(mixed.reshape([BATCH, 16, WIDTH]), *matrix(f, w, "projection", o))


def run(f: Any, weights: Arrays, images: np.ndarray, labels: np.ndarray, dtype: str, **options: Any) -> Arrays:
    """Logits, loss, gradients and parameters after one AdamW step."""
    o = dict(options)
    if dtype == "float64":  # what is computed too coarsely is so in the float32 run alone
        for key in ("low_input", "low_hidden", "naive_variance"):
            o.pop(key, None)
    parameters = {name: f.parameter(array.astype(dtype)) for name, array in weights.items()}
    logits = forward(f, parameters, f.tensor(images.astype(dtype)), **o)
    temperature = o.get("temperature", 0.2)
    loss = f.cross_entropy(logits / temperature, f.tensor(labels), o.get("smoothing", 0.0), o.get("reduction", "mean"))
    loss = loss * o.get("loss_scale", 1.0)
    loss.backward()
    found = {"logits": f.array(logits), "loss": f.array(loss)}
    found |= {f"gradient.{name}": f.array(p.grad) for name, p in parameters.items() if p.grad is not None}
    rate, decay = o.get("rate", 1e-3), o.get("decay", 0.1)
    betas, epsilon = o.get("betas", (0.9, 0.999)), o.get("adam_epsilon", 1e-8)
    decayed = [p for name, p in parameters.items() if o.get("decay_all", True) or not name.endswith("bias")]
    spared = [p for name, p in parameters.items() if not (o.get("decay_all", True) or not name.endswith("bias"))]
    for group, strength in ((decayed, decay), (spared, 0.0)):
        if group:
            f.adamw(group, rate, strength, betas, epsilon).step()
    return found | {f"parameter.{name}": f.array(p) for name, p in parameters.items()}


def record(fault: Fault, seed: int = 0) -> Recordings:
    """Both sides in both precisions; the reference never has the fault."""
    rng = np.random.default_rng(seed)
    weights = make_weights(rng)
    images = rng.standard_normal((BATCH, 3, 8, 8)).astype(np.float32)
    labels = rng.integers(0, CLASSES, BATCH)
    theirs, seen = {name: array.copy() for name, array in weights.items()}, images
    if fault.weights is not None:
        theirs = {name: array.astype(np.float64) for name, array in theirs.items()}
        fault.weights(theirs)
    if fault.inputs is not None:
        seen = np.ascontiguousarray(fault.inputs(images))
    return Recordings(
        run(Torch, weights, images, labels, "float32"),
        run(Paddle, theirs, seen, labels, "float32", **fault.options),
        run(Torch, weights, images, labels, "float64"),
        run(Paddle, theirs, seen, labels, "float64", **fault.options),
    )


def _set(name: str, change: Callable[[np.ndarray], None]) -> Callable[[Arrays], None]:
    return lambda weights: change(weights[name])


def _scale(factor: float, index: Any = ...) -> Callable[[np.ndarray], None]:
    def change(array: np.ndarray) -> None:
        array[index] *= factor

    return change


def _transpose(array: np.ndarray) -> None:
    array[...] = array.T.copy()


def _roll(array: np.ndarray) -> None:
    array[...] = np.roll(array, 1, axis=0)


def _options(**options: Any) -> Fault:
    return Fault(options)


ALLOWANCES = (
    "paddle_average_pool=gradient.*",
    "paddle_optimizer_scalars=parameter.*",
    "paddle_adam_bias_correction",
    "paddle_long_sums",
)
"""What paddle keeps in float32 on the way (the pool's 1/9 in its backward pass, the optimizer's rate and decay), and
what `twinalign run` allows in every backward stage."""

CLEAN: dict[str, Fault] = {"the port": Fault()}

FAULTS: dict[str, Fault] = {
    "layer norm's epsilon 1e-5 for 1e-6": _options(ln_epsilon=1e-5),
    "batch norm's epsilon 1e-3 for 1e-5": _options(bn_epsilon=1e-3),
    "batch norm's epsilon 2e-5 for 1e-5": _options(bn_epsilon=2e-5),
    "batch norm's variance unbiased": _options(unbiased=True),
    "batch norm over positions alone": _options(train=False),
    "batch norm's scale and offset swapped": _options(bn_swapped=True),
    "GELU by tanh": _options(tanh=True),
    "ReLU6 for ReLU": _options(relu6=True),
    "leaky ReLU": _options(leak=0.01),
    "leaky ReLU of 1e-5": _options(leak=1e-5),
    "pools exchanged": _options(order_of_pools=True),
    "average pool without its padding": _options(count_pad=False),
    "square projection not transposed": _options(transposed="projection"),
    "projection without bias": _options(no_bias="projection"),
    "hidden layer without bias": _options(no_bias="hidden"),
    "q, k, v in the order k, q, v": _options(qkv_order=(1, 0, 2)),
    "q, k, v in the order q, v, k": _options(qkv_order=(0, 2, 1)),
    "heads before q, k, v": _options(heads_first=True),
    "heads not merged": _options(heads_unmerged=True),
    "attention not scaled": _options(attention_scale=1.0),
    "attention scaled by the width": _options(attention_scale=WIDTH**-0.5),
    "attention scaled 1e-6 too much": _options(attention_scale=(WIDTH // HEADS) ** -0.5 * (1 + 1e-6)),
    "softmax over queries": _options(softmax_axis=-2),
    "no residual": _options(no_residual=True),
    "residual branch scaled by 1 + 1e-6": _options(branch_scale=1 + 1e-6),
    "positions scaled by 1 + 1e-6": _options(position_scale=1 + 1e-6),
    "first token for the mean": _options(first_token=True),
    "logits scaled by 1 + 1e-6": _options(logit_scale=1 + 1e-6),
    "temperature 0.07 for 0.2": _options(temperature=0.07),
    "label smoothing": _options(smoothing=0.1),
    "label smoothing of 1e-6": _options(smoothing=1e-6),
    "sum for mean in the loss": _options(reduction="sum"),
    "loss scaled by 1 + 1e-6": _options(loss_scale=1 + 1e-6),
    "learning rate 1e-6 too high": _options(rate=1e-3 * (1 + 1e-3)),
    "weight decay 0.01 for 0.1": _options(decay=0.01),
    "weight decay not on biases": _options(decay_all=False),
    "beta2 0.95 for 0.999 and beta1 0.95": _options(betas=(0.95, 0.95), rate=1.001e-3),
    "Adam's epsilon 1e-6 for 1e-8": _options(adam_epsilon=1e-6),
    "one weight 1e-6 off": Fault(weights=_set("hidden.weight", _scale(1 + 1e-6, (3, 4)))),
    "one tensor 1e-6 off": Fault(weights=_set("hidden.weight", _scale(1 + 1e-6))),
    "one convolution weight 1e-6 off": Fault(weights=_set("conv.weight", _scale(1 + 1e-6, (2, 1, 0, 0)))),
    "one bias 1e-6 off": Fault(weights=_set("projection.bias", _scale(1 + 1e-6, 1))),
    "one head weight 1e-6 off": Fault(weights=_set("head.weight", _scale(1 + 1e-6, (0, 0)))),
    "projection's weights transposed": Fault(weights=_set("projection.weight", _transpose)),
    "positions rolled by one": Fault(weights=_set("position", lambda a: a.__setitem__(..., np.roll(a, 1, 1)))),
    "convolution's filters rolled": Fault(weights=_set("conv.weight", _roll)),
    "convolution's kernel flipped": Fault(
        weights=_set("conv.weight", lambda a: a.__setitem__(..., a[..., ::-1].copy()))
    ),
    "BGR for RGB": Fault(inputs=lambda x: x[:, ::-1]),
    "images mirrored": Fault(inputs=lambda x: x[..., ::-1]),
    "images shifted by a pixel": Fault(inputs=lambda x: np.roll(x, 1, -1)),
    "images scaled by 255/256": Fault(inputs=lambda x: x * np.float32(255 / 256)),
    "images scaled by 1 + 1e-6": Fault(inputs=lambda x: x * (1 + 1e-6)),
    "images in half precision": _options(low_input="float16"),
    "images in bfloat16": _options(low_input="bfloat16"),
    "hidden layer in half precision": _options(low_hidden="float16"),
    "variance by the difference of squares": _options(naive_variance=True),
}


def _element(name: str, value: float, index: int = 3) -> Callable[[Recordings], None]:
    def spoil(recordings: Recordings) -> None:
        recordings.reproduced[name] = recordings.reproduced[name].copy()
        recordings.reproduced[name].reshape(-1)[index] = value

    return spoil


def _replace(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Recordings], None]:
    def spoil(recordings: Recordings) -> None:
        recordings.reproduced[name] = change(recordings.reproduced[name])

    return spoil


SPOILED: dict[str, Callable[[Recordings], None]] = {
    "a NaN": _element("logits", np.nan),
    "an infinity": _element("logits", np.inf),
    "all NaN": _replace("logits", lambda a: np.full_like(a, np.nan)),
    "a missing gradient": lambda recordings: recordings.reproduced.__delitem__("gradient.ln.bias"),
    "an extra tensor": lambda recordings: recordings.reproduced.update(extra=np.ones(3, np.float32)),
    "a shape that broadcasts": _replace("logits", lambda a: a[:1]),
    "a batch permuted": _replace("logits", lambda a: a[::-1].copy()),
    "a square gradient transposed": _replace("gradient.projection.weight", lambda a: a.T.copy()),
    "an oblong gradient transposed": _replace("gradient.hidden.weight", lambda a: a.T.copy()),
    "one wrong element of hundreds": _element("gradient.qkv.weight", 1e-3, 100),
    "half precision in the file": _replace("logits", lambda a: a.astype(np.float16)),
    "numbers through half precision": _replace("logits", lambda a: a.astype(np.float16).astype(np.float32)),
    "a vanished gradient": _replace("gradient.ln.weight", np.zeros_like),
    "a gradient with its sign changed": _replace("gradient.ln.weight", lambda a: -a),
    "a gradient averaged over two ranks": _replace("gradient.head.weight", lambda a: a / 2),
    "a flattened tensor": _replace("logits", lambda a: a.reshape(-1)),
}
