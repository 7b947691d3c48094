"""Small edits of calls: another function of the kind, arguments in other places, axes taken apart otherwise."""

import ast
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from twinalign.replay.edited_trees import with_nodes

_KINS = (("mean", "sum", "max", "min", "amax", "amin"), ("maximum", "minimum"), ("abs", "square", "sqrt"),
         ("exp", "log", "log1p"), ("tanh", "sigmoid", "erf"), ("sin", "cos"), ("argmax", "argmin"),
         ("zeros", "ones", "zeros_like", "ones_like"), ("relu", "relu6", "silu", "gelu", "sigmoid"),
         ("floor", "ceil", "round"), ("real", "imag"), ("softmax", "log_softmax"), ("cumsum", "cumprod"),
         ("triu", "tril"), ("std", "var"), ("numel", "sum"))  # fmt: skip
_REDUCING = (
    "mean", "sum", "max", "min", "amax", "amin", "std", "var", "prod", "norm", "logsumexp", "argmax", "argmin", "any",
    "all", "median",
)  # fmt: skip
_AXIS = "axis", "dim"
_PLACES = range(4)
"""Axes that a tensor has at most, as a rule."""
_MODULES = "paddle", "torch", "F", "np", "numpy", "math"
_OF_ANY_ORDER = "min", "max", "minimum", "maximum", "add", "multiply", "logical_and", "logical_or"
_COUNTING = "split", "chunk"
"""Functions that are given a number of parts: with less than one paddle ends the process."""
_SWITCHES = {
    **dict.fromkeys(("std", "var"), (("ddof", 1), ("unbiased", False))),
    **dict.fromkeys(("sort", "argsort"), (("descending", True),)),
}
"""Function → keywords with what they are not where they are left out."""
_RANGES = "range", "arange"
TRANSPOSING, RESHAPING = ("transpose", "permute"), ("reshape", "view")


def of_call(node: ast.expr) -> Iterator[ast.expr]:
    """Another function of its kind, other places for two arguments, one argument less, or no call."""
    if not isinstance(node, ast.Call):
        return
    yield from node.args[:1]
    yield from _of_call_of_operation(node)
    yield from _with_exchanged_sizes(node)
    yield from _weighted_means(node)
    yield from _switched(node)
    yield from _with_other_start(node)
    yield from _across_comprehension(node)
    if (sizes := sizes_of_two(node)) is not None:
        yield ast.Attribute(sizes, "T", ast.Load())
    if isinstance(node.func, ast.Attribute):
        for kin in (kin for kin in _KINS if node.func.attr in kin):
            for name in kin:
                if name != node.func.attr:
                    yield ast.Call(ast.Attribute(node.func.value, name, ast.Load()), node.args, node.keywords)
        yield node.func.value
    if len(node.args) >= 2 and getattr(node.func, "attr", getattr(node.func, "id", "")) not in _OF_ANY_ORDER:
        yield ast.Call(node.func, [*node.args[:-2], node.args[-1], node.args[-2]], node.keywords)
    for at in range(len(node.keywords)):
        yield ast.Call(node.func, node.args, [*node.keywords[:at], *node.keywords[at + 1 :]])


def _switched(node: ast.Call) -> Iterator[ast.expr]:
    """A call with a switch that it leaves out: numpy's deviation has all samples as its divisor, paddle's one less."""
    given = {one.arg for one in node.keywords}
    for name, value in _SWITCHES.get(getattr(node.func, "attr", ""), ()):
        if name not in given:
            yield ast.Call(node.func, node.args, [*node.keywords, ast.keyword(name, ast.Constant(value))])


def _with_other_start(node: ast.Call) -> Iterator[ast.expr]:
    """Whole numbers from 1 on, or from 0, as many or up to the same one; and those of a loop in the other order."""
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if name in _RANGES and len(node.args) == 1:
        yield ast.Call(node.func, [ast.Constant(1), *node.args], node.keywords)
    if name in _RANGES and len(node.args) == 2:
        yield ast.Call(node.func, node.args[1:], node.keywords)
        yield ast.Call(node.func, [_without(node.args[1], node.args[0])], node.keywords)
    if name == "range":
        yield ast.Call(ast.Name("reversed", ast.Load()), [node], [])


def _without(whole: ast.expr, part: ast.expr) -> ast.expr:
    """What is left of a sum without one of its sides: `n` of `start + n`."""
    if isinstance(whole, ast.BinOp) and isinstance(whole.op, ast.Add):
        for one, other in ((whole.left, whole.right), (whole.right, whole.left)):
            if ast.dump(one) == ast.dump(part):
                return other
    return ast.BinOp(whole, ast.Sub(), part)


def _across_comprehension(node: ast.expr) -> Iterator[ast.expr]:
    """What is done with each of several things, such as a root, done with what is made of all; and the other way."""
    inner = _wrapped(node)
    for whole, is_outside in ((node, False), (inner[0] if inner else None, True)):
        each = whole.args[0] if isinstance(whole, ast.Call) and len(whole.args) == 1 and not whole.keywords else None
        if not isinstance(each, ast.GeneratorExp | ast.ListComp):
            continue
        assert isinstance(whole, ast.Call)

        def of_all(item: ast.expr, whole: ast.Call = whole, each: Any = each) -> ast.expr:
            return ast.Call(whole.func, [type(each)(item, each.generators)], [])

        if is_outside and inner is not None:
            yield of_all(inner[1](each.elt))
        elif (item := _wrapped(each.elt)) is not None:
            yield item[1](of_all(item[0]))


def through_all(node: ast.expr) -> Iterator[ast.expr]:
    """A comprehension through all of several things in place of one, or of those that a condition chooses: the
    parameters of all groups, not of the first, and not matrices alone."""
    if not isinstance(node, ast.GeneratorExp | ast.ListComp) or len(node.generators) > 1:
        return
    own = node.generators[0]
    if own.ifs:
        yield type(node)(node.elt, [ast.comprehension(own.target, own.iter, [], 0)])
    for place in ast.walk(own.iter):
        if isinstance(place, ast.Subscript) and isinstance(getattr(place.slice, "value", None), int):
            outer = ast.comprehension(ast.Name("each", ast.Store()), place.value, [], 0)
            inside = with_nodes(own.iter, {place: ast.Name("each", ast.Load())})
            yield type(node)(node.elt, [outer, ast.comprehension(own.target, inside, own.ifs, 0)])


def _wrapped(node: ast.expr) -> tuple[ast.expr, Callable[[ast.expr], ast.expr]] | None:
    """The one thing that a call, or a power, is of, and the same of something else."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return node.left, lambda new: ast.BinOp(new, node.op, node.right)
    if not isinstance(node, ast.Call) or node.keywords or not isinstance(function := node.func, ast.Attribute):
        return None
    if len(node.args) == 1 and getattr(function.value, "id", "") in _MODULES:
        return node.args[0], lambda new: ast.Call(function, [new], [])
    if not node.args and getattr(function.value, "id", "") not in _MODULES:
        return function.value, lambda new: ast.Call(ast.Attribute(new, function.attr, ast.Load()), [], [])
    return None


def _weighted_means(node: ast.Call) -> Iterator[ast.expr]:
    """What is divided by the sum of the weights, in place of the mean of what has weights as factors."""
    given = given_to(node)
    if getattr(node.func, "attr", "") != "mean" or not isinstance(given, ast.BinOp) or type(given.op) is not ast.Mult:
        return
    more = [one for one in node.args if one is not given]
    for weights in (given.left, given.right):
        sums = [ast.Call(ast.Attribute(one, "sum", ast.Load()), more, node.keywords) for one in (given, weights)]
        yield ast.BinOp(sums[0], ast.Div(), sums[1])


def means(node: ast.BinOp) -> Iterator[ast.expr]:
    """The mean in place of a sum that is divided."""
    is_negative = isinstance(node.left, ast.UnaryOp) and isinstance(node.left.op, ast.USub)
    total: ast.expr = node.left.operand if is_negative else node.left  # type: ignore[attr-defined]
    if isinstance(node.op, ast.Div) and isinstance(total, ast.Call) and getattr(total.func, "attr", "") == "sum":
        assert isinstance(total.func, ast.Attribute)
        mean = ast.Call(ast.Attribute(total.func.value, "mean", ast.Load()), total.args, total.keywords)
        yield ast.UnaryOp(ast.USub(), mean) if is_negative else mean


def axes_in(nodes: Iterable[ast.AST]) -> list[ast.expr]:
    """What calls among nodes reduce or join along, as plain numbers, each once."""
    found: dict[str, ast.expr] = {}
    for node in nodes:
        given = [one.value for one in getattr(node, "keywords", ()) if one.arg in _AXIS]
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in _REDUCING:
            given += node.args
        found |= {ast.dump(one): one for one in given if _is_of_whole_numbers(one)}
    return list(found.values())


def lists_beside(node: ast.expr, scope: Iterable[ast.AST]) -> Iterator[ast.expr]:
    """Another list of the same kinds of things that the function has: what a loop beside this one goes over."""
    if isinstance(node, (ast.List, ast.Tuple)) and len(kinds := {type(one) for one in node.elts}) == 1:
        found = [one for one in scope if isinstance(one, type(node)) and {type(item) for item in one.elts} == kinds]
        others = {ast.dump(one): one.elts for one in found if ast.dump(one) != ast.dump(node)}
        yield from (type(node)(items, ast.Load()) for items in others.values())


def _is_of_whole_numbers(node: ast.expr) -> bool:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError):
        return False
    return bool(value != ()) and all(
        type(one) is int for one in (value if isinstance(value, (tuple, list)) else [value])
    )


def with_axes(node: ast.expr, axes: Sequence[ast.expr]) -> Iterator[ast.expr]:
    """A reduction along some axes in place of all, along one axis more, and along one of several."""
    if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") not in _REDUCING:
        return
    given = [*node.args, *(one.value for one in node.keywords if one.arg in _AXIS)]
    if not any(map(_is_of_whole_numbers, given)):
        for axis in axes:
            yield ast.Call(node.func, node.args, [*node.keywords, ast.keyword("axis", axis)])
    for one in filter(_is_of_whole_numbers, given):
        items = one.elts if isinstance(one, (ast.Tuple, ast.List)) else []
        others: list[ast.expr] = [ast.List([one, ast.Constant(at)], ast.Load()) for at in _PLACES]
        for other in items if len(items) > 1 else others if not items else ():
            yield ast.Call(
                node.func,
                [other if arg is one else arg for arg in node.args],
                [ast.keyword(named.arg, other if named.value is one else named.value) for named in node.keywords],
            )


def _of_call_of_operation(node: ast.Call) -> Iterator[ast.expr]:
    """What is done to a sum or product is done to one of its parts: `1 - x.pow(2)` for `(1 - x).pow(2)`."""
    given = given_to(node)
    if isinstance(given, ast.BinOp):
        yield ast.BinOp(given.left, given.op, with_given(node, given.right))
        yield ast.BinOp(with_given(node, given.left), given.op, given.right)


def _with_exchanged_sizes(node: ast.Call) -> Iterator[ast.expr]:
    """Axes taken apart in another order, for the same shape: `x.reshape([n, h, d]).transpose([1, 0, 2])` for
    `x.reshape([n, d, h]).transpose([2, 0, 1])`."""
    function = node.func
    if not isinstance(function, ast.Attribute) or function.attr not in TRANSPOSING:
        return
    inner = function.value
    if not isinstance(inner, ast.Call) or getattr(inner.func, "attr", "") not in RESHAPING:
        return
    if (both := taken_apart(inner, node)) is None:
        return
    (sizes, reshaped), (places, transposed) = both
    for one, other in itertools.combinations(range(len(sizes)), 2):
        if ast.dump(sizes[one]) != ast.dump(sizes[other]):
            places_of = {**dict(zip(places, places, strict=True)), one: other, other: one}
            made = reshaped([sizes[places_of[at]] for at in range(len(sizes))], inner.func)
            own = [f"{ast.unparse(inner.func).rpartition('.')[0]}.shape[{at}]" for at in range(len(sizes))]
            if [ast.unparse(size) for size in _listed(made)[0]] == own:
                continue  # a tensor has its own shape without that
            order = [places_of[place] for place in places]
            name = ast.Attribute(made, function.attr, ast.Load())
            yield made if order == sorted(order) else transposed([ast.Constant(at) for at in order], name)


def taken_apart(
    reshape: ast.Call, transposition: ast.Call
) -> tuple[tuple[list[ast.expr], Callable[..., ast.Call]], tuple[list[int], Callable[..., ast.Call]]] | None:
    """The sizes of the one and the axes of the other, each with what makes the call of others; None if the axes are not
    all of them in some order."""
    (sizes, reshaped), (axes, transposed) = _listed(reshape), _listed(transposition)
    places = [axis.value for axis in axes if isinstance(axis, ast.Constant) and type(axis.value) is int]
    return ((sizes, reshaped), (places, transposed)) if sorted(places) == [*range(len(sizes))] else None


def sizes_of_two(node: ast.expr) -> ast.Call | None:
    """`x.reshape([b, a])` for `x.reshape([a, b])`; None for anything else."""
    if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") not in RESHAPING:
        return None
    sizes, reshaped = _listed(node)
    return reshaped([sizes[1], sizes[0]], node.func) if len(sizes) == 2 else None


def _listed(call: ast.Call) -> tuple[list[ast.expr], Callable[..., ast.Call]]:
    """The items that a call is given, as a list or one by one, and what makes the call of others."""
    items = call.args[0].elts if call.args and isinstance(call.args[0], (ast.List, ast.Tuple)) else None

    def made(others: list[ast.expr], function: ast.expr) -> ast.Call:
        return ast.Call(function, others if items is None else [ast.List(others, ast.Load())], call.keywords)

    return call.args if items is None else items, made


def given_to(call: ast.Call) -> ast.expr | None:
    """The tensor that a method or a function is given first."""
    if isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "") in _MODULES:
        return call.args[0] if call.args else None
    if isinstance(call.func, ast.Attribute) and not isinstance(call.func.value, ast.Name):
        return call.func.value
    if call.args and isinstance(call.args[0], ast.BinOp):
        return call.args[0]
    return call.func.value if isinstance(call.func, ast.Attribute) else None


def with_given(call: ast.Call, given: ast.expr) -> ast.Call:
    """The same call of something else."""
    if isinstance(call.func, ast.Attribute) and given_to(call) is call.func.value:
        return ast.Call(ast.Attribute(given, call.func.attr, ast.Load()), call.args, call.keywords)
    return ast.Call(call.func, [given, *call.args[1:]], call.keywords)


def of_size(node: ast.expr, names: Sequence[str]) -> Iterator[ast.expr]:
    """How many places along an axis a mask lets through, in place of all of them."""
    if isinstance(node, ast.Subscript) and getattr(node.value, "attr", "") == "shape":
        for name in names:
            axis, least = ast.keyword("axis", node.slice), ast.keyword("min", ast.Constant(1))
            count = ast.Call(ast.Attribute(ast.Name(name, ast.Load()), "sum", ast.Load()), [], [axis])
            yield ast.Call(ast.Attribute(count, "clip", ast.Load()), [], [least])


def counts_in(nodes: Iterable[ast.AST]) -> set[int]:
    """ids of what is given to functions that take a number of parts."""
    calls = (one for one in nodes if isinstance(one, ast.Call) and getattr(one.func, "attr", "") in _COUNTING)
    return {id(given) for call in calls for given in (*call.args, *(one.value for one in call.keywords))}


def is_no_count(node: ast.expr) -> bool:
    """Whether it is a number below one."""
    value = node.value if isinstance(node, ast.Constant) else None
    return isinstance(node, ast.UnaryOp) or (isinstance(value, int) and value <= 0)


def additions(nodes: Iterable[ast.AST]) -> list[ast.BinOp]:
    """Sums and differences."""
    return [one for one in nodes if isinstance(one, ast.BinOp) and isinstance(one.op, (ast.Add, ast.Sub))]


def one_more_or_less(nodes: Sequence[ast.expr]) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Of a length or place; where a whole number is added to one, that number is edited."""
    added_to = {id(one.left) for one in additions(nodes) if isinstance(getattr(one.right, "value", None), int)}
    for node in (one for one in nodes if id(one) not in added_to):
        is_whole = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("int", "len")
        if isinstance(node, (ast.Name, ast.Subscript)) or is_whole:
            yield from ((node, ast.BinOp(node, kind(), ast.Constant(1))) for kind in (ast.Add, ast.Sub))
