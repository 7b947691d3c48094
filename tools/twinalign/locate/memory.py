"""Memory that is free again goes back to the system."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable


@functools.cache
def _trim() -> Callable[[int], int] | None:
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):  # another C library than glibc
        return None
    return found


def give_back() -> None:
    """Have glibc return the pages that it keeps between the blocks in use, hundreds of megabytes after a deep model."""
    trim = _trim()
    if trim is not None:
        trim(0)
