"""Time and memory of a comparison, as ratios to common tools', measured in one run.

    python benchmarks/compare_speed.py [--megabytes 200] [--repeats 5]

Each contestant compares the same two float32 arrays in a process of its own; the time is the best of the repeats, the
memory is how far the process's peak exceeds its memory with the arrays loaded.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
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
        started = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - started)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": best, "megabytes": (after - before) / 1024}))


def start_up() -> tuple[float, float]:
    """Best of ten: `twinalign compare` on two small files, and `python -c "import numpy"`."""
    from twinalign.files.writer import write_reprod_log

    with tempfile.TemporaryDirectory() as folder:
        import numpy as np

        path = Path(folder) / "a.npy"
        write_reprod_log(path, {"logits": np.ones((4, 10), np.float32)})
        code = "from twinalign.cli import main; main()"
        commands = (
            [sys.executable, "-c", code, "compare", str(path), str(path)],
            [sys.executable, "-c", "import numpy"],
        )
        times = []
        for command in commands:
            best = float("inf")
            for _ in range(10):
                started = time.perf_counter()
                subprocess.run(command, check=True, capture_output=True)
                best = min(best, time.perf_counter() - started)
            times.append(best)
    return times[0], times[1]


def main() -> None:
    """Measure all contestants and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=200, help="size of each of the two arrays")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    count = arguments.megabytes * 1_000_000 // 4
    if arguments.one:
        measure(arguments.one, count, arguments.repeats)
        return
    found = {}
    for name in CONTESTANTS:
        command = [sys.executable, __file__, "--one", name, "--megabytes", str(arguments.megabytes)]
        output = subprocess.run(
            [*command, "--repeats", str(arguments.repeats)], check=True, capture_output=True, text=True
        )
        found[name] = json.loads(output.stdout.splitlines()[-1])
    base = found[CONTESTANTS[0]]["seconds"]
    print(f"Two float32 arrays of {arguments.megabytes} MB, one thread:\n")
    print("| | seconds | ratio | MB beyond the arrays |\n| --- | --- | --- | --- |")
    for name, row in found.items():
        print(f"| {name} | {row['seconds']:.3f} | {row['seconds'] / base:.2f} | {row['megabytes']:.0f} |")
    ours, numpy_alone = start_up()
    print(
        f"\nStart-up: `twinalign compare` of two small files {ours:.3f} s, `import numpy` {numpy_alone:.3f} s, ", end=""
    )
    print(f"ratio {ours / numpy_alone:.2f}")


if __name__ == "__main__":
    main()
