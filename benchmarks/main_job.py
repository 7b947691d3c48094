"""Measures the main job: `twinalign run` into an empty folder and once more, compared with its limits.

    python benchmarks/main_job.py

Prints a Markdown table: wall time of both runs, and the greatest sum of the resident memory of all its processes.
Reads /proc, so Linux only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SECONDS_LIMIT = 360.0
BYTES_LIMIT = 8 << 30
PAGE = os.sysconf("SC_PAGE_SIZE")


def resident(root: int) -> int:
    """Bytes of resident memory of a process and everything below it."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    total, waiting = 0, [root]
    while waiting:
        process = waiting.pop()
        waiting += parents.get(process, [])
        try:
            total += int(Path(f"/proc/{process}/statm").read_text().split()[1]) * PAGE
        except OSError:
            continue
    return total


def run(out: Path) -> tuple[float, int, int]:
    """Seconds, greatest resident bytes and exit code of one run."""
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "twinalign", "run", "--out", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    peak = 0
    while process.poll() is None:
        peak = max(peak, resident(process.pid))
        time.sleep(0.25)
    return time.monotonic() - started, peak, process.returncode


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        first, peak, code = run(out)
        again, _, code_again = run(out)
        summary = json.loads((out / "summary.json").read_text())
    stages = {name: stage["verdict"] for name, stage in summary["stages"].items()}
    print(f"verdict {summary['verdict']} (exit codes {code}, {code_again}); {stages}\n")
    print("| | measured | limit | ratio |\n| --- | ---: | ---: | ---: |")
    print(f"| first run | {first:.0f} s | {SECONDS_LIMIT:.0f} s | {first / SECONDS_LIMIT:.2f} |")
    print(f"| second run, nothing changed | {again:.1f} s | | {again / first:.3f} of the first |")
    sizes = f"{peak / 2**30:.1f} GiB | {BYTES_LIMIT / 2**30:.0f} GiB"
    print(f"| memory of all processes | {sizes} | {peak / BYTES_LIMIT:.2f} |")


if __name__ == "__main__":
    main()
