"""Errors for the user, and the exit codes of commands."""

import contextlib
import enum
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from twinalign import interruption


class ExitCode(enum.IntEnum):
    """Exit codes of commands; fixed, because scripts rely on them."""

    ALIGNED = 0
    DIVERGED = 1
    BAD_INPUT = 2
    INCONCLUSIVE = 3
    SIDE_CRASHED = 4
    INTERRUPTED = interruption.EXIT_CODE
    """By Ctrl-C or SIGTERM."""


class TwinalignError(Exception):
    """Base of errors that are shown in one line, without a traceback."""

    exit_code: ExitCode = ExitCode.BAD_INPUT


class InputError(TwinalignError):
    """A mistake in the user's input: the message names the file, the key and the remedy."""

    exit_code = ExitCode.BAD_INPUT


class SideCrashError(TwinalignError):
    """The process of one framework ended before it finished its recording."""

    exit_code = ExitCode.SIDE_CRASHED


class DivergedError(TwinalignError):
    """The two models compute different things: the message says where they differ."""

    exit_code = ExitCode.DIVERGED


def has_no_room(error: OSError) -> bool:
    """Whether a file could not grow: no space is left, none of the user's quota, or the file is as large as allowed."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def unwritten(error: OSError, path: str | os.PathLike[str]) -> InputError:
    """What a user is told of a file that could not be written."""
    if error.errno == errno.EFBIG:
        text = "it exceeds the file size limit (ulimit -f); nothing was written; raise the limit"
        return InputError(f"{path}: {text}")
    if has_no_room(error):
        return InputError(f"{path}: the disk is full; nothing was written; free some space and repeat")
    return InputError(f"{path}: cannot be written ({error.strerror or error}); nothing was written")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise InputError with path and remedy if the block cannot write there, say because the disk is full."""
    try:
        yield
    except OSError as error:
        raise unwritten(error, path) from None
