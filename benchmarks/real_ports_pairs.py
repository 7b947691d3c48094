"""A model that a torch and a paddle library both have: how it is built, called and made to look trained.

The tables are in real_ports_vision.py and real_ports_generative.py. Nothing imports a framework until a model is built.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

Draw = Callable[[np.random.Generator], np.ndarray]
Inputs = Mapping[str, Draw]


@dataclasses.dataclass(frozen=True)
class Pair:
    """One model in two libraries.

    `reference` and `port`: `module:expression`, the expression evaluated with the names of the module.
    `inputs`: input name -> what draws its array.
    `lines`: what a user had to write in the case beyond its three methods, by attribute.
    `differs`: what the port computes differently, with file and line of the package; found by hand.
    `causes`: ids of causes that hold for that difference, each checked by hand.
    """

    name: str
    reference: str
    port: str
    inputs: Inputs
    algorithm: str = "SGD"
    lines: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    differs: str = ""
    causes: tuple[str, ...] = ()


def build(text: str) -> Any:
    """A model out of `module:expression`."""
    module, _, expression = text.partition(":")
    return eval(expression, {}, _Names(importlib.import_module(module)))


class _Names(dict[str, Any]):
    """The names of a module, those that it imports when they are asked for too."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __missing__(self, name: str) -> Any:
        if not hasattr(self.module, name):
            raise KeyError(name)
        return getattr(self.module, name)


def images(size: int, batch: int = 2, channels: int = 3, name: str = "x") -> Inputs:
    """Standard normal noise `[batch, channels, size, size]`, float32."""
    return {name: noise(batch, channels, size, size)}


def noise(*shape: int) -> Draw:
    """Standard normal, float32."""
    return lambda rng: rng.standard_normal(shape, dtype=np.float32)


def tokens(length: int = 12, vocabulary: int = 99, batch: int = 2) -> Draw:
    """Random token ids from 3 up, `[batch, length]`, int64: 0 to 2 are padding and such in several libraries."""
    return lambda rng: rng.integers(3, vocabulary, (batch, length))


def text(length: int = 12, vocabulary: int = 99, batch: int = 2) -> Inputs:
    """`input_ids` alone."""
    return {"input_ids": tokens(length, vocabulary, batch)}


def constant(*values: float, dtype: str = "int64") -> Draw:
    """The same values each time."""
    return lambda rng: np.array(values, dtype)


def tensors(value: Any) -> Iterator[Any]:
    """Every floating-point tensor in nested outputs, in their order."""
    if hasattr(value, "is_floating_point"):
        if value.is_floating_point():
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors(item)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from tensors(getattr(value, field.name))


def loss(outputs: Any, framework: str) -> Any:
    """The sum over all outputs of the mean squared distance from noise of variance 1, a scalar tensor."""
    root = importlib.import_module(framework)
    total: Any = 0.0
    for output in tensors(outputs):
        noise = np.random.default_rng(7).standard_normal([int(size) for size in output.shape])
        target = root.to_tensor(noise) if framework == "paddle" else root.from_numpy(noise)
        total = (
            total
            + (
                (output - target.astype(output.dtype) if framework == "paddle" else output - target.to(output.dtype))
                ** 2
            ).mean()
        )
    return total


def as_if_trained(model: Any) -> None:
    """Move every parameter by noise of 0.02, and set running statistics near 0 and 1, so that no layer is idle."""
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                parameter += 0.02 * torch.randn_like(parameter)
        for layer in model.modules():
            if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm) and layer.running_mean is not None:
                layer.running_mean += 0.1 * torch.randn_like(layer.running_mean)
                layer.running_var *= 0.75 + 0.5 * torch.rand_like(layer.running_var)


def every_pair() -> dict[str, Pair]:
    """All pairs by name."""
    import real_ports_generative
    import real_ports_vision

    return {pair.name: pair for pair in (*real_ports_vision.pairs(), *real_ports_generative.pairs())}
