"""CRC-32 as zip archives have it, six times as fast as zlib's where isal is installed."""

from __future__ import annotations

import contextlib
import zipfile

from twinalign.patching import replaced

try:
    from isal.isal_zlib import crc32
except ImportError:  # an environment of one framework alone, or a reviewer's with numpy alone
    from zlib import crc32

__all__ = ["crc32", "fast_zipfile"]


def fast_zipfile() -> contextlib.AbstractContextManager[None]:
    """Let `zipfile` take its checksums with this module's `crc32`: zlib's takes longer than a disk does to write."""
    return replaced(zipfile, "crc32", crc32)
