"""Safe readers of arrays in the frameworks' own file formats, and the writer of recordings.

No framework is imported and nothing is ever unpickled freely: see `pickle_machine`. Everything is imported on first
use, because a recorder in a foreign interpreter has numpy alone and uses the writer alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twinalign.files.reader import flatten as flatten
    from twinalign.files.reader import read_arrays as read_arrays
    from twinalign.files.reader import read_tree as read_tree
    from twinalign.files.writer import write_reprod_log as write_reprod_log

_HOMES = {
    "flatten": "twinalign.files.reader",
    "read_arrays": "twinalign.files.reader",
    "read_tree": "twinalign.files.reader",
    "write_reprod_log": "twinalign.files.writer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
