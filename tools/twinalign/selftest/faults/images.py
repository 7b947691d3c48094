"""Convolutions, pooling and resizing that compute something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twinalign.selftest.catalogue import in_model
from twinalign.selftest.faults.weights import CONVOLUTION, has_bias
from twinalign.selftest.places import ModelPlace, layers, own_code
from twinalign.selftest.survey import LayerFacts


def _padding(layer: Any) -> int:
    """The padding of a convolution where it is the same number on all sides, else 0."""
    values = layer._padding if isinstance(layer._padding, (list, tuple)) else [layer._padding]
    same = all(isinstance(value, int) for value in values) and len(set(values)) == 1
    return int(values[0]) if same and layer._padding_mode == "zeros" else 0


def _padded(facts: LayerFacts) -> bool:
    return _padding(facts.layer) > 0 and min(facts.shape[2:]) > _padding(facts.layer)


def _pad_as(place: ModelPlace, mode: str) -> None:
    by = [_padding(place.layer)] * 4
    place.layer._updated_padding = [0, 0]
    place.input(lambda x: place.paddle.nn.functional.pad(x, by, mode=mode))


@in_model("forward", layers(CONVOLUTION, _padded), causes=("padding_mode",))
def conv_pads_by_reflection(place: ModelPlace) -> None:
    """A convolution pads by reflection."""
    _pad_as(place, "reflect")


@in_model("forward", layers(CONVOLUTION, _padded), causes=("padding_mode",))
def conv_pads_by_repetition(place: ModelPlace) -> None:
    """A convolution pads by repeating the border."""
    _pad_as(place, "replicate")


def _is_halving(facts: LayerFacts) -> bool:
    layer = facts.layer
    kernel, stride = layer._kernel_size, layer._stride
    centred = all(size == 2 * _padding(layer) + 1 for size in kernel)
    return _padded(facts) and centred and set(stride) == {2} and all(size % 2 == 0 for size in facts.shape[2:])


@in_model("forward", layers(CONVOLUTION, _is_halving), causes=("padding_same",))
def conv_pads_one_side(place: ModelPlace) -> None:
    """A strided convolution pads one pixel less before than after, as padding "SAME" does."""
    by = _padding(place.layer)
    place.layer._updated_padding = [by - 1, by, by - 1, by]


def _is_plain_three(facts: LayerFacts) -> bool:
    layer = facts.layer
    plain = _padding(layer) == 1 and set(layer._kernel_size) == {3} and set(layer._dilation) == {1}
    return plain and min(facts.shape[2:]) > 2


@in_model("forward", layers(CONVOLUTION, _is_plain_three), causes=("window_dilation",))
def conv_dilated(place: ModelPlace) -> None:
    """A 3x3 convolution has the dilation 2, and padding to match."""
    place.layer._dilation = [2, 2]
    place.layer._updated_padding = [2, 2]


@in_model("forward", layers(CONVOLUTION, has_bias), causes=("bias_missing",))
def conv_bias_forgotten(place: ModelPlace) -> None:
    """A convolution does not add its bias."""
    place.output(lambda output: output - place.layer.bias.reshape([1, -1, 1, 1]))


@in_model("forward", own_code("max_pool2d"), causes=("pool_kind",))
def average_for_max_pool(place: ModelPlace) -> None:
    """Average pooling stands where max pooling should."""

    def pool(original: Callable[..., Any], x: Any, *arguments: Any, **keywords: Any) -> Any:
        return place.paddle.nn.functional.avg_pool2d(x, place.layer.ksize, place.layer.stride, place.layer.padding)

    place.function("max_pool2d", pool)


def _pool_halves(facts: LayerFacts) -> bool:
    layer = facts.layer
    values = [layer.ksize, layer.stride, layer.padding]
    return values == [3, 2, 1] and all(size % 2 == 0 for size in facts.shape[2:])


@in_model("forward", layers("MaxPool2D", _pool_halves), causes=("padding_same",))
def max_pool_pads_one_side(place: ModelPlace) -> None:
    """Max pooling pads after the image only, as padding "SAME" does."""

    def pool(original: Callable[..., Any], x: Any, *arguments: Any, **keywords: Any) -> Any:
        padded = place.paddle.nn.functional.pad(x, [0, 1, 0, 1], value=-1e30)
        return original(padded, kernel_size=3, stride=2, padding=0)

    place.function("max_pool2d", pool)


def _average_pads(facts: LayerFacts) -> bool:
    return facts.layer.padding not in (0, [0, 0], (0, 0)) and isinstance(facts.layer.padding, int)


@in_model("forward", layers("AvgPool2D", _average_pads), causes=("pool_padding_counted",))
def average_pool_counts_otherwise(place: ModelPlace) -> None:
    """Average pooling counts the padding, or leaves it out, against the reference."""
    place.layer.exclusive = not place.layer.exclusive


@in_model("forward", own_code("adaptive_avg_pool2d"), causes=("pool_kind", "reduction_kind"))
def global_pool_takes_maximum(place: ModelPlace) -> None:
    """Global pooling takes the maximum for the mean."""
    functional = place.paddle.nn.functional
    place.function(
        "adaptive_avg_pool2d",
        lambda original, x, output_size, *_, **__: functional.adaptive_max_pool2d(x, output_size),
    )


@in_model("forward", own_code("mean", such=lambda f: len(f.shape) == 4), causes=("reduction_kind", "pool_kind"))
def mean_takes_maximum(place: ModelPlace) -> None:
    """The mean over positions is the maximum."""
    place.function("mean", lambda original, x, axis=None, keepdim=False: x.max(axis=axis, keepdim=keepdim))


@in_model(
    "forward",
    own_code("mean", such=lambda f: len(f.shape) == 4),
    causes=("reduction_kind", "output_scaled", "pool_divisor"),
)
def mean_is_a_sum(place: ModelPlace) -> None:
    """The mean over positions is a sum."""
    place.function("mean", lambda original, x, axis=None, keepdim=False: x.sum(axis=axis, keepdim=keepdim))


@in_model("forward", own_code("interpolate"), causes=("interpolate_align_corners",))
def interpolation_aligns_corners(place: ModelPlace) -> None:
    """Interpolation aligns corners, or does not, against the reference."""

    def resize(original: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        keywords["align_corners"] = not keywords.get("align_corners", False)
        return original(*arguments, **keywords)

    place.function("interpolate", resize)


@in_model("forward", own_code("interpolate"), causes=("interpolate_mode",))
def interpolation_takes_nearest(place: ModelPlace) -> None:
    """Interpolation takes the nearest pixel."""

    def resize(original: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        return original(*arguments, **{**keywords, "mode": "nearest", "align_corners": False})

    place.function("interpolate", resize)


def _flattens_an_image(facts: LayerFacts) -> bool:
    return len(facts.shape) == 4 and len(facts.returned) == 3


@in_model("forward", own_code("flatten", such=_flattens_an_image), causes=("flatten_order", "axes_order"))
def flattened_by_columns(place: ModelPlace) -> None:
    """Positions are flattened column by column."""

    def flatten(original: Callable[..., Any], x: Any, *arguments: Any, **keywords: Any) -> Any:
        return original(x.transpose([0, 1, 3, 2]) if len(x.shape) == 4 else x, *arguments, **keywords)

    place.function("flatten", flatten)
