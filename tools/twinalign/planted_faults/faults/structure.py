"""Attention, residual paths, tokens and blocks that are put together wrongly."""

from collections.abc import Callable
from typing import Any

from twinalign.planted_faults.case_contents import CaseContents, LayerFacts
from twinalign.planted_faults.catalogue import Registration, in_forward
from twinalign.planted_faults.fault_sites import ModelSite, Original, replace_call, replace_forward, through
from twinalign.planted_faults.faults.weights import owners
from twinalign.planted_faults.where_to_plant import Find, middle, of_own_call, own_code

ATTENTION = own_code("softmax", "matmul")


in_forward(ATTENTION, "softmax_axis", id="attention_over_queries").add(
    "Attention's softmax runs over the queries",
    replace_call("softmax", lambda original, x, *_, **__: original(x, axis=-2)),
)


def _is_scale(x: Any, factor: Any, *others: Any) -> bool:
    return isinstance(factor, float) and 0 < factor < 1


in_forward(
    own_code("softmax", "matmul", "multiply"), "attention_scale", "factor_forgotten", id="attention_not_scaled"
).add(
    "Attention's scores are not scaled", lambda site: site.first("multiply", lambda original, x, factor: x, _is_scale)
)


@in_forward(own_code("softmax", "matmul", "multiply"), "attention_scale", "factor_wrong")
def attention_scaled_twice(site: ModelSite) -> None:
    """Attention's scores are scaled twice."""
    site.first("multiply", lambda original, x, factor: original(x, factor * factor), _is_scale)


@in_forward(ATTENTION, "qkv_order")
def attention_keys_ask(site: ModelSite) -> None:
    """Queries and keys change places in attention's scores."""

    def swap(original: Original, *arguments: Any, **keywords: Any) -> Any:
        scores = original(*arguments, **keywords)
        axes = list(range(len(scores.shape)))
        return scores.transpose([*axes[:-2], axes[-1], axes[-2]])

    site.first("matmul", swap, lambda *_: True)


@in_forward(ATTENTION, "causal_mask_added")
@through(ModelSite.function, "softmax")
def attention_causal(site: ModelSite, original: Original, x: Any, *arguments: Any, **keywords: Any) -> Any:
    """Attention sees no later tokens."""
    later = site.paddle.triu(site.paddle.ones(x.shape[-2:], dtype=x.dtype), diagonal=1)
    return original(x - later * 1e30, *arguments, **keywords)


@in_forward(own_code("softmax", "matmul", "concat"), "merged_in_reverse", "concatenation_order")
def attention_heads_reversed(site: ModelSite) -> None:
    """Attention's heads are merged in the reversed order."""
    site.function("concat", lambda original, x, *others, **keywords: original(list(x)[::-1], *others, **keywords))


def same_shape(first: Any, second: Any, *_: Any) -> bool:
    """Whether two tensors are added that have the same shape, as on a residual path."""
    return hasattr(second, "shape") and list(first.shape) == list(second.shape)


def _is_residual(facts: LayerFacts) -> bool:
    return len(facts.shape) > 2 and len(facts.returned) == len(facts.shape)


RESIDUAL = own_code("add", such=_is_residual)


def _is_parameter_second(first: Any, second: Any, *_: Any) -> bool:
    return hasattr(second, "shape") and len(second.shape) == 3 and second.shape[0] == 1


def _sum(fault: str, *causes: str, find: Find = RESIDUAL, fits: Callable[..., bool] = same_shape) -> Registration:
    """A fault whose function `(original, first, second)` takes the first fitting addition of the layer's own code."""

    def how(run: Original) -> Callable[[ModelSite], None]:
        return lambda site: site.first("add", run, fits)

    return in_forward(find, *causes, id=fault, how=how)


_sum("addition_loses_first", "residual_missing", "term_missing").add(
    "A residual addition loses its first summand", lambda original, first, second: second * 1
)
_sum("addition_loses_second", "residual_missing", "term_missing").add(
    "A residual addition loses its second summand", lambda original, first, second: first * 1
)
_sum("addition_doubles_first", "residual_scaled").add(
    "A residual addition takes its first summand twice",
    lambda original, first, second: original(original(first, first), second),
)
_sum("addition_subtracts", "sign_wrong", "residual_scaled", "operation_swapped").add(
    "A residual path is subtracted", lambda original, first, second: first - second
)

_POSITION: Any = {"find": owners("pos", tokens=True), "fits": _is_parameter_second}

_sum("position_embedding_forgotten", "position_embedding_missing", "term_missing", **_POSITION).add(
    "The position embedding is not added", lambda original, x, position: x * 1
)
_sum("position_embedding_twice", "position_embedding_scaled", **_POSITION).add(
    "The position embedding is added twice", lambda original, x, y: original(original(x, y), y)
)


def _joins(facts: LayerFacts) -> bool:
    return "softmax" not in facts.functions


@in_forward(own_code("concat", such=_joins), "class_token_position", "concatenation_order")
def concatenated_in_reverse(site: ModelSite) -> None:
    """A concatenation has its parts in the reversed order."""
    site.first(
        "concat",
        lambda original, x, *others, **keywords: original(list(x)[::-1], *others, **keywords),
        lambda x, *_: len(x) > 1,
    )


def _takes_first_token(x: Any, index: Any) -> bool:
    return isinstance(index, tuple) and len(index) == 2 and index[1] == 0 and isinstance(index[0], slice)


@in_forward(own_code("getitem", such=lambda f: bool(f.layer._parameters)), "token_chosen")
def last_token_for_the_first(site: ModelSite) -> None:
    """The last token is taken for the class token."""
    site.first("getitem", lambda original, x, index: original(x, (index[0], -1)), _takes_first_token)


def blocks(contents: CaseContents) -> str | None:
    """The block in the middle: a layer of layers in a Sequential whose output has the form of its input."""

    def is_block(facts: LayerFacts) -> bool:
        parent, _, name = facts.path.rpartition(".")
        in_a_row = name.isdigit() and type(contents.layers[parent].layer).__name__ in ("Sequential", "LayerList")
        return in_a_row and bool(facts.layer.sublayers()) and facts.shape == facts.returned

    return middle(is_block)(contents)


in_forward(blocks, "layer_missing", id="block_skipped").add(
    "A block is skipped", replace_forward(lambda original, x, *_, **__: x * 1)
)
in_forward(blocks, "layer_twice", "edited_program", id="block_twice").add(
    "A block runs twice in a row",
    replace_forward(lambda original, x, *others, **keywords: original(original(x, *others, **keywords))),
)


def _gates(facts: LayerFacts) -> bool:
    return len(facts.shape) == 4 and facts.shape == facts.returned and bool(facts.layer.sublayers())


@in_forward(own_code("multiply", such=_gates), "operation_swapped")
def gate_added(site: ModelSite) -> None:
    """The weights of a squeeze and excitation are added, not multiplied."""
    site.first("multiply", lambda original, first, second: first + second, lambda a, b, *_: hasattr(b, "shape"))


@in_forward(own_code("multiply", such=_gates), "edited_program", "layer_missing", "learned_factor_missing")
def gate_forgotten(site: ModelSite) -> None:
    """A squeeze and excitation hands its input on unchanged."""

    def larger(original: Original, first: Any, second: Any) -> Any:
        return (first if first.size > second.size else second) * 1

    site.first("multiply", larger, lambda a, b, *_: hasattr(b, "shape"))


of_own_call("chunks_in_reverse", "chunk", "parts_order").add(
    "The parts of a split change places",
    lambda original, *arguments, **keywords: original(*arguments, **keywords)[::-1],
)


def _pre_norm(facts: LayerFacts) -> bool:
    return _is_residual(facts) and any(type(layer).__name__ == "LayerNorm" for layer in facts.layer.children())


@in_forward(own_code("add", such=_pre_norm), "residual_source")
def residual_from_the_norm(site: ModelSite) -> None:
    """A residual path starts behind the normalisation, not before it."""
    norm = next(layer for layer in site.layer.children() if type(layer).__name__ == "LayerNorm")
    seen: list[Any] = []

    def keep(original: Original, x: Any) -> Any:
        seen.append(original(x))
        return seen[-1]

    site.interception.around(norm, keep)
    site.first("add", lambda original, first, second: original(seen.pop(), second), same_shape)
