"""Writes docs/speed.md out of benchmarks/speed.json: figures that one sitting of the benchmarks measured.

python benchmarks/speed_page.py --measure         # runs the benchmarks first, a quarter of an hour on an idle machine
python benchmarks/speed_page.py --measure NAME…   # only these, and keeps what is known of the others
python benchmarks/speed_page.py                   # only writes the page anew
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FIGURES = HERE / "speed.json"
PAGE = HERE.parent / "docs" / "speed.md"
sys.path.insert(0, str(HERE))

import compare_speed  # noqa: E402
import edit_to_verdict  # noqa: E402
import large_models  # noqa: E402
import locate_speed  # noqa: E402


def measured(names: Sequence[str]) -> dict[str, Any]:
    """The figures of these benchmarks, by their names, and where each was measured (`machine`)."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            path = Path(folder) / f"{name}.json"
            subprocess.run([sys.executable, str(HERE / f"{name}.py"), "--json", str(path)], check=True)
            found[name] = {"machine": machine(), "figures": json.loads(path.read_text())}
    return found


def machine() -> dict[str, Any]:
    processor = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            processor = line.partition(":")[2].strip()
            break
    return {"processor": processor, "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}


def where(measured: Mapping[str, Any]) -> str:
    """On which machine, and how busy it was."""
    found = measured["machine"]
    return f"Measured on {found['cores']} cores of {found['processor']}, with a load of {found['load']} in all."


# Benchmark -> heading, what it measures, its tables, what is to be said of them.
SECTIONS: dict[str, tuple[str, list[str], Callable[[Any], list[str]], list[str]]] = {
    "compare_speed": (
        "Comparing two files",
        [
            "two float32 arrays in memory, then two files in the page cache.",
            "Every statistic is what `twinalign compare` prints and writes; the verdict alone is what a run needs.",
        ],
        compare_speed.tables,
        [
            "Arrays are read in pieces that stay in the processor's cache, all statistics of a piece in one visit,",
            "and what has been read of a mapped file is given back. `np.load` takes longer than the comparison where",
            "the system is slow to give fresh memory; reading into one small buffer takes a fraction of either.",
        ],
    ),
    "edit_to_verdict": (
        "From an edit to a verdict",
        [
            "by hand, one process per framework imports it, builds the model",
            "and calls it in float32 and float64, one after the other. `run` works on both sides at once: the clock",
            "says less than the processor. An edit is a saved line of the port under `run --watch`; it ends with the",
            "printed verdict, and others' work on the machine is in what the clock says. Where the load is more than",
            "the cores, processor time of importing a framework varies by a factor of two: these ratios are rough.",
        ],
        edit_to_verdict.table,
        [],
    ),
    "locate_speed": (
        "From a difference to its cause",
        [
            "the search in all layers with its causes, in processes that are up,",
            "against one float64 forward and backward pass of both sides; and the whole command on a small model.",
        ],
        locate_speed.tables,
        [
            "One of ViT-Small's three faults is a wrapped `forward`: its line is sought by edits of the port, which",
            "takes as long as the rest.",
        ],
    ),
    "large_models": (
        "Models larger than memory",
        [
            "a checkpoint in shards, converted and compared by processes whose",
            "own peak of resident memory is counted, pages of mapped files included.",
        ],
        large_models.table,
        [],
    ),
}


def page(found: Mapping[str, Any]) -> str:
    """The page as Markdown, with a section for each benchmark that has been measured."""
    lines = [
        "# Speed",
        "",
        "What commands take, as ratios to something that everybody can run on the same machine. Written by",
        "`python benchmarks/speed_page.py --measure`: contestants took turns, and times are of the processor (user",
        "and system) unless the clock is named.",
        "",
    ]
    for name, (heading, (first, *rest), tables, remarks) in SECTIONS.items():
        if name in found:
            described = [f"`python benchmarks/{name}.py`: {first}", *rest, where(found[name])]
            shown = [*tables(found[name]["figures"]), ""]
            lines += [f"## {heading}", "", *described, "", *shown, *remarks, *([""] if remarks else [])]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", nargs="*", choices=SECTIONS, help="run these benchmarks first; all without one")
    asked = parser.parse_args().measure
    found = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {}
    if asked is not None:
        found |= measured(asked or list(SECTIONS))
        FIGURES.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    main()
