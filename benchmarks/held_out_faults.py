"""Faults that the vocabulary of causes was not written for: `python benchmarks/held_out_faults.py [--half A|B|both]`.

What they are and what is counted: `held_out/page.py`, which makes docs/held-out-faults.md. Goes on where it was ended,
but measures again what was measured on other sources; the page is written once all faults are measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Bytecode is kept for a source by its second and size: two faults may have the same.
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
ROOT = Path(__file__).resolve().parent.parent
PORTS = ROOT / "benchmarks" / "held_out"
sys.path[:0] = [str(ROOT), str(ROOT / "tools"), str(PORTS)]
os.environ["PYTHONPATH"] = os.pathsep.join([str(PORTS), str(ROOT), str(ROOT / "tools")])

from page import FAULTS, document, halves  # noqa: E402

from twinalign.planted_faults.selftest import differ, record, tidy  # noqa: E402
from twinalign.planted_faults.spoiled_port import unplant  # noqa: E402
from twinalign.recorder.recorder import Recorder, RunSettings  # noqa: E402
from twinalign.search.locator import Locator  # noqa: E402

PAGE = ROOT / "docs" / "held-out-faults.md"
STAGES = ("forward", "loss", "backward")


def state_of_sources() -> str:
    """The tree of `tools/twinalign` in git, which changes with the sources alone.

    Raises:
        SystemExit: the sources are not committed, so that nobody could measure the same again.
    """
    git = ["git", "-C", str(ROOT)]
    sources = ("tools/twinalign", "benchmarks/held_out")
    changed = subprocess.run(
        [*git, "status", "--porcelain", "--", *sources], check=True, capture_output=True, text=True
    )
    if changed.stdout:
        raise SystemExit(f"commit first what is measured:\n{changed.stdout}")
    tree = subprocess.run(
        [*git, "rev-parse", "--short=12", "HEAD:tools/twinalign"], check=True, capture_output=True, text=True
    )
    return tree.stdout.strip()


def trials(port: str, wanted: list[str], out: Path) -> Iterator[dict[str, Any]]:
    """Put each fault into the port, and locate."""
    text = (PORTS / f"{port}_port.py").read_text(encoding="utf-8")
    folder = out / f"{port}_spoiled"
    folder.mkdir(exist_ok=True)
    os.environ["HELD_OUT_PORTS"] = str(folder)
    (folder / f"{port}_port.py").write_text(text, encoding="utf-8")
    recorder = Recorder(RunSettings(case=f"{PORTS / 'cases.py'}:{port.title()}", out=out / port))
    with recorder.running() as weights:
        clean = {stage: record(recorder, weights, "paddle", stage, "clean") for stage in STAGES}
        for name in wanted:
            place, before, after = FAULTS[port][int(name.rpartition("-")[2])]
            if before not in text:
                raise ValueError(f"{name}: {before!r} is not in the port")
            spoiled = text.replace(before, after, 1)
            started = time.perf_counter()
            (folder / f"{port}_port.py").write_text(spoiled, encoding="utf-8")
            recorder.processes["paddle"].call(unplant)
            changed = {stage: record(recorder, weights, "paddle", stage, "planted") for stage in STAGES}
            effect = any(differ(clean[stage][key], one) for stage in STAGES for key, one in changed[stage].items())
            tidy(recorder)
            found = Locator(recorder, weights).locate(STAGES)
            places = place.split("|")
            named = [
                {
                    "place": fault.paddle_layer,
                    "phase": fault.phase,
                    "notes": fault.evidence.get("notes", []),
                    "cause": fault.explanation.id if fault.explanation else None,
                    "text": fault.explanation.text if fault.explanation else None,
                    "rivals": fault.explanation.evidence.get("rivals", []) if fault.explanation else [],
                }
                for fault in found.faults
            ]
            right = [one for one in named if one["place"] in places]
            yield {
                "name": name,
                "after": after,
                "before": before,
                "place": place,
                "effect": effect,
                "named": named,
                "located": bool(right),
                "proven": bool(right) and all(one["cause"] for one in right),
                "elsewhere": any(one["cause"] and one["place"] not in places for one in named),
                "not_searched": found.not_searched,
                "seconds": round(time.perf_counter() - started, 1),
            }


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=("A", "B", "both"), default="both")
    parser.add_argument("--only", default="", help="names of faults")
    parser.add_argument("--out", type=Path, default=ROOT / "result" / "held_out")
    parser.add_argument("--page", type=Path, default=PAGE)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    kept = arguments.out / "rows.json"
    rows: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    of, state = halves(), state_of_sources()
    only = arguments.only.split(",") if arguments.only else list(of)
    for port in FAULTS:
        wanted = [f"{port}-{number}" for number in range(len(FAULTS[port]))]
        asked = [n for n in wanted if n in only and (rows.get(n, {}).get("state") != state or arguments.only)]
        asked = [n for n in asked if arguments.half in ("both", of[n])]
        for row in trials(port, asked, arguments.out) if asked else ():
            rows[row["name"]] = {**row, "state": state}
            kept.write_text(json.dumps(rows), encoding="utf-8")
            shown = [f"{one['place']}/{one['phase']}: {one['text']}" for one in row["named"]]
            # What is found in half B is counted only.
            words = ("located" if row["located"] else "NOT", row["seconds"], shown) if of[row["name"]] != "B" else ()
            print(row["name"], of[row["name"]], *words, flush=True)
    if all(rows.get(name, {}).get("state") == state for name in of):
        arguments.page.write_text(document(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
