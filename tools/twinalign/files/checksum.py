"""CRC-32 as in zip archives; six times as fast as zlib's if isal is installed."""

import contextlib

from twinalign.patching import replaced

try:
    from isal.isal_zlib import crc32
except ImportError:  # an environment of one framework alone, or a reviewer's with numpy alone
    from zlib import crc32

__all__ = ["crc32", "fast_zipfile"]


def fast_zipfile() -> contextlib.AbstractContextManager[None]:
    """Let `zipfile` use this module's `crc32`: zlib's takes longer than writing to a disk."""
    import zipfile

    return replaced(zipfile, "crc32", crc32)
