"""The output folder of a run, which one process at a time may write to."""

import contextlib
import datetime
import fcntl
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from twinalign.errors import InputError, writing
from twinalign.files.text import printable
from twinalign.processes.machine import require_writable

_LOCK = ".twinalign-lock"
_held: dict[Path, int] = {}
"""Folders that this process holds, and how often."""


@contextlib.contextmanager
def held_folder(folder: Path) -> Iterator[None]:
    """Hold an output folder, which is made, inside the block: two runs in one folder would mix their recordings.

    A process may hold it repeatedly. What killed runs left half-written in it is removed.

    Raises:
        InputError: nothing can be written there, or another process holds it; the message says which.
    """
    require_writable(folder)
    path = folder.resolve()
    if _held.get(path):
        _held[path] += 1
        try:
            yield
        finally:
            _held[path] -= 1
        return
    with _locked(path / _LOCK, folder) as lock:
        with writing(path / _LOCK):
            lock.write(f"process {os.getpid()} on {socket.gethostname()} ({' '.join(sys.argv)[:80]}), ".encode())
            lock.write(f"since {datetime.datetime.now():%Y-%m-%d %H:%M:%S}".encode())
        for part in path.rglob(".*.part"):
            part.unlink(missing_ok=True)
        _held[path] = 1
        try:
            yield
        finally:
            del _held[path]
            (path / _LOCK).unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(path: Path, folder: Path) -> Iterator[Any]:
    while True:
        with path.open("ab+", buffering=0) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                holder = printable(lock.read(300).decode("utf-8", "replace")) or "another process"
                raise InputError(
                    f"--out {folder}: held by {holder}; wait for its end, or name another folder"
                ) from None
            except OSError:  # a file system without locks
                pass
            # Its last holder may have removed it in the meantime; then somebody else may have made another one.
            if path.exists() and os.path.samestat(path.stat(), os.fstat(lock.fileno())):
                lock.truncate(0)
                yield lock
                return
