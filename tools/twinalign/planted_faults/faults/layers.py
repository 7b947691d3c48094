"""Normalisations, activations, linear layers and dropout that compute something else."""

from collections.abc import Callable
from typing import Any

from twinalign.patching import replaced
from twinalign.planted_faults.catalogue import Registration, in_forward
from twinalign.planted_faults.fault_sites import ModelSite, Original, change_output, set_attributes, through
from twinalign.planted_faults.faults.weights import BATCH_NORM, has_bias
from twinalign.planted_faults.where_to_plant import in_evaluation, in_training, layers, own_code


def _last_axis_only(facts: Any) -> bool:
    return len(facts.layer._normalized_shape) == 1


@in_forward(layers("LayerNorm"), "norm_epsilon")
def layer_norm_epsilon(site: ModelSite) -> None:
    """LayerNorm's epsilon is ten times too large."""
    site.layer._epsilon *= 10


def _layer_norm(site: ModelSite, axes: list[int], unbiased: bool = False, centred: bool = True) -> None:
    layer = site.layer

    def compute(original: Original, x: Any) -> Any:
        mean = x.mean(axis=axes, keepdim=True) if centred else 0.0
        variance = ((x - mean) ** 2).mean(axis=axes, keepdim=True)
        if unbiased:
            variance = variance * (x.shape[-1] / (x.shape[-1] - 1))
        return (x - mean) / (variance + layer._epsilon).sqrt() * layer.weight + layer.bias

    site.forward(compute)


in_forward(layers("LayerNorm", _last_axis_only), "norm_variance_unbiased", id="layer_norm_unbiased").add(
    "LayerNorm divides by the unbiased deviation", lambda site: _layer_norm(site, [-1], unbiased=True)
)
in_forward(
    layers("LayerNorm", lambda f: _last_axis_only(f) and len(f.shape) > 2), "norm_axis", id="layer_norm_over_tokens"
).add("LayerNorm takes its statistics over the tokens as well", lambda site: _layer_norm(site, [-2, -1]))
in_forward(layers("LayerNorm", _last_axis_only), "norm_mean_kept", id="layer_norm_not_centred").add(
    "LayerNorm does not subtract the mean", lambda site: _layer_norm(site, [-1], centred=False)
)


@in_forward(layers("GroupNorm", lambda f: f.layer._num_groups % 2 == 0), "group_norm_groups")
def group_norm_groups(site: ModelSite) -> None:
    """GroupNorm has half as many groups."""
    site.layer._num_groups //= 2


@in_forward(layers(BATCH_NORM), "norm_epsilon")
def batch_norm_epsilon(site: ModelSite) -> None:
    """Batch norm's epsilon is a hundred times too large."""
    site.layer._epsilon *= 100


def _with_mode(site: ModelSite, training: bool) -> None:
    def run(original: Original, x: Any) -> Any:
        with replaced(site.layer, "training", training):
            return original(x)

    site.forward(run)


in_forward(in_training(layers(BATCH_NORM)), "batch_norm_mode", id="batch_norm_frozen").add(
    "A batch norm in training mode normalises by its running statistics", lambda site: _with_mode(site, training=False)
)
in_forward(in_evaluation(layers(BATCH_NORM)), "batch_norm_mode", id="batch_norm_always_trains").add(
    "A batch norm in evaluation mode normalises by the batch", lambda site: _with_mode(site, training=True)
)


@in_forward(in_training(layers("BatchNorm2D")), "norm_axis")
@through(ModelSite.forward)
def batch_norm_by_sample(site: ModelSite, original: Original, x: Any) -> Any:
    """A batch norm takes its statistics sample by sample."""
    layer = site.layer
    original(x.detach())
    mean = x.mean(axis=[2, 3], keepdim=True)
    variance = ((x - mean) ** 2).mean(axis=[2, 3], keepdim=True)
    scale, offset = (p.reshape([1, -1, 1, 1]) for p in (layer.weight, layer.bias))
    return (x - mean) / (variance + layer._epsilon).sqrt() * scale + offset


def _activation(fault: str, name: str, *causes: str) -> Registration:
    """A fault whose function `(paddle.nn.functional, x)` takes the calls of an activation."""

    def how(other: Callable[[Any, Any], Any]) -> Callable[[ModelSite], None]:
        return lambda site: site.function(name, lambda original, x, *_, **__: other(site.paddle.nn.functional, x))

    return in_forward(own_code(name), *causes, id=fault, how=how)


_WRITTEN = {"gelu": "GELU", "relu": "ReLU", "relu6": "ReLU6", "silu": "SiLU", "softmax": "softmax"}


def _instead(other: str, name: str, *causes: str) -> None:
    """A fault by which the activation `other` of paddle.nn.functional is used in place of `name`."""
    _activation(f"{other}_for_{name}", name, *(causes or ("activation_swapped",))).add(
        f"{_WRITTEN.get(other, other.title())} is used in place of {_WRITTEN.get(name, name.title())}",
        lambda functional, x: getattr(functional, other)(x),
    )


_activation("gelu_by_tanh", "gelu", "gelu_form").add(
    "GELU is in its tanh form", lambda functional, x: functional.gelu(x, approximate=True)
)
_activation("gelu_by_sigmoid", "gelu", "gelu_form").add(
    "GELU is x times sigmoid(1.702 x)", lambda functional, x: x * functional.sigmoid(x * 1.702)
)
_instead("relu", "gelu")
_activation("leaky_relu_for_relu", "relu", "leaky_slope", "activation_swapped").add(
    "Leaky ReLU of 0.01 is used in place of ReLU", lambda functional, x: functional.leaky_relu(x, 0.01)
)
_instead("relu6", "relu", "activation_swapped", "clamp_upper")
_activation("relu_forgotten", "relu", "activation_missing").add("A ReLU is forgotten", lambda functional, x: x * 1)
_instead("gelu", "relu")
_instead("silu", "hardswish")
_instead("relu", "hardswish")
_activation("hardsigmoid_slope", "hardsigmoid", "hard_activation_slope").add(
    "Hardsigmoid has the slope 0.2", lambda functional, x: functional.hardsigmoid(x, slope=0.2)
)
_instead("sigmoid", "hardsigmoid")
_instead("gelu", "silu")
in_forward(layers("Linear", has_bias), "bias_missing", id="linear_bias_forgotten").add(
    "A Linear does not add its bias", lambda site: site.output(lambda output: output - site.layer.bias)
)
in_forward(layers("Linear", has_bias), "bias_twice", id="linear_bias_twice").add(
    "A Linear adds its bias twice", lambda site: site.output(lambda output: output + site.layer.bias)
)


def _drops(facts: Any) -> bool:
    return getattr(facts.layer, "p", 0) > 0


in_forward(in_evaluation(own_code("dropout", such=_drops)), "dropout_mode", id="dropout_scales_in_evaluation").add(
    "Dropout scales by 1 - p in evaluation, as paddle's old mode has it", set_attributes(mode="downscale_in_infer")
)
in_forward(layers("Linear"), "low_precision", id="output_rounded_to_float16").add(
    "A layer's output passes through float16",
    change_output(lambda output: output.astype("float16").astype(output.dtype)),
)
in_forward(layers("Conv2D"), "low_precision", id="output_rounded_to_bfloat16").add(
    "A convolution's output passes through bfloat16",
    change_output(lambda output: output.astype("bfloat16").astype(output.dtype)),
)


@in_forward(layers("LayerNorm", _last_axis_only), "norm_epsilon_outside_root")
@through(ModelSite.forward)
def layer_norm_epsilon_outside_root(site: ModelSite, original: Original, x: Any) -> Any:
    """LayerNorm adds its epsilon to the deviation, not to the variance."""
    layer = site.layer
    centred = x - x.mean(axis=-1, keepdim=True)
    deviation = (centred**2).mean(axis=-1, keepdim=True).sqrt()
    return centred / (deviation + layer._epsilon) * layer.weight + layer.bias


in_forward(layers("ELU"), "elu_alpha", id="elu_alpha").add("ELU's alpha is 0.5", set_attributes(_alpha=0.5))
in_forward(layers("Softplus"), "softplus_beta", id="softplus_beta").add(
    "Softplus's beta is 2", set_attributes(_beta=2.0)
)
_instead("sigmoid", "softmax", "softmax_kind")
_activation("gelu_twice", "gelu", "activation_twice").add(
    "GELU is applied twice", lambda functional, x: functional.gelu(functional.gelu(x))
)
