"""Weights that were converted, loaded or laid out wrongly."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from twinalign.planted_faults.case_contents import CaseContents, LayerFacts
from twinalign.planted_faults.catalogue import Registration, in_weights
from twinalign.planted_faults.fault_sites import ModelSite, handed_to
from twinalign.planted_faults.where_to_plant import Find, in_evaluation, layers, middle

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
    return middle(lambda facts: _own_parameter(name, facts.layer, tokens))


def _value(fault: str, name: str, find: Find, *causes: str) -> Registration:
    """A fault whose function changes a parameter or buffer of the layer, given and returned as a numpy array."""
    return in_weights(find, *causes, id=fault, how=handed_to(ModelSite.set_value, name))


_SQUARE = layers("Linear", _is_square)
_WIDE = layers("Linear", lambda facts: facts.layer.weight.shape[1] > 1)
_BIASED = layers("Linear|Conv2D", has_bias)
_BIASED_WIDE = layers("Linear|Conv2D", lambda facts: has_bias(facts) and facts.layer.bias.shape[0] > 1)
_WINDOW = layers(CONVOLUTION, lambda facts: max(_kernel(facts)) > 1)
_SQUARE_WINDOW = layers(CONVOLUTION, lambda facts: _kernel(facts)[0] == _kernel(facts)[1] > 1)
_OF_COLOURS = layers(CONVOLUTION, lambda facts: facts.layer.weight.shape[1] == 3)
_GROUPED = layers(CONVOLUTION, lambda facts: facts.layer._groups > 1)
_AFFINE = layers(NORMALISATION, lambda facts: facts.layer.weight is not None)
_AFFINE_BIASED = layers(NORMALISATION, lambda facts: facts.layer.weight is not None and has_bias(facts))

_value("square_linear_transposed", "weight", _SQUARE, "weight_transposed").add(
    "A square Linear keeps torch's layout: its weight is not transposed", np.transpose
)
_value("linear_outputs_permuted", "weight", _WIDE, "output_channels_permuted").add(
    "The output features of a Linear are rolled by one", lambda weight: np.roll(weight, 1, axis=1)
)
_value("bias_not_loaded", "bias", _BIASED, "bias_missing").add("A bias is left at zero", np.zeros_like)
_value("bias_permuted", "bias", _BIASED_WIDE, "bias_permuted").add(
    "The elements of a bias are rolled by one", lambda bias: np.roll(bias, 1)
)
_value("conv_outputs_permuted", "weight", layers(CONVOLUTION), "output_channels_permuted").add(
    "The output channels of a convolution are rolled by one", lambda weight: np.roll(weight, 1, axis=0)
)
_value("conv_kernel_flipped", "weight", _WINDOW, "kernel_flipped").add(
    "The kernel of a convolution is flipped: it convolves where it should correlate",
    lambda weight: weight[:, :, ::-1, ::-1],
)
_value("conv_kernel_transposed", "weight", _SQUARE_WINDOW, "kernel_transposed").add(
    "Height and width of a convolution's kernel are exchanged", lambda weight: weight.swapaxes(2, 3)
)
_value("first_conv_reads_bgr", "weight", _OF_COLOURS, "input_channels_permuted").add(
    "The first convolution takes the colours in the order blue, green, red", lambda weight: weight[:, ::-1]
)


def _exchange(site: ModelSite, *names: str) -> None:
    first, second = (getattr(site.layer, name).numpy().copy() for name in names)
    site.set_value(names[0], lambda _: second)
    site.set_value(names[1], lambda _: first)


in_weights(_AFFINE, "norm_affine_swapped", id="norm_scale_and_offset_exchanged").add(
    "Scale and offset of a normalisation are exchanged", lambda site: _exchange(site, "weight", "bias")
)
_value("norm_scale_not_loaded", "weight", _AFFINE, "norm_weight_missing").add(
    "The scale of a normalisation is left at one", np.ones_like
)
_value("norm_offset_not_loaded", "bias", _AFFINE_BIASED, "bias_missing").add(
    "The offset of a normalisation is left at zero", np.zeros_like
)
in_weights(layers(BATCH_NORM), "running_statistics_swapped", id="running_statistics_exchanged").add(
    "Running mean and running variance of a batch norm are exchanged",
    lambda site: _exchange(site, "_mean", "_variance"),
)


@in_weights(layers(BATCH_NORM), "running_statistics_initial")
def running_statistics_not_loaded(site: ModelSite) -> None:
    """The running statistics of a batch norm are left at 0 and 1."""
    site.set_value("_mean", np.zeros_like)
    site.set_value("_variance", np.ones_like)


@in_weights(layers("Linear", _packs_three), "qkv_order")
def qkv_in_another_order(site: ModelSite) -> None:
    """The stacked projection holds keys, queries and values in this order."""

    def reorder(array: np.ndarray) -> np.ndarray:
        query, key, value = np.split(array, 3, axis=-1)
        return np.concatenate([key, query, value], axis=-1)

    site.set_value("weight", reorder)
    if site.layer.bias is not None:
        site.set_value("bias", reorder)


def _heads(contents: CaseContents, path: str) -> int:
    parent = contents.layers[path.rpartition(".")[0]].layer
    return next((getattr(parent, name) for name in ("num_heads", "heads", "nhead") if hasattr(parent, name)), 1)


def _packed_by_heads(contents: CaseContents) -> str | None:
    path = layers("Linear", _packs_three)(contents)
    return path if path is not None and _heads(contents, path) > 1 else None


@in_weights(_packed_by_heads, "heads_order", "qkv_order", "split_interleaved")
def qkv_heads_first(site: ModelSite) -> None:
    """The stacked projection holds q, k, v head by head and not all heads of each."""
    parent = next(layer for layer in site.model.sublayers() if any(below is site.layer for below in layer.children()))
    heads = next(getattr(parent, name) for name in ("num_heads", "heads", "nhead") if hasattr(parent, name))

    def interleave(array: np.ndarray) -> np.ndarray:
        parts = array.reshape(*array.shape[:-1], 3, heads, -1)
        return np.ascontiguousarray(np.swapaxes(parts, -3, -2)).reshape(array.shape)

    site.set_value("weight", interleave)
    if site.layer.bias is not None:
        site.set_value("bias", interleave)


def _own(fault: str, name: str, tokens: bool, cause: str) -> Registration:
    """A fault whose function changes the layer's own parameter of which `_own_parameter` gives the name."""

    def set_value(site: ModelSite, change: Callable[[np.ndarray], np.ndarray]) -> None:
        site.set_value(_own_parameter(name, site.layer, tokens) or "", change)

    return in_weights(owners(name, tokens), cause, id=fault, how=handed_to(set_value))


_own("position_embedding_shifted", "pos", True, "position_embedding_shifted").add(
    "The position embedding is shifted by one token", lambda value: np.roll(value, 1, axis=1)
)


@_own("", "pos", True, "position_embedding_grid")
def position_embedding_transposed(value: np.ndarray) -> np.ndarray:
    """Rows and columns of the position embedding's grid are exchanged."""
    side = math.isqrt(value.shape[1])
    extra = value.shape[1] - side**2
    grid = value[:, extra:].reshape(1, side, side, -1).swapaxes(1, 2).reshape(1, side**2, -1)
    return np.concatenate([value[:, :extra], grid], axis=1)


_own("class_token_not_loaded", "cls", False, "parameter_initial").add("The class token is left at zero", np.zeros_like)
_value("embedding_rows_shifted", "weight", layers("Embedding"), "embedding_index_shifted").add(
    "The rows of an embedding are off by one", lambda weight: np.roll(weight, 1, axis=0)
)
_value("prelu_not_loaded", "_weight", layers("PReLU"), "prelu_initial").add(
    "The slope of a PReLU is left at 0.25", lambda weight: np.full_like(weight, 0.25)
)
in_weights(_GROUPED, "output_channels_permuted", id="grouped_conv_outputs_shifted").add(
    "The filters of a grouped (or depthwise) convolution belong to the group beside",
    lambda site: site.set_value("weight", lambda value: np.roll(value, len(value) // site.layer._groups, axis=0)),
)
_value("norm_scale_relative_to_one", "weight", _AFFINE, "norm_weight_offset").add(
    "The scale of a normalisation is taken relative to one: one is added to it", lambda weight: weight + 1
)
_value("running_variance_holds_deviation", "_variance", in_evaluation(layers(BATCH_NORM)), "running_variance_form").add(
    "The running variance of a batch norm holds the standard deviation", np.sqrt
)
