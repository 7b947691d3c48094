"""Weights that were converted, loaded or laid out wrongly."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from twinalign.selftest.catalogue import in_weights
from twinalign.selftest.places import Find, ModelPlace, layers, place_of
from twinalign.selftest.survey import LayerFacts, Survey

CONVOLUTION = "Conv2D"
NORMALISATION = "LayerNorm|BatchNorm1D|BatchNorm2D"
BATCH_NORM = "BatchNorm1D|BatchNorm2D"


def has_bias(facts: LayerFacts) -> bool:
    """Whether the layer has a bias that does something."""
    return facts.layer.bias is not None and bool(facts.layer.bias.numpy().any())


def _is_square(facts: LayerFacts) -> bool:
    return facts.layer.weight.shape[0] == facts.layer.weight.shape[1] > 1


def _kernel(facts: LayerFacts) -> tuple[int, int]:
    return tuple(facts.layer.weight.shape[2:])


def _packs_three(facts: LayerFacts) -> bool:
    return facts.layer.weight.shape[1] == 3 * facts.layer.weight.shape[0]


def _own_parameter(name: str, layer: Any, tokens: bool) -> str | None:
    """Name of the layer's own parameter `[1, tokens, dim]` whose name has `name` in it."""
    for key, parameter in layer._parameters.items():
        if parameter is not None and name in key and len(parameter.shape) == 3 and (parameter.shape[1] > 1) == tokens:
            return key
    return None


def owners(name: str, tokens: bool) -> Find:
    """The layer in the middle of those that hold such a parameter themselves."""

    def find(survey: Survey) -> str | None:
        return place_of([facts for facts in survey.running if _own_parameter(name, facts.layer, tokens)])

    return find


@in_weights(layers("Linear", _is_square), causes=("weight_transposed",))
def square_linear_transposed(place: ModelPlace) -> None:
    """A square Linear keeps torch's layout: its weight is not transposed."""
    place.set_value("weight", np.transpose)


@in_weights(layers("Linear", lambda facts: facts.layer.weight.shape[1] > 1), causes=("output_channels_permuted",))
def linear_outputs_permuted(place: ModelPlace) -> None:
    """The output features of a Linear are rolled by one."""
    place.set_value("weight", lambda weight: np.roll(weight, 1, axis=1))


@in_weights(layers("Linear|Conv2D", has_bias), causes=("bias_missing",))
def bias_not_loaded(place: ModelPlace) -> None:
    """A bias is left at zero."""
    place.set_value("bias", np.zeros_like)


@in_weights(layers("Linear|Conv2D", lambda f: has_bias(f) and f.layer.bias.shape[0] > 1), causes=("bias_permuted",))
def bias_permuted(place: ModelPlace) -> None:
    """The elements of a bias are rolled by one."""
    place.set_value("bias", lambda bias: np.roll(bias, 1))


@in_weights(layers(CONVOLUTION), causes=("output_channels_permuted",))
def conv_outputs_permuted(place: ModelPlace) -> None:
    """The output channels of a convolution are rolled by one."""
    place.set_value("weight", lambda weight: np.roll(weight, 1, axis=0))


@in_weights(layers(CONVOLUTION, lambda facts: max(_kernel(facts)) > 1), causes=("kernel_flipped",))
def conv_kernel_flipped(place: ModelPlace) -> None:
    """The kernel of a convolution is flipped: it convolves where it should correlate."""
    place.set_value("weight", lambda weight: weight[:, :, ::-1, ::-1])


@in_weights(layers(CONVOLUTION, lambda f: _kernel(f)[0] == _kernel(f)[1] > 1), causes=("kernel_transposed",))
def conv_kernel_transposed(place: ModelPlace) -> None:
    """Height and width of a convolution's kernel are exchanged."""
    place.set_value("weight", lambda weight: weight.swapaxes(2, 3))


@in_weights(layers(CONVOLUTION, lambda facts: facts.layer.weight.shape[1] == 3), causes=("input_channels_permuted",))
def first_conv_reads_bgr(place: ModelPlace) -> None:
    """The first convolution takes the colours in the order blue, green, red."""
    place.set_value("weight", lambda weight: weight[:, ::-1])


@in_weights(layers(NORMALISATION, lambda f: f.layer.weight is not None), causes=("norm_affine_swapped",))
def norm_scale_and_offset_exchanged(place: ModelPlace) -> None:
    """Scale and offset of a normalisation are exchanged."""
    scale, offset = place.layer.weight.numpy().copy(), place.layer.bias.numpy().copy()
    place.set_value("weight", lambda _: offset)
    place.set_value("bias", lambda _: scale)


@in_weights(layers(NORMALISATION, lambda f: f.layer.weight is not None), causes=("norm_weight_missing",))
def norm_scale_not_loaded(place: ModelPlace) -> None:
    """The scale of a normalisation is left at one."""
    place.set_value("weight", np.ones_like)


@in_weights(layers(NORMALISATION, lambda f: f.layer.weight is not None and has_bias(f)), causes=("bias_missing",))
def norm_offset_not_loaded(place: ModelPlace) -> None:
    """The offset of a normalisation is left at zero."""
    place.set_value("bias", np.zeros_like)


@in_weights(layers(BATCH_NORM), causes=("running_statistics_swapped",))
def running_statistics_exchanged(place: ModelPlace) -> None:
    """Running mean and running variance of a batch norm are exchanged."""
    mean, variance = place.layer._mean.numpy().copy(), place.layer._variance.numpy().copy()
    place.set_value("_mean", lambda _: variance)
    place.set_value("_variance", lambda _: mean)


@in_weights(layers(BATCH_NORM), causes=("running_statistics_initial",))
def running_statistics_not_loaded(place: ModelPlace) -> None:
    """The running statistics of a batch norm are left at 0 and 1."""
    place.set_value("_mean", np.zeros_like)
    place.set_value("_variance", np.ones_like)


@in_weights(layers("Linear", _packs_three), causes=("qkv_order",))
def qkv_in_another_order(place: ModelPlace) -> None:
    """The stacked projection holds keys, queries and values in this order."""

    def reorder(array: np.ndarray) -> np.ndarray:
        query, key, value = np.split(array, 3, axis=-1)
        return np.concatenate([key, query, value], axis=-1)

    place.set_value("weight", reorder)
    if place.layer.bias is not None:
        place.set_value("bias", reorder)


def _heads(survey: Survey, path: str) -> int:
    parent = survey.layers[path.rpartition(".")[0]].layer
    return next((getattr(parent, name) for name in ("num_heads", "heads", "nhead") if hasattr(parent, name)), 1)


def _packed_by_heads(survey: Survey) -> str | None:
    path = layers("Linear", _packs_three)(survey)
    return path if path is not None and _heads(survey, path) > 1 else None


@in_weights(_packed_by_heads, causes=("heads_order", "qkv_order", "split_interleaved"))
def qkv_heads_first(place: ModelPlace) -> None:
    """The stacked projection holds q, k, v head by head and not all heads of each."""
    parent = next(layer for layer in place.model.sublayers() if any(below is place.layer for below in layer.children()))
    heads = next(getattr(parent, name) for name in ("num_heads", "heads", "nhead") if hasattr(parent, name))

    def interleave(array: np.ndarray) -> np.ndarray:
        parts = array.reshape(*array.shape[:-1], 3, heads, -1)
        return np.ascontiguousarray(np.swapaxes(parts, -3, -2)).reshape(array.shape)

    place.set_value("weight", interleave)
    if place.layer.bias is not None:
        place.set_value("bias", interleave)


@in_weights(owners("pos", tokens=True), causes=("position_embedding_shifted",))
def position_embedding_shifted(place: ModelPlace) -> None:
    """The position embedding is shifted by one token."""
    place.set_value(_own_parameter("pos", place.layer, True) or "", lambda value: np.roll(value, 1, axis=1))


@in_weights(owners("pos", tokens=True), causes=("position_embedding_grid",))
def position_embedding_transposed(place: ModelPlace) -> None:
    """Rows and columns of the position embedding's grid are exchanged."""

    def transpose(value: np.ndarray) -> np.ndarray:
        side = math.isqrt(value.shape[1])
        extra = value.shape[1] - side**2
        grid = value[:, extra:].reshape(1, side, side, -1).swapaxes(1, 2).reshape(1, side**2, -1)
        return np.concatenate([value[:, :extra], grid], axis=1)

    place.set_value(_own_parameter("pos", place.layer, True) or "", transpose)


@in_weights(owners("cls", tokens=False), causes=("parameter_initial",))
def class_token_not_loaded(place: ModelPlace) -> None:
    """The class token is left at zero."""
    place.set_value(_own_parameter("cls", place.layer, False) or "", np.zeros_like)


@in_weights(layers("Embedding"), causes=("embedding_index_shifted",))
def embedding_rows_shifted(place: ModelPlace) -> None:
    """The rows of an embedding are off by one."""
    place.set_value("weight", lambda weight: np.roll(weight, 1, axis=0))


@in_weights(layers("PReLU"), causes=("prelu_initial",))
def prelu_not_loaded(place: ModelPlace) -> None:
    """The slope of a PReLU is left at 0.25."""
    place.set_value("_weight", lambda weight: np.full_like(weight, 0.25))


@in_weights(layers(CONVOLUTION, lambda facts: facts.layer._groups > 1), causes=("output_channels_permuted",))
def grouped_conv_outputs_shifted(place: ModelPlace) -> None:
    """The filters of a grouped (or depthwise) convolution belong to the group beside."""
    place.set_value("weight", lambda weight: np.roll(weight, weight.shape[0] // place.layer._groups, axis=0))
