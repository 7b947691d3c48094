"""The commands as functions: `import twinalign`, then `twinalign.run(…)`, `twinalign.compare(…)` and so on.

Each takes the arguments of its command and returns the result as an object that a notebook shows as a table. Mistakes
of the user raise `InputError`: missing or broken files, unknown options, or a case, data or interpreter that does not
work. `SideCrashError` is raised if the case's own code raised or the process of a side died. Frameworks are imported in
their own processes, never here. The examples run unchanged in a folder with the files of `tests/twinalign/test_api.py`.
"""

import twinalign.terminal  # noqa: F401  defines how notebooks show results
from twinalign.api.aligning import attach, compare, info, locate, record, run, session
from twinalign.api.measuring import selftest, zoo
from twinalign.api.porting import check_port, convert, fix, init, port
from twinalign.api.reviewing import doctor, pack, report, verify

__all__ = [
    "attach",
    "check_port",
    "compare",
    "convert",
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
