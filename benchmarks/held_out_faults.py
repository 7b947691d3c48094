"""Faults that the vocabulary of causes was not written for: `python benchmarks/held_out_faults.py [--half A|B|both]`.

Each of `held_out/faults.py` is one line of a small port that computes something else. They are divided by lot into two
halves: A may be looked at while causes are written, B may not. *Located*: `locate` names the layer that is wrong.
*Proven*: with a cause. *Elsewhere*: a cause is stated for a layer that is right. A fault
without an effect on any recorded number does not count. Goes on where it was ended; writes
docs/held-out-faults.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parent.parent
PORTS = ROOT / "benchmarks" / "held_out"
sys.path[:0] = [str(ROOT), str(ROOT / "tools"), str(PORTS)]
os.environ["PYTHONPATH"] = os.pathsep.join([str(PORTS), str(ROOT), str(ROOT / "tools")])

import faults  # noqa: E402

from twinalign.planted_faults.selftest import differ, record, tidy  # noqa: E402
from twinalign.planted_faults.spoiled_port import unplant  # noqa: E402
from twinalign.recorder.recorder import Recorder, RunSettings  # noqa: E402
from twinalign.search.locator import Locator  # noqa: E402

PAGE = ROOT / "docs" / "held-out-faults.md"
FAULTS = {"encoder": faults.ENCODER, "pyramid": faults.PYRAMID, "graph": faults.GRAPH}
SEED = 23
STAGES = ("forward", "loss", "backward")


def halves() -> dict[str, str]:
    """Name of each fault → the half that it was drawn into."""
    names = [f"{port}-{number}" for port, found in FAULTS.items() for number in range(len(found))]
    random.Random(SEED).shuffle(names)
    return {name: "AB"[at % 2] for at, name in enumerate(names)}


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


def document(rows: dict[str, dict[str, Any]]) -> str:
    """The page."""
    of = halves()
    lines = [
        "# Faults that the causes were not written for",
        "",
        "Written by `python benchmarks/held_out_faults.py`.",
        "",
    ]
    lines += [(__doc__ or "").partition("\n\n")[2].strip().replace("\n", " "), ""]
    lines += ["| | half A | half B |", "| --- | --- | --- |"]
    found = {half: [row for name, row in rows.items() if of[name] == half and row["effect"]] for half in "AB"}
    lines.append(f"| faults | {len(found['A'])} | {len(found['B'])} |")
    for key in ("located", "proven", "elsewhere"):
        lines.append(f"| {key} | " + " | ".join(str(sum(row[key] for row in found[half])) for half in "AB") + " |")
    lines += ["", "| fault | half | located | cause proven | elsewhere | cause | seconds |", "|" + " --- |" * 7]
    for name, row in rows.items():
        texts = "; ".join(one["text"] or "–" for one in row["named"]).replace("|", "\\|")
        change = f"`{row['before']}` → `{row['after']}`".replace("|", "\\|").replace("\n", " ")
        words = ["yes" if row[key] else "**no**" for key in ("located", "proven")]
        cells = [change, of[name], *words, "**yes**" if row["elsewhere"] else "no", texts, str(row["seconds"])]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


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
    of = halves()
    only = arguments.only.split(",") if arguments.only else list(of)
    for port in FAULTS:
        wanted = [f"{port}-{number}" for number in range(len(FAULTS[port]))]
        asked = [n for n in wanted if n in only and (n not in rows or arguments.only)]
        asked = [n for n in asked if arguments.half in ("both", of[n])]
        for row in trials(port, asked, arguments.out) if asked else ():
            rows[row["name"]] = row
            kept.write_text(json.dumps(rows), encoding="utf-8")
            shown = [f"{one['place']}/{one['phase']}: {one['text']}" for one in row["named"]]
            print(
                row["name"], of[row["name"]], "located" if row["located"] else "NOT", row["seconds"], shown, flush=True
            )
    arguments.page.write_text(
        document({n: rows[n] for n in (f"{p}-{i}" for p in FAULTS for i in range(99)) if n in rows}), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
