"""Measures the main job: `twinalign run` into an empty folder and once more, compared with its limits.

    python benchmarks/main_job.py

Prints a Markdown table: wall time of both runs, the processor time of the first and when it told the verdict of its
first stage, and the most memory of all its processes together: pages that they share (libraries) counted once, and,
in the last row, in each of them.
Reads /proc, so Linux only.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from twinalign.sides import FOUND

SECONDS_LIMIT, FIRST_LIMIT = 120.0, 30.0
BYTES_LIMIT = 5 << 30
PAGE = os.sysconf("SC_PAGE_SIZE")
# With this set each process would compile twinalign's modules anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def processes(root: int) -> list[int]:
    """A process and everything below it."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for process in found:
        found += parents.get(process, [])
    return found


def memory(process: int) -> int:
    """Bytes of memory of a process, pages that it shares included."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError):  # it ends now
        return 0


def own_memory(process: int) -> int:
    """Bytes of memory of a process, of shared pages its share. The system counts page by page, and stops it so long."""
    try:
        return int(Path(f"/proc/{process}/smaps_rollup").read_text().split("\nPss:")[1].split()[0]) * 1024
    except (OSError, IndexError):
        return 0


@dataclasses.dataclass
class Measured:
    """One run: seconds by the clock, of the processor and until the first verdict; most bytes of memory."""

    seconds: float
    processor: float
    first: float
    peak: tuple[int, int]
    code: int


def run(out: Path) -> Measured:
    """Run the main job once."""
    started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    told: list[float] = []
    process = subprocess.Popen(
        [sys.executable, "-m", "twinalign", "run", "--out", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )

    def listen() -> None:
        told.extend(time.monotonic() - started for line in process.stderr or () if f" {FOUND}: " in line)

    listener = threading.Thread(target=listen)
    listener.start()
    peak = 0, 0
    while process.poll() is None:
        running = processes(process.pid)
        total = sum(map(memory, running))
        if total > peak[1]:
            peak = max(peak[0], sum(map(own_memory, running))), total
        time.sleep(0.25)
    seconds, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    listener.join()
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Measured(seconds, processor, told[0] if told else float("nan"), peak, process.returncode)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        first, again = run(out), run(out)
        summary = json.loads((out / "summary.json").read_text())
    stages = {name: stage["verdict"] for name, stage in summary["stages"].items()}
    print(f"verdict {summary['verdict']} (exit codes {first.code}, {again.code}); {stages}\n")
    print("| | measured | limit | ratio |\n| --- | ---: | ---: | ---: |")
    print(f"| first verdict of a stage | {first.first:.0f} s | {FIRST_LIMIT:.0f} s | {first.first / FIRST_LIMIT:.2f} |")
    print(f"| first run | {first.seconds:.0f} s | {SECONDS_LIMIT:.0f} s | {first.seconds / SECONDS_LIMIT:.2f} |")
    print(f"| processor time of the first run | {first.processor:.0f} s | | |")
    print(
        f"| second run, nothing changed | {again.seconds:.1f} s | | {again.seconds / first.seconds:.3f} of the first |"
    )
    once, each = first.peak
    sizes = f"{once / 2**30:.1f} GiB | {BYTES_LIMIT / 2**30:.0f} GiB"
    print(f"| memory of all processes | {sizes} | {once / BYTES_LIMIT:.2f} |")
    print(f"| the same, shared pages counted in each | {each / 2**30:.1f} GiB | | |")


if __name__ == "__main__":
    main()
