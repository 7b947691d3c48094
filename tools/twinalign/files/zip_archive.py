"""Members of a zip archive over a memory map: `.npz` and torch.save's files."""

from __future__ import annotations

import struct
import zipfile
import zlib

from twinalign.files.errors import BrokenFileError
from twinalign.files.numpy_files import memory_limit

_LOCAL_HEADER = struct.Struct("<4s5H3I2H")


class ZipArchive:
    """Reads members without copying where they are stored uncompressed."""

    def __init__(self, buffer: memoryview, stream: object) -> None:
        try:
            with zipfile.ZipFile(stream) as archive:  # type: ignore[call-overload]
                entries = archive.infolist()
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError, struct.error) as error:
            raise BrokenFileError(f"it starts as a zip archive and is none (cut short?): {error}") from error
        self._buffer = buffer
        self._entries: dict[str, zipfile.ZipInfo] = {}
        for entry in entries:
            if entry.filename in self._entries:
                raise BrokenFileError(f"it holds {entry.filename!r} twice")
            if entry.flag_bits & 1:
                raise BrokenFileError("it is encrypted")
            self._entries[entry.filename] = entry
        unpacked = sum(entry.file_size for entry in entries if entry.compress_type != zipfile.ZIP_STORED)
        if unpacked > memory_limit():
            raise BrokenFileError(
                f"unpacking it takes {unpacked / 2**30:.1f} GiB, more than this machine has; "
                "save it uncompressed (np.savez) and it is read in place"
            )
        self.members = [name for name in self._entries if not name.endswith("/")]

    def read(self, name: str) -> memoryview:
        """Bytes of a member, checked against the archive's checksum where they had to be unpacked."""
        entry = self._entries.get(name)
        if entry is None:
            raise BrokenFileError(f"{name!r} is missing in it")
        raw = self._raw(entry)
        if entry.compress_type == zipfile.ZIP_STORED:
            if entry.file_size != len(raw):
                raise BrokenFileError(f"{name!r} in it has two sizes")
            return raw
        if entry.compress_type != zipfile.ZIP_DEFLATED:
            raise BrokenFileError(f"{name!r} in it is compressed by method {entry.compress_type}; 8 (deflate) is known")
        return self._inflate(entry, raw)

    def _raw(self, entry: zipfile.ZipInfo) -> memoryview:
        start = entry.header_offset
        header = self._buffer[start : start + _LOCAL_HEADER.size]
        if start < 0 or len(header) < _LOCAL_HEADER.size or bytes(header[:4]) != b"PK\x03\x04":
            raise BrokenFileError(f"{entry.filename!r} is not where the archive says")
        name_length, extra_length = _LOCAL_HEADER.unpack(header)[-2:]
        begin = start + _LOCAL_HEADER.size + name_length + extra_length
        end = begin + entry.compress_size
        if end > len(self._buffer):
            raise BrokenFileError(f"it is cut short within {entry.filename!r}")
        return self._buffer[begin:end]

    def _inflate(self, entry: zipfile.ZipInfo, raw: memoryview) -> memoryview:
        decompressor = zlib.decompressobj(-15)
        try:
            data = decompressor.decompress(raw, entry.file_size + 1)
        except zlib.error as error:
            raise BrokenFileError(f"{entry.filename!r} in it cannot be unpacked") from error
        if len(data) != entry.file_size or zlib.crc32(data) != entry.CRC:
            raise BrokenFileError(f"{entry.filename!r} in it is damaged")
        return memoryview(data)
