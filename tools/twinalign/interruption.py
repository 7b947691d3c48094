"""What Ctrl-C and SIGTERM do to a command: it ends with one line and exit code 130.

Imports next to nothing, so that it works from the first moment on.
"""

import os
import signal

EXIT_CODE = 130
"""128 + SIGINT, as shells have it."""
MESSAGE = "interrupted; no file is half-written, and the next run reuses finished recordings"


class _Interrupt(KeyboardInterrupt):
    """Of its own class: if KeyboardInterrupt itself passes through `eval`, as while a namedtuple is made, Python ends
    with a signal in place of the exit code."""


def end_at_once(*_: object) -> None:
    """End this process with the line, while there is nothing to clear up: an import may lose an exception."""
    os.write(2, f"twinalign: {MESSAGE}\n".encode())
    os._exit(EXIT_CODE)


def _raise(*_: object) -> None:
    raise _Interrupt


def begin() -> None:
    """Let the signals end this process at once; shells let background jobs ignore Ctrl-C, and it stays so."""
    signal.signal(signal.SIGTERM, end_at_once)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_at_once)


def raise_from_now_on() -> None:
    """Let the signals raise an exception from now on, so that a command can clear up; only after `begin`."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is end_at_once:
            signal.signal(number, _raise)
