"""Planted faults: how many twinalign detects, locates and explains, with reprod_log and PaDiff on the same ones.

    python benchmarks/selftest_table.py [--cases NAME,…] [--full] [--reuse] [--padiff FOLDER] [--out docs/selftest.md]

Runs `twinalign selftest` on the small MoCo v3 twins (ViT and ResNet) and on two pairs of torchvision and paddle.vision;
`--full` takes ViT-Small at 224 pixels in addition, which takes hours. reprod_log 1.0.1 compares the recordings of the
same faulty ports at its own threshold of 1e-6; PaDiff is run where `--padiff` names a folder with its package (`uv pip
install --no-deps --target FOLDER padiff pyyaml`), on faults of layers, the only ones that it compares. `--reuse` writes
the tables from the trials in result/selftest. Of cases that are not run the page keeps what it has.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from twinalign.planted_faults.catalogue import catalogue  # noqa: E402
from twinalign.planted_faults.selftest import Selftest, Trial  # noqa: E402
from twinalign.recorder.recorder import RunSettings  # noqa: E402
from twinalign.stages import STAGE_BY_NAME  # noqa: E402

FOLDER = ROOT / "result" / "selftest"
ZOO = ROOT / "benchmarks" / "zoo_cases.py"
CASES = {
    "MoCo v3 ViT": "pipeline.small_moco:SmallMoCoViT",
    "MoCo v3 ResNet": "pipeline.small_moco:SmallMoCoResNet",
    "MobileNetV3-Small": f"{ZOO}:MobileNetV3Small",
    "ResNet-18": f"{ZOO}:ResNet18",
}
FULL = {"MoCo v3 ViT-Small, 224 px": "moco_v3_vit_small"}

_REPROD_LOG = """
import contextlib, io, json, logging, sys, tempfile
from reprod_log import ReprodDiffHelper

def objections(reference, port):
    helper = ReprodDiffHelper()
    try:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            helper.compare_info(helper.load_info(reference), helper.load_info(port))
            helper.report(diff_threshold=1e-6, path=folder + "/diff.log")
            lines = open(folder + "/diff.log").read().splitlines()
    except Exception as error:
        return ["stops: " + str(error)]
    finally:
        logging.getLogger("root").handlers.clear()
    names = [line.rpartition("INFO: ")[2].rstrip(": ") for line in lines]
    return [names[at - 1] for at, line in enumerate(lines) if "check passed: False" in line]

print(json.dumps([objections(*pair) for pair in json.load(sys.stdin)]))
"""


_INTRODUCTION = """`twinalign selftest` plants each of the catalogue's {count} faults that fit a case into its port, one
at a time. *Detected*: the expected stage is the first that diverges. *Place named*: `locate` names the layer or
component. *Cause confirmed*: the right cause, applied to the reference, reproduces the port's wrong values. *False
alarms*: stages and places named that are not faulty, clean runs included; the same layer of the momentum encoder, which
averages the faulty weights, may be named too and does not count as one. A fault that changes no recorded number (ReLU6
where nothing exceeds 6) does not count.

reprod_log compares the same recordings of the same stage at its threshold of 1e-6, and counts as detecting if it
rejects a tensor that it accepts without the fault; its false alarms are the tensors that it rejects in the port without
a fault. PaDiff compares only layers and their gradients, at the smallest power of ten that the port without a fault
passes.
"""


def run_case(name: str, reference: str, padiff: Path | None, faults: Sequence[str]) -> dict[str, Any]:
    """Every trial of a case, with the results of the other two tools; continues an interrupted run."""
    out = folder_of(name)
    kept = out / "unfinished.json"
    done: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}

    def tell(trial: Trial) -> None:
        done[trial.id] = trial.to_json()
        kept.write_text(json.dumps(done), encoding="utf-8")
        found = [f"{entry['place']}: {entry['cause']}" for entry in trial.named]
        print(f"{name} {len(done)} {trial.id}: {trial.flagged}, {found}, {trial.error or ''}", flush=True)

    waiting = [fault for fault in faults or catalogue() if fault not in done]
    selftest = Selftest(RunSettings(case=reference, out=out), waiting, keep=True)
    result = selftest.run(tell).to_json()
    result["trials"] = [done[fault] for fault in catalogue() if fault in done]
    result["reprod_log"] = _reprod_log(out, result["trials"])
    result["padiff"] = _padiff(out, reference, result["trials"], padiff) if padiff else None
    (out / "trials.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
    kept.unlink(missing_ok=True)
    return result


def folder_of(name: str) -> Path:
    """Where the recordings and trials of a case lie."""
    return FOLDER / name.replace(" ", "_").replace(",", "")


def _reprod_log(out: Path, trials: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Fault -> tensors that reprod_log objects to, and passes in the port without a fault; `""` is that port."""
    asked: dict[tuple[str, str], list[str]] = {}
    for trial in trials:
        if trial["changed"]:
            stem = STAGE_BY_NAME[trial["stage"]].file_stem
            reference = str(out / f"{stem}_ref.npy")
            asked["", trial["stage"]] = [reference, str(out / f"{stem}_paddle.npy")]
            planted = out / "planted" / trial["id"] / f"{stem}_paddle.npy"
            if planted.exists():
                asked[trial["id"], trial["stage"]] = [reference, str(planted)]
    finished = subprocess.run(
        [sys.executable, "-c", _REPROD_LOG],
        input=json.dumps(list(asked.values())),
        capture_output=True,
        text=True,
        check=True,
    )
    answers = dict(zip(asked, json.loads(finished.stdout), strict=True))
    found = {"": sorted(f"{stage}: {name}" for (fault, stage), names in answers.items() if not fault for name in names)}
    for (fault, stage), names in answers.items():
        if fault:
            found[fault] = sorted(set(names) - set(answers["", stage]))
    return found


def _padiff(out: Path, reference: str, trials: Iterable[Mapping[str, Any]], package: Path) -> dict[str, Any] | str:
    """Fault -> layer that PaDiff stops at; the last line of its error where it does not run on this case at all."""
    faults = [t["id"] for t in trials if t["changed"] and catalogue()[t["id"]].hook in ("model", "weights")]
    part = json.loads((out / "case.json").read_text(encoding="utf-8"))["description"]["parts"]["forward"]
    weights = out / "weights"
    ledger = json.loads((weights / f"{part}_ledger.json").read_text(encoding="utf-8"))
    canonical = {
        entry["target"]: [entry["source"][0], "transposed" in entry["actions"]]
        for entry in ledger["entries"]
        if entry["target"] is not None and len(entry["source"]) == 1
    }
    given = {
        "ref": {"path": str(weights / f"{part}_ref.npz")},
        "paddle": {"path": str(weights / f"{part}_paddle.npz"), "canonical": canonical},
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights.json"
        path.write_text(json.dumps(given), encoding="utf-8")
        finished = subprocess.run(
            [sys.executable, ROOT / "benchmarks" / "selftest_padiff.py", reference, path, folder, ",".join(faults)],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(package)},
        )
    if finished.returncode:
        return finished.stderr.strip().splitlines()[-1]
    answers: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    return answers


def counts(result: Mapping[str, Any]) -> dict[str, str]:
    """The cells of one case in the table of totals."""
    trials = [trial for trial in result["trials"] if trial["changed"] or trial["error"]]
    total = len(trials)

    def share(wanted: Iterable[bool]) -> str:
        number = sum(wanted)
        return f"{number} ({100 * number / total:.1f}%)"

    others = result["reprod_log"]
    return {
        "faults": str(total),
        "detected": share(t["detected"] for t in trials),
        "place named": share(t["right_place"] for t in trials),
        "cause confirmed": share(t["right_cause"] for t in trials),
        "false alarms": str(len(result["alarms"]) + sum(len(t["extra"]) for t in trials)),
        "reprod_log detected": share(bool(others.get(t["id"])) for t in trials),
        "reprod_log's false alarms": str(len(others[""])),
        "PaDiff detected": _padiff_cell(result, trials, named=False),
        "PaDiff named": _padiff_cell(result, trials, named=True),
    }


def _padiff_cell(result: Mapping[str, Any], trials: Sequence[Mapping[str, Any]], named: bool) -> str:
    answers = result["padiff"]
    if not isinstance(answers, dict):
        return "–" if answers is None else "does not run"
    if answers[""] is not None:
        return "objects to the clean port"
    tried = [trial for trial in trials if trial["id"] in answers]
    if named:
        good = sum(answers[trial["id"]] == trial["expected"] for trial in tried)
    else:
        good = sum(answers[t["id"]] is not None and not str(answers[t["id"]]).startswith("error") for t in tried)
    return f"{good} of {len(tried)}"


def _trial_row(trial: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    causes = ", ".join(dict.fromkeys(f"`{found['cause']}`" for found in trial["named"] if found["cause"]))
    answers = result["padiff"] if isinstance(result["padiff"], dict) and result["padiff"][""] is None else {}
    padiff = answers.get(trial["id"], "–")
    cells = [
        trial["text"],
        f"`{trial['expected'] or 'model'}`",
        trial["flagged"] if trial["detected"] else f"**{trial['flagged'] or 'missed'}**",
        "yes" if trial["right_place"] else "**no**",
        causes if trial["right_cause"] else f"**no** {causes}".strip(),
        "yes" if result["reprod_log"].get(trial["id"]) else "no",
        "no" if padiff is None else "–" if padiff == "–" else "named" if padiff == trial["expected"] else "yes",
    ]
    return f"| {' | '.join(cells)} |"


def document(results: Mapping[str, Mapping[str, Any]], kept: Page) -> str:
    """The page: what was measured, and of other cases what the page has of them."""
    columns = {**kept.columns, **{name: counts(result) for name, result in results.items()}}
    columns = {name: columns[name] for name in (*CASES, *FULL) if name in columns}
    rows = next(iter(columns.values()))
    lines = [
        "# The selftest, measured",
        "",
        "Written by `python benchmarks/selftest_table.py`; versions as locked in `uv.lock`, on a CPU.",
        "",
        _INTRODUCTION.format(count=len(catalogue())),
        f"| | {' | '.join(columns)} |",
        "| --- |" + " --- |" * len(columns),
    ]
    lines += [f"| {row} | {' | '.join(cells[row] for cells in columns.values())} |" for row in rows]
    sections = {**kept.sections, **{name: _section(name, result) for name, result in results.items()}}
    return "\n".join(lines) + "\n\n" + "\n".join(sections[name] for name in columns)


def _section(name: str, result: Mapping[str, Any]) -> str:
    head = "| fault | place | flagged by | place named | cause confirmed | reprod_log | PaDiff |"
    lines = [f"## {name}", "", head, "|" + " --- |" * 7]
    lines += [_trial_row(trial, result) for trial in result["trials"] if trial["changed"] or trial["error"]]
    silent = [f"`{trial['id']}`" for trial in result["trials"] if not (trial["changed"] or trial["error"])]
    if silent:
        lines += ["", f"Without effect on any recorded number here: {', '.join(silent)}."]
    if isinstance(result["padiff"], str):
        lines += ["", f"PaDiff on {name}: `{result['padiff']}`"]
    return "\n".join(lines) + "\n"


@dataclasses.dataclass(frozen=True)
class Page:
    """What a page has: case → its column in the table of totals, and its section."""

    columns: Mapping[str, Mapping[str, str]]
    sections: Mapping[str, str]

    @classmethod
    def of(cls, path: Path) -> Page:
        """The page in a file; empty where there is none."""
        if not path.exists():
            return cls({}, {})
        head, *sections = path.read_text(encoding="utf-8").split("\n## ")
        table = [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in head.splitlines()
            if line.startswith("| ") and not line.startswith("| ---")
        ]
        names, rows = table[0][1:], table[1:]
        columns = {name: {row[0]: row[at] for row in rows} for at, name in enumerate(names, start=1)}
        return cls(columns, {text.partition("\n")[0]: f"## {text.rstrip()}\n" for text in sections})


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--faults", default="", help="only these")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--reuse", action="store_true")
    parser.add_argument("--padiff", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "selftest.md")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    wanted = [name for name in arguments.cases.split(",") if name]
    known = {**CASES, **FULL}
    results = {}
    for name in [*wanted, *(FULL if arguments.full else ())]:
        kept = folder_of(name) / "trials.json"
        if arguments.reuse and kept.exists():
            results[name] = json.loads(kept.read_text(encoding="utf-8"))
        else:
            faults = [fault for fault in arguments.faults.split(",") if fault]
            results[name] = run_case(name, known[name], arguments.padiff, faults)
    arguments.out.write_text(document(results, Page.of(arguments.out)), encoding="utf-8")
    print(json.dumps({name: counts(result) for name, result in results.items()}, indent=1))


if __name__ == "__main__":
    main()
