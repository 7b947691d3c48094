"""Branches that were never taken, left out of a source whose line numbers stay: each becomes a `raise`."""

import ast
import re
import sys
import types
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from twinalign.backends import load_backend
from twinalign.conversion.model_factory import load_factory
from twinalign.drafting.one_pass import Inputs, run_once
from twinalign.drafting.parts import load_part

_SAID = re.compile(r"the model never came to line (\d+) of ([\w.]+)")


def observe_lines(
    reference: str, inputs: Inputs, parts: Mapping[str, str], files: Sequence[str]
) -> dict[str, list[int]]:
    """File → lines that ran while the model was imported, built and run with its parts.

    To be called in a process that has not imported it.
    """
    from twinalign.backends.torch.reference_only.promotion import leave_scripts_in_python

    backend = load_backend("torch")
    leave_scripts_in_python()
    ran: dict[str, set[int]] = {file: set() for file in files}

    def trace(frame: types.FrameType, event: str, value: Any) -> Any:
        lines = ran.get(frame.f_code.co_filename)
        if lines is None:
            return None

        def local(frame: types.FrameType, event: str, value: Any) -> Any:
            lines.add(frame.f_lineno)
            return local

        return local(frame, event, value)

    sys.settrace(trace)
    try:
        factory, arguments = load_factory(reference)
        builders = {kind: load_part(kind, text) for kind, text in parts.items()}
        backend.set_seed(0)
        models = [factory(**arguments) for _ in range(2)]  # a class may keep what its first object found out
        for _ in run_once(backend, models[0], inputs, builders):
            pass
    finally:
        sys.settrace(None)
    return {file: sorted(lines) for file, lines in ran.items()}


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
