"""Branches that were never taken, left out of a source whose line numbers stay: each becomes a `raise`."""

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

_SAID = re.compile(r"the model never came to line (\d+) of ([\w.]+)")


def without_untaken(module: str, text: str, ran: Collection[int]) -> str:
    """The source with a `raise` in place of every branch, loop and handler of functions of which no line ran.

    `ran` are the numbers of the lines that ran. What stands in a function that never ran stays as it is.
    """
    lines = text.splitlines(keepends=True)
    for block in _untaken(ast.parse(text).body, frozenset(ran), inside=False):
        first, last = block[0], block[-1].end_lineno or block[-1].lineno
        said = f"left out of the port: the model never came to line {first.lineno} of {module}"
        lines[first.lineno - 1] = f'{" " * first.col_offset}raise NotImplementedError("{said}")\n'
        lines[first.lineno : last] = ["\n"] * (last - first.lineno)
    return "".join(lines)


def came_to(message: str) -> tuple[str, int] | None:
    """Module and line of a branch that was left out and is taken after all, from what its `raise` says."""
    found = _SAID.search(message)
    return (found[2], int(found[1])) if found else None


def _untaken(statements: Iterable[ast.stmt], ran: frozenset[int], *, inside: bool) -> Iterator[list[ast.stmt]]:
    """The outermost blocks none of whose lines ran; `inside` of a function."""
    for statement in statements:
        if isinstance(statement, ast.ClassDef):
            yield from _untaken(statement.body, ran, inside=False)
        elif isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if _any_ran(statement.body, ran):
                yield from _untaken(statement.body, ran, inside=True)
        elif inside:
            for block in _blocks(statement):
                on_its_own = block[0].lineno > statement.lineno and not (
                    isinstance(statement, ast.If) and block == statement.orelse and isinstance(block[0], ast.If)
                )
                if _any_ran(block, ran) or not on_its_own:
                    yield from _untaken(block, ran, inside=True)
                else:
                    yield block


def _blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    found = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
    found += [one.body for one in getattr(statement, "handlers", []) if not all(map(_is_plain, one.body))]
    return [block for block in found if block]


def _is_plain(statement: ast.stmt) -> bool:
    """Whether it needs nothing: such a handler stays, as paddle may raise where torch does not."""
    match statement:
        case ast.Pass() | ast.Continue() | ast.Return(None | ast.Constant()):
            return True
    return False


def _any_ran(block: Sequence[ast.stmt], ran: frozenset[int]) -> bool:
    return any(not ran.isdisjoint(range(one.lineno, (one.end_lineno or one.lineno) + 1)) for one in block)
