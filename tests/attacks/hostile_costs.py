"""What `twinalign verify` takes to refuse each hostile bundle: `python tests/attacks/hostile_costs.py [BUNDLE]`.

Prints a line a kind with exit code, lines on standard error, seconds of computing and megabytes of the whole process,
its start included: each is a fork of this process, whose own start and memory count. Exit code 1 unless each is refused
with 2, in one line, within 5 s and 300 MB. Without a bundle, `tests.cases.tiny:TinyMoCo` is recorded first.
"""

from __future__ import annotations

import functools
import os
import resource
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import twinalign.cli.verify  # noqa: F401  # so that no fork imports it anew
from tests.twinalign.bundle.forging import Forgery
from tests.twinalign.bundle.hostile_bundles import HOSTILE
from twinalign.bundle import verifying  # noqa: F401
from twinalign.cli import main as command_line

CODE, SECONDS, MEGABYTES = 2, 5.0, 300.0


def forked(work: Callable[[], object]) -> tuple[int, resource.struct_rusage]:
    """Exit code and costs of a fork of this process that does some work."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status, usage = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), usage


def cost(path: Path) -> tuple[int, int, float, float]:
    """Exit code, lines of standard error, seconds and megabytes of `verify`."""
    start = resource.getrusage(resource.RUSAGE_SELF)
    with tempfile.TemporaryFile() as error, open(os.devnull, "wb") as nothing:

        def verify() -> None:
            os.dup2(nothing.fileno(), 1)
            os.dup2(error.fileno(), 2)
            command_line(["verify", str(path)])

        code, usage = forked(verify)
        error.seek(0)
        lines = len(error.read().splitlines())
    seconds = sum(one.ru_utime + one.ru_stime for one in (start, usage))
    return code, lines, seconds, usage.ru_maxrss / 1024


def recorded(folder: Path) -> Path:
    """A bundle made by other processes: a child's peak memory begins with that of the process that starts it."""
    run, bundle = str(folder / "run"), folder / "bundle.zip"
    for command in (
        ["run", "tests.cases.tiny:TinyMoCo", "--out", run, "--no-locate", "--set", "steps=2"],
        ["pack", run, str(bundle), "--partial"],
    ):
        subprocess.run([sys.executable, "-m", "twinalign", *command], check=True, stdout=subprocess.DEVNULL)
    return bundle


def _write(write: Callable[[Forgery, Path], object], bundle: Path, path: Path) -> None:
    path.unlink(missing_ok=True)
    write(Forgery(bundle), path)


def main(arguments: list[str]) -> int:
    warnings.filterwarnings("ignore", message="Duplicate name")
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bundle = Path(arguments[0]) if arguments else recorded(folder)
        for title, (write, _) in HOSTILE.items():
            # In a fork as well: what a forgery takes is not what its refusal takes.
            assert forked(functools.partial(_write, write, bundle, folder / "hostile.zip"))[0] == 0, title
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
