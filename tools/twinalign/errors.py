"""Errors that reach the user, and the exit codes they end with."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """What a command's exit code means; fixed, scripts rely on it."""

    ALIGNED = 0
    DIVERGED = 1
    BAD_INPUT = 2
    INCONCLUSIVE = 3
    SIDE_CRASHED = 4


class TwinalignError(Exception):
    """Base of the errors that are shown as one line, without a traceback."""

    exit_code: ExitCode = ExitCode.BAD_INPUT


class InputError(TwinalignError):
    """A mistake in what the user gave: the message names the file, the key and the remedy."""

    exit_code = ExitCode.BAD_INPUT


class SideCrashError(TwinalignError):
    """The process of one framework ended before it had recorded what was asked."""

    exit_code = ExitCode.SIDE_CRASHED
