"""Gradients that are lost, scaled or another function's, where the forward pass is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twinalign.selftest.catalogue import in_model
from twinalign.selftest.faults.structure import ATTENTION, RESIDUAL, blocks, same_shape
from twinalign.selftest.faults.weights import has_bias
from twinalign.selftest.places import ModelPlace, in_training, layers, own_code, place_of, with_loss
from twinalign.selftest.survey import Survey


def _of_another(value: Any, other: Any) -> Any:
    """The value of one and the gradient of the other."""
    return value.detach() + (other - other.detach())


@in_model("backward", with_loss(blocks), causes=("gradient_stopped",))
def gradient_stopped(place: ModelPlace) -> None:
    """No gradient flows back through a block."""
    place.input(lambda x: x.detach())


@in_model("backward", with_loss(layers("Linear")), causes=("gradient_factor",))
def gradient_doubled(place: ModelPlace) -> None:
    """The gradient through a Linear is doubled."""
    place.output(lambda output: output * 2 - output.detach())


@in_model("backward", with_loss(layers("Linear")), causes=("gradient_factor", "sign_wrong"))
def gradient_reversed(place: ModelPlace) -> None:
    """The gradient through a Linear has the wrong sign."""
    place.output(lambda output: output.detach() * 2 - output)


@in_model("backward", with_loss(RESIDUAL), causes=("gradient_stopped",))
def residual_gradient_stopped(place: ModelPlace) -> None:
    """No gradient flows along one side of a residual addition."""
    place.first("add", lambda original, first, second: original(first.detach(), second), same_shape)


@in_model("backward", with_loss(ATTENTION), causes=("gradient_stopped",))
def attention_gradient_stopped(place: ModelPlace) -> None:
    """Attention's weights are taken for constants."""
    place.function("softmax", lambda original, *arguments, **keywords: original(*arguments, **keywords).detach())


@in_model("backward", with_loss(layers("Linear|Conv2D")), causes=("parameters_frozen",), besides=("optimizer",))
def weight_frozen(place: ModelPlace) -> None:
    """A weight is frozen."""
    place.layer.weight.stop_gradient = True


@in_model(
    "backward", with_loss(layers("Linear|Conv2D", has_bias)), causes=("parameters_frozen",), besides=("optimizer",)
)
def bias_frozen(place: ModelPlace) -> None:
    """A bias is frozen."""
    place.layer.bias.stop_gradient = True


def _partly_frozen(survey: Survey) -> str | None:
    return place_of([facts for facts in survey.running if _frozen(facts.layer)])


def _frozen(layer: Any) -> list[Any]:
    own = layer._parameters.items()
    return [p for name, p in own if p is not None and p.stop_gradient and name not in ("_mean", "_variance")]


@in_model(
    "backward", with_loss(_partly_frozen), causes=("gradient_not_stopped", "parameters_frozen"), besides=("optimizer",)
)
def frozen_parameter_trains(place: ModelPlace) -> None:
    """A parameter that is frozen in the reference is trained."""
    _frozen(place.layer)[0].stop_gradient = False


@in_model("backward", with_loss(layers("LayerNorm")), causes=("statistics_gradient_stopped",))
def layer_norm_statistics_constant(place: ModelPlace) -> None:
    """LayerNorm's mean and variance are taken for constants by the gradient."""
    layer = place.layer

    def compute(original: Callable[..., Any], x: Any) -> Any:
        mean = x.mean(axis=-1, keepdim=True).detach()
        variance = ((x - mean) ** 2).mean(axis=-1, keepdim=True).detach()
        return _of_another(original(x), (x - mean) / (variance + layer._epsilon).sqrt() * layer.weight + layer.bias)

    place.forward(compute)


@in_model(
    "backward", with_loss(in_training(layers("BatchNorm2D|BatchNorm1D"))), causes=("statistics_gradient_stopped",)
)
def batch_norm_statistics_constant(place: ModelPlace) -> None:
    """A batch norm's statistics are taken for constants by the gradient."""
    layer = place.layer

    def compute(original: Callable[..., Any], x: Any) -> Any:
        axes = [axis for axis in range(len(x.shape)) if axis != 1]
        mean = x.mean(axis=axes, keepdim=True).detach()
        variance = ((x - mean) ** 2).mean(axis=axes, keepdim=True).detach()
        normal = (x - mean) / (variance + layer._epsilon).sqrt()
        if layer.weight is not None:
            shape = [1, -1, *[1] * (len(x.shape) - 2)]
            normal = normal * layer.weight.reshape(shape) + layer.bias.reshape(shape)
        return _of_another(original(x), normal)

    place.forward(compute)


@in_model("backward", with_loss(own_code("relu")), causes=("straight_through", "activation_missing"))
def relu_gradient_passes(place: ModelPlace) -> None:
    """The gradient passes through a ReLU as if it were not there."""
    place.function("relu", lambda original, x, *_, **__: _of_another(original(x), x))


@in_model("backward", with_loss(own_code("gelu")), causes=("gelu_form",))
def gelu_gradient_by_tanh(place: ModelPlace) -> None:
    """GELU's gradient is that of its tanh form."""
    place.function("gelu", lambda original, x, *_, **__: _of_another(original(x), original(x, approximate=True)))


@in_model("backward", with_loss(own_code("hardswish")), causes=("straight_through", "activation_missing"))
def hardswish_gradient_passes(place: ModelPlace) -> None:
    """The gradient passes through a Hardswish as if it were not there."""
    place.function("hardswish", lambda original, x, *_, **__: _of_another(original(x), x))
