"""False alarms on clean pairs and faults caught: twinalign's verdict compared with three common ones.

    python benchmarks/verdict_table.py [--pairs NAME,NAME] [--seeds 3] [--out docs/verdict-table.md]

Clean pairs are torchvision's and paddle.vision's models with the same weights (forward, loss, every gradient) and the
catalogue's own port, each under several seeds of weights and inputs; faults are those of
tests/twinalign/verdict/catalogue.py. reprod_log is reprod_log 1.0.1 itself at its 1e-6, allclose is numpy's with its
defaults, assert_close is torch.testing's with its defaults.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT)]
warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
import torch  # noqa: E402

from tests.twinalign.verdict import catalogue, clean_pairs  # noqa: E402
from twinalign.verdict import compare_arrays  # noqa: E402

JUDGES = ("twinalign", "reprod_log", "allclose", "assert_close")

Flagged = dict[str, frozenset[str]]


def judge(recordings: Any, allowances: tuple[str, ...]) -> Flagged:
    """Names of the tensors that each check rejects."""
    reference, reproduced = recordings.reference, recordings.reproduced
    comparison = compare_arrays(
        reference,
        reproduced,
        reference64=recordings.reference64,
        reproduced64=recordings.reproduced64,
        allowances=allowances,
    )
    ours = frozenset(tensor.name for tensor in comparison.tensors if tensor.verdict not in ("aligned", "rounding"))
    return {
        "twinalign": ours,
        "reprod_log": _reprod_log(reference, reproduced),
        "allclose": _objections(lambda a, b: np.allclose(a, b), reference, reproduced),
        "assert_close": _objections(_close, reference, reproduced),
    }


def _reprod_log(reference: dict[str, np.ndarray], reproduced: dict[str, np.ndarray]) -> frozenset[str]:
    from reprod_log import ReprodDiffHelper

    helper = ReprodDiffHelper()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        try:
            helper.compare_info(reference, reproduced)
            helper.report(diff_threshold=1e-6, path=f"{folder}/diff.log")
        except (AssertionError, ValueError, TypeError) as error:
            return frozenset({f"stops: {error}"})
        finally:
            logging.getLogger("root").handlers.clear()
        lines = Path(f"{folder}/diff.log").read_text().splitlines()
    names = [line.rpartition("INFO: ")[2].rstrip(": ") for line in lines]
    return frozenset(names[at - 1] for at, line in enumerate(lines) if "check passed: False" in line)


def _close(first: np.ndarray, second: np.ndarray) -> bool:
    torch.testing.assert_close(torch.from_numpy(second.copy()), torch.from_numpy(first.copy()))
    return True


def _objections(test: Any, reference: dict[str, np.ndarray], reproduced: dict[str, np.ndarray]) -> frozenset[str]:
    found = set(reference) ^ set(reproduced)
    for name in set(reference) & set(reproduced):
        try:
            if not test(reference[name], reproduced[name]):
                found.add(name)
        except (AssertionError, ValueError):
            found.add(name)
    return frozenset(found)


def clean(names: list[str], seeds: int) -> Iterator[tuple[str, Flagged]]:
    """Clean pairs, once a seed, with the tensors that each check rejects."""
    for seed in range(seeds):
        yield "the catalogue's port", judge(catalogue.record(catalogue.Fault(), seed), catalogue.ALLOWANCES)
    for name in names:
        for seed in range(clean_pairs.SEED, clean_pairs.SEED + seeds):
            yield name, judge(clean_pairs.record_pair(name, seed=seed), clean_pairs.allowances(name))


def faults() -> Iterator[tuple[str, Flagged]]:
    """Planted faults with the tensors that each check rejects only with the fault."""
    sound = catalogue.record(catalogue.Fault())
    usual = judge(sound, catalogue.ALLOWANCES)
    for name, recordings in _faulty(sound):
        found = judge(recordings, catalogue.ALLOWANCES)
        yield name, {judge_name: names - usual[judge_name] for judge_name, names in found.items()}


def _faulty(sound: catalogue.Recordings) -> Iterator[tuple[str, catalogue.Recordings]]:
    for name, fault in catalogue.FAULTS.items():
        yield name, catalogue.record(fault)
    for name, spoil in catalogue.SPOILED.items():
        spoiled = catalogue.Recordings(
            dict(sound.reference), dict(sound.reproduced), sound.reference64, sound.reproduced64
        )
        spoil(spoiled)
        yield f"file: {name}", spoiled


def section(title: str, rows: list[tuple[str, Flagged]], words: tuple[str, str]) -> list[str]:
    """One Markdown table; `words` are its terms for no rejection and a rejection."""
    lines = ["", f"## {title}", "", f"| | {' | '.join(JUDGES)} |", "| --- |" + " --- |" * len(JUDGES)]
    for name in dict.fromkeys(name for name, _ in rows):
        some = [found for other, found in rows if other == name]
        lines.append(f"| {name} | {' | '.join(_cell([bool(found[j]) for found in some], words) for j in JUDGES)} |")
    return lines


def _cell(rejected: list[bool], words: tuple[str, str]) -> str:
    often = f" in {sum(rejected)} of {len(rejected)}" if 0 < sum(rejected) < len(rejected) else ""
    return words[any(rejected)] + often


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", default=",".join(clean_pairs.PAIRS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "verdict-table.md")
    arguments = parser.parse_args()
    measured: dict[str, list[tuple[str, Flagged]]] = {"clean": [], "faults": []}
    for kind, rows in (("faults", faults()), ("clean", clean(arguments.pairs.split(","), arguments.seeds))):
        for name, found in rows:
            print(f"{kind}: {name}: { {judge_name: len(names) for judge_name, names in found.items()} }", flush=True)
            measured[kind].append((name, found))
    counts = {
        kind: " | ".join(str(sum(bool(found[j]) for _, found in rows)) for j in JUDGES)
        for kind, rows in measured.items()
    }
    totals = {kind: len(rows) for kind, rows in measured.items()}
    lines = [
        "# The verdict, measured",
        "",
        "Written by `python benchmarks/verdict_table.py`; versions as locked in `uv.lock`, on a CPU.",
        "",
        f"| | {' | '.join(JUDGES)} |",
        "| --- |" + " --- |" * len(JUDGES),
        f"| false alarms on {totals['clean']} recordings of clean pairs | {counts['clean']} |",
        f"| caught of {totals['faults']} planted faults | {counts['faults']} |",
        "",
        "A fault counts as caught if a check rejects a tensor that it accepts in the port without a fault.",
        f"Each clean pair is recorded with {arguments.seeds} seeds of weights and inputs.",
        *section("Clean pairs", measured["clean"], ("passes", "**alarm**")),
        *section("Planted faults", measured["faults"], ("**missed**", "caught")),
    ]
    arguments.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines[4:8]))


if __name__ == "__main__":
    main()
