"""How far each part of some functions is from values that are wrong, in steps from a value to what it is made of."""

import ast
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence

from twinalign.replay.aligned_code import Code, last_part

FAR = 1_000
"""The distance of what no wrong value is made of, as far as names tell."""


def distances(
    codes: Sequence[Code],
    layers: Collection[str],
    returning: Collection[str],
    lines: Collection[tuple[str, int]],
    classes: Mapping[str, Collection[str]],
) -> dict[int, int]:
    """id of a node → distance; nothing for a node that no wrong value is made of.

    Args:
        codes: the functions.
        layers: attributes whose layers are given something wrong.
        returning: names of the functions that return something wrong.
        lines: file and number of lines in which values go wrong.
        classes: attribute → names of the classes of the layers in it.
    """
    found: dict[int, int] = {}
    waiting: deque[tuple[Code, ast.AST, int]] = deque()
    for code in codes:
        waiting += [(code, node, 0) for node in _wrong(code, layers, code.name in returning, lines)]
    while waiting:
        code, node, distance = waiting.popleft()
        inside = [one for one in ast.walk(node) if id(one) not in found]
        found.update((id(one), distance) for one in inside)
        read = {one.id for one in inside if isinstance(one, ast.Name)}
        waiting += [(code, one, distance + 1) for one in _made(code, read)]
        for call in (one for one in inside if isinstance(one, ast.Call)):
            for other in _called(call, codes, classes):
                waiting += [(other, one, distance + 1) for one in ast.walk(other.tree) if isinstance(one, ast.Return)]
        if read & {one.arg for one in code.tree.args.args}:
            waiting += [(other, call, distance + 1) for other, call in _calls_of(code, codes, classes)]
    return found


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


def _made(code: Code, names: Collection[str]) -> Iterable[ast.AST]:
    """The statements of a function that give these names values, or add to what they have."""
    for node in ast.walk(code.tree):
        if isinstance(node, (ast.For, ast.comprehension)):
            if _names(node.target) & set(names):
                yield node.iter
        elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(_names(target) & set(names) for target in targets):
                yield node
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            holder = node.value.func.value if isinstance(node.value.func, ast.Attribute) else None
            if isinstance(holder, ast.Name) and holder.id in names:
                yield node


def _called(call: ast.Call, codes: Sequence[Code], classes: Mapping[str, Collection[str]]) -> Iterable[Code]:
    """The functions among these that a call may run: of that name, or what the layers in that attribute compute."""
    names = _attributes(call.func) | _names(call.func)
    forwards = {f"{kind}.forward" for name in names for kind in classes.get(name, ())}
    return [one for one in codes if last_part(one.name) in names or one.name in forwards]


def _calls_of(
    code: Code, codes: Sequence[Code], classes: Mapping[str, Collection[str]]
) -> Iterable[tuple[Code, ast.Call]]:
    return [(other, call) for other in codes for call in other.calls if code in _called(call, codes, classes)]


def _attributes(node: ast.AST) -> set[str]:
    return {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
