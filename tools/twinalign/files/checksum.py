"""CRC-32 as in zip archives; six times as fast as zlib's if isal is installed."""

try:
    from isal.isal_zlib import crc32
except ImportError:  # an environment of one framework alone, or a reviewer's with numpy alone
    from zlib import crc32

__all__ = ["crc32"]
