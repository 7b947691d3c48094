"""Change files at random and read them: an error in one line or the right values, and nothing else.

    python tests/attacks/mutate_files.py --files 100000

Each changed file goes through the reader, `compare` against the unchanged file, and what `convert` reads first. Found
are: crashes of the process, hangs, errors other than an InputError of one line, memory above a gigabyte, anything that
touches the system, and values that the format's own reader does not read. Exit code 1 if there are any.
"""

from __future__ import annotations

import argparse
import collections
import io
import os
import pickle
import pickletools
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
import traceback
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.attacks.odd_files import OF_FORMAT, SHARDS, write_odd_files
from twinalign.conversion.checkpoint import read_checkpoint
from twinalign.conversion.writers import write_paddle
from twinalign.errors import TwinalignError
from twinalign.files.reader import read_arrays
from twinalign.verdict.compare import compare_files

SECONDS = 20
"""Of computing for one file."""
MEMORY = 1 << 30
BATCH = 200
FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "subprocess.", "os.mkdir", "os.remove", "os.rename", "shutil.")
FORBIDDEN += ("socket.", "ctypes.", "pickle.find_class", "os.putenv", "os.kill")


def make_corpus(folder: Path) -> list[Path]:
    """Honest files of every format, with names, types and nesting as people have them."""
    import safetensors.numpy
    import torch

    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "conv.weight": rng.standard_normal((4, 3, 3)).astype("f4"),
        "conv.bias": rng.standard_normal(4),
        "steps": np.arange(5),
        "flag": np.array(True),
        "spectrum": (rng.standard_normal(3) + 1j * rng.standard_normal(3)).astype("c8"),
        "scale": np.array(1 + 2j),
    }
    np.save(folder / "plain.npy", arrays["conv.weight"])
    np.save(folder / "recording.npy", arrays)  # type: ignore[arg-type]
    np.savez(folder / "stored.npz", **arrays)
    np.savez_compressed(folder / "packed.npz", **arrays)
    real = {name: array for name, array in arrays.items() if array.dtype.kind != "c"}
    safetensors.numpy.save_file(real, folder / "a.safetensors")
    state = {name: torch.from_numpy(array) for name, array in arrays.items()}
    nested = {"state_dict": state, "epoch": 3, "arch": "vit", "conj": state["spectrum"].conj()}
    torch.save(nested, folder / "zip.pth")
    torch.save(nested, folder / "legacy.pth", _use_new_zipfile_serialization=False)
    write_paddle(folder / "a.pdparams", real)
    for protocol in (2, 3, 4, 5):
        (folder / f"protocol{protocol}.pdparams").write_bytes(pickle.dumps(real, protocol))
    write_odd_files(folder, arrays)
    return sorted(folder.iterdir())


def contents(path: Path) -> dict[str, np.ndarray]:
    """What an honest file holds, by name."""
    return read_checkpoint(path).weights if path.suffix == ".json" else read_arrays(path)


def flipped(data: bytes, rng: random.Random, other: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def overwritten(data: bytes, rng: random.Random, other: bytes) -> bytes:
    """An integer of extreme size somewhere."""
    number = rng.choice((0, 1, -1, 2**31 - 1, 2**31, 2**60, 2**63 - 1, -(2**63), 255, 65535)) % 2**64
    piece = struct.pack("<Q", number)[: rng.choice((1, 2, 4, 8))]
    at = rng.randrange(len(data))
    return data[:at] + piece + data[at + len(piece) :]


def cut(data: bytes, rng: random.Random, other: bytes) -> bytes:
    return data[: rng.randrange(1, len(data))]


def moved(data: bytes, rng: random.Random, other: bytes) -> bytes:
    """A piece left out, repeated, or put in from another file."""
    begin = rng.randrange(len(data))
    end = min(len(data), begin + rng.choice((1, 2, 4, 16, 64)))
    source = rng.choice((data, other, b""))
    start = rng.randrange(max(1, len(source)))
    piece = source[start : start + rng.choice((1, 2, 4, 16, 64))]
    return data[:begin] + piece + data[rng.choice((begin, end)) :]


def joined(data: bytes, rng: random.Random, other: bytes) -> bytes:
    return rng.choice((data + other, other + data, data + bytes(rng.randrange(1, 9))))


def reordered(data: bytes, rng: random.Random, other: bytes) -> bytes:
    """Opcodes of the first pickle in the file left out, repeated, exchanged, or put in from all that there are."""
    begin = data.find(b"\x80")
    while begin >= 0:
        try:
            starts = [place for _, _, place in pickletools.genops(data[begin:])]
            break
        except Exception:
            begin = data.find(b"\x80", begin + 1)
    else:
        return flipped(data, rng, other)
    ends = [*starts[1:], starts[-1] + 1]
    pieces = [data[begin + a : begin + b] for a, b in zip(starts, ends, strict=True)]
    for _ in range(rng.choice((1, 1, 2, 5))):
        place, source = rng.randrange(len(pieces)), rng.randrange(len(pieces))
        kind = rng.randrange(4)
        if kind == 0:
            del pieces[place]
        elif kind == 1:
            pieces.insert(place, pieces[source])
        elif kind == 2:
            pieces[place], pieces[source] = pieces[source], pieces[place]
        else:
            pieces.insert(place, rng.choice(pickletools.opcodes).code.encode("latin-1") + bytes(rng.choice((0, 1, 4))))
        if not pieces:
            return b"\x80"
    return rezipped(data, begin, begin + ends[-1], b"".join(pieces))


def rezipped(data: bytes, begin: int, end: int, pickled: bytes) -> bytes:
    """The file with another pickle; in a zip archive its sizes and checksums fit."""
    if not data.startswith(b"PK"):
        return data[:begin] + pickled + data[end:]
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(stream, "w") as target:
        for name in archive.namelist():
            content = archive.read(name)
            target.writestr(name, content.replace(data[begin:end], pickled))
    return stream.getvalue()


MUTATORS: tuple[Callable[[bytes, random.Random, bytes], bytes], ...]
MUTATORS = (flipped, flipped, overwritten, overwritten, cut, moved, moved, joined, reordered, reordered, reordered)


class _Restricted(pickle.Unpickler):
    """Python's own unpickler, for what numpy writes alone: the oracle for pickles."""

    def find_class(self, module: str, name: str) -> Any:
        if (module.replace("_core", "core"), name) in (
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy.core.multiarray", "scalar"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("_codecs", "encode"),
        ):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(name)


def expected(path: Path, original: dict[str, np.ndarray], source: Path) -> dict[str, np.ndarray] | None:
    """What the format's own reader makes of a changed file; None if it has none, or refuses."""
    data = path.read_bytes()
    if source.suffix == ".npz" or source.name in ("zip.pth", "subclasses.pth"):
        return None if _was_rezipped(path, source) else original
    try:
        if source.suffix == ".safetensors":
            import safetensors.numpy

            return safetensors.numpy.load(data)
        if source.name == "plain.npy":
            return {"array": np.load(io.BytesIO(data), allow_pickle=False)}
        if source.name == "recording.npy" and data[:8] == source.read_bytes()[:8]:
            (length,) = struct.unpack("<H", data[8:10])
            return _Restricted(io.BytesIO(data[10 + length :])).load()
        if source.name.startswith("protocol"):
            return _Restricted(io.BytesIO(data), encoding="latin1").load()
    except Exception:
        return None
    return None


def _was_rezipped(path: Path, source: Path) -> bool:
    with zipfile.ZipFile(path) as changed, zipfile.ZipFile(source) as honest:
        return {i.filename: i.CRC for i in changed.infolist()} != {i.filename: i.CRC for i in honest.infolist()}


def same(found: dict[str, np.ndarray], wanted: dict[Any, Any]) -> bool:
    if not isinstance(wanted, dict):
        return True
    flat = {
        str(key): value for key, value in wanted.items() if isinstance(value, np.ndarray | np.generic | float | int)
    }
    return set(flat) <= set(found) and all(
        np.asarray(value).shape == found[key].shape
        and np.asarray(value).astype(found[key].dtype).tobytes() == found[key].astype(found[key].dtype).tobytes()
        for key, value in flat.items()
        if found[key].dtype.names is None
    )


def check(path: Path, source: Path, original: dict[str, np.ndarray], touched: list[str]) -> str:
    """What reading a changed file comes to: `read`, `refused`, or a finding."""
    found = None
    actions: tuple[Callable[[], Any], ...] = (
        lambda: read_arrays(path),
        lambda: compare_files(source, path),
        lambda: compare_files(path, path),
        lambda: read_checkpoint(path),
    )
    for place, action in enumerate(actions):
        try:
            made = action()
            found = made if place == 0 else found
        except TwinalignError as error:
            if "\n" in str(error) or len(str(error)) > 1000 or "MemoryError" in str(error):
                return f"message {str(error)[:200]!r}"
    if touched:
        return f"touched {touched[0]}"
    if found is None:
        return "refused"
    # In a process of its own: a changed pickle makes numpy's own types unusable.
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            wanted = expected(path, original, source)
            os._exit(7 if wanted is not None and not same(found, wanted) else 0)
        finally:
            os._exit(0)
    return "wrong values" if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7 else "read"


def guarded(seen: list[str]) -> None:
    """Note whatever touches the system; there is no way back, so only in a child."""
    sys.addaudithook(lambda event, _: seen.append(event) if event.startswith(FORBIDDEN) else None)


def run_batch(
    numbers: range, seed: int, corpus: list[Path], originals: list[dict[str, np.ndarray]], folder: Path, report: int
) -> None:
    """Check the files of a batch in this process, a child, and tell each outcome as a line."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + 2 * MEMORY, size + 2 * MEMORY))
    touched: list[str] = []
    guarded(touched)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in numbers:
        rng = random.Random(f"{seed} {number}")
        place = rng.randrange(len(corpus))
        source, other = corpus[place], rng.choice(corpus).read_bytes()
        path = folder / f"{number}.{source.name}"
        mutate = rng.choice((*MUTATORS, *OF_FORMAT.get(source.suffix, ())))
        path.write_bytes(mutate(source.read_bytes(), rng, other))
        touched.clear()
        os.write(report, f"{number} begun {source.name} {mutate.__name__}\n".encode())
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            outcome = check(path, source, originals[place], touched)
        except BaseException as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            outcome = f"traceback {type(error).__name__} {Path(last.filename).name}:{last.lineno}"
        signal.setitimer(signal.ITIMER_PROF, 0)
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before > MEMORY // 1024:
            outcome = "memory"
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        os.write(report, f"{number} {outcome}\n".encode())
        if outcome in ("read", "refused"):
            path.unlink()


def attack(files: int, seed: int, folder: Path, quiet: bool = False) -> collections.Counter[str]:
    """Check as many changed files; returns how often each outcome came, and keeps the files of findings in `folder`."""
    (folder / "honest").mkdir(parents=True, exist_ok=True)
    corpus = make_corpus(folder / "honest")
    originals = [contents(path) for path in corpus]
    for path in corpus:
        if path.suffix == ".json":
            for shard in (folder / "honest").glob(SHARDS):
                shutil.copy(shard, folder)
        else:
            compare_files(path, path)  # imports what the children would each import
    outcomes: collections.Counter[str] = collections.Counter()
    first = 0
    while first < files:
        numbers = range(first, min(files, first + BATCH))
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            try:
                run_batch(numbers, seed, corpus, originals, folder, writing)
            finally:
                os._exit(0)
        os.close(writing)
        with open(reading, encoding="utf-8", errors="replace") as lines:
            told = [line.rstrip("\n") for line in lines]
        _, status = os.waitpid(child, 0)
        last = told[-1] if told else f"{first} begun"
        for line in told:
            number, _, outcome = line.partition(" ")
            if not outcome.startswith("begun"):
                outcomes[outcome] += 1
                if outcome not in ("read", "refused") and not quiet:
                    print(f"{number}: {outcome}", flush=True)
        first = numbers.stop
        if not quiet and first % (25 * BATCH) == 0:
            print(f"{first} files: {dict(outcomes)}", flush=True)
        if os.WIFSIGNALED(status) or " begun" in last:
            number = int(last.split()[0])
            cause = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "exit"
            outcomes["hang" if cause == "SIGPROF" else f"crash {cause}"] += 1
            print(f"{last}: {cause}", flush=True)
            first = number + 1
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for the files of findings")
    asked = parser.parse_args()
    folder = asked.keep or Path(tempfile.mkdtemp(prefix="mutated-"))
    outcomes = attack(asked.files, asked.seed, folder)
    print(dict(outcomes), f"files of findings in {folder}")
    return int(bool(set(outcomes) - {"read", "refused"}))


if __name__ == "__main__":
    sys.exit(main())
