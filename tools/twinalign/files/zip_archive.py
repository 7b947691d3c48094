"""Members of a zip archive over a memory map: `.npz` and torch.save's files."""

import struct
import zipfile
import zlib

from plain_pickles.errors import BrokenFileError, RefusedError
from twinalign.files.checksum import crc32
from twinalign.files.mapped_memory import STRETCH, release
from twinalign.files.numpy_files import memory_limit
from twinalign.files.text import shown

_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
_END = struct.Struct("<4s4H2IH")
_LARGEST_DIRECTORY = 1 << 24
"""Bytes; one member takes about eighty, and ten times as much in memory."""
_HAS_DESCRIPTOR, _IS_UTF8 = 1 << 3, 1 << 11
_DESCRIPTOR_SIZES = (12, 16, 20, 24)
"""Of the sizes and the checksum that a writer who does not know them before puts behind a member."""


class ZipArchive:
    """Reads members without copying if they are stored uncompressed."""

    def __init__(self, buffer: memoryview, stream: object) -> None:
        self._buffer = buffer
        self._check_end()
        try:
            with zipfile.ZipFile(stream) as archive:  # type: ignore[call-overload]
                entries, directory = archive.infolist(), archive.start_dir
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError, struct.error, LookupError) as error:
            reason = shown(str(error))
            raise BrokenFileError(f"it starts like a zip archive but is not one (cut short?): {reason}") from error
        self._entries: dict[str, zipfile.ZipInfo] = {}
        for entry in entries:
            if entry.filename in self._entries:
                raise BrokenFileError(f"it holds {shown(entry.filename)!r} twice")
            if entry.flag_bits & 1:
                raise BrokenFileError("it is encrypted")
            self._entries[entry.filename] = entry
        self._check_layout(entries, directory)
        # torch can be told to compute no checksums, and then writes zeros.
        self._has_checksums = any(entry.CRC for entry in entries)
        unpacked = sum(entry.file_size for entry in entries if entry.compress_type != zipfile.ZIP_STORED)
        if unpacked > memory_limit():
            raise BrokenFileError(
                f"unpacking it takes {unpacked / 2**30:.1f} GiB, more than this machine has; "
                "save it uncompressed (np.savez) and it is read in place"
            )
        self.members = [name for name in self._entries if not name.endswith("/")]

    def _check_end(self) -> None:
        end = self._buffer[-_END.size :]
        if len(end) == _END.size and bytes(end[:4]) == b"PK\x05\x06":
            size, comment = _END.unpack(end)[5], _END.unpack(end)[7]
            if size > _LARGEST_DIRECTORY and size != 0xFFFFFFFF:
                raise RefusedError(f"its directory of {size} bytes is larger than any file of arrays has")
            if not comment:
                return
        raise BrokenFileError("it starts like a zip archive but is not one (cut short, or bytes follow its end)")

    def _check_layout(self, entries: list[zipfile.ZipInfo], directory: int) -> None:
        """Members fill the file from its first byte to the directory: a gap could hide a second archive."""
        reached = 0
        gaps: tuple[int, ...] = (0,)
        for entry in sorted(entries, key=lambda entry: entry.header_offset):
            if entry.header_offset - reached not in gaps:
                raise RefusedError("it holds bytes between its members that belong to none, or two archives")
            reached = self._begin(entry) + entry.compress_size
            gaps = _DESCRIPTOR_SIZES if entry.flag_bits & _HAS_DESCRIPTOR else (0,)
        if directory - reached not in gaps:
            raise RefusedError("it holds bytes between its members that belong to none, or two archives")

    def read(self, name: str) -> memoryview:
        """Bytes of a member, checked against the archive's checksum."""
        entry = self._entries.get(name)
        if entry is None:
            raise BrokenFileError(f"{shown(name)!r} is missing in it")
        begin = self._begin(entry)
        data = self._buffer[begin : begin + entry.compress_size]
        if entry.compress_type == zipfile.ZIP_STORED:
            if entry.file_size != len(data):
                raise BrokenFileError(f"{shown(name)!r} in it has two sizes")
        elif entry.compress_type == zipfile.ZIP_DEFLATED:
            data = self._inflate(entry, data)
        else:
            raise BrokenFileError(
                f"{shown(name)!r} in it is compressed by method {entry.compress_type}; 8 (deflate) is known"
            )
        if self._has_checksums and _checksum(data) != entry.CRC:
            raise BrokenFileError(f"{shown(name)!r} in it is damaged (its checksum is wrong)")
        return data

    def _begin(self, entry: zipfile.ZipInfo) -> int:
        """Where the bytes of a member begin, behind its own header, which must say what the directory says."""
        start, label = entry.header_offset, shown(entry.filename)
        header = self._buffer[max(start, 0) : max(start, 0) + _LOCAL_HEADER.size]
        if start < 0 or len(header) < _LOCAL_HEADER.size or bytes(header[:4]) != b"PK\x03\x04":
            raise BrokenFileError(f"{label!r} is not where the archive says")
        _, _, _, method, *_, name_length, extra_length = _LOCAL_HEADER.unpack(header)
        begin = start + _LOCAL_HEADER.size + name_length + extra_length
        if begin + entry.compress_size > len(self._buffer):
            raise BrokenFileError(f"it is cut short within {label!r}")
        name = bytes(self._buffer[start + _LOCAL_HEADER.size :][:name_length])
        written = entry.orig_filename.encode("utf-8" if entry.flag_bits & _IS_UTF8 else "cp437")
        if (name, method) != (written, entry.compress_type) or entry.filename != entry.orig_filename:
            raise BrokenFileError(f"{label!r} has two names, or is compressed in two ways")
        return begin

    def _inflate(self, entry: zipfile.ZipInfo, raw: memoryview) -> memoryview:
        decompressor = zlib.decompressobj(-15)
        try:
            data = decompressor.decompress(raw, entry.file_size + 1)
        except zlib.error as error:
            raise BrokenFileError(f"{shown(entry.filename)!r} in it cannot be unpacked") from error
        if len(data) != entry.file_size:
            raise BrokenFileError(f"{shown(entry.filename)!r} in it is damaged")
        return memoryview(data)


def _checksum(data: memoryview) -> int:
    found = 0
    for start in range(0, len(data), STRETCH):
        found = crc32(data[start : start + STRETCH], found)
        release(data[start : start + STRETCH])
    return found
