"""The zip archive of a bundle: it has one possible layout, and the reader refuses every other.

Everything else that zip allows (compression, links, comments, gaps, overlaps, encryption, a second directory) is
refused, and the message says what it was. The file is mapped into memory, so that its size does not matter.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import stat
import struct
import threading
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from twinalign.bundle.layout import MANIFEST, MEMBER_LIMIT, NAME_LIMIT, check_names
from twinalign.errors import InputError
from twinalign.files.checksum import crc32
from twinalign.files.text import shown
from twinalign.files.writer import fast_zipfile

_TIME = (1980, 1, 1, 0, 0, 0)
_MODE = (stat.S_IFREG | 0o644) << 16
_UNIX = 3
_UTF8 = 0x800
_VERSIONS = {20, 45}
"""Of zip, that a member needs: 45 beyond 2 GiB."""
_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR64 = struct.Struct("<4sLQL")
_LOCAL = struct.Struct("<4s5H3L2H")
_LARGE_EXTRA = 28
"""Bytes of the directory's extra field for a member beyond 4 GiB: its sizes and its offset."""
_BLOCK = 4 << 20
_HASHED = 16 << 20
"""Bytes hashed at a time; after each block the hashing thread waits for Python's lock, which another thread holds."""


def write_archive(path: Path, members: Mapping[str, bytes | Path]) -> None:
    """Write members (name -> content, or the file that holds it): equal members give equal bytes."""
    with fast_zipfile(), zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(members, key=lambda name: (name != MANIFEST, name)):
            content = members[name]
            info = zipfile.ZipInfo(name, _TIME)
            info.create_system, info.external_attr = _UNIX, _MODE
            info.file_size = content.stat().st_size if isinstance(content, Path) else len(content)
            with archive.open(info, "w") as target:
                for block in _blocks(content):
                    target.write(block)


def _blocks(content: bytes | Path) -> Iterator[bytes]:
    if isinstance(content, bytes):
        yield content
        return
    with content.open("rb") as source:
        while block := source.read(_BLOCK):
            yield block


def _large_extra(info: zipfile.ZipInfo) -> bytes:
    """The directory's extra field for a member whose size or offset needs more than 31 bits, as zipfile writes it."""
    sizes = [info.file_size, info.compress_size] if info.file_size > zipfile.ZIP64_LIMIT else []
    numbers = [*sizes, *([info.header_offset] if info.header_offset > zipfile.ZIP64_LIMIT else [])]
    return struct.pack(f"<2H{len(numbers)}Q", 1, 8 * len(numbers), *numbers) if numbers else b""


def _open_regular(path: str, flags: int) -> int:
    # O_NONBLOCK: opening a named pipe must not wait for its writer.
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputError(f"{shown(os.fspath(path))}: not a regular file; give a bundle written by `twinalign pack`")
    return descriptor


class Archive:
    """A bundle's archive, mapped into memory; use as a context manager."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open the file; raises InputError unless it has the layout that `write_archive` writes."""
        self.label = shown(os.fspath(path))
        with open(path, "rb", opener=_open_regular) as stream:
            descriptor = stream.fileno()
            self.size = os.fstat(descriptor).st_size
            if self.size < _END.size:
                raise InputError(f"{self.label}: empty or cut short; give a bundle written by `twinalign pack`")
            if hasattr(os, "posix_fadvise"):  # a memory map alone reads ahead too little
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
            self._map = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
            self._buffer = memoryview(self._map)
            self._entries = self._checked_entries(stream)

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        # The map stays open until the last array that lies in it is gone.
        self._buffer.release()

    @property
    def names(self) -> list[str]:
        """Names of the members, the manifest first."""
        return list(self._entries)

    def read(self, name: str) -> memoryview:
        """A member's bytes, not copied; raises InputError if it is missing."""
        if name not in self._entries:
            raise InputError(f"{self.label}: {name} is missing")
        begin, size, _ = self._entries[name]
        return self._buffer[begin : begin + size]

    def digest(self, name: str) -> tuple[int, str]:
        """Size and SHA-256 of a member; raises InputError if its checksum in the archive does not match."""
        content, checksum, digest = self.read(name), 0, hashlib.sha256()
        for start in range(0, len(content), _HASHED):
            block = content[start : start + _HASHED]
            digest.update(block)
            checksum = crc32(block, checksum)
            self.forget_pages(self._entries[name][0] + start, len(block))
        if checksum != self._entries[name][2]:
            raise InputError(f"{self.label}: {shown(name)} is damaged: its checksum (CRC) does not match")
        return len(content), digest.hexdigest()

    def forget_pages(self, begin: int = 0, size: int | None = None) -> None:
        """Release the memory of the pages read so far, in the whole file or a range of it."""
        if hasattr(mmap, "MADV_DONTNEED"):
            begin -= begin % mmap.PAGESIZE
            self._map.madvise(mmap.MADV_DONTNEED, begin, self.size - begin if size is None else size)

    def _refuse(self, what: str) -> InputError:
        return InputError(f"{self.label}: not laid out as `twinalign pack` writes it: {what}; refused")

    def _checked_entries(self, stream: IO[bytes]) -> dict[str, tuple[int, int, int]]:
        """Name -> (first byte, size, CRC) of every member."""
        directory, end = self._directory()
        try:
            with zipfile.ZipFile(stream) as archive:
                infos = archive.infolist()
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError, struct.error, IndexError) as error:
            raise self._refuse(f"not a zip archive ({shown(str(error))})") from None
        for info in infos:
            self._check_entry(info)
        check_names((info.filename for info in infos), self.label)
        entries, position = {}, 0
        for info in infos:
            begin = self._behind_local_header(info, position)
            position = begin + info.file_size
            entries[info.filename] = begin, info.file_size, info.CRC
        if position != directory:
            raise self._refuse(f"{directory - position} bytes between its last member and its directory")
        if end != self.size:
            raise self._refuse(f"{self.size - end} bytes after its end")
        if not infos or infos[0].filename != MANIFEST:
            raise self._refuse(f"its first member is not {MANIFEST}")
        return entries

    def _directory(self) -> tuple[int, int]:
        """Where the central directory begins and where the archive ends; limits what zipfile will parse."""
        position = self.size - _END.size
        magic, disk, first_disk, here, count, size, offset, comment = _END.unpack(self._buffer[position:])
        if magic != b"PK\x05\x06":
            raise self._refuse("it does not end like a zip archive (cut short, or followed by other data?)")
        if comment or disk or first_disk or here != count:
            raise self._refuse("it has a comment, or several parts")
        # zipfile writes the 64-bit record from 2 GiB on, but this record refers to it only from 4 GiB on.
        locator = bytes(self._buffer[max(0, position - _LOCATOR64.size) : position][:4])
        if count == 0xFFFF or 0xFFFFFFFF in (size, offset) or locator == b"PK\x06\x07":
            short = count, size, offset
            count, size, offset, position = self._directory64(position)
            if short != (min(count, 0xFFFF), min(size, 0xFFFFFFFF), min(offset, 0xFFFFFFFF)):
                raise self._refuse("its two ends differ")
        if count > MEMBER_LIMIT or size > count * (46 + 4 * NAME_LIMIT + _LARGE_EXTRA):
            raise self._refuse(f"{count} members in a directory of {size} bytes")
        if offset + size != position:
            raise self._refuse("its directory does not end where it should")
        return offset, self.size

    def _directory64(self, end: int) -> tuple[int, int, int, int]:
        position = end - _LOCATOR64.size - _END64.size
        if position < 0:
            raise self._refuse("it announces a directory for large files, which is missing")
        magic, length, made, needed, disk, first_disk, here, count, size, offset = _END64.unpack(
            self._buffer[position : position + _END64.size]
        )
        locator = _LOCATOR64.unpack(self._buffer[position + _END64.size : end])
        if magic != b"PK\x06\x06" or locator != (b"PK\x06\x07", 0, position, 1):
            raise self._refuse("it announces a directory for large files, which is missing")
        if length != _END64.size - 12 or disk or first_disk or here != count or (made, needed) != (45, 45):
            raise self._refuse("it has a comment, or several parts")
        return count, size, offset, position

    def _check_entry(self, info: zipfile.ZipInfo) -> None:
        mode, flags = info.external_attr >> 16, 0 if info.filename.isascii() else _UTF8
        attributes = info.create_system, info.external_attr, info.date_time, info.comment, info.internal_attr
        unusual = attributes != (_UNIX, _MODE, _TIME, b"", 0) or info.flag_bits != flags
        unusual = unusual or not {info.create_version, info.extract_version} <= _VERSIONS
        for holds, what in (
            (info.flag_bits & 1, "is encrypted"),
            (info.compress_type != zipfile.ZIP_STORED, "is compressed, and could expand to any size"),
            (info.file_size != info.compress_size, "has two sizes"),
            (stat.S_ISLNK(mode), "is a link"),
            (stat.S_IFMT(mode) != stat.S_IFREG, "is not a regular file"),
            (info.orig_filename != info.filename, "has a name that goes on after a zero byte"),
            (info.extra != _large_extra(info) or info.volume or info.reserved, "has an extra field"),
            (unusual, "has unusual attributes, a date or a comment"),
        ):
            if holds:
                raise self._refuse(f"{shown(info.filename)!r} {what}")

    def _behind_local_header(self, info: zipfile.ZipInfo, expected: int) -> int:
        """First byte of a member's content; its header must begin at `expected` and repeat what the directory says."""
        name = shown(info.filename)
        if info.header_offset != expected:
            what = "overlaps another member" if info.header_offset < expected else "follows bytes of no member"
            raise self._refuse(f"{name!r} {what}")
        behind = expected + _LOCAL.size
        magic, version, flags, method, time, date, crc, packed, size, name_length, extra = _LOCAL.unpack(
            self._buffer[expected:behind].tobytes().ljust(_LOCAL.size, b"\0")
        )
        stored_name = bytes(self._buffer[behind : behind + name_length])
        large = 0xFFFFFFFF in (packed, size)
        sizes = (info.file_size, info.file_size)
        if large and extra == 20:
            sizes_at = behind + name_length
            head, length, size, packed = struct.unpack("<2H2Q", self._buffer[sizes_at : sizes_at + extra].tobytes())
            large = (head, length) != (1, 16)
        elif extra:
            large = True
        same = (
            version in _VERSIONS
            and (flags, method, time, date, crc) == (info.flag_bits, 0, 0, 0x21, info.CRC)
            and (packed, size) == sizes
        )
        if magic != b"PK\x03\x04" or not same or large or stored_name != info.filename.encode("utf-8"):
            raise self._refuse(f"{name!r} has a header that differs from the directory")
        begin = behind + name_length + extra
        if begin + info.file_size > self.size:
            raise self._refuse(f"{name!r} extends beyond the end of the file")
        return begin


@contextlib.contextmanager
def releasing_pages(archive: Archive, seconds: float = 0.03) -> Iterator[None]:
    """Context that keeps releasing the pages of a mapped archive, so that they do not fill the memory."""
    done = threading.Event()

    def release() -> None:
        while not done.wait(seconds):
            archive.forget_pages()

    thread = threading.Thread(target=release, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
