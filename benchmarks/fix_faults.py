"""How many faults in a port's source `twinalign fix` repairs: `python benchmarks/fix_faults.py [--only …] [--drawn N]`.

The faults are those that `twinalign selftest CASE --fix N` plants, drawn by lot in the ports of `fix_ports` and
`held_out`; then those that people have written down, as the text before and after: of the port `blocks`, here, and N of
either half of `held_out/faults.py`, drawn by lot. What is counted, and how, is said by
`twinalign.planted_faults.source_selftest`. Goes on where it was ended (result/fix_faults); `--again` measures again
what was not repaired on other sources. Several may run at a time on different ports. Writes docs/fix.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parent.parent
PAGE, MEASURED = ROOT / "docs" / "fix.md", ROOT / "result" / "fix_faults"
HELD, PORTS = ROOT / "benchmarks" / "held_out", ROOT / "benchmarks" / "fix_ports"
os.environ["HELD_OUT_PORTS"] = str(HELD)
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "tools"), str(HELD), str(PORTS)])

from held_out_faults import state_of_sources  # noqa: E402
from page import FAULTS as HELD_OUT  # noqa: E402
from page import halves  # noqa: E402

from twinalign.edits.source import Edit  # noqa: E402
from twinalign.planted_faults.source_faults import SourceFault, chosen_faults  # noqa: E402
from twinalign.planted_faults.source_selftest import RepairTrials  # noqa: E402
from twinalign.recorder.run_settings import RunSettings  # noqa: E402

CASES = {
    "recipe": (f"{PORTS}/fix_cases.py:Recipe", 24),
    "blocks": (f"{PORTS}/fix_cases.py:Blocks", 14),
    "encoder": (f"{HELD}/cases.py:Encoder", 12),
    "pyramid": (f"{HELD}/cases.py:Pyramid", 12),
    "graph": (f"{HELD}/cases.py:Graph", 12),
}
"""Port -> its case, and how many faults are drawn by lot in it."""
_SEED = 26
_EXPLAIN_SECONDS = 5.0
"""Of processor time; a fault that no cause explains by then is mended from the reference's source, if it is."""

WRITTEN = {
    "padding mode forgotten": (', padding_mode="reflect"', ""),
    "batch norm's epsilon forgotten": ("epsilon=1e-3, ", ""),
    "momentum as in torch": ("momentum=0.8", "momentum=0.2"),
    "dilation forgotten": ("padding=2, dilation=2, groups=2", "padding=1, groups=2"),
    "group norm of 2 groups": ("nn.GroupNorm(4, 8", "nn.GroupNorm(2, 8"),
    "group norm's epsilon forgotten": (", epsilon=1e-4", ""),
    "pool counts the padding": ("exclusive=True", "exclusive=False"),
    "maximum for average": (
        "nn.AvgPool2D(3, stride=2, padding=1, ceil_mode=True, exclusive=True)",
        "nn.MaxPool2D(3, stride=2, padding=1, ceil_mode=True)",
    ),
    "layer norm's epsilon forgotten": ("nn.LayerNorm(8, epsilon=1e-6)", "nn.LayerNorm(8)"),
    "exact GELU": ("nn.GELU(approximate=True)", "nn.GELU()"),
    "ReLU for GELU": ("nn.GELU(approximate=True)", "nn.ReLU()"),
    "ReLU for SiLU": ("F.silu(", "F.relu("),
    "default slope": (", negative_slope=0.2", ""),
    "softmax over features": ("axis=1", "axis=-1"),
    "residual forgotten": ("x = x + self.fall", "x = self.fall"),
    "layer norm forgotten": ("self.rise(self.norm(x))", "self.rise(x)"),
    "sum for mean": ("label_smoothing=0.1", 'label_smoothing=0.1, reduction="sum"'),
    "label smoothing forgotten": (", label_smoothing=0.1", ""),
    "default beta2": (", beta2=0.95", ""),
    "default epsilon of the optimizer": (", epsilon=1e-6, weight", ", weight"),
    "default weight decay": (", weight_decay=0.05", ""),
    "Adam for AdamW": ("paddle.optimizer.AdamW", "paddle.optimizer.Adam"),
    "mean for sum": ("(weights * x).sum(1)", "(weights * x).mean(1)"),
    "operands subtracted": ("x = x + self.fall", "x = x - self.fall"),
}

HEAD = """# `twinalign fix`, measured

Written by `python benchmarks/fix_faults.py`, on a CPU. Each fault is planted in the source of a small right port, one
at a time ([the ports](../benchmarks/fix_ports)). *Located*: a fault is named whose source holds the planted line.
*Suggested*: with a proven cause, or an edit. *Repaired*: aligned with the patch, and then, with inputs that `fix` has
not seen, aligned again and equal to the right port. A *wrong edit* is one that was called proven and is not so then.
An initialiser counts as repaired if the check `initial` cannot tell it from the right one.
Faults that change no result by more than rounding are not counted, nor are those with which the port stops with an
error. Your own port is tested in the same way by `twinalign selftest CASE --fix N`.

"""
_OF = {
    "lot": "Planted by the operators, drawn by lot",
    "own": "Written down for one port",
    "A": "Held out, drawn from the half that was looked at",
    "B": "Held out, drawn from the half of which nothing but the count was looked at",
}
_COLUMNS = ("located", "suggested", "repaired", "wrong")
Wanted = tuple[str, str, SourceFault]
"""What kind of fault it is (a key of `_OF`), its name, and it."""


def written(name: str, trials: RepairTrials, before: str, after: str) -> SourceFault:
    """A fault that is given as the text before and after."""
    file, text = next((file, text) for file, text in trials.texts.items() if before in text)
    first = text.index(before)
    rows = [text[:at].split("\n") for at in (first, first + len(before))]
    span = (len(rows[0]), len(rows[0][-1]), len(rows[1]), len(rows[1][-1]))
    return SourceFault(name, Edit(file, span, before, after))


def wanted(port: str, count: int, drawn: int, trials: RepairTrials) -> Iterator[Wanted]:
    for fault in chosen_faults(trials.texts, count, _SEED):
        yield "lot", fault.id, fault
    if port == "blocks":
        for name, texts in WRITTEN.items():
            yield "own", name, written(name, trials, *texts)
    of = halves()
    for half in "AB":
        names = sorted(name for name, found in of.items() if found == half)
        for name in random.Random(5).sample(names, drawn):
            if name.startswith(f"{port}-"):
                _, *texts = HELD_OUT[port][int(name.rpartition("-")[2])]
                yield half, name, written(name, trials, *texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="ports, comma-separated")
    parser.add_argument("--drawn", type=int, default=0, help="faults of either held-out half")
    parser.add_argument("--again", action="store_true", help="measure again what was not repaired on other sources")
    arguments = parser.parse_args()
    only = arguments.only.split(",") if arguments.only else list(CASES)
    state = state_of_sources()
    for port in only:
        case, count = CASES[port]
        kept = MEASURED / f"{port}.json"
        rows = rows_of(port)
        settings = RunSettings(case, out=MEASURED / port, explain_seconds=_EXPLAIN_SECONDS)
        with RepairTrials(settings) as trials:
            for of, name, fault in wanted(port, count, arguments.drawn, trials):
                known = rows.get(name)
                if known is not None and (known["state"] == state or not arguments.again or not _failed(known)):
                    continue
                trial = trials.of(fault)
                rows[name] = {**trial.to_json(), "counts": trial.counts, "of": of, "state": state}
                kept.write_text(json.dumps(rows), encoding="utf-8")
                PAGE.write_text(page(), encoding="utf-8")
                print(port, name, *(trial.to_json().values() if of != "B" else ()), flush=True)


def rows_of(port: str) -> dict[str, Any]:
    """What was measured of a port: name of the fault -> its row."""
    kept = MEASURED / f"{port}.json"
    return json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}


def _failed(row: dict[str, Any]) -> bool:
    return row["counts"] and not row["repaired"]


def page() -> str:
    """The page of all faults that were measured."""
    lines = []
    measured = {(port, name): row for port in CASES for name, row in rows_of(port).items()}
    for of, words in _OF.items():
        counted = [row for row in measured.values() if row["of"] == of and row["counts"]]
        if counted:
            told = ", ".join(f"{sum(row[key] for row in counted)} {key}" for key in _COLUMNS[:3])
            lines += [f"**{words}: {len(counted)}; {told}, {sum(row['wrong'] for row in counted)} wrong edits.**", ""]
    others = [row for row in measured.values() if not row["counts"]]
    stopped = sum(row["error"] is not None for row in others)
    states = [row["state"] for row in measured.values()]
    trees = ", ".join(f"{states.count(state)} on {state[:10]}" for state in dict.fromkeys(states))
    lines += [f"{stopped} more stop with an error, {len(others) - stopped} change no result."]
    lines += [f"Measured, by the tree of `tools/twinalign` in git: {trees}.", ""]
    lines += [
        "| port | fault | planted | located | suggested | repaired | wrong edit | written | seconds |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | ---: |",
    ]
    for (port, fault), row in measured.items():
        if row["counts"] and row["of"] != "B":
            words = " | ".join("yes" if row[key] else "no" for key in _COLUMNS)
            texts = "; ".join(code(edit) for edit in row["edits"]) or "–"
            planted = f"{code(row['before'])} → {code(row['after'])}"
            lines.append(
                f"| {port} | {fault.partition(':')[0]} | {planted} | {words} | {texts} | {row['seconds']:.0f} |"
            )
    return HEAD + "\n".join(lines) + "\n"


def code(text: str) -> str:
    """A piece of source for a cell of a table."""
    return f"`{' '.join(text.split()).replace('|', chr(92) + '|')}`" if text.strip() else "nothing"


if __name__ == "__main__":
    main()
