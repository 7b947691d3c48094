"""Processors, memory and the output folder of this machine."""

import ctypes
import gc
import os
from pathlib import Path

from twinalign.errors import InputError


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
    """Bytes available to new processes; a large number if the system does not say."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 1 << 60


def give_back_memory() -> None:
    """Collect garbage, and return to the system what the C library keeps of freed memory, gigabytes after a model."""
    gc.collect()
    # glibc alone has this function; elsewhere freed memory is kept, or returned at once.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
