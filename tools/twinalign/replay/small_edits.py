"""Small edits of code: what a line may have been meant to be, one expression at a time."""

import ast
import copy
import itertools
from collections.abc import Container, Iterable, Iterator, Sequence

from twinalign.replay.call_edits import (
    additions,
    axes_in,
    counts_in,
    given_to,
    is_no_count,
    lists_beside,
    means,
    of_call,
    of_size,
    one_more_or_less,
    sizes_of_two,
    through_all,
    with_axes,
    with_given,
)
from twinalign.replay.edited_trees import number_of, placed, times
from twinalign.replay.edits_of_slices import of_slice, of_stored_slices
from twinalign.replay.exchanged_parts import with_exchanged_parts, with_exchanged_weights, with_moved_factors
from twinalign.replay.likeness import ratio, words_of
from twinalign.replay.line_spelling import OF_REFERENCE

_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_BOUNDS: dict[type[ast.operator], tuple[str, float]] = {ast.Div: ("max", 1.0), ast.Sub: ("min", 0.0)}
"""What a ratio, and a difference, may have to stay within."""
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
_OFF_BY_ONE: dict[type, type] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_TEXTS = (("mean", "sum", "none", "batchmean"), ("nearest", "bilinear", "bicubic", "area"), ("fan_in", "fan_out"),
          ("zeros", "border", "reflection"), ("reflect", "symmetric", "edge", "replicate", "circular", "wrap"),
          ("ortho", "forward", "backward"), ("same", "valid", "full"), ("ij", "xy"), ("min", "max"))  # fmt: skip
_KINDS = (
    ast.BinOp, ast.UnaryOp, ast.Call, ast.Compare, ast.Constant, ast.Name, ast.List, ast.Tuple, ast.Attribute,
    ast.Subscript, ast.IfExp, ast.BoolOp,
)  # fmt: skip
_MAKING = "arange", "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "linspace", "tensor", "to_tensor"
_MOST_ITEMS, _MOST_KEYS = 6, 8
_FACTORS = (0.5, 2.0, -1.0)
_PARTNER, _MOST_PARTS = 0.3, 60
"""Parts of the reference's code with so many equal words may stand in place of one of the port's, the likest first."""
_LEAST_SIZE = 4
"""A smaller whole number may be an axis, which is not twice another."""
_OF_SCOPE = (ast.Name, ast.Constant)
Edit = tuple[ast.expr, ast.expr]
"""An expression of the code, and what takes its place."""


def expressions(parts: Iterable[ast.AST]) -> list[ast.expr]:
    """What is computed in pieces of code, the outermost first; nothing of what is called or assigned to."""
    nodes = [node for part in parts for node in ast.walk(part)]
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    return [
        node
        for node in nodes
        if isinstance(node, _KINDS)
        and id(node) not in called
        and isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
    ]


def plain_edits(parts: Sequence[ast.AST], theirs: Iterable[ast.AST], scope: Iterable[ast.AST]) -> Iterator[Edit]:
    """Edits of pieces of code without a number that would have to be read off.

    Args:
        parts: what may be edited.
        theirs: nodes of the reference's code there, of which numbers and texts may be meant.
        scope: nodes of the function around it, of which names and attributes may be meant.
    """
    scope, theirs = list(scope), list(theirs)
    modules = _modules(scope)
    nodes = [node for node in expressions(parts) if not isinstance(node, ast.Name) or node.id not in modules]
    known = list(dict.fromkeys((*numbers_in(nodes), *numbers_in(theirs))))
    texts, reduced = texts_in(theirs), axes_in((*theirs, *scope))
    options = texts_in(one.value for one in theirs if isinstance(one, ast.keyword))
    every = [node for node in (*nodes, *scope) if isinstance(node, ast.Name) and node.id not in modules]
    read = {node.id: None for node in every if _is_read(node)}
    # What the function makes or is given, and never reads, may have been meant first of all.
    given = [node.arg for node in scope if isinstance(node, ast.arg) and node.arg != "self"]
    names = [*dict.fromkeys(name for name in (*(node.id for node in every), *given) if name not in read), *read]
    axes = {id(axis) for node in nodes for axis in _axes_in_order(node)}
    counts, added = counts_in(nodes), {id(one.right) for one in additions(nodes)}
    for node in nodes:
        yield from (
            (node, placed(new, node))
            for new in _of_constant(node, known, options)
            if id(node) not in axes and not (id(node) in counts and is_no_count(new))
            if not (id(node) in added and getattr(new, "value", None) == 0)  # the other side is an edit by itself
        )
    for node in nodes:
        calls = (*of_call(node), *with_axes(node, reduced), *lists_beside(node, scope))
        others = (*_of_operation(node, modules), *calls, *_of_list(node), *_of_place(node, scope, texts))
        yield from ((node, placed(new, node)) for new in others if getattr(new, "id", "") not in modules)
    for node in nodes:
        yield from (
            (node, placed(new, node))
            for new in (*_of_name(node, names), *of_size(node, names), *_in_calls_beside(node, scope, modules))
        )
    for part in (one for whole in parts for one in ast.walk(whole) if isinstance(one, ast.expr)):
        yield from ((part, placed(new, part)) for new in through_all(part))
    yield from ((old, placed(new, old)) for part in parts for old, new in of_stored_slices(part))
    owners = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}  # which are no numbers
    computed = [node for node in nodes if _is_computed(node) and id(node) not in owners]
    numbers = [one for one in nodes if id(one) not in owners]
    yield from ((node, placed(new, node)) for node, new in one_more_or_less(numbers))
    for node in computed:
        yield from ((node, placed(new, node)) for new in _squared_or_at_places(node, scope))
        yield from ((node, times(node, factor)) for factor in _FACTORS)
        yield node, placed(ast.BinOp(ast.Constant(1), ast.Sub(), node), node)
        yield node, placed(ast.Call(ast.Attribute(node, "detach", ast.Load()), [], []), node)


def parts_of_reference(parts: Sequence[ast.AST], theirs: Sequence[ast.AST]) -> Iterator[Edit]:
    """Parts of the reference's code in place of those of the port that are like them, but for names and numbers."""
    ours, others = (
        [(node, words_of(node)) for node in expressions(side) if not isinstance(node, _OF_SCOPE)]
        for side in (parts, theirs)
    )
    pairs = [
        (share, node, other)
        for node, words in ours
        for other, their_words in others
        if words != their_words and (share := ratio(words, their_words, _PARTNER)) >= _PARTNER
    ]
    for _, node, other in sorted(pairs, key=lambda pair: -pair[0])[:_MOST_PARTS]:
        yield node, _of_reference(other)


def in_calls_of_reference(parts: Sequence[ast.AST], theirs: Sequence[ast.AST]) -> Iterator[Edit]:
    """What the port computes, in a call of the reference's beside which it is given plain numbers at most."""
    calls: dict[str, ast.Call] = {}
    for call in expressions(theirs):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            given = [*call.args, *(one.value for one in call.keywords)]
            is_plain = all(number_of(one.operand if isinstance(one, ast.UnaryOp) else one) is not None for one in given)
            if is_plain or (len(given) == 1 and isinstance(call.func.value, ast.Name)):
                calls.setdefault(ast.unparse(call.func), call)
    for call in calls.values():
        function = call.func
        assert isinstance(function, ast.Attribute)
        is_function = len(call.args) == 1 and number_of(call.args[0]) is None
        for node in filter(_is_computed, expressions(parts)):
            if is_function:
                new = ast.Call(_of_reference(function), [node], [])
            else:
                new = ast.Call(ast.Attribute(node, function.attr, ast.Load()), call.args, call.keywords)
            yield node, placed(new, node)


def numbers_in(nodes: Iterable[ast.AST]) -> list[float]:
    """The plain numbers among nodes."""
    return [found for node in nodes if (found := number_of(node)) is not None]


def texts_in(nodes: Iterable[ast.AST]) -> list[str]:
    """The texts among nodes."""
    return [one.value for one in nodes if isinstance(one, ast.Constant) and isinstance(one.value, str)]


def _of_reference(node: ast.expr) -> ast.expr:
    made = copy.copy(node)
    setattr(made, OF_REFERENCE, True)
    return made


def _is_computed(node: ast.expr) -> bool:
    return isinstance(node, (ast.BinOp, ast.Call, ast.Name))


def _modules(scope: Iterable[ast.AST]) -> set[str]:
    """Names that a function does not make itself, and that it calls or takes what it calls from: `np`, `float`."""
    nodes = list(scope)
    own = {node.id for node in nodes if isinstance(node, ast.Name) and not _is_read(node)}
    own |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    roots = [function.value if isinstance(function, ast.Attribute) else function for function in called]
    return {"self"} | ({root.id for root in roots if isinstance(root, ast.Name)} - own)


def _axes_in_order(node: ast.expr) -> list[ast.expr]:
    """The items of a list of all axes, of which one alone cannot be another."""
    items = node.elts if isinstance(node, (ast.List, ast.Tuple)) else []
    return items if len(items) > 1 and sorted(numbers_in(items)) == [*range(len(items))] else []


def _is_read(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)


def _of_operation(node: ast.expr, modules: Container[str]) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp):
        yield from means(node)
        if (bound := _BOUNDS.get(type(node.op))) is not None:
            yield ast.Call(ast.Attribute(node, "clip", ast.Load()), [], [ast.keyword(bound[0], ast.Constant(bound[1]))])
        if isinstance(node.op, (ast.FloorDiv, ast.Mod)):
            yield from (ast.BinOp(node, kind(), ast.Constant(1)) for kind in (ast.Add, ast.Sub))
        yield from (node.left, node.right)
        for kind in _OPERATORS if isinstance(node.op, _OPERATORS) else ():
            if type(node.op) is not kind:
                yield ast.BinOp(node.left, kind(), node.right)
        is_share = isinstance(node.op, (ast.FloorDiv, ast.Mod)) and isinstance(node.right, ast.Constant)  # as `n // 2`
        if not (isinstance(node.op, (ast.Add, ast.Mult)) or is_share) or _joins(node):
            yield ast.BinOp(node.right, node.op, node.left)
        yield from with_exchanged_weights(node)
        yield from with_moved_factors(node)
        yield from _with_exchanged_names(node, modules)
        yield from with_exchanged_parts(node)
        yield from _with_other_brackets(node)
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        of_text = isinstance(getattr(node.comparators[0], "value", None), str)  # which has no order
        own = type(node.ops[0])
        for order in dict.fromkeys((_OFF_BY_ONE.get(own, own), *_ORDERS)) if own in _ORDERS else ():
            if own is not order and not (of_text and order not in (ast.Eq, ast.NotEq)):
                yield ast.Compare(node.left, [order()], node.comparators)
    elif isinstance(node, ast.IfExp):
        yield from (node.body, node.orelse)
    elif isinstance(node, ast.BoolOp):
        yield from node.values
        yield ast.BoolOp((ast.Or if isinstance(node.op, ast.And) else ast.And)(), node.values)


def _joins(node: ast.BinOp) -> bool:
    """Whether it may add lists or shapes, whose order matters."""
    sides = node.left, node.right
    lists = [one for one in sides if isinstance(one, (ast.List, ast.Tuple)) or getattr(one, "attr", "") == "shape"]
    return isinstance(node.op, ast.Add) and bool(lists)


def _with_exchanged_names(node: ast.expr, modules: Container[str]) -> Iterator[ast.expr]:
    """Two names in each other's place throughout: what is kept and what is taken of a moving average."""
    every = (one.id for one in ast.walk(node) if isinstance(one, ast.Name))
    names = [name for name in dict.fromkeys(every) if name not in modules]
    for one, other in itertools.combinations(names[:_MOST_ITEMS], 2):
        made = copy.deepcopy(node)
        for name in (found for found in ast.walk(made) if isinstance(found, ast.Name)):
            name.id = {one: other, other: one}.get(name.id, name.id)
        yield made


def _with_other_brackets(node: ast.BinOp) -> Iterator[ast.expr]:
    """`a + w * b`, `w * a + b` and `(w + a) * b` for each other, and `1 - x.pow(2)` for `(1 - x).pow(2)` and back."""
    inner = node.left, node.right
    if isinstance(one := inner[0], ast.BinOp):
        yield ast.BinOp(one.left, one.op, ast.BinOp(one.right, node.op, node.right))
        yield ast.BinOp(ast.BinOp(one.left, node.op, node.right), one.op, one.right)
    if isinstance(one := inner[1], ast.BinOp):
        yield ast.BinOp(ast.BinOp(node.left, node.op, one.left), one.op, one.right)
        yield ast.BinOp(one.left, one.op, ast.BinOp(node.left, node.op, one.right))
    for at, one in enumerate(inner):
        if isinstance(one, ast.Call) and (given := given_to(one)) is not None:
            yield with_given(
                one, ast.BinOp(given, node.op, node.right) if at == 0 else ast.BinOp(node.left, node.op, given)
            )


def _of_list(node: ast.expr) -> Iterator[ast.expr]:
    """Two items in each other's place: sizes of a reshape, axes of a transposition, what is concatenated; and a sign
    before another item."""
    items = node.elts if isinstance(node, (ast.List, ast.Tuple)) else []
    made = ast.List if isinstance(node, ast.List) else ast.Tuple
    for one, other in itertools.combinations(range(min(len(items), _MOST_ITEMS)), 2):
        if ast.dump(items[one]) != ast.dump(items[other]):
            exchanged = list(items)
            exchanged[one], exchanged[other] = items[other], items[one]
            yield made(exchanged, ast.Load())
    signed = [at for at, one in enumerate(items) if isinstance(one, ast.UnaryOp) and isinstance(one.op, ast.USub)]
    for at, other in itertools.product(signed, range(min(len(items), _MOST_ITEMS))):
        if other not in signed:
            moved = [one.operand if place == at else one for place, one in enumerate(items)]  # type: ignore[attr-defined]
            moved[other] = times(moved[other], -1.0)
            yield made(moved, ast.Load())


def _of_place(node: ast.expr, scope: Sequence[ast.AST], texts: Sequence[str]) -> Iterator[ast.expr]:
    """Another attribute of the same object, or another part of the same tensor: from the other end, or all of it."""
    if isinstance(node, ast.Attribute):
        if node.attr == "T" and (sizes := sizes_of_two(node.value)) is not None:
            yield sizes
        called = {id(one.func) for one in scope if isinstance(one, ast.Call)}
        values = [one for one in scope if isinstance(one, ast.Attribute) and id(one) not in called]
        beside = [one.attr for one in values if _is_like(one.value, node.value)]
        yield from (ast.Attribute(node.value, name, ast.Load()) for name in dict.fromkeys(beside) if name != node.attr)
        if node.attr == "size":  # all places of a mask for those that hold
            yield ast.Call(ast.Attribute(node.value, "sum", ast.Load()), [], [])
    elif isinstance(node, ast.Subscript):
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for at, item in enumerate(items):
            for other in of_slice(item) if isinstance(item, ast.Slice) else ():
                parts = [*items[:at], other, *items[at + 1 :]]
                index = ast.Tuple(parts, ast.Load()) if isinstance(node.slice, ast.Tuple) else other
                yield ast.Subscript(node.value, index, ast.Load())
        yield from (ast.Subscript(node.value, ast.Constant(key), ast.Load()) for key in _other_keys(node, scope, texts))
        yield node.value


def _other_keys(node: ast.Subscript, scope: Sequence[ast.AST], texts: Sequence[str]) -> list[str]:
    """The keys by which the function takes other entries of the same dictionary, and those that the reference has.

    Those that end or begin alike come first.
    """
    if not isinstance(node.slice, ast.Constant) or not isinstance(node.slice.value, str):
        return []
    beside = [one.slice for one in scope if isinstance(one, ast.Subscript) and _is_like(one.value, node.value)]
    keys = [one.value for one in beside if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    own = node.slice.value
    found = [key for key in dict.fromkeys((*keys, *texts)) if key != own]
    return sorted(found, key=lambda key: (key[-1:] != own[-1:]) + (key[:1] != own[:1]))[:_MOST_KEYS]


def _is_like(one: ast.AST, other: ast.AST) -> bool:
    return isinstance(one, ast.Name) and isinstance(other, ast.Name) and one.id == other.id


def _of_constant(node: ast.expr, numbers: Sequence[float], options: Sequence[str]) -> Iterator[ast.expr]:
    if (value := number_of(node)) is not None:
        yield from (ast.Constant(other) for other in dict.fromkeys(_usual(value, numbers)) if other != value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant):
        kin = [text for texts in _TEXTS if node.value in texts for text in (*texts, *options)]
        yield from (ast.Constant(text) for text in dict.fromkeys(kin) if text != node.value)


def _of_name(node: ast.expr, names: Sequence[str]) -> Iterator[ast.expr]:
    """Another name in place of one, of a fraction's plain number or of what is made anew."""
    makes = isinstance(node, ast.Call) and getattr(node.func, "attr", "") in _MAKING
    if isinstance(node, ast.Name) or isinstance(number_of(node), float) or makes:
        yield from (ast.Name(name, ast.Load()) for name in names if name != getattr(node, "id", ""))


def _squared_or_at_places(node: ast.expr, scope: Sequence[ast.AST]) -> Iterator[ast.expr]:
    """A name times itself; and a result times what the function has elsewhere of a tensor at a place: `alive[t]`."""
    if isinstance(node, ast.Name):
        yield ast.BinOp(node, ast.Mult(), node)
    elif isinstance(node, ast.BinOp):
        places = [one for one in scope if isinstance(one, ast.Subscript) and isinstance(one.slice, ast.Name)]
        for one in list({ast.dump(one.value): one for one in places}.values())[:_MOST_ITEMS]:
            yield ast.BinOp(node, ast.Mult(), ast.Subscript(one.value, one.slice, ast.Load()))


def _in_calls_beside(node: ast.expr, scope: Sequence[ast.AST], modules: Container[str]) -> Iterator[ast.expr]:
    """A name in a call that the function makes of another name: `self.norm(first)` for `first`, beside
    `self.norm(second)`."""
    if not isinstance(node, ast.Name):
        return
    found: dict[str, ast.Call] = {}
    for one in scope:
        if isinstance(one, ast.Call) and len(one.args) == 1 and not one.keywords and isinstance(one.args[0], ast.Name):
            if one.args[0] is node:
                return
            root = getattr(one.func, "value", None)
            if not isinstance(root, ast.Name) or root.id == "self" or root.id not in modules:  # a layer, a function
                found.setdefault(ast.dump(one.func), one)
    yield from (ast.Call(one.func, [node], []) for one in found.values())


def _usual(value: float, numbers: Sequence[float]) -> Iterator[float]:
    """What a number may have been meant to be; a whole one, which may be an axis, is rather another whole one."""
    if isinstance(value, int):
        yield from (value + 1, value - 1, -value, *(one for one in numbers if isinstance(one, int)), 0, 1, 2)
        yield from (value * 2, value // 2) if abs(value) >= _LEAST_SIZE else ()
    else:
        yield from (value / 2, value * 2, value / 10, value * 10, value + 1, value - 1, -value, 1, 2, 0.5, *numbers)
        yield from (round(1 - value, 12),) if 0 < value < 1 else ()
