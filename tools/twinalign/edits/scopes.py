"""Which names a line of source has, so that nothing is said to be written there that would not run."""

import ast
import builtins
import functools
from collections.abc import Iterator

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def runs_there(text: str, line: int, before: str, after: str) -> bool:
    """Whether code that takes the place of other code in this line reads only names that are known there.

    What it assigns must be what was assigned there, which later lines read. Code that cannot be parsed alone, such as
    the keyword of a call, is not looked into.
    """
    try:
        old, new = ast.parse(before.strip()), ast.parse(after.strip())
    except SyntaxError:
        return True
    stored = [{one.id for one in _names(tree) if isinstance(one.ctx, ast.Store)} for tree in (old, new)]
    inside = {one.arg for one in ast.walk(new) if isinstance(one, ast.arg)}
    inside |= {one.id for made in ast.walk(new) if isinstance(made, ast.comprehension) for one in _names(made.target)}
    assigned = [{one.id for one in _names(tree) if _is_target(tree, one)} for tree in (old, new)]
    known = _known(text, line) | inside | stored[1]
    return assigned[0] == assigned[1] and {one.id for one in _names(new)} <= known


def _is_target(tree: ast.Module, name: ast.Name) -> bool:
    targets = [target for one in tree.body if isinstance(one, ast.Assign) for target in one.targets]
    return any(name is one for target in targets for one in ast.walk(target) if isinstance(name.ctx, ast.Store))


def _names(tree: ast.AST) -> list[ast.Name]:
    return [one for one in ast.walk(tree) if isinstance(one, ast.Name)]


@functools.lru_cache(maxsize=256)
def _known(text: str, line: int) -> frozenset[str]:
    """The names that a line may read: those of its function, bound ahead of it, of what is around, and of Python."""
    tree = ast.parse(text)
    found = set(dir(builtins)) | set(_bound(tree))
    for scope in ast.walk(tree):
        if not isinstance(scope, (*_FUNCTIONS, *_COMPREHENSIONS)):
            continue
        if not scope.lineno <= line <= (scope.end_lineno or line):
            continue
        if isinstance(scope, _COMPREHENSIONS):
            found.update(one.id for made in scope.generators for one in _names(made.target))
        else:
            found.update(one.arg for one in ast.walk(scope.args) if isinstance(one, ast.arg))
            found.update(_bound(scope, line))
    return frozenset(found)


def _bound(scope: ast.AST, before: int | None = None) -> Iterator[str]:
    """Names that a scope binds itself, in lines ahead of one if it is given."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and (before is None or node.lineno < before):
            yield node.id
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler)) and node.name:
            yield node.name
        if not isinstance(node, (*_FUNCTIONS, *_COMPREHENSIONS, ast.ClassDef)):
            yield from _bound(node, before)
