"""The zip archive of a bundle: written in one way only, and read only where it is written in that way.

Whatever else zip allows (compression, links, comments, gaps, overlaps, encryption, a second directory) is refused by
name. The reader maps the file, so that a bundle of any size is read in place.
"""

from __future__ import annotations

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

from twinalign.bundle.layout import MANIFEST, MEMBER_LIMIT, NAME_LIMIT, check_names, shown
from twinalign.errors import InputError
from twinalign.files.checksum import crc32, fast_zipfile

_TIME = (1980, 1, 1, 0, 0, 0)
_MODE = (stat.S_IFREG | 0o644) << 16
_UNIX = 3
_UTF8 = 0x800
_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR64 = struct.Struct("<4sLQL")
_LOCAL = struct.Struct("<4s5H3L2H")
_LARGE_EXTRA = 28
"""Bytes that the sizes and the place of a member beyond 4 GiB take in the directory."""
_BLOCK = 4 << 20
_HASHED = 16 << 20
"""Bytes that are hashed at once: after each, the thread that hashes waits for Python while another thread judges."""


def write_archive(path: Path, members: Mapping[str, bytes | Path]) -> None:
    """Write members, texts or files, in the order of their names after the manifest: the same members, the same bytes.

    Args:
        path: Where to write.
        members: Name -> content, or the file that has it.
    """
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
    """What the directory says of a member whose size or place takes more than 31 bits, as zipfile writes it."""
    sizes = [info.file_size, info.compress_size] if info.file_size > zipfile.ZIP64_LIMIT else []
    numbers = [*sizes, *([info.header_offset] if info.header_offset > zipfile.ZIP64_LIMIT else [])]
    return struct.pack(f"<2H{len(numbers)}Q", 1, 8 * len(numbers), *numbers) if numbers else b""


def _open_regular(path: str, flags: int) -> int:
    # O_NONBLOCK: opening a named pipe must not wait for its writer.
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputError(f"{shown(os.fspath(path))}: it is not a regular file; name a bundle of `twinalign pack`")
    return descriptor


class Archive:
    """A bundle's archive, mapped into memory; use as a context manager."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open and check the layout; raises InputError on anything that `write_archive` does not write."""
        self.label = shown(os.fspath(path))
        with open(path, "rb", opener=_open_regular) as stream:
            descriptor = stream.fileno()
            self.size = os.fstat(descriptor).st_size
            if self.size < _END.size:
                raise InputError(f"{self.label}: it is empty or cut short; name a bundle of `twinalign pack`")
            if hasattr(os, "posix_fadvise"):  # all of it will be read, and a map alone reads ahead too little
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
            self._map = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
            self._buffer = memoryview(self._map)
            self._entries = self._checked_entries(stream)

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        # Arrays over the map keep it open; it goes with the last of them.
        self._buffer.release()

    @property
    def names(self) -> list[str]:
        """Names of the members, the manifest first."""
        return list(self._entries)

    def read(self, name: str) -> memoryview:
        """Bytes of a member, in place; raises InputError where there is none."""
        if name not in self._entries:
            raise InputError(f"{self.label}: {name} is missing in it")
        begin, size, _ = self._entries[name]
        return self._buffer[begin : begin + size]

    def digest(self, name: str) -> tuple[int, str]:
        """Size and SHA-256 of a member; raises InputError where its checksum in the archive is another."""
        content, checksum, digest = self.read(name), 0, hashlib.sha256()
        for start in range(0, len(content), _HASHED):
            block = content[start : start + _HASHED]
            digest.update(block)
            checksum = crc32(block, checksum)
            self.forget_pages(self._entries[name][0] + start, len(block))
        if checksum != self._entries[name][2]:
            raise InputError(f"{self.label}: {shown(name)} is damaged: its checksum (CRC) in the archive is another")
        return len(content), digest.hexdigest()

    def forget_pages(self, begin: int = 0, size: int | None = None) -> None:
        """Give back the memory of what was read, all or some of the file; what is read again comes from the file."""
        if hasattr(mmap, "MADV_DONTNEED"):
            begin -= begin % mmap.PAGESIZE
            self._map.madvise(mmap.MADV_DONTNEED, begin, self.size - begin if size is None else size)

    def _refuse(self, what: str) -> InputError:
        return InputError(f"{self.label}: it is not laid out as `twinalign pack` writes it: {what}; refused")

    def _checked_entries(self, stream: IO[bytes]) -> dict[str, tuple[int, int, int]]:
        """Name -> (first byte, size, CRC) of every member."""
        directory, end = self._directory()
        try:
            with zipfile.ZipFile(stream) as archive:
                infos = archive.infolist()
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError, struct.error, IndexError) as error:
            raise self._refuse(f"no zip archive ({shown(str(error))})") from None
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
            raise self._refuse(f"{self.size - end} bytes behind its end")
        if not infos or infos[0].filename != MANIFEST:
            raise self._refuse(f"its first member is not {MANIFEST}")
        return entries

    def _directory(self) -> tuple[int, int]:
        """Where the central directory begins and where the archive ends; bounds what zipfile will parse."""
        position = self.size - _END.size
        magic, disk, first_disk, here, count, size, offset, comment = _END.unpack(self._buffer[position:])
        if magic != b"PK\x05\x06":
            raise self._refuse("no end of a zip archive at its end (cut short, or followed by something?)")
        if comment or disk or first_disk or here != count:
            raise self._refuse("a comment, or several parts")
        # From 2 GiB on zipfile writes the other record, and only from 4 GiB on does this one refer to it.
        locator = bytes(self._buffer[max(0, position - _LOCATOR64.size) : position][:4])
        if count == 0xFFFF or 0xFFFFFFFF in (size, offset) or locator == b"PK\x06\x07":
            count, size, offset, position = self._directory64(position)
        if count > MEMBER_LIMIT or size > count * (46 + 4 * NAME_LIMIT + _LARGE_EXTRA):
            raise self._refuse(f"{count} members in a directory of {size} bytes")
        if offset + size != position:
            raise self._refuse("its directory does not end where it should")
        return offset, self.size

    def _directory64(self, end: int) -> tuple[int, int, int, int]:
        position = end - _LOCATOR64.size - _END64.size
        if position < 0:
            raise self._refuse("a directory of large files is announced and missing")
        magic, length, _, _, disk, first_disk, here, count, size, offset = _END64.unpack(
            self._buffer[position : position + _END64.size]
        )
        locator = _LOCATOR64.unpack(self._buffer[position + _END64.size : end])
        if magic != b"PK\x06\x06" or locator != (b"PK\x06\x07", 0, position, 1):
            raise self._refuse("a directory of large files is announced and missing")
        if length != _END64.size - 12 or disk or first_disk or here != count:
            raise self._refuse("a comment, or several parts")
        return count, size, offset, position

    def _check_entry(self, info: zipfile.ZipInfo) -> None:
        name = shown(info.filename)
        if info.flag_bits & 1:
            raise self._refuse(f"{name!r} is encrypted")
        if info.compress_type != zipfile.ZIP_STORED:
            raise self._refuse(f"{name!r} is compressed, which could unfold to any size")
        if info.file_size != info.compress_size:
            raise self._refuse(f"{name!r} has two sizes")
        if stat.S_IFMT(info.external_attr >> 16) != stat.S_IFREG:
            kind = "a link" if stat.S_ISLNK(info.external_attr >> 16) else "no regular file"
            raise self._refuse(f"{name!r} is {kind}")
        if info.orig_filename != info.filename:
            raise self._refuse(f"{name!r} has an end hidden behind a zero byte")
        if info.extra != _large_extra(info) or info.volume or info.reserved:
            raise self._refuse(f"{name!r} has a field of its own")
        plain = info.filename.isascii()
        attributes = info.create_system, info.external_attr, info.date_time, info.comment, info.internal_attr
        if attributes != (_UNIX, _MODE, _TIME, b"", 0) or info.flag_bits != (0 if plain else _UTF8):
            raise self._refuse(f"{name!r} has attributes, a date or a comment of its own")

    def _behind_local_header(self, info: zipfile.ZipInfo, expected: int) -> int:
        """First byte of the content of a member whose header must begin at `expected` and repeat the directory."""
        name = shown(info.filename)
        if info.header_offset != expected:
            what = "overlaps another member" if info.header_offset < expected else "follows bytes that are no member"
            raise self._refuse(f"{name!r} {what}")
        behind = expected + _LOCAL.size
        magic, _, flags, method, time, date, crc, packed, size, name_length, extra = _LOCAL.unpack(
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
        same = (flags, method, time, date, crc) == (info.flag_bits, 0, 0, 0x21, info.CRC) and (packed, size) == sizes
        if magic != b"PK\x03\x04" or not same or large or stored_name != info.filename.encode("utf-8"):
            raise self._refuse(f"{name!r} is described in two ways")
        begin = behind + name_length + extra
        if begin + info.file_size > self.size:
            raise self._refuse(f"{name!r} reaches beyond the end")
        return begin


class PageRelease:
    """While entered, keeps the pages of a mapped archive from gathering in memory."""

    def __init__(self, archive: Archive, seconds: float = 0.03) -> None:
        self._archive = archive
        self._seconds = seconds
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def _work(self) -> None:
        while not self._done.wait(self._seconds):
            self._archive.forget_pages()

    def __enter__(self) -> PageRelease:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
