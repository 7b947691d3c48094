"""twinalign: port models from PyTorch to PaddlePaddle and know that the port is right.

The commands are functions here (`twinalign.run`, `twinalign.compare`, …, see `twinalign.api`). All names are imported
on first use, so that the command line can handle Ctrl-C before it imports anything.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from twinalign.api import (
        check_port,
        compare,
        convert,
        doctor,
        fix,
        info,
        init,
        locate,
        pack,
        port,
        record,
        report,
        run,
        selftest,
        session,
        verify,
        zoo,
    )
    from twinalign.attached.attachment import attach
    from twinalign.case.definition import Case
    from twinalign.errors import ExitCode, InputError, SideCrashError, TwinalignError
    from twinalign.version import __version__

_MODULES = {
    "Case": "case.definition",
    "ExitCode": "errors",
    "InputError": "errors",
    "SideCrashError": "errors",
    "TwinalignError": "errors",
    "__version__": "version",
    "attach": "attached.attachment",  # in a trainer's process, which may have numpy and its framework alone
}
"""Where a name is from that is not of `api`."""

__all__ = ["Case", "ExitCode", "InputError", "SideCrashError", "TwinalignError", "__version__", "compare", "convert"]
__all__ += [
    "attach",
    "check_port",
    "doctor",
    "fix",
    "info",
    "init",
    "locate",
    "pack",
    "port",
    "record",
    "report",
    "run",
    "selftest",
    "session",
    "verify",
    "zoo",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_MODULES.get(name, 'api')}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
