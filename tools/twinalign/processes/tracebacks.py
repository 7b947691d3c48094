"""The part of an error in the user's code that the user is shown."""

import ast
import linecache
import os
import re
import sysconfig
import traceback
import types
from collections.abc import Iterable
from pathlib import Path

_PACKAGE = os.path.realpath(Path(__file__).resolve().parent.parent)
LIBRARIES = tuple(os.path.realpath(path) for path in {sysconfig.get_path(n) for n in ("stdlib", "purelib", "platlib")})
"""Where neither the user's code nor twinalign's lies."""
_CALL = re.compile(r"\(\) (takes|got|missing) ")
"""In what Python says of a call with other arguments than the function takes."""


def full(error: BaseException) -> str:
    """The traceback for the log, without twinalign's own frames unless it is at fault; what led to the error first."""
    texts = []
    for one in reversed(_chain(error)):
        frames = list(traceback.extract_tb(one.__traceback__))
        kept = frames if own_place(error) else [frame for frame in frames if not _is_own(frame)] or frames
        texts.append("".join(traceback.format_list(kept)) + "".join(traceback.format_exception_only(one)))
    return "\nwhich led to:\n\n".join(texts)


def last_line(error: BaseException) -> str:
    """The error in one line, and the one that it was raised from, if there is one."""
    causes = [error]
    while causes[-1].__cause__ is not None and causes[-1].__cause__ not in causes:
        causes.append(causes[-1].__cause__)
    lines = [_only(one) for one in (error, causes[-1])]
    return lines[0] if len(causes) == 1 or lines[1] in lines[0] else f"{lines[0]} (because of {lines[1]})"


def own_place(error: BaseException) -> str:
    """`folder/file.py:line` of twinalign, if its own code has raised; empty if the user's or a framework's code has.

    Code that is put around a function of a framework is not at fault where this function raises, but who called it.
    """
    if isinstance(error, TypeError) and _CALL.search(str(error)):
        return ""  # a function of the user that takes other arguments
    innermost = ""
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        code = frame.f_code
        path = os.path.realpath(code.co_filename)
        if path.startswith(_PACKAGE + os.sep):
            innermost = f"{Path(path).relative_to(_PACKAGE).as_posix()}:{line}"
            if not _calls_what_it_was_given(code, line):
                return innermost
        elif is_users_file(code.co_filename) or set(Path(code.co_filename).parts) & {"torch", "paddle"}:
            return ""
    return innermost


def _calls_what_it_was_given(code: types.CodeType, line: int) -> bool:
    """Whether a line calls a function that its own function was given, or was made around."""
    given = {*code.co_freevars, *code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]}
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    except SyntaxError:
        return False
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name))
    return any(call.func.id in given and call.lineno <= line <= (call.end_lineno or line) for call in calls)  # type: ignore[attr-defined]


def _chain(error: BaseException) -> list[BaseException]:
    """The error, what it was raised from or while handling, and so on."""
    found = [error]
    while True:
        last = found[-1]
        before = last.__cause__ or (None if last.__suppress_context__ else last.__context__)
        if before is None or before in found:
            return found
        found.append(before)


def _only(error: BaseException) -> str:
    where = ""
    if isinstance(error, SyntaxError) and error.filename:  # what Python prints above its message
        where = f" in {error.filename}, line {error.lineno}"
    return traceback.format_exception_only(error)[-1].strip() + where


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Where the error was raised; for a file that Python cannot read, its faulty line last."""
    frames = list(traceback.extract_tb(error.__traceback__))
    if isinstance(error, SyntaxError) and error.filename:
        line = (error.text or "").strip()
        frames.append(traceback.FrameSummary(error.filename, error.lineno, "<module>", line=line))
    return frames


def _is_own(frame: traceback.FrameSummary) -> bool:
    return os.path.realpath(frame.filename).startswith(_PACKAGE + os.sep)


def shortened(error: BaseException) -> str:
    """Only the frames of the user's own code; frames of libraries between and after them are counted."""
    frames = _frames(error)
    if not any(_is_users(frame) for frame in frames):
        return ""
    lines: list[str] = []
    hidden = 0
    for frame in frames:
        if _is_users(frame):
            lines += _counted(hidden)
            lines.append(f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}')
            lines += [f"    {frame.line}"] if frame.line else []
            hidden = 0
        elif lines:  # what called the user's code is twinalign's affair
            hidden += 1
    return "\n".join([*lines, *_counted(hidden)])


def place(error: BaseException) -> str:
    """`file:line` of the last frame in the user's own code, empty if there is none."""
    users = [frame for frame in _frames(error) if _is_users(frame)]
    return f"{users[-1].filename}:{users[-1].lineno}" if users else ""


def entered(error: BaseException) -> str:
    """The first function of the user's code that was called, empty if there is none."""
    return next((frame.name for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame)), "")


def _counted(hidden: int) -> Iterable[str]:
    return [f"  … {hidden} more frame{'s' if hidden > 1 else ''} in libraries"] if hidden else []


def is_users_file(file: str) -> bool:
    """Whether a file of code is neither twinalign's nor part of an installed library."""
    path = os.path.realpath(file)
    installed = {"site-packages", "dist-packages"} & set(Path(path).parts)  # of another interpreter, too
    return not (file.startswith("<") or installed or path.startswith((_PACKAGE + os.sep, *LIBRARIES)))


def _is_users(frame: traceback.FrameSummary) -> bool:
    return is_users_file(frame.filename)
