"""How many faults in a port's source `twinalign fix` repairs: `python benchmarks/fix_faults.py [--only …] [--drawn N]`.

The faults are those that `twinalign selftest CASE --fix N` plants, drawn by lot in the ports of `fix_ports` and
`held_out`; then those that people have written down, as the text before and after: those here, and N of either half of
`held_out/faults.py`, drawn by lot. What is counted, and how, is said by
`twinalign.planted_faults.source_selftest`. Goes on where it was ended (result/fix_faults); `--again` measures again
what was not repaired on other sources, `--one-tree` all that was measured on other sources. Several may run at a time
on different ports. Writes docs/fix.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
from collections.abc import Callable, Iterator
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
from twinalign.planted_faults import source_selftest  # noqa: E402
from twinalign.planted_faults.source_faults import SourceFault, chosen_faults  # noqa: E402
from twinalign.planted_faults.source_selftest import RepairTrials  # noqa: E402
from twinalign.recorder.run_settings import RunSettings  # noqa: E402
from twinalign.repair.fix import FixResult, fix  # noqa: E402

CASES = {
    "recipe": (f"{PORTS}/fix_cases.py:Recipe", 24),
    "blocks": (f"{PORTS}/fix_cases.py:Blocks", 14),
    "encoder": (f"{HELD}/cases.py:Encoder", 12),
    "pyramid": (f"{HELD}/cases.py:Pyramid", 12),
    "graph": (f"{HELD}/cases.py:Graph", 12),
}
"""Port -> its case, and how many faults are drawn by lot in it."""
_SEED = 26
_MOST_TIMES = 3.0
_EXPLAIN_SECONDS = 5.0
"""Of processor time; a fault that no cause explains by then is mended from the reference's source, if it is."""

WRITTEN: dict[str, dict[str, tuple[str, str]]] = {
    "blocks": {
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
    },
    "recipe": {
        "last batch kept": (", drop_last=True", ""),
        "larger batches": ("batch_size=4", "batch_size=5"),
        "warm-up begins at 0": ("0.1 * (step + 1) / warmup", "0.1 * step / warmup"),
        "no warm-up": ("warmup=4", "warmup=0"),
        "average weighs the other way round": (
            "momentum * average[name] + (1.0 - momentum) * parameter",
            "(1.0 - momentum) * average[name] + momentum * parameter",
        ),
        "average moves ahead of the step": (
            "step_of.step()\n            update_average(average, parameters)",
            "update_average(average, parameters)\n            step_of.step()",
        ),
        "vectors are not updated": ("parameters=parameters, w", "parameters=[p for p in parameters if p.ndim > 1], w"),
        "gradient not stopped": ("keepdim=True).detach()", "keepdim=True)"),
        "gradient stopped": ("self.scale * gate *", "self.scale * gate.detach() *"),
    },
    "encoder": {
        "queries and keys exchanged": ("self.q(x), self.k(x), self.v(x)", "self.k(x), self.q(x), self.v(x)"),
        "rotary angles of neighbours": (
            "paddle.concat([angles, angles], -1)",
            "paddle.stack([angles, angles], -1).flatten(-2)",
        ),
        "rotation of neighbours, two lines": (
            "first, second = x.chunk(2, -1)\n    return paddle.concat([-second, first], -1)",
            "first, second = x[..., ::2], x[..., 1::2]\n    return paddle.stack([-second, first], -1).flatten(-2)",
        ),
        "wrong mask and scale, two lines": (
            "-0.5\n        places = paddle.arange(length)\n        ahead = places[None, :] > places[:, None]",
            "-1.0\n        places = paddle.arange(length)\n        ahead = places[None, :] >= places[:, None]",
        ),
        "smoothing and sum, two lines": (
            "0.1 * smooth)\n    return entropy.mean()",
            "0.2 * smooth)\n    return entropy.sum()",
        ),
        "attention weights cut off": ("F.softmax(scores + bias, -1)", "F.softmax(scores + bias, -1).detach()"),
    },
    "pyramid": {
        "nearest points and another border, two lines": (
            '"bilinear", align_corners=False)\n        merged = self.side(fine) + raised\n'
            '        merged = F.pad(merged, [1, 0, 1, 0], mode="reflect")',
            '"bilinear", align_corners=True)\n        merged = self.side(fine) + raised\n'
            '        merged = F.pad(merged, [1, 0, 1, 0], mode="replicate")',
        ),
    },
}
"""Port -> name of a fault -> the text before and after."""

HEAD = """# `twinalign fix`, measured

Written by `python benchmarks/fix_faults.py`, on a CPU. Each fault is planted in the source of a small right port, one
at a time ([the ports](../benchmarks/fix_ports)). *Located*: a fault is named whose source holds the planted line.
*Suggested*: with a proven cause, or an edit. *Repaired*: aligned with the patch, and then, with inputs that `fix` has
not seen, aligned again and equal to the right port. A *wrong edit* is one that was called proven and is not so then.
An initialiser counts as repaired if the check `initial` cannot tell it from the right one.
Faults that change no result by more than rounding are not counted, nor are those with which the port stops with an
error. *Tree*: that of `tools/twinalign` in git on which a row was measured. Several of the faults that are written down
by hand were looked at while `fix` was written, and so were three of those that are drawn by lot, which it had not
repaired before. Your own port is tested in the same way by `twinalign selftest CASE --fix N`.

"""
_OF = {
    "lot": "Planted by the operators, drawn by lot",
    "own": "Written down by hand",
    "A": "Held out, drawn from the half that was looked at",
    "B": "Held out, drawn from the half of which nothing but the count was looked at",
}
_COLUMNS = ("located", "suggested", "repaired", "wrong")
Wanted = tuple[str, str, SourceFault]
"""What kind of fault it is (a key of `_OF`), its name, and it."""


def processor_seconds() -> float:
    """Processor time of this process and of all that it started, those that ended included."""
    children: dict[int, list[int]] = {}
    spent: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(folder.name))
            spent[int(folder.name)] = sum(map(int, fields[11:15]))
    found, waiting = 0, [os.getpid()]
    while waiting:
        process = waiting.pop()
        found += spent.get(process, 0)
        waiting += children.get(process, ())
    return found / os.sysconf("SC_CLK_TCK")


class TimedFix:
    """`fix` as `RepairTrials` calls it, with the processor time of the last call, and of it until edits were tried."""

    def __init__(self) -> None:
        self.search = self.all = 0.0

    def __call__(self, settings: RunSettings, progress: Callable[[str, str], None], **more: Any) -> FixResult:
        started, self.search = processor_seconds(), 0.0

        def noting(side: str, text: str) -> None:
            if text.startswith("trying ") and not self.search:
                self.search = processor_seconds() - started
            progress(side, text)

        try:
            return fix(settings, noting, **more)
        finally:
            self.all = processor_seconds() - started


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
    for name, texts in WRITTEN.get(port, {}).items():
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
    parser.add_argument("--one-tree", action="store_true", help="measure again what was measured on other sources")
    arguments = parser.parse_args()
    only = arguments.only.split(",") if arguments.only else list(CASES)
    state, timed = state_of_sources(), TimedFix()
    source_selftest.fix = timed  # type: ignore[assignment]
    for port in only:
        case, count = CASES[port]
        kept = MEASURED / f"{port}.json"
        rows = rows_of(port)
        settings = RunSettings(case, out=MEASURED / port, explain_seconds=_EXPLAIN_SECONDS)
        with RepairTrials(settings) as trials:
            for of, name, fault in wanted(port, count, arguments.drawn, trials):
                known = rows.get(name)
                again = arguments.one_tree or (arguments.again and known is not None and _failed(known))
                if known is not None and (known["state"] == state or not again):
                    continue
                trial = trials.of(fault)
                rows[name] = {**trial.to_json(), "counts": trial.counts, "of": of, "state": state}
                rows[name] |= {"search_seconds": round(timed.search, 1), "processor_seconds": round(timed.all, 1)}
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
    lines += [f"{stopped} more stop with an error, {len(others) - stopped} change no result."]
    states = [row["state"] for row in measured.values()]
    trees = ", ".join(f"{states.count(state)} on {state[:7]}" for state in dict.fromkeys(states))
    lines += [f"All of them by tree: {trees}.", "", *times([row for row in measured.values() if row["counts"]]), ""]
    lines += [
        "| port | fault | planted | located | suggested | repaired | wrong edit | written | processor | tree |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | ---: | --- |",
    ]
    for (port, fault), row in measured.items():
        if row["counts"] and row["of"] != "B":
            words = " | ".join("yes" if row[key] else "no" for key in _COLUMNS)
            texts = "; ".join(code(edit) for edit in row["edits"]) or "–"
            planted = f"{code(row['before'])} → {code(row['after'])}"
            spent = f"{row['processor_seconds']:.0f} s" if "processor_seconds" in row else "–"
            name = fault.partition(":")[0]
            lines.append(f"| {port} | {name} | {planted} | {words} | {texts} | {spent} | {row['state'][:7]} |")
    return HEAD + "\n".join(lines) + "\n"


def times(rows: list[dict[str, Any]]) -> list[str]:
    """How long `fix` took, in times of the run with the search that comes first in it."""
    timed = [row for row in rows if row.get("search_seconds")]
    if not timed:
        return []
    spent = [row["processor_seconds"] for row in timed]
    ratios = [row["processor_seconds"] / row["search_seconds"] for row in timed]
    within = sum(ratio <= _MOST_TIMES for ratio in ratios)
    return [
        f"Processor time of {len(timed)} faults, each with all trials and the proof on a second draw: median "
        f"{statistics.median(spent):.1f} s, at most {max(spent):.0f} s; median {statistics.median(ratios):.1f} times "
        f"the run with the search that comes first, at most {_MOST_TIMES:.0f} times for {within}."
    ]


def code(text: str) -> str:
    """A piece of source for a cell of a table."""
    return f"`{' '.join(text.split()).replace('|', chr(92) + '|')}`" if text.strip() else "nothing"


if __name__ == "__main__":
    main()
