"""Time and memory of a comparison, as ratios to common tools', measured in one sitting.

    python benchmarks/compare_speed.py [--megabytes 200] [--file-megabytes 2000] [--repeats 5] [--rounds 3]

Each contestant compares the same two float32 arrays in a process of its own, and the contestants take turns. Times are
of the processor (user and system): the best of a process's repeats, of which the median over the rounds counts. The
memory is how far the process's peak exceeds its memory with the arrays loaded. Files are compared, and read by others,
while they are in the page cache; there the memory is the peak of the whole process, pages of mapped files included.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
# With this set each start would compile twinalign's modules anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

CONTESTANTS = (
    "reprod_log compute_diff",
    "twinalign, every statistic",
    "twinalign, verdict alone",
    "one numpy pass (max, mean)",
    "np.allclose",
    "torch assert_close",
)
LIMITS = {"twinalign, every statistic": 1.5, "twinalign, verdict alone": 0.5}


def contestant(name: str, first: Any, second: Any) -> Any:
    """The function that is timed."""
    import numpy as np

    if name.startswith("reprod_log"):
        from reprod_log.compare import compute_diff

        return lambda: compute_diff({"x": first}, {"x": second})
    if name.startswith("twinalign"):
        from twinalign.verdict import compare_arrays

        everything = "every" in name
        return lambda: compare_arrays({"x": first}, {"x": second}, everything=everything, search=False)
    if name.startswith("one numpy"):

        def one_pass() -> None:
            for start in range(0, first.size, 32768):
                difference = np.abs(first[start : start + 32768] - second[start : start + 32768])
                difference.max(), difference.sum()

        return one_pass
    if name == "np.allclose":
        return lambda: np.allclose(first, second)
    import torch

    left, right = torch.from_numpy(first), torch.from_numpy(second)
    return lambda: torch.testing.assert_close(left, right)


def measure(name: str, count: int, repeats: int) -> None:
    """Run one contestant in this process and print its time and memory as JSON."""
    import numpy as np

    rng = np.random.default_rng(0)
    first = rng.standard_normal(count, dtype=np.float32)
    second = first * np.float32(1 + 1e-7)
    run = contestant(name, first, second)
    best = float("inf")
    contestant(name, first[:1024], second[:1024])()  # imports are no part of it
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(repeats):
        started = processor_seconds(resource.RUSAGE_SELF)
        run()
        best = min(best, processor_seconds(resource.RUSAGE_SELF) - started)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": best, "megabytes": (after - before) / 1024}))


def processor_seconds(whose: int) -> float:
    """User and system time so far."""
    used = resource.getrusage(whose)
    return used.ru_utime + used.ru_stime


READERS = {
    "np.load of both": "import sys, numpy; [numpy.load(path) for path in sys.argv[1:]]",
    "reading both into 16 MB": """
import sys
buffer = bytearray(1 << 24)
for path in sys.argv[1:]:
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
""",
    "twinalign compare": "from twinalign.cli import main; import sys; main(['compare', *sys.argv[1:]])",
}
PEAK = """
import atexit, re
from pathlib import Path
atexit.register(lambda: print(re.search("VmHWM:(.*) kB", Path("/proc/self/status").read_text()).group(1)))
"""


def timed(code: str, *arguments: str) -> dict[str, float]:
    """Seconds of the processor and peak memory in bytes of a new interpreter."""
    started = processor_seconds(resource.RUSAGE_CHILDREN)
    output = subprocess.run([sys.executable, "-c", PEAK + code, *arguments], check=True, capture_output=True, text=True)
    seconds = processor_seconds(resource.RUSAGE_CHILDREN) - started
    return {"seconds": seconds, "bytes": 1024 * int(output.stdout.splitlines()[-1])}


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}


def write_files(folder: Path, count: int) -> list[str]:
    """Two .npy files of so many float32 numbers, which differ in the last bits."""
    import numpy as np

    paths = [str(folder / f"{name}.npy") for name in ("one", "other")]
    one, other = (np.lib.format.open_memmap(path, "w+", "f4", (count,)) for path in paths)
    rng = np.random.default_rng(0)
    for start in range(0, count, 1 << 24):
        stop = min(start + (1 << 24), count)
        one[start:stop] = rng.standard_normal(stop - start, dtype=np.float32)
        other[start:stop] = one[start:stop] * np.float32(1 + 1e-7)
    return paths


def files(megabytes: int, rounds: int) -> dict[str, dict[str, float]]:
    """Every reader of two large files, in turns."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in READERS}
    with tempfile.TemporaryDirectory() as folder:
        paths = write_files(Path(folder), megabytes * 1_000_000 // 4)
        for _ in range(rounds):
            for name, code in READERS.items():
                found[name].append(timed(code, *paths))
    return {name: medians(rows) for name, rows in found.items()}


def start_up() -> dict[str, float]:
    """Medians of twenty, in turns: `compare` of two small files, `--help`, and `python -c "import numpy"`."""
    import numpy as np

    from twinalign.files.writer import write_reprod_log

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.npy"
        write_reprod_log(path, {"logits": np.ones((4, 10), np.float32)})
        ours = "from twinalign.__main__ import main; main()"
        commands = {
            "import numpy": ["import numpy"],
            "twinalign compare": [ours, "compare", str(path), str(path)],
            "twinalign --help": [ours, "--help"],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(20):
            for name, command in commands.items():
                started = processor_seconds(resource.RUSAGE_CHILDREN)
                subprocess.run([sys.executable, "-c", *command], check=True, capture_output=True)
                times[name].append(processor_seconds(resource.RUSAGE_CHILDREN) - started)
    return {name: statistics.median(values) for name, values in times.items()}


def arrays(megabytes: int, repeats: int, rounds: int) -> dict[str, dict[str, float]]:
    """Every contestant on two arrays in memory, in turns."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CONTESTANTS}
    for _ in range(rounds):
        for name in CONTESTANTS:
            command = [sys.executable, __file__, "--one", name, "--megabytes", str(megabytes)]
            output = subprocess.run([*command, "--repeats", str(repeats)], check=True, capture_output=True, text=True)
            found[name].append(json.loads(output.stdout.splitlines()[-1]))
    return {name: medians(rows) for name, rows in found.items()}


def tables(found: dict[str, Any]) -> list[str]:
    """The figures as Markdown."""
    base = found["arrays"][CONTESTANTS[0]]["seconds"]
    lines = [f"Two arrays of {found['megabytes']} MB, one thread:", ""]
    lines += ["| | seconds | ratio | limit | MB beyond the arrays |", "| --- |" + " ---: |" * 4]
    for name, row in found["arrays"].items():
        limit = LIMITS.get(name, "")
        ratio, memory = f"{row['seconds'] / base:.2f}", f"{row['megabytes']:.0f}"
        lines.append(f"| {name} | {row['seconds']:.3f} | {f'**{ratio}**' if limit else ratio} | {limit} | {memory} |")
    started = found["start"]["import numpy"]
    lines += ["", f"Two files of {found['file_megabytes']} MB:", ""]
    lines += ["| | seconds | ratio | peak memory |", "| --- |" + " ---: |" * 3]
    whole = found["files"]["np.load of both"]["seconds"]
    for name, row in found["files"].items():
        lines.append(f"| {name} | {row['seconds']:.2f} | {row['seconds'] / whole:.2f} | {row['bytes'] / 1e6:.0f} MB |")
    lines += ["", "Start, two small files:", "", "| | seconds | ratio | limit |", "| --- |" + " ---: |" * 3]
    for name, seconds in found["start"].items():
        limit = "" if name == "import numpy" else "1.5"
        ratio = f"{seconds / started:.2f}"
        lines.append(f"| {name} | {seconds:.3f} | {f'**{ratio}**' if limit else ratio} | {limit} |")
    return lines


def main() -> None:
    """Measure all contestants and print Markdown tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=200, help="size of each of the two arrays")
    parser.add_argument("--file-megabytes", type=int, default=2000, help="size of each of the two files")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the figures there too")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        measure(arguments.one, arguments.megabytes * 1_000_000 // 4, arguments.repeats)
        return
    found = {
        "megabytes": arguments.megabytes,
        "arrays": arrays(arguments.megabytes, arguments.repeats, arguments.rounds),
        "file_megabytes": arguments.file_megabytes,
        "files": files(arguments.file_megabytes, arguments.rounds),
        "start": start_up(),
    }
    print("\n".join(tables(found)))
    if arguments.json:
        arguments.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
