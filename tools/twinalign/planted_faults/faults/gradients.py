"""Gradients that are lost, scaled or another function's, where the forward pass is right."""

from typing import Any

from twinalign.planted_faults.fault_sites import ModelSite, Original, change_output, replace_call, through
from twinalign.planted_faults.faults.structure import ATTENTION, RESIDUAL, blocks, same_shape
from twinalign.planted_faults.faults.weights import has_bias
from twinalign.planted_faults.where_to_plant import in_backward, in_training, layers, middle, own_code


def _of_another(value: Any, other: Any) -> Any:
    """The value of one and the gradient of the other."""
    return value.detach() + (other - other.detach())


in_backward(blocks, "gradient_stopped", id="gradient_stopped").add(
    "No gradient flows back through a block", lambda site: site.input(lambda x: x.detach())
)
in_backward(layers("Linear"), "gradient_factor", id="gradient_doubled").add(
    "The gradient through a Linear is doubled", change_output(lambda output: output * 2 - output.detach())
)
in_backward(layers("Linear"), "gradient_factor", "sign_wrong", id="gradient_reversed").add(
    "The gradient through a Linear has the wrong sign", change_output(lambda output: output.detach() * 2 - output)
)
in_backward(RESIDUAL, "gradient_stopped", id="residual_gradient_stopped").add(
    "No gradient flows along one side of a residual addition",
    lambda site: site.first("add", lambda original, x, y: original(x.detach(), y), same_shape),
)
in_backward(ATTENTION, "gradient_stopped", id="attention_gradient_stopped").add(
    "Attention's weights are taken for constants",
    replace_call("softmax", lambda original, *arguments, **keywords: original(*arguments, **keywords).detach()),
)
in_backward(layers("Linear|Conv2D"), "parameters_frozen", besides=("optimizer",), id="weight_frozen").add(
    "A weight is frozen", lambda site: setattr(site.layer.weight, "stop_gradient", True)
)
in_backward(layers("Linear|Conv2D", has_bias), "parameters_frozen", besides=("optimizer",), id="bias_frozen").add(
    "A bias is frozen", lambda site: setattr(site.layer.bias, "stop_gradient", True)
)


def _frozen(layer: Any) -> list[Any]:
    own = layer._parameters.items()
    return [p for name, p in own if p is not None and p.stop_gradient and name not in ("_mean", "_variance")]


@in_backward(
    middle(lambda facts: _frozen(facts.layer)), "gradient_not_stopped", "parameters_frozen", besides=("optimizer",)
)
def frozen_parameter_trains(site: ModelSite) -> None:
    """A parameter that is frozen in the reference is trained."""
    _frozen(site.layer)[0].stop_gradient = False


@in_backward(layers("LayerNorm"), "statistics_gradient_stopped")
@through(ModelSite.forward)
def layer_norm_statistics_constant(site: ModelSite, original: Original, x: Any) -> Any:
    """LayerNorm's mean and variance are taken for constants by the gradient."""
    layer = site.layer
    mean = x.mean(axis=-1, keepdim=True).detach()
    variance = ((x - mean) ** 2).mean(axis=-1, keepdim=True).detach()
    return _of_another(original(x), (x - mean) / (variance + layer._epsilon).sqrt() * layer.weight + layer.bias)


@in_backward(in_training(layers("BatchNorm2D|BatchNorm1D")), "statistics_gradient_stopped")
@through(ModelSite.forward)
def batch_norm_statistics_constant(site: ModelSite, original: Original, x: Any) -> Any:
    """A batch norm's statistics are taken for constants by the gradient."""
    layer = site.layer
    axes = [axis for axis in range(len(x.shape)) if axis != 1]
    mean = x.mean(axis=axes, keepdim=True).detach()
    variance = ((x - mean) ** 2).mean(axis=axes, keepdim=True).detach()
    normal = (x - mean) / (variance + layer._epsilon).sqrt()
    if layer.weight is not None:
        shape = [1, -1, *[1] * (len(x.shape) - 2)]
        normal = normal * layer.weight.reshape(shape) + layer.bias.reshape(shape)
    return _of_another(original(x), normal)


def _pass_through(original: Original, x: Any, *_: Any, **__: Any) -> Any:
    return _of_another(original(x), x)


in_backward(own_code("relu"), "straight_through", "activation_missing", id="relu_gradient_passes").add(
    "The gradient passes through a ReLU as if it were not there", replace_call("relu", _pass_through)
)
in_backward(own_code("gelu"), "gelu_form", id="gelu_gradient_by_tanh").add(
    "GELU's gradient is that of its tanh form",
    replace_call("gelu", lambda original, x, *_, **__: _of_another(original(x), original(x, approximate=True))),
)
in_backward(own_code("hardswish"), "straight_through", "activation_missing", id="hardswish_gradient_passes").add(
    "The gradient passes through a Hardswish as if it were not there", replace_call("hardswish", _pass_through)
)
