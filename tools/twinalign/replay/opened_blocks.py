"""Blocks that one side's code has and the other's lacks, such as `with no_grad():`, opened.

Their statements stand beside the other side's, one by one. One of the port's keeps its block around it.
"""

import ast
from collections.abc import Sequence

from twinalign.replay.likeness import ratio, words_of

_INNER = "_inner"
"""Attribute of a block around a single statement: that statement."""
_ENDING = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_PLAIN = (
    ast.Name, ast.Attribute, ast.Constant, ast.BoolOp, ast.UnaryOp, ast.Compare, ast.expr_context, ast.boolop,
    ast.unaryop, ast.cmpop,
)  # fmt: skip
"""What a condition is made of that nothing is computed for."""


def inner(node: ast.AST | None) -> ast.AST | None:
    """The statement that a block was put around; the node itself where none was."""
    return getattr(node, _INNER, node)


def opened(
    old: Sequence[ast.stmt], new: Sequence[ast.stmt]
) -> tuple[list[ast.stmt], list[ast.stmt], list[ast.With | ast.If]]:
    """Two runs of statements in which no block is that the other has none like it, and the reference's that were.

    A conditional block counts where its condition only looks at settings, and where it neither ends the run nor has
    another branch.
    """
    blocks = [one for one in old if isinstance(one, (ast.With, ast.If)) and _is_own(one, new)]
    theirs, ours = list[ast.stmt](), list[ast.stmt]()
    for one in old:
        theirs += one.body if isinstance(one, (ast.With, ast.If)) and one in blocks else [one]
    for one in new:
        ours += _apart(one) if isinstance(one, (ast.With, ast.If)) and _is_own(one, old) else [one]
    return theirs, ours, blocks


def header(block: ast.With | ast.If) -> ast.stmt:
    """The first line of a block."""
    rest: list[ast.stmt] = [ast.Expr(ast.Constant(...))]
    return ast.copy_location(_with_body(block, rest), block)


def _is_own(one: ast.With | ast.If, others: Sequence[ast.stmt]) -> bool:
    if any(type(other) is type(one) for other in others):
        return False
    if isinstance(one, ast.With):
        return True
    plain = all(isinstance(node, _PLAIN) for node in ast.walk(one.test))
    return plain and not one.orelse and not isinstance(one.body[-1], _ENDING)


def _apart(block: ast.With | ast.If) -> list[ast.stmt]:
    """Each statement of a block in a block of its own."""
    found = []
    for statement in block.body:
        made = ast.copy_location(_with_body(block, [statement]), statement)
        setattr(made, _INNER, statement)
        found.append(made)
    return found


def _with_body(block: ast.With | ast.If, body: list[ast.stmt]) -> ast.stmt:
    if isinstance(block, ast.If):
        return ast.If(block.test, body, [])
    return ast.With(block.items, body)


def loop_like(loop: ast.stmt, other: ast.stmt) -> ast.stmt:
    """The loop inside of another, such as that of a group's parameters, if one loop of the other side is like it."""
    if not isinstance(loop, ast.For) or not isinstance(other, ast.For):
        return loop
    inside, others = ([one for one in body if isinstance(one, ast.For)] for body in (loop.body, other.body))
    if len(inside) != 1 or others:
        return loop
    wanted, own, words = (
        [word for one in body for word in words_of(one)] for body in (other.body, loop.body, inside[0].body)
    )
    return inside[0] if ratio(words, wanted) > ratio(own, wanted) else loop
