"""Functions that have one name and two meanings, and what precision and unloaded parameters do."""

from collections.abc import Iterator, Sequence
from typing import Any

from twinalign.backends.torch.reference_only.operations import ENTRY, GRADIENT_MODE, LAYER, UNIT, FunctionCall, Site
from twinalign.causes.layers.changed_calls import (
    Changes,
    as_change,
    enter_edits,
    forward,
    names_in,
    nested,
    rounded,
    stored,
    through_type,
    where_used,
)
from twinalign.causes.layers.subject import CallVariant, LayerSubject
from twinalign.causes.layers.ways import made

_DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
_WITH_INDICES = ("max", "min", "median", "sort", "topk", "kthvalue", "mode")
PRECISIONS = ("float16", "bfloat16", "float32", "int64")
_MOST_PLACES = 40
_IN_PLACE = ("add", "sub", "mul", "div", "clamp", "relu", "copy", "fill", "zero", "setitem", "masked_fill")


def _scaled_at_the_other_time(site: Site, subject: LayerSubject) -> Changes:
    for p in dict.fromkeys((site.get("p", 0.5), subject.port_numbers.get("p", site.get("p", 0.5)))):
        yield f"by 1 - {p:g}", lambda call, kept=1.0 - p: call.result * kept


@forward(
    sites=lambda subject: [s for s in subject.sites if s.output.floating and s.name != GRADIENT_MODE][:_MOST_PLACES],
    difference="amp_lists",
    rank=3,
)
def low_precision(site: Site) -> Changes:
    """Values pass through a lower precision."""
    # Either a cast in the code, or a layer that was left in another dtype.
    names = {LAYER: site.get("path", ""), UNIT: "the unit", ENTRY: "the input"}
    for precision in PRECISIONS:
        yield f"{precision} behind {names.get(site.name, site.name)}", through_type(precision)
        if site.parameter("weight"):
            yield f"the weight of {site.name} in {precision}", _rounded_weights(precision)


@as_change
def _rounded_weights(call: FunctionCall, precision: str) -> Any:
    return call.run(**{n: rounded(call, call[n], precision) for n in ("weight", "bias") if call.get(n) is not None})


@forward(difference="set_state_dict_not_strict", rank=5)
def parameter_initial(subject: LayerSubject) -> Iterator[CallVariant]:
    """A parameter was not loaded."""
    # A key that did not match leaves a parameter at its initial zeros or ones.
    names = {name for site in subject.sites for value in site.arguments.values() for name in names_in(value)}
    for name in sorted(names):
        for value in (0.0, 1.0):
            filled = stored(lambda tensor, value=value: tensor * 0.0 + value)
            yield subject.variant(f"{name} is {value:g} everywhere", where_used(subject, {name}, filled))


def _parts_for_size(site: Site, subject: LayerSubject) -> Changes:
    number = site.get("split_size" if site.name == "split" else "chunks")
    function = "chunk" if site.name == "split" else "split"
    if isinstance(number, int):
        yield "", lambda call: getattr(call["input"], function)(number, call.get("dim", 0))


def _scattered_rows(call: FunctionCall) -> Any:
    index = call["index"]
    return index if index.dim() == 1 else index.select(1, 0)


def _zeroed_before(call: FunctionCall) -> Any:
    rows = _scattered_rows(call)
    return call["input"].index_fill(0, rows, 0.0).index_add(0, rows, call.get("source"))


def _norm_along_others(site: Site, subject: LayerSubject) -> Changes:
    alone = [value for name, value in subject.weights_alone().items() if name.endswith("_g")]
    rank, now = len(site.shape()), site.get("2", 0)
    for axis in [axis for axis in (*range(rank), None) if axis != (None if now == -1 else now % rank)]:
        for lengths in (*alone, None):
            where = ["all entries" if at in (None, -1) else f"axis {at}" for at in (axis, now)]
            yield f"one length for {where[0]} in place of {where[1]} of its weight", _norm_along(axis, lengths)


@as_change
def _norm_along(call: FunctionCall, axis: int | None, lengths: Any) -> Any:
    directions, lengths = call["input"], call["1"] if lengths is None else lengths
    sizes = [-1 if at == axis else 1 for at in range(directions.dim())]
    norms = directions.square().sum([at for at in range(directions.dim()) if at != axis], keepdim=True).sqrt()
    return directions / (norms + 1e-12 * (axis is None)) * lengths.reshape(sizes)  # as paddle has it


def _mean_of_the_middle(call: FunctionCall) -> Any:
    if (dim := call.get("1")) is None:
        return call["input"].quantile(0.5)
    return type(call.result)((call["input"].quantile(0.5, dim), call.result[1]))


enter_edits("forward", (
    # The mode downscale_in_infer of old paddle code scales in evaluation, not in training.
    ("dropout_mode", "dropout scales at the other time (downscale_in_infer)", _DROPOUTS, _scaled_at_the_other_time,
     {"difference": "dropout_mode"}),
    # torch.split takes the size of a part, paddle.split the number of parts.
    ("split_sections", "a number is used as the number of parts, but it is their size, or the other way round",
     ("split", "chunk"), _parts_for_size, {"difference": "split_semantics"}),
    # dim=0 of paddle's [in, out] weight is the axis of the inputs.
    ("weight_norm_axis", "weight normalisation runs along another axis of the reference's weight", ("weight_norm",),
     _norm_along_others, {"difference": "weight_norm_names"}),
    ("median_between", "the median of an even number of values is the mean of the two in the middle", ("median",),
     made({"": _mean_of_the_middle}), {"difference": "median_even"}),
    # `x += 1` makes a new tensor in paddle, so other names for the old one keep the old values.
    ("in_place_lost", "a change in place does not reach the tensor that is used elsewhere", _IN_PLACE,
     made({"": lambda call: call.apart()}), {"difference": "inplace_ops", "rank": 2}),
    # paddle.gather picks whole rows, as index_select does.
    ("gather_rows", "gather picks whole rows, not elements", ("gather", "take_along_dim"),
     made({"": lambda call: call["input"].index_select(call["dim"], call["index"].reshape(-1))}),
     {"difference": "gather_semantics"}),
    # paddle.scatter overwrites rows, or zeroes them before it adds.
    ("scatter_rows", "scatter overwrites whole rows, or zeroes them before it adds",
     ("scatter", "scatter_add", "index_add", "index_copy"),
     made({"zeroed, then added to": _zeroed_before, "overwritten": lambda call: call["input"].index_copy(
         0, _scattered_rows(call), call.get("source"))}), {"difference": "scatter_semantics"}),
    # paddle.norm over two axes is that of a matrix, by default the greatest singular value.
    ("norm_of_matrix", "the norm over two axes is the matrix's greatest singular value, not that of its elements",
     ("norm", "vector_norm"),
     made({"": lambda call: call.torch.linalg.matrix_norm(call["input"], 2, tuple(call["dim"])).reshape(
         call.result.shape)}, lambda site: isinstance(axes := site.get("dim"), Sequence) and len(axes) == 2), {}),
    # Parts of a split are views in torch and copies in paddle.
    ("split_copied",
     "the parts of a split tensor, or an expanded one, are copies: changing them leaves the whole as it was",
     ("chunk", "split", "expand"), made({"": lambda call: nested(call.result, lambda part: part.clone())}),
     {"difference": "views_vs_copies"}),
    # x.max(axis) returns the values alone in paddle, so `[0]` takes their first row.
    ("maximum_first_row", "the first row of the values is used in place of the values", _WITH_INDICES,
     made({"": lambda call: type(call.result)((call.result[0][0], call.result[1]))}),
     {"difference": "max_reduction_returns"}),
))  # fmt: skip
