"""False alarms on clean pairs and faults caught: twinalign's verdict beside three that the field uses.

    python benchmarks/verdict_table.py [--pairs NAME,NAME] [--out docs/verdict-table.md]

Clean pairs are torchvision's and paddle.vision's models with the same weights (forward, loss, every gradient) and the
catalogue's own port under several seeds; faults are those of tests/faults. reprod_log is reprod_log 1.0.1 itself at its
1e-6, allclose is numpy's with its defaults, assert_close is torch.testing's with its defaults.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests" / "faults")]
warnings.filterwarnings("ignore")

import catalogue  # noqa: E402
import numpy as np  # noqa: E402
import pairs  # noqa: E402
import torch  # noqa: E402

from twinalign.verdict import compare_arrays  # noqa: E402

JUDGES = ("twinalign", "reprod_log", "allclose", "assert_close")
SEEDS = range(1, 6)


def judge(recordings: Any, allowances: tuple[str, ...]) -> dict[str, bool]:
    """Whether each of the judges passes the pair."""
    reference, reproduced = recordings.reference, recordings.reproduced
    comparison = compare_arrays(
        reference,
        reproduced,
        reference64=recordings.reference64,
        reproduced64=recordings.reproduced64,
        allowances=allowances,
    )
    return {
        "twinalign": comparison.verdict == "aligned",
        "reprod_log": _reprod_log(reference, reproduced),
        "allclose": _passes(lambda name: np.allclose(reference[name], reproduced[name]), reference, reproduced),
        "assert_close": _passes(lambda name: _close(reference[name], reproduced[name]), reference, reproduced),
    }


def _reprod_log(reference: dict[str, np.ndarray], reproduced: dict[str, np.ndarray]) -> bool:
    from reprod_log import ReprodDiffHelper

    helper = ReprodDiffHelper()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        try:
            helper.compare_info(reference, reproduced)
            helper.report(diff_threshold=1e-6, path=f"{folder}/diff.log")
        except (AssertionError, ValueError, TypeError):
            return False
        finally:
            import logging

            logging.getLogger("root").handlers.clear()
        return "diff check passed" in Path(f"{folder}/diff.log").read_text()


def _close(first: np.ndarray, second: np.ndarray) -> bool:
    torch.testing.assert_close(torch.from_numpy(second.copy()), torch.from_numpy(first.copy()))
    return True


def _passes(test: Any, reference: dict[str, np.ndarray], reproduced: dict[str, np.ndarray]) -> bool:
    if set(reference) != set(reproduced):
        return False
    try:
        return all(test(name) for name in reference)
    except (AssertionError, ValueError):
        return False


def clean(names: list[str]) -> Iterator[tuple[str, dict[str, bool]]]:
    """Clean pairs with what each judge says of them."""
    for name in names:
        yield name, judge(pairs.record_pair(name), pairs.allowances(name))
    for seed in SEEDS:
        yield f"catalogue, seed {seed}", judge(catalogue.record(catalogue.Fault(), seed), catalogue.ALLOWANCES)


def faults() -> Iterator[tuple[str, dict[str, bool]]]:
    """Planted faults with what each judge says of them."""
    for name, fault in catalogue.FAULTS.items():
        yield name, judge(catalogue.record(fault), catalogue.ALLOWANCES)
    sound = catalogue.record(catalogue.Fault())
    for name, spoil in catalogue.SPOILED.items():
        spoiled = catalogue.Recordings(
            dict(sound.reference), dict(sound.reproduced), sound.reference64, sound.reproduced64
        )
        spoil(spoiled)
        yield f"file: {name}", judge(spoiled, catalogue.ALLOWANCES)


def section(title: str, rows: list[tuple[str, dict[str, bool]]], words: tuple[str, str]) -> list[str]:
    """One Markdown table; `words` are what a pass and a failure are called in it."""
    lines = ["", f"## {title}", "", f"| | {' | '.join(JUDGES)} |", "| --- |" + " --- |" * len(JUDGES)]
    lines += [f"| {name} | {' | '.join(words[not passed[j]] for j in JUDGES)} |" for name, passed in rows]
    return lines


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", default=",".join(pairs.PAIRS))
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "verdict-table.md")
    arguments = parser.parse_args()
    measured: dict[str, list[tuple[str, dict[str, bool]]]] = {"clean": [], "faults": []}
    for kind, rows in (("faults", faults()), ("clean", clean(arguments.pairs.split(",")))):
        for name, passed in rows:
            print(f"{kind}: {name}: {passed}", flush=True)
            measured[kind].append((name, passed))
    alarms = {j: sum(not passed[j] for _, passed in measured["clean"]) for j in JUDGES}
    caught = {j: sum(not passed[j] for _, passed in measured["faults"]) for j in JUDGES}
    totals = {kind: len(rows) for kind, rows in measured.items()}
    lines = [
        "# The verdict, measured",
        "",
        "Written by `python benchmarks/verdict_table.py`; versions as locked in `uv.lock`, on a CPU.",
        "",
        f"| | {' | '.join(JUDGES)} |",
        "| --- |" + " --- |" * len(JUDGES),
        f"| false alarms on {totals['clean']} clean pairs | {' | '.join(str(alarms[j]) for j in JUDGES)} |",
        f"| caught of {totals['faults']} planted faults | {' | '.join(str(caught[j]) for j in JUDGES)} |",
        *section("Clean pairs", measured["clean"], ("passes", "**alarm**")),
        *section("Planted faults", measured["faults"], ("**missed**", "caught")),
    ]
    arguments.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines[4:8]))


if __name__ == "__main__":
    main()
