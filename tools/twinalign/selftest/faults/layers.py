"""Normalisations, activations, linear layers and dropout that compute something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twinalign.selftest.catalogue import in_model
from twinalign.selftest.faults.weights import BATCH_NORM, has_bias
from twinalign.selftest.places import ModelPlace, in_evaluation, in_training, layers, own_code


def _last_axis_only(facts: Any) -> bool:
    return len(facts.layer._normalized_shape) == 1


@in_model("forward", layers("LayerNorm"), causes=("norm_epsilon",))
def layer_norm_epsilon(place: ModelPlace) -> None:
    """LayerNorm's epsilon is ten times too large."""
    place.layer._epsilon *= 10


def _layer_norm(place: ModelPlace, axes: list[int], unbiased: bool = False, centred: bool = True) -> None:
    layer = place.layer

    def compute(original: Callable[..., Any], x: Any) -> Any:
        mean = x.mean(axis=axes, keepdim=True) if centred else 0.0
        variance = ((x - mean) ** 2).mean(axis=axes, keepdim=True)
        if unbiased:
            variance = variance * (x.shape[-1] / (x.shape[-1] - 1))
        return (x - mean) / (variance + layer._epsilon).sqrt() * layer.weight + layer.bias

    place.forward(compute)


@in_model("forward", layers("LayerNorm", _last_axis_only), causes=("norm_variance_unbiased",))
def layer_norm_unbiased(place: ModelPlace) -> None:
    """LayerNorm divides by the unbiased deviation."""
    _layer_norm(place, [-1], unbiased=True)


@in_model("forward", layers("LayerNorm", lambda f: _last_axis_only(f) and len(f.shape) > 2), causes=("norm_axis",))
def layer_norm_over_tokens(place: ModelPlace) -> None:
    """LayerNorm takes its statistics over the tokens as well."""
    _layer_norm(place, [-2, -1])


@in_model("forward", layers("LayerNorm", _last_axis_only), causes=("norm_mean_kept",))
def layer_norm_not_centred(place: ModelPlace) -> None:
    """LayerNorm does not subtract the mean."""
    _layer_norm(place, [-1], centred=False)


@in_model("forward", layers("GroupNorm", lambda f: f.layer._num_groups % 2 == 0), causes=("group_norm_groups",))
def group_norm_groups(place: ModelPlace) -> None:
    """GroupNorm has half as many groups."""
    place.layer._num_groups //= 2


@in_model("forward", layers(BATCH_NORM), causes=("norm_epsilon",))
def batch_norm_epsilon(place: ModelPlace) -> None:
    """Batch norm's epsilon is a hundred times too large."""
    place.layer._epsilon *= 100


def _with_mode(place: ModelPlace, training: bool) -> None:
    def run(original: Callable[..., Any], x: Any) -> Any:
        before, place.layer.training = place.layer.training, training
        try:
            return original(x)
        finally:
            place.layer.training = before

    place.forward(run)


@in_model("forward", in_training(layers(BATCH_NORM)), causes=("batch_norm_mode",))
def batch_norm_frozen(place: ModelPlace) -> None:
    """A batch norm in training mode normalises by its running statistics."""
    _with_mode(place, training=False)


@in_model("forward", in_evaluation(layers(BATCH_NORM)), causes=("batch_norm_mode",))
def batch_norm_always_trains(place: ModelPlace) -> None:
    """A batch norm in evaluation mode normalises by the batch."""
    _with_mode(place, training=True)


@in_model("forward", in_training(layers("BatchNorm2D")), causes=("norm_axis",))
def batch_norm_by_sample(place: ModelPlace) -> None:
    """A batch norm takes its statistics sample by sample."""
    layer = place.layer

    def compute(original: Callable[..., Any], x: Any) -> Any:
        original(x.detach())
        mean = x.mean(axis=[2, 3], keepdim=True)
        variance = ((x - mean) ** 2).mean(axis=[2, 3], keepdim=True)
        scale, offset = (p.reshape([1, -1, 1, 1]) for p in (layer.weight, layer.bias))
        return (x - mean) / (variance + layer._epsilon).sqrt() * scale + offset

    place.forward(compute)


def _instead(name: str, other: Callable[[Any, Any], Any]) -> Callable[[ModelPlace], None]:
    """Let `other(functional, x)` take the calls of an activation."""

    def plant(place: ModelPlace) -> None:
        place.function(name, lambda original, x, *_, **__: other(place.paddle.nn.functional, x))

    return plant


@in_model("forward", own_code("gelu"), causes=("gelu_form",))
def gelu_by_tanh(place: ModelPlace) -> None:
    """GELU is in its tanh form."""
    _instead("gelu", lambda functional, x: functional.gelu(x, approximate=True))(place)


@in_model("forward", own_code("gelu"), causes=("gelu_form",))
def gelu_by_sigmoid(place: ModelPlace) -> None:
    """GELU is x times sigmoid(1.702 x)."""
    _instead("gelu", lambda functional, x: x * functional.sigmoid(x * 1.702))(place)


@in_model("forward", own_code("gelu"), causes=("activation_swapped",))
def relu_for_gelu(place: ModelPlace) -> None:
    """ReLU stands where GELU should."""
    _instead("gelu", lambda functional, x: functional.relu(x))(place)


@in_model("forward", own_code("relu"), causes=("leaky_slope", "activation_swapped"))
def leaky_relu_for_relu(place: ModelPlace) -> None:
    """Leaky ReLU of 0.01 stands where ReLU should."""
    _instead("relu", lambda functional, x: functional.leaky_relu(x, 0.01))(place)


@in_model("forward", own_code("relu"), causes=("activation_swapped", "clamp_upper"))
def relu6_for_relu(place: ModelPlace) -> None:
    """ReLU6 stands where ReLU should."""
    _instead("relu", lambda functional, x: functional.relu6(x))(place)


@in_model("forward", own_code("relu"), causes=("activation_missing",))
def relu_forgotten(place: ModelPlace) -> None:
    """A ReLU is forgotten."""
    _instead("relu", lambda functional, x: x * 1)(place)


@in_model("forward", own_code("relu"), causes=("activation_swapped",))
def gelu_for_relu(place: ModelPlace) -> None:
    """GELU stands where ReLU should."""
    _instead("relu", lambda functional, x: functional.gelu(x))(place)


@in_model("forward", own_code("hardswish"), causes=("activation_swapped",))
def silu_for_hardswish(place: ModelPlace) -> None:
    """SiLU stands where Hardswish should."""
    _instead("hardswish", lambda functional, x: functional.silu(x))(place)


@in_model("forward", own_code("hardswish"), causes=("activation_swapped",))
def relu_for_hardswish(place: ModelPlace) -> None:
    """ReLU stands where Hardswish should."""
    _instead("hardswish", lambda functional, x: functional.relu(x))(place)


@in_model("forward", own_code("hardsigmoid"), causes=("hard_activation_slope",))
def hardsigmoid_slope(place: ModelPlace) -> None:
    """Hardsigmoid has the slope 0.2."""
    _instead("hardsigmoid", lambda functional, x: functional.hardsigmoid(x, slope=0.2))(place)


@in_model("forward", own_code("hardsigmoid"), causes=("activation_swapped",))
def sigmoid_for_hardsigmoid(place: ModelPlace) -> None:
    """Sigmoid stands where Hardsigmoid should."""
    _instead("hardsigmoid", lambda functional, x: functional.sigmoid(x))(place)


@in_model("forward", own_code("silu"), causes=("activation_swapped",))
def gelu_for_silu(place: ModelPlace) -> None:
    """GELU stands where SiLU should."""
    _instead("silu", lambda functional, x: functional.gelu(x))(place)


@in_model("forward", layers("Linear", has_bias), causes=("bias_missing",))
def linear_bias_forgotten(place: ModelPlace) -> None:
    """A Linear does not add its bias."""
    place.output(lambda output: output - place.layer.bias)


@in_model("forward", layers("Linear", has_bias), causes=("bias_twice",))
def linear_bias_twice(place: ModelPlace) -> None:
    """A Linear adds its bias twice."""
    place.output(lambda output: output + place.layer.bias)


def _drops(facts: Any) -> bool:
    return getattr(facts.layer, "p", 0) > 0


@in_model("forward", in_evaluation(own_code("dropout", such=_drops)), causes=("dropout_mode",))
def dropout_scales_in_evaluation(place: ModelPlace) -> None:
    """Dropout scales by 1 - p in evaluation, as paddle's old mode has it."""
    place.layer.mode = "downscale_in_infer"


@in_model("forward", layers("Linear"), causes=("low_precision",))
def output_rounded_to_float16(place: ModelPlace) -> None:
    """A layer's output passes through float16."""
    place.output(lambda output: output.astype("float16").astype(output.dtype))


@in_model("forward", layers("Conv2D"), causes=("low_precision",))
def output_rounded_to_bfloat16(place: ModelPlace) -> None:
    """A convolution's output passes through bfloat16."""
    place.output(lambda output: output.astype("bfloat16").astype(output.dtype))
