"""What a recording was made by: framework, machine, and hashes of all loaded code."""

import functools
import os
import platform
import sys
from pathlib import Path
from typing import Any

from twinalign.backends.protocol import Backend
from twinalign.case.definition import Case
from twinalign.files.freshness import hash_paths
from twinalign.processes import tracebacks


def environment(framework: str, device: str, backend: Backend) -> dict[str, Any]:
    """Framework, versions, flags that affect numbers, interpreter and machine of this process."""
    return {
        "framework": framework,
        "device": device,
        "versions": backend.versions(),
        "flags": backend.numerics_flags(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processors": os.cpu_count(),
    }


def code_hashes(case: Case) -> dict[str, str]:
    """SHA-256 of every loaded source file of twinalign, of the case, or from outside Python and installed packages."""
    own_packages = {"twinalign", *case.code_packages}
    files = set()
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if not path or not path.endswith(".py"):
            continue
        # Of thousands of files most are no links, in few folders.
        folder, name_in_folder = os.path.split(path)
        path = os.path.realpath(path) if os.path.islink(path) else os.path.join(_real_folder(folder), name_in_folder)
        if name.partition(".")[0] in own_packages or not path.startswith(tracebacks.LIBRARIES):
            files.add(Path(path))
    return hash_paths(files)


@functools.cache
def _real_folder(folder: str) -> str:
    return os.path.realpath(folder)
