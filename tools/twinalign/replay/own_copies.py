"""Edits with which a function has a copy of its own of what it changes or keeps, where the port shares it with others.

In place are changed a part that is assigned, what an operation with `=` changes, and what a call for its effects is
given or belongs to: `rng.shuffle(items)`, `buffer.set_value(mean)`.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator, Sequence

from twinalign.replay.aligned_code import Code
from twinalign.replay.statement_edits import StatementEdit, added, blocks_of

Edit = tuple[ast.expr, ast.expr]
_COPYING = ("copy", "clone")
"""Methods of arrays and lists, and of tensors; what has neither does not run."""
_COPIES = (*_COPYING, "deepcopy", "array")
_VALUES = ast.Name | ast.Attribute | ast.Subscript


def own_copies(tree: ast.FunctionDef) -> Iterator[Edit]:
    """A copy in place of each value that a function changes under another name, or that it hands on to be kept."""
    changed = _changed_in_place(tree)
    for node in ast.walk(tree):
        for value in _shared(node, changed):
            for method in _COPYING:
                yield value, ast.Call(ast.Attribute(value, method, ast.Load()), [], [])


def lacking_copies(code: Code, theirs: Sequence[ast.AST]) -> Iterator[StatementEdit]:
    """A function that begins with a copy of a parameter which it changes in place.

    `theirs`: the reference's code that does the same.
    """
    copies = any(getattr(one, "attr", "") in _COPIES for tree in theirs for one in ast.walk(tree))
    block = blocks_of(code)[0]
    at = int(ast.get_docstring(code.tree) is not None)
    names = {one.arg for one in code.tree.args.args} & _changed_in_place(code.tree)
    for name in sorted(names - {"self"}):
        for method in _COPYING:
            edit = added(code, block, at, ast.parse(f"{name} = {name}.{method}()").body[0])
            yield dataclasses.replace(edit, is_as_theirs=copies)


def _changed_in_place(tree: ast.AST) -> set[str]:
    """The names and attributes that a function changes in place."""
    found: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            found += [one for one in node.targets if isinstance(one, ast.Subscript)]
        elif isinstance(node, ast.AugAssign):
            found.append(node.target)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            found += node.value.args
            found += [node.value.func.value] if isinstance(node.value.func, ast.Attribute) else []
    return {ast.unparse(_whole(one)) for one in found}


def _whole(node: ast.expr) -> ast.expr:
    """What an expression is a part of, however deep."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def _shared(node: ast.AST, changed: set[str]) -> Iterator[ast.expr]:
    """Values of others that a statement gives a name which is changed in place, or keeps, or returns."""
    if isinstance(node, ast.Assign) and isinstance(node.value, _VALUES):
        is_kept = any(isinstance(one, ast.Attribute | ast.Subscript) for one in node.targets)
        if is_kept or changed & {ast.unparse(_whole(one)) for one in (*node.targets, node.value)}:
            yield node.value
    elif isinstance(node, ast.Return) and isinstance(node.value, ast.Attribute | ast.Subscript):
        yield node.value
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield from (one for one in node.value.args if isinstance(one, _VALUES))
