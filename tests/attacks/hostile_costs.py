"""What `twinalign verify` takes to refuse each hostile bundle: `python tests/attacks/hostile_costs.py [BUNDLE]`.

Prints a line a kind with exit code, lines on standard error, seconds of computing and megabytes of the whole process,
its start included. Exit code 1 unless each is refused with 2, in one line, within 5 s and 300 MB.
Without a bundle, `tests.cases.tiny:TinyMoCo` is recorded first.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

from tests.twinalign.bundle.forging import Forgery
from tests.twinalign.bundle.hostile_bundles import HOSTILE

CODE, SECONDS, MEGABYTES = 2, 5.0, 300.0


def cost(path: Path) -> tuple[int, int, float, float]:
    """Exit code, lines of standard error, seconds and megabytes of `verify`."""
    command = [sys.executable, "-m", "twinalign", "verify", str(path)]
    with tempfile.TemporaryFile() as error:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=error)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        error.seek(0)
        lines = len(error.read().splitlines())
    return process.returncode, lines, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def recorded(folder: Path) -> Path:
    """A bundle made by other processes: a child's peak memory begins with that of the process that starts it."""
    run, bundle = str(folder / "run"), folder / "bundle.zip"
    for command in (
        ["run", "tests.cases.tiny:TinyMoCo", "--out", run, "--no-locate", "--set", "steps=2"],
        ["pack", run, str(bundle), "--partial"],
    ):
        subprocess.run([sys.executable, "-m", "twinalign", *command], check=True, stdout=subprocess.DEVNULL)
    return bundle


def main(arguments: list[str]) -> int:
    warnings.filterwarnings("ignore", message="Duplicate name")
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bundle = Path(arguments[0]) if arguments else recorded(folder)
        for title, (write, _) in HOSTILE.items():
            write(Forgery(bundle), folder / "hostile.zip")
            code, lines, seconds, megabytes = found[title] = cost(folder / "hostile.zip")
            print(f"{title}: exit code {code}, {lines} line, {seconds:.1f} s, {megabytes:.0f} MB", flush=True)
    wrong = [
        title
        for title, (code, lines, seconds, megabytes) in found.items()
        if (code, lines) != (CODE, 1) or seconds > SECONDS or megabytes > MEGABYTES
    ]
    worst = [max(cost[place] for cost in found.values()) for place in (2, 3)]
    print(f"{len(found)} kinds, at most {worst[0]:.1f} s and {worst[1]:.0f} MB; beyond the limits: {wrong}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
