"""The writer of recordings, in reprod_log's `.npy` dictionary, which reviewers know. Needs only numpy."""

import contextlib
import fcntl
import glob
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

import numpy as np

from twinalign.errors import writing


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that replaces `path` if the block succeeds, so that no reader ever sees half of it.

    If it fails, the old file stays as it was. Leftovers of a killed process are removed. Raises InputError if `path`
    cannot be written, say because the disk is full.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        clear_abandoned(path.parent.glob(f".{glob.escape(path.name)}.*.part"))
        try:
            with open(beside, "wb") as file:
                with contextlib.suppress(OSError):  # a file system without locks
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield file
            os.replace(beside, path)
        finally:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)


def clear_abandoned(parts: Iterable[Path]) -> None:
    """Remove those partial files whose writer is dead and holds no lock."""
    for part in parts:
        number = part.name.removesuffix(".part").rpartition(".")[2]
        if not number.isdigit() or _is_alive(int(number)):
            continue
        # The writer may be alive on another machine that shares the folder; then its lock is held.
        with contextlib.suppress(OSError), part.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.unlink()


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it is another user's
        return True
    return True


def write_reprod_log(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> None:
    """Write the same bytes as reprod_log 1.0.1's `ReprodLogger.save`, without importing it (it imports paddle).

    reprod_log saves `np.save(path, {name: array})`, a pickled dictionary in a 0-d object array; like numpy, this
    appends `.npy` if the name lacks it. The file appears complete or not at all.

    Raises:
        TypeError: a value is not a numpy array, or a name is not a string.
    """
    for name, array in arrays.items():
        if not isinstance(name, str) or not isinstance(array, np.ndarray):
            raise TypeError(f"{name!r}: a recording maps names to numpy arrays, got {type(array).__name__}")
    target = Path(path)
    if not target.name.endswith(".npy"):
        target = target.with_name(target.name + ".npy")
    with replacing(target) as stream:
        np.save(stream, dict(arrays))  # type: ignore[arg-type]


def fast_zipfile() -> contextlib.AbstractContextManager[None]:
    """Let `zipfile` use the faster `crc32`: zlib's takes longer than writing to a disk."""
    import zipfile

    from twinalign.files.checksum import crc32  # here: who only reads needs neither
    from twinalign.patching import replaced

    return replaced(zipfile, "crc32", crc32)
