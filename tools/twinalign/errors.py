"""Errors for the user, and the exit codes of commands."""

import contextlib
import enum
import errno
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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

    def help_topic(self) -> str:
        """The topic of `twinalign help` that has what is behind this message."""
        return topic_of(str(self))


class InputError(TwinalignError):
    """A mistake in the user's input: the message names the file, the key and the remedy."""

    exit_code = ExitCode.BAD_INPUT


class SideCrashError(TwinalignError):
    """The process of one framework ended before it finished its recording."""

    exit_code = ExitCode.SIDE_CRASHED

    def help_topic(self) -> str:
        """Not by the text: it ends in the words of the user's own exception."""
        return "out-of-memory" if "killed by SIGKILL" in str(self) else "side-crashed"


class DivergedError(TwinalignError):
    """The two models compute different things: the message says where they differ."""

    exit_code = ExitCode.DIVERGED


@functools.cache
def help_topics() -> dict[str, dict[str, Any]]:
    """The topics of `twinalign help` in their order, from help.toml: `title`, `text` in Markdown, and `says`."""
    import tomllib

    with Path(__file__).with_name("help.toml").open("rb") as file:
        return tomllib.load(file)


def topic_of(message: str) -> str:
    """The topic of a message: the one with the longest part that occurs in it, `other` if none does."""
    found = [(len(part), name) for name, topic in help_topics().items() for part in topic["says"] if part in message]
    return max(found, default=(0, "other"))[1]


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
