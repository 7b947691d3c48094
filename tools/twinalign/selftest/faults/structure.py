"""Attention, residual paths, tokens and blocks that are put together wrongly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twinalign.selftest.catalogue import in_model
from twinalign.selftest.faults.weights import owners
from twinalign.selftest.places import ModelPlace, own_code, place_of
from twinalign.selftest.survey import LayerFacts, Survey

ATTENTION = own_code("softmax", "matmul")


@in_model("forward", ATTENTION, causes=("softmax_axis",))
def attention_over_queries(place: ModelPlace) -> None:
    """Attention's softmax runs over the queries."""
    place.function("softmax", lambda original, x, *_, **__: original(x, axis=-2))


def _is_scale(x: Any, factor: Any, *others: Any) -> bool:
    return isinstance(factor, float) and 0 < factor < 1


@in_model("forward", own_code("softmax", "matmul", "multiply"), causes=("attention_scale", "factor_forgotten"))
def attention_not_scaled(place: ModelPlace) -> None:
    """Attention's scores are not scaled."""
    place.first("multiply", lambda original, x, factor: x, _is_scale)


@in_model("forward", own_code("softmax", "matmul", "multiply"), causes=("attention_scale", "factor_wrong"))
def attention_scaled_twice(place: ModelPlace) -> None:
    """Attention's scores are scaled twice."""
    place.first("multiply", lambda original, x, factor: original(x, factor * factor), _is_scale)


@in_model("forward", ATTENTION, causes=("qkv_order",))
def attention_keys_ask(place: ModelPlace) -> None:
    """Queries and keys change places in attention's scores."""

    def swap(original: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        scores = original(*arguments, **keywords)
        axes = list(range(len(scores.shape)))
        return scores.transpose([*axes[:-2], axes[-1], axes[-2]])

    place.first("matmul", swap, lambda *_: True)


@in_model("forward", ATTENTION, causes=("causal_mask_added",))
def attention_causal(place: ModelPlace) -> None:
    """Attention sees no later tokens."""

    def masked(original: Callable[..., Any], x: Any, *arguments: Any, **keywords: Any) -> Any:
        later = place.paddle.triu(place.paddle.ones(x.shape[-2:], dtype=x.dtype), diagonal=1)
        return original(x - later * 1e30, *arguments, **keywords)

    place.function("softmax", masked)


@in_model("forward", own_code("softmax", "matmul", "concat"), causes=("merged_in_reverse", "concatenation_order"))
def attention_heads_reversed(place: ModelPlace) -> None:
    """Attention's heads are merged in the reversed order."""
    place.function("concat", lambda original, x, *others, **keywords: original(list(x)[::-1], *others, **keywords))


def same_shape(first: Any, second: Any, *_: Any) -> bool:
    """Whether two tensors are added that have the same shape, as on a residual path."""
    return hasattr(second, "shape") and list(first.shape) == list(second.shape)


def _is_residual(facts: LayerFacts) -> bool:
    return len(facts.shape) > 2 and len(facts.returned) == len(facts.shape)


RESIDUAL = own_code("add", such=_is_residual)


@in_model("forward", RESIDUAL, causes=("residual_missing", "term_missing"))
def addition_loses_first(place: ModelPlace) -> None:
    """A residual addition loses its first summand."""
    place.first("add", lambda original, first, second: second * 1, same_shape)


@in_model("forward", RESIDUAL, causes=("residual_missing", "term_missing"))
def addition_loses_second(place: ModelPlace) -> None:
    """A residual addition loses its second summand."""
    place.first("add", lambda original, first, second: first * 1, same_shape)


@in_model("forward", RESIDUAL, causes=("residual_scaled",))
def addition_doubles_first(place: ModelPlace) -> None:
    """A residual addition takes its first summand twice."""
    place.first("add", lambda original, first, second: original(original(first, first), second), same_shape)


@in_model("forward", RESIDUAL, causes=("sign_wrong", "residual_scaled", "operation_swapped"))
def addition_subtracts(place: ModelPlace) -> None:
    """A residual path is subtracted."""
    place.first("add", lambda original, first, second: first - second, same_shape)


@in_model("forward", owners("pos", tokens=True), causes=("position_embedding_missing", "term_missing"))
def position_embedding_forgotten(place: ModelPlace) -> None:
    """The position embedding is not added."""
    place.first("add", lambda original, x, position: x * 1, _is_parameter_second)


@in_model("forward", owners("pos", tokens=True), causes=("position_embedding_scaled",))
def position_embedding_twice(place: ModelPlace) -> None:
    """The position embedding is added twice."""
    place.first("add", lambda original, x, y: original(original(x, y), y), _is_parameter_second)


def _is_parameter_second(first: Any, second: Any, *_: Any) -> bool:
    return hasattr(second, "shape") and len(second.shape) == 3 and second.shape[0] == 1


def _joins(facts: LayerFacts) -> bool:
    return "softmax" not in facts.functions


@in_model("forward", own_code("concat", such=_joins), causes=("class_token_position", "concatenation_order"))
def concatenated_in_reverse(place: ModelPlace) -> None:
    """A concatenation has its parts in the reversed order."""
    place.first(
        "concat",
        lambda original, x, *others, **keywords: original(list(x)[::-1], *others, **keywords),
        lambda x, *_: len(x) > 1,
    )


def _takes_first_token(x: Any, index: Any) -> bool:
    return isinstance(index, tuple) and len(index) == 2 and index[1] == 0 and isinstance(index[0], slice)


@in_model("forward", own_code("getitem", such=lambda f: bool(f.layer._parameters)), causes=("token_chosen",))
def last_token_for_the_first(place: ModelPlace) -> None:
    """The last token is taken for the class token."""
    place.first("getitem", lambda original, x, index: original(x, (index[0], -1)), _takes_first_token)


def blocks(survey: Survey) -> str | None:
    """The block in the middle: a layer of layers in a Sequential whose output has the form of its input."""

    def is_block(facts: LayerFacts) -> bool:
        parent, _, name = facts.path.rpartition(".")
        in_a_row = name.isdigit() and type(survey.layers[parent].layer).__name__ in ("Sequential", "LayerList")
        return in_a_row and bool(facts.layer.sublayers()) and facts.shape == facts.returned

    return place_of([facts for facts in survey.running if is_block(facts)])


@in_model("forward", blocks, causes=("layer_missing",))
def block_skipped(place: ModelPlace) -> None:
    """A block is skipped."""
    place.forward(lambda original, x, *_, **__: x * 1)


@in_model("forward", blocks, causes=("layer_twice", "step_twice"))
def block_twice(place: ModelPlace) -> None:
    """A block runs twice in a row."""
    place.forward(lambda original, x, *others, **keywords: original(original(x, *others, **keywords)))


def _gates(facts: LayerFacts) -> bool:
    return len(facts.shape) == 4 and facts.shape == facts.returned and bool(facts.layer.sublayers())


@in_model("forward", own_code("multiply", such=_gates), causes=("operation_swapped",))
def gate_added(place: ModelPlace) -> None:
    """The weights of a squeeze and excitation are added, not multiplied."""
    place.first("multiply", lambda original, first, second: first + second, lambda a, b, *_: hasattr(b, "shape"))


@in_model(
    "forward", own_code("multiply", such=_gates), causes=("step_missing", "layer_missing", "learned_factor_missing")
)
def gate_forgotten(place: ModelPlace) -> None:
    """A squeeze and excitation hands its input on unchanged."""

    def larger(original: Callable[..., Any], first: Any, second: Any) -> Any:
        return (first if first.size > second.size else second) * 1

    place.first("multiply", larger, lambda a, b, *_: hasattr(b, "shape"))


@in_model("forward", own_code("chunk"), causes=("parts_order",))
def chunks_in_reverse(place: ModelPlace) -> None:
    """The parts of a split change places."""
    place.function("chunk", lambda original, *arguments, **keywords: original(*arguments, **keywords)[::-1])
