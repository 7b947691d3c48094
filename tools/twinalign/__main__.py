"""`python -m twinalign`, and the installed command."""

import gc
import signal
import sys

from twinalign.errors import INTERRUPTED, ExitCode

_GARBAGE = 100_000
"""New objects after which garbage is looked for. What modules are made of stays: to look through it while they are
imported takes a tenth of that time, and what this program leaves as garbage is small."""


class _Interrupt(KeyboardInterrupt):
    """Of its own class: if KeyboardInterrupt itself passes through `eval`, as while a namedtuple is made, Python ends
    with a signal in place of the exit code."""


def _interrupt(*_: object) -> None:
    raise _Interrupt


def main() -> None:
    """Run the command line; SIGTERM ends it as Ctrl-C does, also while modules are still being imported."""
    gc.set_threshold(_GARBAGE)
    try:
        signal.signal(signal.SIGTERM, _interrupt)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # shells let background jobs ignore it
            signal.signal(signal.SIGINT, _interrupt)
        from twinalign.cli import main as command_line

        command_line()
    except KeyboardInterrupt:
        sys.stderr.write(f"twinalign: {INTERRUPTED}\n")
        sys.exit(ExitCode.INTERRUPTED)
    finally:
        gc.disable()  # the end of the process gives back what is left, looked through or not


if __name__ == "__main__":
    main()
