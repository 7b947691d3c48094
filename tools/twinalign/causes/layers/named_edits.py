"""Edits of one call that have a name: in which calls, what is done otherwise, and how users are told."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twinalign.backends.torch.reference_only.operations import LAYER, UNIT, Change, FunctionCall, Site
from twinalign.causes.layers.activation import ACTIVATIONS, activation_of
from twinalign.causes.layers.changed_calls import Changes, as_change, called, changing, enter_edit, nested
from twinalign.causes.layers.combining import is_residual, learned, other_operand
from twinalign.causes.layers.convolution import POOLS, WINDOWED, padded_as_same, window
from twinalign.causes.layers.frameworks import scattered_rows, zeroed_before
from twinalign.causes.layers.generic import constant_of, operands, tensor_operand
from twinalign.causes.layers.linear import CONVOLUTIONS, WEIGHTED, both_ways
from twinalign.causes.layers.loss import CLASSES, SIMPLE, over_batch, smoothed_further, weighted_rows
from twinalign.causes.layers.normalisation import (
    EPSILONS,
    LENGTHS,
    NORMS,
    STATISTICS,
    initial,
    initial_values,
    is_small,
    kept,
    moved_on,
    standardised,
)
from twinalign.causes.layers.recurrent import RECURRENT, biases_scaled, other_layout, reversed_sequence
from twinalign.causes.layers.resizing import SMOOTH
from twinalign.causes.layers.subject import LayerSubject

Ways = Callable[[Site, LayerSubject], Changes]
"""From a call as it was traced, and the unit that makes it: other ways to make the call."""
_FLOAT32 = {"float32_constants": True}
_IN_PLACE = ("add", "sub", "mul", "div", "clamp", "relu", "copy", "fill", "zero", "setitem", "masked_fill")
_WITH_INDICES = ("max", "min", "median", "sort", "topk", "kthvalue", "mode")
_ALONG_AN_AXIS = ("cumsum", "cumprod", "flip", "sort", "chunk", "split", "unbind", "stack", "cat", "glu", "gather")


def number(argument: str, default: float, *usual: float, words: Sequence[str] = (), kind: type = float) -> Ways:
    """Another number: the port's own, which its attributes call by one of the `words`, then `usual` ones."""

    def ways(site: Site, subject: LayerSubject) -> Changes:
        current = site.get(argument, default)
        if isinstance(current, (int, float)):
            for value in subject.candidates(words or (argument,), usual, current):
                yield f"{value:g} in place of {current:g}", changing(**{argument: kind(value)})

    return ways


def small_number(argument: str, default: float, *usual: float, words: Sequence[str]) -> Ways:
    """Another small number that guards a division or a root, in an argument or in a formula that is written out."""

    def ways(site: Site, subject: LayerSubject) -> Changes:
        written = {"add": "other", "clamp": "min", "clamp_min": "min"}.get(site.name)
        if written is None or is_small(site.get(written)):
            yield from number(written or argument, default, *usual, words=words)(site, subject)

    return ways


def switch(argument: str, default: bool, on: str = "", off: str = "", modes: Sequence[str] = ()) -> Ways:
    """The other setting of a switch, if the call is in one of these modes."""

    def ways(site: Site, subject: LayerSubject) -> Changes:
        now = bool(site.get(argument, default))
        if not modes or site.get("mode", "nearest") in modes:
            said = (off if now else on) or f"{argument} {not now} in place of {now}"
            yield said, changing(**{argument: not now})

    return ways


def axis(of_rank: Callable[[int], int | None], named: bool = False) -> Ways:
    """Another axis, the last first; `of_rank` is where the function, which is `named` or not, runs by default."""

    def ways(site: Site, subject: LayerSubject) -> Changes:
        argument = "dims" if site.name == "flip" else "dim"
        rank = len(site.shape() or site.shape("x1") or site.output.shape)
        given = site.get(argument, of_rank(rank))
        now = given[0] if isinstance(given, Sequence) and len(given) == 1 else given
        for other in reversed(range(rank)) if isinstance(now, int) else ():
            if other != now % rank:
                of = f" ({site.name})" if named else ""
                yield f"{other} in place of {now % rank}{of}", changing(**{argument: other})

    return ways


def given(argument: str, changes: Mapping[str, Callable[[Any], Any]]) -> Ways:
    """Something done to what the call is given first."""

    def change(call: FunctionCall, of: Callable[[Any], Any]) -> Any:
        return call.run(**{argument: of(call[argument])})

    def ways(site: Site, subject: LayerSubject) -> Changes:
        if site.tensor(argument):
            yield from ((detail, functools.partial(change, of=of)) for detail, of in changes.items())

    return ways


def made(changes: Mapping[str, Change], where: Callable[[Site], object] = lambda site: True) -> Ways:
    """The call made in other ways, where it is such a call."""
    return lambda site, subject: changes.items() if where(site) else ()


def stored_or_used(argument: str, change: Callable[[Any], Any]) -> Ways:
    """A parameter whose stored values are others; where gradients are examined, also one that is used otherwise."""
    return lambda site, subject: both_ways(subject, change, argument)


def _taken_for_input(call: FunctionCall) -> Any:
    return call["input"]


@as_change
def _index_moved(call: FunctionCall, shift: int) -> Any:
    return call.run(input=(call["input"] + shift) % call["weight"].shape[0])


def _layer_again(call: FunctionCall) -> Any:
    return call["module"].forward(call["output"])


def _other_loss(site: Site, subject: LayerSubject) -> Changes:
    yield from ((f"{name} in place of {site.name}", called(name)) for name in SIMPLE[:4] if name != site.name)
    if site.name == "mse_loss":
        yield "half the squared error", lambda call: call.result / 2.0


def factor_left_out(site: Site, subject: LayerSubject) -> Changes:
    """A number that a tensor is multiplied with or divided by is left out."""
    if (factor := constant_of(site)) is not None:
        yield f"{'times' if site.name == 'mul' else 'divided by'} {factor:.6g}", tensor_operand


def _products(call: FunctionCall) -> Any:
    return (call["x1"] * call["x2"]).sum(call.get("dim", 1))


def both_or_one(change: Callable[..., Change]) -> Ways:
    """The change made with both running statistics, then with each alone."""
    names = {
        "": ("running_mean", "running_var"),
        "the mean alone": ("running_mean",),
        "the variance alone": ("running_var",),
    }
    return made({detail: change(*chosen) for detail, chosen in names.items()})


FORWARD: tuple[tuple[str, str, Sequence[str], Ways, Mapping[str, Any]], ...] = (
    ("activation_twice", "an activation function is applied twice", ACTIVATIONS,
     made({"": lambda call: call.run(input=call.result)}), {"rank": 1}),  # as a softmax before a loss that takes logits
    ("activation_missing", "an activation function is left out", (*ACTIVATIONS, LAYER),
     lambda site, subject: [(name, _taken_for_input)] if (name := activation_of(site)) else (), {}),
    ("leaky_slope", "the leaky ReLU has another slope", ("leaky_relu",),
     number("negative_slope", 0.01, 0.01, 0.1, 0.2, 0.25, 0.3, 0.02, 0.05, 0.001, 0.0, 1 / 5.5), _FLOAT32),
    ("elu_alpha", "the exponential unit has another alpha", ("elu", "celu"),
     number("alpha", 1.0, 1.0, 0.1, 0.2, 0.5, 0.01, 2.0), _FLOAT32),
    ("softplus_beta", "softplus has another beta", ("softplus",), number("beta", 1.0, 1.0, 0.5, 2.0, 10.0), _FLOAT32),
    # A key that did not match leaves the slope at its initial value.
    ("prelu_initial", "PReLU's slope was not loaded and is still 0.25", ("prelu",),
     given("weight", {"": lambda slope: slope * 0.0 + 0.25}), {"difference": "prelu_key"}),
    # Without `dim`, torch takes axis 0 or 1 and paddle the last.
    ("softmax_axis", "softmax runs along another axis", ("softmax", "log_softmax"),
     axis(lambda rank: 0 if rank in (0, 1, 3) else 1), {"difference": "softmax_default_axis"}),
    ("normalize_axis", "vectors are normalised to unit length along another axis", ("normalize", "cosine_similarity"),
     axis(lambda rank: 1), {}),
    ("axis_wrong", "a function runs along another axis", _ALONG_AN_AXIS,
     axis(lambda rank: None, named=True), {"difference": "cumsum_axis_none", "rank": 2}),
    ("norm_epsilon", "the normalisation's epsilon has another value", (*NORMS, "rms_norm", "add"),
     small_number("eps", 1e-5, *EPSILONS, words=("epsilon", "eps", "variance_epsilon")), _FLOAT32),
    ("normalize_epsilon", "the smallest length that normalisation to unit length divides by has another value",
     ("normalize", "cosine_similarity", "clamp", "clamp_min"),
     small_number("eps", 1e-12, *LENGTHS, words=("epsilon", "eps")), _FLOAT32),
    ("normalize_power", "the vectors are divided by another norm", ("normalize",),
     made({"the 1-norm": changing(p=1.0), "the greatest element": changing(p=float("inf")),
           "the squared length": lambda call: call["input"] / call["input"].square().sum(call.get("dim", 1), True)}),
     {}),
    ("norm_weight_missing", "the norm's weight (gamma) is not applied", (*NORMS, "rms_norm"),
     made({"": lambda call: call.run(weight=call.torch.ones_like(call["weight"])),
           "nor is its bias": changing(weight=None, bias=None)}), {}),
    ("norm_weight_offset", "the norm's weight is taken relative to 1 (1 + weight), or the other way round",
     (*NORMS, "rms_norm"), given("weight", {"1 + weight": lambda w: w + 1.0, "weight - 1": lambda w: w - 1.0}), {}),
    # A negative mean in the place of the variance gives NaN in the port as well.
    ("running_statistics_swapped", "running mean and running variance are swapped", STATISTICS,
     made({"": lambda call: call.run(running_mean=call["running_var"], running_var=call["running_mean"])}), {}),
    # Keys did not match and nothing was raised.
    ("running_statistics_initial", "the running statistics were not loaded and are still 0 and 1", STATISTICS,
     both_or_one(initial), {"difference": "bn_buffer_names"}),
    ("running_variance_form", "the running variance holds something else", STATISTICS,
     given("running_var", {"its root": lambda v: v.sqrt(), "its square": lambda v: v.square(),
                           "its inverse": lambda v: 1.0 / v, "its inverse root": lambda v: v.rsqrt()}), {}),
    # Both frameworks divide alpha by the size, but not every formula does.
    ("local_response_alpha", "local response normalisation divides alpha by the size, or does not",
     ("local_response_norm",),
     made({"not divided": lambda call: call.run(alpha=call.get("alpha", 1e-4) * call["size"]),
           "divided twice": lambda call: call.run(alpha=call.get("alpha", 1e-4) / call["size"])}),
     {"difference": "local_response_norm"}),
    # The formula is then (x - mean) / (deviation + eps).
    ("norm_epsilon_outside_root", "epsilon is added to the standard deviation, not to the variance", NORMS,
     made({"": standardised(unbiased=False, outside=True)}), {}),
    # std() and var() divide by n - 1 by default.
    ("norm_variance_unbiased", "the norm divides by the unbiased deviation (n - 1)", NORMS,
     made({"": standardised(unbiased=True, outside=False),
           "with epsilon added to the deviation": standardised(unbiased=True, outside=True)}), {}),
    ("norm_mean_subtracted", "the norm subtracts the mean (LayerNorm in place of RMSNorm)", ("rms_norm",),
     made({"": lambda call: call.torch.nn.functional.layer_norm(
         call["input"], call["normalized_shape"], call.get("weight"), None, call.get("eps", 2.0**-52))}), {}),
    ("normalize_missing", "the vectors are not normalised to unit length", ("normalize", "cosine_similarity"),
     lambda site, subject: [("", _taken_for_input if site.name == "normalize" else _products)], {}),
    ("residual_missing", "one side of a sum of two tensors, such as a residual connection, is left out", ("add",),
     made({"the first operand": lambda call: call["other"] * call.get("alpha", 1),
           "the second operand": _taken_for_input}, is_residual), {}),
    ("term_missing", "one term of a sum is left out", ("add", "sub"),
     made({"the first operand": lambda call: call.result - call["input"],
           "the second operand": lambda call: call["input"] + 0.0},
          lambda site: operands(site) is not None and not is_residual(site) and not learned(site)), {}),
    ("learned_factor_missing", "a learned factor, such as a layer scale, is left out", ("mul", "div"),
     lambda site, subject: [(name, other_operand)] if (name := learned(site)) else (), {}),
    ("position_embedding_missing", "a learned or fixed term, such as a position embedding, is not added", ("add",),
     lambda site, subject: [(name, other_operand)] if (name := learned(site)) else (), {}),
    ("factor_forgotten", "a constant factor is left out", ("mul", "div"), factor_left_out, {"rank": 2}),
    ("layer_twice", "a layer is applied twice", (LAYER, UNIT),
     lambda site, subject: [(site.arguments["path"] or str(site.arguments["kind"]), _layer_again)]
     if site.output.shape == site.shape() else (), {"rank": 4}),
    # This is what a transposition of all axes does.
    ("kernel_transposed", "the kernel's height and width are swapped", ("conv2d", "conv_transpose2d"),
     stored_or_used("weight", lambda weight: weight.transpose(-2, -1)), {}),
    # This is a convolution in the mathematical sense.
    ("kernel_flipped", "the kernel is turned by 180 degrees", CONVOLUTIONS,
     stored_or_used("weight", lambda weight: weight.flip(tuple(range(2, weight.dim())))), {}),
    ("embedding_index_shifted", "embedding indices are shifted", ("embedding",),
     made({f"by {shift}": _index_moved(shift) for shift in (1, -1, 2, -2)}), {}),
    # Torch has two biases for each gate, other code has one.
    ("recurrent_bias", "one of the two biases of the gates is missing or doubled", RECURRENT,
     made({f"{which} {verb}": biases_scaled(places, factor) for verb, factor in (("missing", 0.0), ("doubled", 2.0))
           for which, places in (("the recurrent one is", (1,)), ("the input's is", (0,)), ("both are", (0, 1)))}), {}),
    # Of two directions the second may run forwards, or the sequence backwards.
    ("recurrent_direction", "the sequence runs the other way", RECURRENT,
     made({"": reversed_sequence(back=True), "and its outputs stay in that order": reversed_sequence(back=False)}), {}),
    # [batch, time, width] for [time, batch, width] raises nothing where both sizes are equal.
    ("recurrent_batch_first", "batch and time are swapped", RECURRENT, made({"": other_layout}), {}),
    ("bias_twice", "the bias is added twice", WEIGHTED, given("bias", {"": lambda bias: 2.0 * bias}), {}),
    ("window_stride", "the stride differs", WINDOWED, window("stride", (1, 2, 3, 4), None), {}),
    ("window_padding", "the padding differs", WINDOWED, window("padding", (0, 1, 2, 3), 0), {}),
    ("pool_kernel", "the pooling window has another size", POOLS,
     window("kernel_size", (1, 2, 3, 4, 5, 7), 1), _FLOAT32),
    ("output_padding", "the transposed convolution's output padding differs", CONVOLUTIONS[3:],
     window("output_padding", (0, 1), 0), {}),
    # padding='same' with a stride pads the end more than the beginning, by an amount that depends on the input's size.
    ("padding_same", "the padding is that of 'same': as much as the stride needs, the odd one at the end",
     ("conv1d", "conv2d", "conv3d", "max_pool2d", "avg_pool2d"),
     made({"": padded_as_same(at_end=True), "but the odd one at the beginning": padded_as_same(at_end=False)}),
     {"difference": "conv_same_stride", "rank": 1}),
    ("padding_value", "the border is padded with another value", ("pad",),
     number("value", 0.0, 0.0, 1.0, -1.0, float("-inf")), {}),
    # torch counts the zeros of the padding by default, paddle does not.
    ("pool_padding_counted", "average pooling counts the padding, or does not", POOLS[3:],
     switch("count_include_pad", True, "counted", "not counted"), {"difference": "avgpool_exclusive", **_FLOAT32}),
    ("interpolate_align_corners", "interpolation aligns the corners, or does not", ("interpolate",),
     switch("align_corners", False, modes=SMOOTH), {"difference": "interpolate_align"}),
    ("interpolate_antialias", "interpolation smooths before it reduces (antialias), or does not", ("interpolate",),
     switch("antialias", False), {}),
    # Paddle aligns corners by default, torch does not.
    ("grid_align_corners", "the sampling grid aligns the corners, or does not", ("grid_sample", "affine_grid"),
     switch("align_corners", False), {"difference": "grid_sample_align"}),
    ("label_smoothing", "the label smoothing differs", ("cross_entropy",),
     number("label_smoothing", 0.0, 0.0, 0.1, 0.05, 0.2, 0.01, words=("label_smoothing", "smoothing", "epsilon")),
     {"difference": "ce_label_smoothing", **_FLOAT32}),
    ("label_smoothing_form",
     "smoothing shares its part among the other classes, not among all, or the other way round", ("cross_entropy",),
     made({"among the others": lambda call: smoothed_further(call, call["input"].shape[1] - 1),
           "among all": lambda call: smoothed_further(call, call["input"].shape[1] + 1)}), {}),
    ("ignore_index", "rows of another label are ignored, or none", CLASSES,
     number("ignore_index", -100, -100.0, -1.0, 0.0, 255.0, kind=int), {}),
    ("class_weights", "class weights are applied in another way", CLASSES,
     made({"they are left out": changing(weight=None), "the mean divides by the number of rows": over_batch,
           "of soft labels once a row": weighted_rows}, lambda site: site.shape("weight")),
     {"difference": "ce_weight_mean"}),
    ("softmax_before_loss", "the logits go through a softmax or sigmoid before a loss that has its own",
     ("cross_entropy", "binary_cross_entropy_with_logits"),
     lambda site, subject: [("softmax", lambda call: call.run(input=call["input"].softmax(1)))]
     if site.name == "cross_entropy" else [("sigmoid", lambda call: call.run(input=call["input"].sigmoid()))], {}),
    ("loss_swapped", "another loss is used", SIMPLE[:4], _other_loss, {"rank": 1}),
    # Paddle returns [N, 1] for labels of [N, 1]; multiplied by weights of shape [N] that gives [N, N]. It goes first,
    # because `loss_reduction` would reproduce it too.
    ("loss_rows_broadcast", "the losses of the rows have one axis too many and are broadcast", (*CLASSES, *SIMPLE),
     made({"": lambda call: call.result.unsqueeze(-1)}, lambda site: site.get("reduction", "mean") == "none"),
     {"difference": "ce_reduction_none_shape", "rank": -1}),
    # In paddle, [N, 1] against [N] silently gives [N, N].
    ("loss_broadcast", "predictions and targets of different shapes are broadcast against each other", SIMPLE,
     made({"predictions have one axis more": lambda call: call.run(input=call["input"].unsqueeze(-1)),
           "targets have one axis more": lambda call: call.run(target=call["target"].unsqueeze(-1))}),
     {"difference": "mse_l1_broadcast"}),
    ("positive_weight_missing", "the weight of positives is left out", ("binary_cross_entropy_with_logits",),
     made({"": changing(pos_weight=None),
           "taken for the weight of all": lambda call: call.run(pos_weight=None, weight=call["pos_weight"])}),
     {"difference": "bce_logits_pos_weight"}),
    ("mask_added_as_numbers", "a boolean mask is added to the scores as ones and zeros", ("masked_fill",),
     made({"": lambda call: call["input"] + call["mask"].to(call["input"].dtype)}), {}),
    # The memory is then read in the old order.
    ("reshaped_not_transposed", "a tensor is reshaped where its axes should be swapped",
     ("permute", "transpose", "movedim"), made({"": lambda call: call["input"].reshape(call.result.shape)}), {}),
    ("parts_order", "the parts of a split tensor are taken in another order",
     ("chunk", "split", "unbind", "tensor_split"),
     made({"backwards": lambda call: tuple(reversed(call.result)),
           "shifted by one": lambda call: (*call.result[1:], call.result[0]),
           "shifted back by one": lambda call: (call.result[-1], *call.result[:-1])}), {"rank": 1}),
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
     made({"zeroed, then added to": zeroed_before, "overwritten": lambda call: call["input"].index_copy(
         0, scattered_rows(call), call.get("source"))}), {"difference": "scatter_semantics"}),
    # Parts of a split are views in torch and copies in paddle.
    ("split_copied",
     "the parts of a split tensor, or an expanded one, are copies: changing them leaves the whole as it was",
     ("chunk", "split", "expand"), made({"": lambda call: nested(call.result, lambda part: part.clone())}),
     {"difference": "views_vs_copies"}),
    # x.max(axis) returns the values alone in paddle, so `[0]` takes their first row.
    ("maximum_first_row", "the first row of the values is used in place of the values", _WITH_INDICES,
     made({"": lambda call: type(call.result)((call.result[0][0], call.result[1]))}),
     {"difference": "max_reduction_returns"}),
    # Without an axis paddle's cumsum flattens.
    ("cumulative_flattened", "a cumulative sum runs over the flattened tensor", ("cumsum", "cumprod", "logcumsumexp"),
     made({"": lambda call: call.run(input=call["input"].flatten(), dim=0),
           "back in its shape": lambda call: call.run(input=call["input"].flatten(), dim=0).view_as(call["input"])}),
     {"difference": "cumsum_axis_none"}),
)  # fmt: skip
"""Id, sentence, functions, other ways to make their calls, and further fields of `Cause`."""

STATE: tuple[tuple[str, str, Sequence[str], Ways, Mapping[str, Any]], ...] = (
    # The layer normalises with the batch's statistics but does not remember them.
    ("running_statistics_frozen", "the running statistics are not updated", STATISTICS, both_or_one(kept), _FLOAT32),
    # For example by a recomputation's second forward pass.
    ("running_statistics_twice", "the running statistics are updated twice", STATISTICS,
     made({"": lambda call: (call.run(), call.run())[1]}), _FLOAT32),
    # In training the next two show only in what the statistics move on from.
    ("running_statistics_initial", "the running statistics were not loaded: they are updated from 0 and 1", STATISTICS,
     both_or_one(lambda *names: moved_on(lambda call: initial_values(call, *names))),
     {"difference": "bn_buffer_names", **_FLOAT32}),
    ("running_statistics_swapped", "running mean and running variance are swapped", STATISTICS,
     made({"": moved_on(lambda call: {"running_mean": call["running_var"], "running_var": call["running_mean"]})}),
     _FLOAT32),
)  # fmt: skip


for _phase, _rows in (("forward", FORWARD), ("state", STATE)):
    for _id, _text, _functions, _ways, _facts in _rows:
        enter_edit(_phase, _id, _text, _functions, _ways, _facts)
