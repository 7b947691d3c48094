"""What no single bundle can show, `--replay` does: `python tests/attacks/replayed.py [BUNDLE]`.

Forges each of `forgeries.UNSEEN`, verifies it without and with a replay, and prints both verdicts. Exit code 1 if a
replay confirms one, or refuses the honest bundle. Without a bundle, `tests.cases.compact` is recorded first. Bundles
that ask for the same run of the same sources share its recordings.
"""

from __future__ import annotations

import dataclasses
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.attacks.forgeries import UNSEEN, forged, record
from twinalign.bundle import rerun
from twinalign.bundle.verifying import verify_bundle
from twinalign.recorder.run_settings import RunSettings
from twinalign.runs.run_result import RunResult


class RunOnce:
    """Stands in for `rerun.run`."""

    def __init__(self, folder: Path) -> None:
        self._run, self._folder = rerun.run, folder
        self._known: dict[tuple[str, ...], tuple[RunResult, Path]] = {}

    def __call__(self, settings: RunSettings, progress: Callable[[str, str], None]) -> RunResult:
        unpacked = settings.out.parent
        asked = repr(dataclasses.replace(settings, out=Path())).replace(str(unpacked), "")
        sources = (path for path in sorted(unpacked.rglob("*")) if path.is_file())
        key = asked, *(f"{path.relative_to(unpacked)} {path.read_bytes()!r}" for path in sources)
        if key in self._known:
            result, recorded = self._known[key]
            shutil.copytree(recorded, settings.out)
            return result
        result = self._run(settings, progress)
        self._known[key] = result, Path(shutil.copytree(settings.out, self._folder / f"replay{len(self._known)}"))
        return result


def verdicts(bundle: Path) -> tuple[str, str, str]:
    """Verdict without a replay, with one, and the first reason that the replay gives."""
    alone, replayed = verify_bundle(bundle), verify_bundle(bundle, replay=rerun.run_case_again)
    assert replayed.replay is not None
    sides = [entry for stage in replayed.replay["stages"].values() for entry in stage.values()]
    reasons = [entry["reason"] for entry in sides if entry["verdict"] != "aligned"]
    return alone.verdict, replayed.verdict, next(iter(reasons), "")


def main(arguments: list[str]) -> int:
    """Forge, verify and replay; returns the exit code."""
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bundle = Path(arguments[0]) if arguments else record(folder)
        rerun.run = RunOnce(folder)
        for title in ("honest", *UNSEEN):
            path = forged(bundle, UNSEEN[title], folder) if title in UNSEEN else bundle
            alone, replayed, reason = verdicts(path)
            print(f"{title}: {alone} alone, {replayed} with --replay {reason[:140]}", flush=True)
            wrong += (replayed == "confirmed") != (title == "honest")
    print(f"wrong: {wrong} of {1 + len(UNSEEN)}")
    return min(1, wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
