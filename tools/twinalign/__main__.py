"""`python -m twinalign`, and the installed command."""

import signal
import sys

from twinalign.errors import INTERRUPTED, ExitCode


class _Interrupt(KeyboardInterrupt):
    """Of its own class: if KeyboardInterrupt itself passes through `eval`, as while a namedtuple is made, Python ends
    with a signal in place of the exit code."""


def _interrupt(*_: object) -> None:
    raise _Interrupt


def main() -> None:
    """Run the command line; SIGTERM ends it as Ctrl-C does, also while modules are still being imported."""
    try:
        signal.signal(signal.SIGTERM, _interrupt)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # shells let background jobs ignore it
            signal.signal(signal.SIGINT, _interrupt)
        from twinalign.cli import main as command_line

        command_line()
    except KeyboardInterrupt:
        sys.stderr.write(f"twinalign: {INTERRUPTED}\n")
        sys.exit(ExitCode.INTERRUPTED)


if __name__ == "__main__":
    main()
