"""Convolutions, pooling and resizing that compute something else."""

from typing import Any

from twinalign.planted_faults.case_contents import LayerFacts
from twinalign.planted_faults.catalogue import in_forward
from twinalign.planted_faults.fault_sites import ModelSite, Original, set_attributes, through
from twinalign.planted_faults.faults.weights import CONVOLUTION, has_bias
from twinalign.planted_faults.where_to_plant import layers, of_own_call, own_code


def _padding(layer: Any) -> int:
    """The padding of a convolution where it is the same number on all sides, else 0."""
    values = layer._padding if isinstance(layer._padding, (list, tuple)) else [layer._padding]
    same = all(isinstance(value, int) for value in values) and len(set(values)) == 1
    return int(values[0]) if same and layer._padding_mode == "zeros" else 0


def _padded(facts: LayerFacts) -> bool:
    return _padding(facts.layer) > 0 and min(facts.shape[2:]) > _padding(facts.layer)


def _pad_as(site: ModelSite, mode: str) -> None:
    by = [_padding(site.layer)] * 4
    site.layer._updated_padding = [0, 0]
    site.input(lambda x: site.paddle.nn.functional.pad(x, by, mode=mode))


in_forward(layers(CONVOLUTION, _padded), "padding_mode", id="conv_pads_by_reflection").add(
    "A convolution pads by reflection", lambda site: _pad_as(site, "reflect")
)
in_forward(layers(CONVOLUTION, _padded), "padding_mode", id="conv_pads_by_repetition").add(
    "A convolution pads by repeating the border", lambda site: _pad_as(site, "replicate")
)


def _is_halving(facts: LayerFacts) -> bool:
    layer = facts.layer
    kernel, stride = layer._kernel_size, layer._stride
    centred = all(size == 2 * _padding(layer) + 1 for size in kernel)
    return _padded(facts) and centred and set(stride) == {2} and all(size % 2 == 0 for size in facts.shape[2:])


@in_forward(layers(CONVOLUTION, _is_halving), "padding_same")
def conv_pads_one_side(site: ModelSite) -> None:
    """A strided convolution pads one pixel less before than after, as padding "SAME" does."""
    by = _padding(site.layer)
    site.layer._updated_padding = [by - 1, by, by - 1, by]


def _is_plain_three(facts: LayerFacts) -> bool:
    layer = facts.layer
    plain = _padding(layer) == 1 and set(layer._kernel_size) == {3} and set(layer._dilation) == {1}
    return plain and min(facts.shape[2:]) > 2


in_forward(layers(CONVOLUTION, _is_plain_three), "window_dilation", id="conv_dilated").add(
    "A 3x3 convolution has the dilation 2, and padding to match",
    set_attributes(_dilation=[2, 2], _updated_padding=[2, 2]),
)
in_forward(layers(CONVOLUTION, has_bias), "bias_missing", id="conv_bias_forgotten").add(
    "A convolution does not add its bias",
    lambda site: site.output(lambda output: output - site.layer.bias.reshape([1, -1, 1, 1])),
)


@in_forward(own_code("max_pool2d"), "pool_kind")
@through(ModelSite.function, "max_pool2d")
def average_for_max_pool(site: ModelSite, original: Original, x: Any, *arguments: Any, **keywords: Any) -> Any:
    """Average pooling is used in place of max pooling."""
    return site.paddle.nn.functional.avg_pool2d(x, site.layer.ksize, site.layer.stride, site.layer.padding)


def _pool_halves(facts: LayerFacts) -> bool:
    layer = facts.layer
    values = [layer.ksize, layer.stride, layer.padding]
    return values == [3, 2, 1] and all(size % 2 == 0 for size in facts.shape[2:])


@in_forward(layers("MaxPool2D", _pool_halves), "padding_same")
@through(ModelSite.function, "max_pool2d")
def max_pool_pads_one_side(site: ModelSite, original: Original, x: Any, *arguments: Any, **keywords: Any) -> Any:
    """Max pooling pads after the image only, as padding "SAME" does."""
    padded = site.paddle.nn.functional.pad(x, [0, 1, 0, 1], value=-1e30)
    return original(padded, kernel_size=3, stride=2, padding=0)


def _average_pads(facts: LayerFacts) -> bool:
    return facts.layer.padding not in (0, [0, 0], (0, 0)) and isinstance(facts.layer.padding, int)


@in_forward(layers("AvgPool2D", _average_pads), "pool_padding_counted")
def average_pool_counts_otherwise(site: ModelSite) -> None:
    """Average pooling counts the padding, or leaves it out, against the reference."""
    site.layer.exclusive = not site.layer.exclusive


@in_forward(own_code("adaptive_avg_pool2d"), "pool_kind", "reduction_kind")
@through(ModelSite.function, "adaptive_avg_pool2d")
def global_pool_takes_maximum(site: ModelSite, original: Original, x: Any, output_size: Any, *_: Any, **__: Any) -> Any:
    """Global pooling takes the maximum for the mean."""
    return site.paddle.nn.functional.adaptive_max_pool2d(x, output_size)


def _is_image(facts: LayerFacts) -> bool:
    return len(facts.shape) == 4


of_own_call("mean_takes_maximum", "mean", "reduction_kind", "pool_kind", such=_is_image).add(
    "The mean over positions is the maximum",
    lambda original, x, axis=None, keepdim=False: x.max(axis=axis, keepdim=keepdim),
)
of_own_call("mean_is_a_sum", "mean", "reduction_kind", "output_scaled", "pool_divisor", such=_is_image).add(
    "The mean over positions is a sum", lambda original, x, axis=None, keepdim=False: x.sum(axis=axis, keepdim=keepdim)
)


@of_own_call("", "interpolate", "interpolate_align_corners")
def interpolation_aligns_corners(original: Original, *arguments: Any, **keywords: Any) -> Any:
    """Interpolation aligns corners, or does not, against the reference."""
    keywords["align_corners"] = not keywords.get("align_corners", False)
    return original(*arguments, **keywords)


of_own_call("interpolation_takes_nearest", "interpolate", "interpolate_mode").add(
    "Interpolation takes the nearest pixel",
    lambda original, *arguments, **given: original(*arguments, **{**given, "mode": "nearest", "align_corners": False}),
)


def _flattens_an_image(facts: LayerFacts) -> bool:
    return len(facts.shape) == 4 and len(facts.returned) == 3


@in_forward(own_code("flatten", such=_flattens_an_image), "flatten_order", "axes_order")
@through(ModelSite.function, "flatten")
def flattened_by_columns(site: ModelSite, original: Original, x: Any, *arguments: Any, **keywords: Any) -> Any:
    """Positions are flattened column by column."""
    return original(x.transpose([0, 1, 3, 2]) if len(x.shape) == 4 else x, *arguments, **keywords)
