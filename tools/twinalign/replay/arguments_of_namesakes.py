"""Plain arguments that the reference gives to a function, and that the port's call of the same function lacks."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from twinalign.replay.edited_trees import placed
from twinalign.replay.likeness import SPELLED
from twinalign.replay.small_edits import expressions

_IN_PADDLE = {torch: paddle for paddle, torch in SPELLED.items()}


def arguments_of_namesakes(parts: Sequence[ast.AST], theirs: Iterable[ast.AST]) -> Iterator[tuple[ast.expr, ast.expr]]:
    """`paddle.triu(x, 1)` for `paddle.triu(x)`, where the reference has `x.triu_(1)`.

    Args:
        parts: what of the port's code may be edited.
        theirs: nodes of the reference's code that does the same.
    """
    known: dict[str, list[ast.Call]] = {}
    for call in theirs:
        if isinstance(call, ast.Call):
            known.setdefault(_name(call), []).append(call)
    for node in expressions(parts) if known else ():
        if isinstance(node, ast.Call):
            made = (one for other in known.get(_name(node), ()) for one in _with_further(node, other))
            yield from ((node, placed(one, node)) for one in {ast.dump(one): one for one in made}.values())


def _name(call: ast.Call) -> str:
    name = ast.unparse(call.func).rpartition(".")[2].rstrip("_")
    return SPELLED.get(name, name)


def _with_further(call: ast.Call, other: ast.Call) -> Iterator[ast.Call]:
    """The port's call with one more argument of the reference's, then with all of them."""
    given = {SPELLED.get(one.arg or "", one.arg) for one in call.keywords}
    keywords = [
        ast.keyword(_IN_PADDLE.get(one.arg, one.arg), one.value)
        for one in other.keywords
        if one.arg is not None and one.arg not in given and _is_plain(one.value)
    ]
    plain = [sum(map(_is_plain, one.args)) for one in (call, other)]
    further = other.args[len(other.args) - (plain[1] - plain[0]) :] if plain[1] > plain[0] else []
    if further and all(map(_is_plain, further)):
        yield ast.Call(call.func, [*call.args, *further], call.keywords)
    yield from (ast.Call(call.func, call.args, [*call.keywords, one]) for one in keywords)
    if len(keywords) > 1:
        yield ast.Call(call.func, call.args, [*call.keywords, *keywords])


def _is_plain(node: ast.expr) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant) and isinstance(inner.value, (bool, int, float, str))
