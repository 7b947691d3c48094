"""A small process that outlives this one by a moment, and ends and removes what a killed run leaves behind.

Who is killed cannot end its children, and a child that is stopped cannot end itself.
"""

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from twinalign.errors import InputError, writing

# Each line adds or takes away (+ or -) a process, named by its number, or a folder; the end of its input is our end.
_PROGRAM = """
import os, shutil, signal, sys, time
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
left = {}
for line in sys.stdin:
    change, what = line[0], line[1:].rstrip("\\n")
    left.pop(what, None)
    if change == "+":
        left[what] = None
for what in filter(str.isdigit, left):
    try:
        if os.getpgid(int(what)) == int(what):
            os.killpg(int(what), signal.SIGKILL)
        else:
            os.kill(int(what), signal.SIGKILL)
    except OSError:
        pass
folders = [what for what in left if not what.isdigit()]
for _ in range(50):  # a process that is just ending may still write into one
    for what in folders:
        shutil.rmtree(what, ignore_errors=True)
    if not any(map(os.path.lexists, folders)):
        break
    time.sleep(0.1)
"""
_lock = threading.Lock()
_running: dict[int, subprocess.Popen[bytes]] = {}
"""By the process that started it: a fork has none of its own yet."""


def guard(what: int | Path) -> None:
    """Let a process, and its group if it leads one, be killed when this process ends without `release`.

    A folder is removed instead.
    """
    _tell(f"+{what}")


def release(what: int | Path) -> None:
    """The process has ended, and its number may soon be another's; or the folder is gone, or stays."""
    _tell(f"-{what}")


def new_folder(name: str, inside: Path | None = None) -> Path:
    """Make a guarded folder, for this user alone, whose name begins so; `inside` the system's temporary one by default.

    It is guarded before it is there: who is killed between the two leaves nothing. Raises InputError if it cannot be
    made, say because the disk is full.
    """
    folder = (inside or Path(tempfile.gettempdir())) / f"{name}{secrets.token_hex(6)}"
    guard(folder)
    try:
        with writing(folder):
            folder.mkdir(mode=0o700)
    except InputError:
        release(folder)
        raise
    return folder


@contextlib.contextmanager
def temporary_folder(name: str = "twinalign-", inside: Path | None = None) -> Iterator[Path]:
    """A folder as `new_folder` makes it, which is removed at the end of the block, or of this process if it is killed.

    One that the block has moved elsewhere stays there.
    """
    folder = new_folder(name, inside)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        release(folder)


def _tell(line: str) -> None:
    with _lock:
        guardian = _running.get(os.getpid())
        if guardian is None:
            guardian = _running[os.getpid()] = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        assert guardian.stdin is not None
        # It was killed itself, or this process is ending and has closed its pipe: what follows is only not guarded.
        with contextlib.suppress(OSError, ValueError):
            guardian.stdin.write(line.encode() + b"\n")
            guardian.stdin.flush()
