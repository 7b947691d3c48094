"""Models that start from other values than their reference, which loading the reference's weights hides."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from twinalign.planted_faults.catalogue import Registration, in_initial
from twinalign.planted_faults.fault_sites import ModelSite, handed_to
from twinalign.planted_faults.where_to_plant import Find, layers

_random = np.random.default_rng()
"""Not seeded: models of several seeds must differ."""


def _drawn(fault: str, name: str, find: Find, *causes: str) -> Registration:
    """A fault whose function takes a fresh parameter of the layer, a numpy array, and returns what it starts from."""
    return in_initial(find, *causes, id=fault, how=handed_to(ModelSite.set_value, name))


def _has(kind: str, such: Callable[[Any], bool]) -> Find:
    return layers(kind, lambda facts: such(facts.layer))


def _normal(like: np.ndarray, deviation: float) -> np.ndarray:
    return _random.normal(0.0, deviation, like.shape)


def _uniform(like: np.ndarray, bound: float) -> np.ndarray:
    return _random.uniform(-bound, bound, like.shape)


def _written_deviation(weight: np.ndarray) -> float:
    """The deviation as somebody would write it, which is the same for every seed."""
    return float(f"{weight.std():.1g}")


def _rows_are_orthogonal(layer: Any) -> bool:
    """Whether a Linear's matrix, or that of its transpose, is a rotation."""
    matrix = layer.weight.numpy().astype(float)
    product = matrix @ matrix.T / max(float((matrix[0] ** 2).sum()), 1e-30)
    return bool(np.allclose(product, np.eye(len(matrix)), atol=1e-4))


_DENSE = _has("Linear", lambda layer: layer.weight.size >= 1000 and not _rows_are_orthogonal(layer))
_CONVOLUTION = _has("Conv2D", lambda layer: layer.weight.size >= 1000)
_EMBEDDING = layers("Embedding")
_LINEAR_ZERO_BIAS = _has("Linear", lambda layer: layer.bias is not None and not layer.bias.numpy().any())
_LINEAR_DRAWN_BIAS = _has("Linear", lambda layer: layer.bias is not None and layer.bias.numpy().std() > 0)
_NORM = layers("LayerNorm|BatchNorm2D|BatchNorm1D")
_FAMILY = ("initializer_family_differs", "initializer_left_at_paddle_default")
_SCALE = ("initializer_scale_differs", "initializer_left_at_paddle_default")

_drawn("initial_linear_left_at_default", "weight", _DENSE, "initializer_left_at_paddle_default").add(
    "A Linear starts as paddle's own, Xavier uniform", lambda weight: _uniform(weight, math.sqrt(6 / sum(weight.shape)))
)
_drawn("initial_conv_left_at_default", "weight", _CONVOLUTION, "initializer_left_at_paddle_default").add(
    "A convolution starts as paddle's own, Kaiming normal by its fan in",
    lambda weight: _normal(weight, math.sqrt(2 / math.prod(weight.shape[1:]))),
)
_drawn("initial_embedding_left_at_default", "weight", _EMBEDDING, "initializer_left_at_paddle_default").add(
    "An Embedding starts as paddle's own, Xavier uniform",
    lambda weight: _uniform(weight, math.sqrt(6 / sum(weight.shape))),
)
_drawn("initial_bias_left_at_default", "bias", _LINEAR_DRAWN_BIAS, "initializer_left_at_paddle_default").add(
    "The bias of a Linear starts at zero, as paddle's own, where it should be drawn", np.zeros_like
)
_drawn("initial_std_a_tenth_off", "weight", _DENSE, "initializer_scale_differs").add(
    "A weight starts with a deviation that is a tenth too large", lambda weight: 1.1 * weight
)
_drawn("initial_std_forgotten", "weight", _DENSE, *_SCALE).add(
    "The standard deviation of a weight is forgotten: it starts with a deviation of 1",
    lambda weight: weight / weight.std(),
)
_drawn("initial_embedding_std_forgotten", "weight", _EMBEDDING, *_SCALE).add(
    "The standard deviation of an embedding is forgotten", lambda weight: weight / weight.std()
)
_drawn("initial_gain_forgotten", "weight", _CONVOLUTION, *_SCALE).add(
    "The gain of a convolution's initialiser is forgotten: the deviation is too small by the root of two",
    lambda weight: weight / math.sqrt(2.0),
)
_drawn("initial_fan_exchanged", "weight", _CONVOLUTION, "initializer_fan_exchanged", *_SCALE).add(
    "The initialiser of a convolution takes its fan in for its fan out, or the reverse",
    lambda weight: weight * math.sqrt(_other_fan(weight)),
)
_drawn("initial_normal_truncated", "weight", _DENSE, "initializer_truncation_differs", *_FAMILY).add(
    "A weight is drawn again within two deviations",
    lambda weight: _truncated(weight, _written_deviation(weight)),
)
_drawn("initial_uniform_for_normal", "weight", _CONVOLUTION, *_FAMILY).add(
    "A convolution starts uniformly distributed, with the right deviation",
    lambda weight: _uniform(weight, math.sqrt(3.0) * float(weight.std())),
)
_drawn("initial_embedding_uniform", "weight", _EMBEDDING, *_FAMILY).add(
    "An embedding starts uniformly distributed, with the right deviation",
    lambda weight: _uniform(weight, math.sqrt(3.0) * _written_deviation(weight)),
)
_drawn("initial_orthogonal_forgotten", "weight", _has("Linear", _rows_are_orthogonal), *_FAMILY).add(
    "A Linear starts normally distributed where its rows should be orthogonal",
    lambda weight: _normal(weight, float(weight.std())),
)
_drawn("initial_bias_not_zero", "bias", _LINEAR_ZERO_BIAS, "initial_constant_differs").add(
    "The bias of a Linear starts at 0.1 and not at zero", lambda bias: np.full_like(bias, 0.1)
)
_drawn("initial_bias_drawn", "bias", _LINEAR_ZERO_BIAS, "initial_value_random").add(
    "The bias of a Linear is drawn where it should start at zero", lambda bias: _normal(bias, 0.02)
)
_drawn("initial_norm_scale_zero", "weight", _NORM, "initial_constant_differs").add(
    "The scale of a normalisation starts at zero where it should be one, or the reverse", lambda weight: 1.0 - weight
)
_drawn("initial_running_variance_zero", "_variance", layers("BatchNorm2D|BatchNorm1D"), "initial_constant_differs").add(
    "The running variance of a batch norm starts at zero", np.zeros_like
)


def _other_fan(weight: np.ndarray) -> float:
    """Square of the factor from the fan that a convolution was drawn by, the nearer one, to the other."""
    outputs, inputs = weight.shape[0], weight.shape[1]
    by_out = float(weight.var()) * outputs * math.prod(weight.shape[2:])
    by_in = float(weight.var()) * inputs * math.prod(weight.shape[2:])
    return outputs / inputs if abs(by_in - 2.0) < abs(by_out - 2.0) else inputs / outputs


def _truncated(weight: np.ndarray, deviation: float) -> np.ndarray:
    values = _normal(weight, deviation)
    while (far := np.abs(values) > 2.0 * deviation).any():
        values[far] = _random.normal(0.0, deviation, int(far.sum()))
    return values
