"""Processors, memory and the output folder of this machine."""

import contextlib
import ctypes
import gc
import os
from collections.abc import Iterator
from pathlib import Path

from twinalign.errors import InputError

KEPT_BELOW = 32 << 20
"""Bytes: of smaller arrays the C library keeps what is freed, for the next one (`MALLOC_MMAP_THRESHOLD_`)."""
_FREED_FROM = 2 << 20
_MMAP_THRESHOLD = -3
"""glibc's name for it, `M_MMAP_THRESHOLD` of malloc.h."""

_CONTAINER = (
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current", "inactive_file"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Where Linux says what a container may use and uses, in both of its ways; of that it can free what is reclaimable."""


def require_writable(folder: Path) -> None:
    """Make the output folder; raises InputError if nothing can be written there."""
    probe = folder / ".twinalign-write-test"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise InputError(f"--out {folder}: cannot write there ({error.strerror}); name another folder") from None


def processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_memory() -> int:
    """Bytes available to new processes, in a container those of its own limit; a large number if nothing says it."""
    found = 1 << 60
    with contextlib.suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found = int(line.split()[1]) * 1024
    for folder, limit, used, reclaimable in _CONTAINER:
        with contextlib.suppress(OSError, ValueError):  # ValueError: the limit is "max"
            held = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            room = int((folder / limit).read_text()) - int((folder / used).read_text())
            found = min(found, max(0, room + int(held.get(reclaimable, 0))))
    return found


def give_back_memory() -> None:
    """Collect garbage, and return to the system what the C library keeps of freed memory, gigabytes after a model."""
    gc.collect()
    # glibc alone has this function; elsewhere freed memory is kept, or returned at once.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


@contextlib.contextmanager
def freed_at_once() -> Iterator[None]:
    """Give an array of `_FREED_FROM` bytes or more back to the system as soon as it is freed, while this lasts.

    Gaps that freed activations leave are an eighth of what a float64 backward pass of ViT-Small takes. It costs time:
    the system clears every page that it gives, so only what fills memory is worth it.
    """
    adjust = getattr(ctypes.CDLL(None), "mallopt", lambda name, value: 0)  # glibc alone
    adjust(_MMAP_THRESHOLD, _FREED_FROM)
    try:
        yield
    finally:
        adjust(_MMAP_THRESHOLD, KEPT_BELOW)
