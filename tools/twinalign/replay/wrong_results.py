"""What a function computes for its wrong results alone, of a dictionary or tuple that it returns."""

import ast
from collections.abc import Iterable, Iterator

_OWN = ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.Expr


def needed_by_wrong(function: ast.FunctionDef, wrong: Iterable[str]) -> set[ast.expr]:
    """Expressions that wrong results need and right ones do not; none where the results cannot be told apart.

    Args:
        wrong: keys of the dictionary, or places in the tuple, that are wrong.
    """
    results = dict(_results(function))
    if not results or not (wrong := set(wrong)) <= results.keys():
        return set()
    made: dict[str, list[ast.stmt]] = {}
    for node in ast.walk(function):
        for name in _changed(node) if isinstance(node, _OWN) else ():
            made.setdefault(name, []).append(node)  # type: ignore[arg-type]
    needed = [
        _needed([value for key, value in results.items() if (key in wrong) is is_wrong], made)
        for is_wrong in (True, False)
    ]
    return needed[0] - needed[1]


def _results(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    if len(returned) != 1:
        return
    value = returned[0]
    if isinstance(value, ast.Tuple):
        yield from ((str(place), one) for place, one in enumerate(value.elts))
    elif isinstance(value, ast.Dict):
        pairs = zip(value.keys, value.values, strict=True)
        yield from ((key.value, one) for key, one in pairs if isinstance(key, ast.Constant) and type(key.value) is str)
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "dict":
        yield from ((one.arg, one.value) for one in value.keywords if one.arg is not None)


def _changed(node: ast.AST) -> set[str]:
    """Names that a statement assigns, or whose object it calls a method of: `rows.append(row)`."""
    if isinstance(node, ast.Expr):
        called = node.value.func if isinstance(node.value, ast.Call) else None
        own = called.value if isinstance(called, ast.Attribute) else None
        return {own.id} if isinstance(own, ast.Name) else set()
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
    return {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}


def _needed(values: Iterable[ast.expr], made: dict[str, list[ast.stmt]]) -> set[ast.expr]:
    """All expressions whose values go into some."""
    waiting: list[ast.AST] = list(values)
    found, seen = set[ast.expr](), set[str]()
    while waiting:
        node = waiting.pop()
        read = node.iter if isinstance(node, ast.For) else node
        for one in ast.walk(read):
            if isinstance(one, ast.expr):
                found.add(one)
            # What one statement makes beside a result does not go into it.
            if isinstance(one, ast.Name) and _is_used(one, node) and one.id not in seen:
                seen.add(one.id)
                waiting += made.get(one.id, [])
    return found


def _is_used(name: ast.Name, statement: ast.AST) -> bool:
    return isinstance(name.ctx, ast.Load) or isinstance(statement, ast.AugAssign)
