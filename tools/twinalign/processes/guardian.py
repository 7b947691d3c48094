"""A small process that outlives this one by a moment, and ends and removes what a killed run leaves behind.

Who is killed cannot end its children, and a child that is stopped cannot end itself.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

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


@contextlib.contextmanager
def temporary_folder(prefix: str = "twinalign-") -> Iterator[Path]:
    """A temporary folder that is removed at the end of the block, or of this process if it is killed."""
    _tell("-")  # so that the other process runs before there is a folder that it does not know
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
        guard(Path(name))
        try:
            yield Path(name)
        finally:
            release(Path(name))


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
        with contextlib.suppress(OSError):  # it was killed itself: what follows is only not guarded
            guardian.stdin.write(line.encode() + b"\n")
            guardian.stdin.flush()
