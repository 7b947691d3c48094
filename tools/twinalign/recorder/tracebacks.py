"""What a user is shown of an error in their own code."""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path

_PACKAGE = os.path.realpath(Path(__file__).resolve().parent.parent)
LIBRARIES = tuple(os.path.realpath(path) for path in {sysconfig.get_path(n) for n in ("stdlib", "purelib", "platlib")})
"""Where neither the user's code nor twinalign's lies."""


def full(error: BaseException) -> str:
    """The traceback without twinalign's own leading frames, for the log."""
    frames = traceback.extract_tb(error.__traceback__)
    kept = [frame for frame in frames if not os.path.realpath(frame.filename).startswith(_PACKAGE)] or list(frames)
    return "".join(traceback.format_list(kept)) + "".join(traceback.format_exception_only(error))


def shortened(error: BaseException) -> str:
    """The frames of the user's own code alone; what libraries did between and after them is counted."""
    frames = traceback.extract_tb(error.__traceback__)
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
    """`file:line` of the last frame in the user's own code, empty where there is none."""
    users = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame)]
    return f"{users[-1].filename}:{users[-1].lineno}" if users else ""


def entered(error: BaseException) -> str:
    """The function of the user's code that was called first, empty where there is none."""
    return next((frame.name for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame)), "")


def _counted(hidden: int) -> Iterable[str]:
    return [f"  … {hidden} more frame{'s' if hidden > 1 else ''} in libraries"] if hidden else []


def _is_users(frame: traceback.FrameSummary) -> bool:
    path = os.path.realpath(frame.filename)
    installed = {"site-packages", "dist-packages"} & set(Path(path).parts)  # of another interpreter, too
    return not (frame.filename.startswith("<") or installed or path.startswith((_PACKAGE + os.sep, *LIBRARIES)))
