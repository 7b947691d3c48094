"""Functions that have one name and two meanings, and what precision and unloaded parameters do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from twinalign.explain.calls import ENTRY, GRADIENT_MODE, LAYER, UNIT, Call, Change, Site, TensorFacts
from twinalign.explain.registry import Hypothesis, register
from twinalign.explain.rewrite import Rewrite, any_of, stored
from twinalign.explain.subject import CallVariant, LayerSubject

PRECISIONS = ("float16", "bfloat16", "float32")
_MOST_PLACES = 40


@register
class LowPrecision(Rewrite):
    """A cast in the code, or a layer that was left in another dtype."""

    id = "low_precision"
    phase = "forward"
    text = "values pass through a lower precision"
    difference = "amp_lists"
    rank = 3

    def sites(self, subject: LayerSubject) -> list[Site]:
        """Every call that returns numbers."""
        return [site for site in subject.sites if site.output.floating and site.name != GRADIENT_MODE][:_MOST_PLACES]

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """What a call returns, or its weights."""
        names = {LAYER: site.get("path", ""), UNIT: "the unit", ENTRY: "the input"}
        for precision in PRECISIONS:
            yield f"{precision} behind {names.get(site.name, site.name)}", _through(precision)
            if site.parameter("weight"):
                yield f"the weight of {site.name} in {precision}", _weights_in(precision)


def _through(precision: str) -> Change:
    return lambda call: _rounded(call, call.result, precision)


def _weights_in(precision: str) -> Change:
    def change(call: Call) -> Any:
        given = {name: call[name] for name in ("weight", "bias") if call.get(name) is not None}
        return call.run(**{name: _rounded(call, value, precision) for name, value in given.items()})

    return change


def _rounded(call: Call, value: Any, precision: str) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(_rounded(call, item, precision) for item in value)
    return value.to(getattr(call.torch, precision)).to(value.dtype) if value.is_floating_point() else value


@register
class ParameterInitial(Hypothesis):
    """A key that did not match leaves a parameter at the zeros or ones that it was made with."""

    id = "parameter_initial"
    phase = "forward"
    text = "a parameter was not loaded"
    difference = "set_state_dict_not_strict"
    rank = 5

    def variants(self, subject: LayerSubject) -> Iterator[CallVariant]:
        """Each parameter or buffer that the unit's calls take, zero or one everywhere."""
        names = {name for site in subject.sites for value in site.arguments.values() for name in _names(value)}
        for name in sorted(names):
            for value in (0.0, 1.0):
                changes = {
                    site.key: _filled(
                        [key for key, given in site.arguments.items() if name in _names(given)], name, value
                    )
                    for site in subject.sites
                    if any(name in _names(given) for given in site.arguments.values())
                }
                yield subject.variant(f"{name} is {value:g} everywhere", changes)


def _names(value: Any) -> list[str]:
    if isinstance(value, (tuple, list)):
        return [name for item in value for name in _names(item)]
    return [value.name] if isinstance(value, TensorFacts) and value.name is not None else []


def _filled(arguments: Sequence[str], name: str, number: float) -> Change:
    def filled(call: Call, value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return [filled(call, item) for item in value]
        return stored(lambda tensor: tensor * 0.0 + number)(value) if call.name_of(value) == name else value

    return lambda call: call.run(**{key: filled(call, call[key]) for key in arguments})


@register
class InPlaceLost(Rewrite):
    """x += 1 makes a new tensor in paddle, and parts of a split are copies: what else holds the old one keeps it."""

    id = "in_place_lost"
    phase = "forward"
    text = "a change in place does not reach the tensor that is used elsewhere"
    difference = "inplace_ops"
    functions = ("add", "sub", "mul", "div", "clamp", "relu", "copy", "fill", "zero", "setitem", "masked_fill")
    rank = 2
    ways = any_of({"": lambda call: call.apart()})


@register
class SplitCopied(Rewrite):
    """Parts of a split are views in torch and copies in paddle."""

    id = "split_copied"
    phase = "forward"
    text = "the parts of a split tensor, or an expanded one, are copies: changing them leaves the whole as it was"
    difference = "views_vs_copies"
    functions = ("chunk", "split", "expand")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Cloned."""
        if site.name == "expand":
            yield "", lambda call: call.result.clone()
        else:
            yield "", lambda call: tuple(part.clone() for part in call.result)


@register
class SplitSections(Rewrite):
    """torch.split takes the size of a part, paddle.split the number of parts."""

    id = "split_sections"
    phase = "forward"
    text = "a number is taken for that of the parts, where it is their size, or the other way round"
    difference = "split_semantics"
    functions = ("split", "chunk")

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """Where there is one number."""
        number = site.get("split_size" if site.name == "split" else "chunks")
        if isinstance(number, int):
            function = "chunk" if site.name == "split" else "split"
            yield "", lambda call: getattr(call["input"], function)(number, call.get("dim", 0))


@register
class GatherRows(Rewrite):
    """paddle.gather picks whole rows, as index_select does."""

    id = "gather_rows"
    phase = "forward"
    text = "gather picks whole rows, not elements"
    difference = "gather_semantics"
    functions = ("gather", "take_along_dim")
    ways = any_of({"": lambda call: call["input"].index_select(call["dim"], call["index"].reshape(-1))})


@register
class ScatterZeroes(Rewrite):
    """paddle.scatter overwrites rows, or zeroes them before it adds."""

    id = "scatter_rows"
    phase = "forward"
    text = "scatter overwrites whole rows, or zeroes them before it adds"
    difference = "scatter_semantics"
    functions = ("scatter", "scatter_add", "index_add", "index_copy")
    ways = any_of(
        {
            "zeroed, then added to": lambda call: _zeroed(call).index_add(0, _rows(call), _source(call)),
            "overwritten": lambda call: call["input"].index_copy(0, _rows(call), _source(call)),
        }
    )


def _rows(call: Call) -> Any:
    index = call["index"]
    return index if index.dim() == 1 else index.select(1, 0)


def _source(call: Call) -> Any:
    return call.get("source")


def _zeroed(call: Call) -> Any:
    return call["input"].index_fill(0, _rows(call), 0.0)


@register
class MaximumFirstRow(Rewrite):
    """x.max(axis) returns values alone in paddle: [0] takes their first row."""

    id = "maximum_first_row"
    phase = "forward"
    text = "the first row of the values is taken where the values are meant"
    difference = "max_reduction_returns"
    functions = ("max", "min", "median", "sort", "topk", "kthvalue", "mode")
    ways = any_of({"": lambda call: type(call.result)((call.result[0][0], call.result[1]))})


@register
class CumulativeFlattened(Rewrite):
    """Without an axis paddle's cumsum flattens."""

    id = "cumulative_flattened"
    phase = "forward"
    text = "a cumulative sum runs over the flattened tensor"
    difference = "cumsum_axis_none"
    functions = ("cumsum", "cumprod", "logcumsumexp")
    ways = any_of(
        {
            "": lambda call: call.run(input=call["input"].flatten(), dim=0),
            "back in its shape": lambda call: call.run(input=call["input"].flatten(), dim=0).reshape(
                call["input"].shape
            ),
        }
    )


@register
class WeightNormAxis(Rewrite):
    """dim=0 of paddle's [in, out] weight is the axis of the inputs."""

    id = "weight_norm_axis"
    phase = "forward"
    text = "weight normalisation runs along the other axis of the weight"
    difference = "weight_norm_names"
    functions = ("weight_norm",)
    ways = any_of({"": lambda call: _normalised_columns(call)})


def _normalised_columns(call: Call) -> Any:
    directions, lengths = call["input"], call["1"]
    other = 1 - call.get("2", 0)
    axes = tuple(axis for axis in range(directions.dim()) if axis != other)
    sizes = [1] * directions.dim()
    sizes[other] = -1
    return directions / directions.norm(dim=axes, keepdim=True) * lengths.reshape(sizes)


@register
class MedianBetween(Rewrite):
    """Of an even number paddle's median is the mean of both in the middle."""

    id = "median_between"
    phase = "forward"
    text = "the median of an even number of values is the mean of the two in the middle"
    difference = "median_even"
    functions = ("median",)
    ways = any_of({"": lambda call: _median(call)})


def _median(call: Call) -> Any:
    dim = call.get("1")
    if dim is None:
        return call["input"].quantile(0.5)
    return type(call.result)((call["input"].quantile(0.5, dim), call.result[1]))
