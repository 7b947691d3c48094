"""How far each part of some functions is from values that are wrong, in steps from a value to what it is made of."""

import ast
import functools
import heapq
import itertools
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set

from twinalign.replay.aligned_code import Code, last_part

_REGISTER = "register_buffer"
_IN_PLACE = frozenset(
    ("append", "assign", "copy_", "extend", "fill_", "lerp_", "set_state_dict", "set_value", "update")
)
"""Methods that change what they belong to."""
_OF_OBJECTS = "__init__", "__call__", "forward"
"""Methods that run where a class is named: where an object is made, or called."""
_GRADIENT, _BACKWARD = "grad", "backward"
FAR = 1_000
"""The distance of what no wrong value is made of, as far as names tell."""
_SHARED = (ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop)
"""Nodes of which Python makes one for all code."""
_MAY_CHANGE = 5
"""Steps from a value to a call that is given it and may change it."""
Root = tuple[Code, ast.AST]
"""A part of a function that has a wrong value."""


def distances(codes: Sequence[Code], roots: Iterable[Root], classes: Mapping[str, Collection[str]]) -> dict[int, int]:
    """id of a node → distance from the nearest of the `roots`; nothing for a node that no wrong value is made of.

    `classes`: attribute → names of the classes of the layers in it.
    """
    found: dict[int, int] = {}
    asked = {key: tests for code in codes for key, tests in _asked(code.tree, ())}
    called = {call: _called(call, codes, classes) for code in codes for call in code.calls}
    waiting = [(0, number, code, node) for number, (code, node) in enumerate(roots)]
    heapq.heapify(waiting)
    number = itertools.count(len(waiting))

    def ask(distance: int, more: Iterable[Root]) -> None:
        for code, node in more:
            heapq.heappush(waiting, (distance, next(number), code, node))

    while waiting:
        distance, _, code, node = heapq.heappop(waiting)
        ask(distance + 1, ((code, one) for one in asked.get(id(node), ())))
        inside = [one for one in ast.walk(node) if id(one) not in found and not isinstance(one, _SHARED)]
        found.update((id(one), distance) for one in inside)
        read = {one.id for one in inside if isinstance(one, ast.Name)}
        for one, may_change in _made(code, read):
            ask(distance + (_MAY_CHANGE if may_change else 1), [(code, one)])
        kept = {one.attr for one in inside if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Load)}
        ask(distance + 1, ((other, one) for other in codes for one in _kept(other, kept)))
        for call in (one for one in inside if isinstance(one, ast.Call)):
            for other in called.get(call, ()):
                ask(distance + 1, ((other, one) for one in ast.walk(other.tree) if isinstance(one, ast.Return)))
        ask(distance + 1, ((code, value) for value in _defaults(code, read)))
        if read & {one.arg for one in code.tree.args.args}:
            ask(distance + 1, ((other, c) for other in codes for c in other.calls if code in called[c]))
    return found


def shared_distances(
    codes: Sequence[Code], every: Iterable[Sequence[Root]], classes: Mapping[str, Collection[str]]
) -> dict[int, int]:
    """The same for several things that are wrong, each with its roots: of what all of them are made, the farthest."""
    found = [distances(codes, roots, classes) for roots in every]
    shared = functools.reduce(operator.and_, (one.keys() for one in found))
    return {key: max(one[key] for one in found) for key in shared}


def lines_of(codes: Sequence[Code], far: Mapping[int, int]) -> list[tuple[str, int]]:
    """File and number of the lines of statements that have a distance, the nearest first."""
    found: dict[tuple[str, int], int] = {}
    for code in codes:
        for node in ast.walk(code.tree):
            if isinstance(node, ast.stmt) and id(node) in far:
                place = code.file, node.lineno
                found[place] = min(far[id(node)], found.get(place, FAR))
    return sorted(found, key=lambda place: found[place])


def _asked(node: ast.AST, around: tuple[ast.AST, ...]) -> Iterator[tuple[int, tuple[ast.AST, ...]]]:
    """id of each part of a function → what the blocks around it ask, or go through."""
    yield id(node), around
    test = getattr(node, "test", None) or getattr(node, "iter", None)
    for field, value in ast.iter_fields(node):
        within = (*around, test) if isinstance(test, ast.AST) and field in ("body", "orelse") else around
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, ast.AST):
                yield from _asked(one, within)


def wrong_parts(
    codes: Sequence[Code], layers: Collection[str], returning: Collection[str], lines: Collection[tuple[str, int]]
) -> Iterator[Root]:
    """The parts of functions that have wrong values.

    Args:
        layers: attributes whose layers are given something wrong.
        returning: names of the functions that return something wrong.
        lines: file and number of lines in which values go wrong.
    """
    for code in codes:
        yield from ((code, node) for node in _wrong(code, layers, code.name in returning, lines))


def named_parts(codes: Sequence[Code], names: Collection[str]) -> Iterator[Root]:
    """What functions compute under these names: as keywords, keys, attributes, or what calls of that name are given.

    Of a function with such a name, it is what it returns, and what it calls for its effects, such as `set_value`.
    """
    for code in codes:
        is_named = last_part(code.name) in names
        for node in ast.walk(code.tree):
            is_result = is_named and (isinstance(node, ast.Return) or _is_effect(node))
            yield from ((code, one) for one in ([node] if is_result else _under(node, names)))


def _is_effect(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


def kept_parts(codes: Sequence[Code], attributes: Set[str]) -> Iterator[Root]:
    """What functions keep in attributes of these names."""
    for code in codes:
        yield from ((code, node) for node in _kept(code, attributes))


def callers_of(code: Code, codes: Sequence[Code]) -> list[Code]:
    """The functions among these that call one, as far as names tell."""
    return [other for other, _ in _calls_of(code, codes, {}) if other is not code]


def called_by(code: Code, codes: Sequence[Code]) -> list[Code]:
    """The functions among these that one calls."""
    return [other for call in code.calls for other in _called(call, codes, {})]


def outermost(codes: Sequence[Code], classes: Mapping[str, Collection[str]]) -> list[str]:
    """Names of the functions that no other of them calls."""
    return [code.name for code in codes if all(other is code for other, _ in _calls_of(code, codes, classes))]


def _wrong(code: Code, layers: Collection[str], returns: bool, lines: Collection[tuple[str, int]]) -> Iterable[ast.AST]:
    for node in ast.walk(code.tree):
        if isinstance(node, ast.Call) and _attributes(node.func) & set(layers):
            yield from (*node.args, *node.keywords)
        elif (isinstance(node, ast.Return) and returns) or (
            isinstance(node, ast.stmt) and not hasattr(node, "body") and (code.file, node.lineno) in lines
        ):
            yield node


def _made(code: Code, names: Collection[str]) -> Iterable[tuple[ast.AST, bool]]:
    """The statements of a function that give these names values, or add to what they have; and whether they only may:
    a call whose value is used rather computes than changes what it is given."""
    for node in code.nodes if names else ():
        if isinstance(node, (ast.For, ast.comprehension)):
            if _names(node.target) & set(names):
                yield node.iter, False
        elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            is_made = any(_names(target) & set(names) for target in targets)
            if is_made or _may_change(node.value) & set(names):
                yield node, not is_made
        elif isinstance(node, ast.Expr) and _may_change(node.value) & set(names):
            yield node, False


def _defaults(code: Code, names: Collection[str]) -> list[ast.expr]:
    """The default values of a function's parameters of these names."""
    given = code.tree.args
    pairs = [*zip(given.args[len(given.args) - len(given.defaults) :], given.defaults, strict=True)]
    pairs += [(one, value) for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value is not None]
    return [value for one, value in pairs if one.arg in names]


def _may_change(value: ast.expr | None) -> set[str]:
    """Names of what a call may change: the object of a method, and what it is given, as in `ema.step(net)`."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute) or value.func.attr == _BACKWARD:
        return set()
    return {one.id for one in (value.func.value, *value.args) if isinstance(one, ast.Name)}


def _kept(code: Code, attributes: Set[str]) -> Iterable[ast.AST]:
    """What a function keeps in attributes of these names, or in what it has of them; as gradients, what it sends
    back."""
    if _GRADIENT in attributes:
        yield from (call for call in code.calls if getattr(call.func, "attr", "") == _BACKWARD)
    for node in code.nodes if attributes & code.names else ():
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(_stored(target) & attributes for target in targets):
                yield node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_registered = node.func.attr == _REGISTER and {_text(one) for one in node.args[:1]} & attributes
            if is_registered or node.func.attr in _IN_PLACE:
                yield node
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            holder = getattr(node.value.func, "value", None)
            if getattr(holder, "attr", "") in attributes:
                yield node


def _under(node: ast.AST, names: Collection[str]) -> Iterable[ast.AST]:
    if isinstance(node, ast.keyword) and node.arg in names:
        yield node.value
    elif isinstance(node, ast.Dict):
        yield from (v for k, v in zip(node.keys, node.values, strict=True) if _text(k) in names)
    elif isinstance(node, ast.Assign):
        keys = {_text(one.slice) for one in node.targets if isinstance(one, ast.Subscript)}
        if (keys | _stored(node)) & set(names):
            yield node.value
    elif isinstance(node, ast.Call) and {*_called_names(node.func), *map(_text, node.args)} & set(names):
        yield from (node.func, *node.args, *node.keywords)


def _called_names(function: ast.expr) -> set[str]:
    """The name of what is called; of a class, such as `optimizer.lr.StepDecay`, those of its modules as well."""
    name = last_part(ast.unparse(function))
    return {name} | (_attributes(function) if name[:1].isupper() else set())


def _text(node: ast.AST | None) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else ""


def _stored(node: ast.AST) -> set[str]:
    """The attributes that are assigned to, or places in them."""
    places = [one for one in ast.walk(node) if isinstance(getattr(one, "ctx", None), ast.Store)]
    holders = [one.value if isinstance(one, ast.Subscript) else one for one in places]
    return {one.attr for one in holders if isinstance(one, ast.Attribute)}


def _called(call: ast.Call, codes: Sequence[Code], classes: Mapping[str, Collection[str]]) -> Iterable[Code]:
    """The functions among these that a call may run: of that name, or what the layers in that attribute compute."""
    names = _attributes(call.func) | _names(call.func)
    forwards = {f"{kind}.forward" for name in names for kind in classes.get(name, ())}
    made = {f"{name}.{method}" for name in names for method in _OF_OBJECTS}
    return [one for one in codes if last_part(one.name) in names or one.name in forwards | made]


def _calls_of(
    code: Code, codes: Sequence[Code], classes: Mapping[str, Collection[str]]
) -> Iterable[tuple[Code, ast.Call]]:
    return [(other, call) for other in codes for call in other.calls if code in _called(call, codes, classes)]


def _attributes(node: ast.AST) -> set[str]:
    return {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
