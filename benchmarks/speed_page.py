"""Writes docs/speed.md out of benchmarks/speed.json: figures that one sitting of the benchmarks measured.

python benchmarks/speed_page.py --measure    # runs the benchmarks first, about ten minutes on an idle machine
python benchmarks/speed_page.py              # only writes the page anew
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FIGURES = HERE / "speed.json"
PAGE = HERE.parent / "docs" / "speed.md"
sys.path.insert(0, str(HERE))

BENCHMARKS = ("compare_speed", "edit_to_verdict", "large_models")


def measured() -> dict[str, Any]:
    """The figures of every benchmark, by its name, and where they were measured."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in BENCHMARKS:
            path = Path(folder) / f"{name}.json"
            subprocess.run([sys.executable, str(HERE / f"{name}.py"), "--json", str(path)], check=True)
            found[name] = json.loads(path.read_text())
    return {"machine": machine(), **found}


def machine() -> dict[str, Any]:
    processor = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            processor = line.partition(":")[2].strip()
            break
    return {"processor": processor, "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}


def page(figures: Mapping[str, Any]) -> str:
    """The page as Markdown."""
    import compare_speed
    import edit_to_verdict
    import large_models

    where = figures["machine"]
    return "\n".join(
        [
            "# Speed",
            "",
            "What commands take, as ratios to something that everybody can run on the same machine. Written by",
            f"`python benchmarks/speed_page.py --measure`, here on {where['cores']} cores of {where['processor']},",
            f"with a load of {where['load']} in all: contestants took turns, and times are of the processor (user and",
            "system) unless the clock is named.",
            "",
            "## Comparing two files",
            "",
            "`python benchmarks/compare_speed.py`: two float32 arrays in memory, then two files in the page cache.",
            "Every statistic is what `twinalign compare` prints and writes; the verdict alone is what a run needs.",
            "",
            *compare_speed.tables(figures["compare_speed"]),
            "",
            "Arrays are read in pieces that stay in the processor's cache, all statistics of a piece in one visit,",
            "and what has been read of a mapped file is given back. `np.load` takes longer than the comparison where",
            "the system is slow to give fresh memory; reading into one small buffer takes a fraction of either.",
            "",
            "## From an edit to a verdict",
            "",
            "`python benchmarks/edit_to_verdict.py`: by hand, one process per framework imports it, builds the model",
            "and calls it in float32 and float64, one after the other. `run` works on both sides at once: the clock",
            "says less than the processor. An edit is a saved line of the port under `run --watch`; it ends with the",
            "printed verdict, and others' work on the machine is in what the clock says. Where the load is more than",
            "the cores, processor time of importing a framework varies by a factor of two: these ratios are rough.",
            "",
            *edit_to_verdict.table(figures["edit_to_verdict"]),
            "",
            "## Models larger than memory",
            "",
            "`python benchmarks/large_models.py`: a checkpoint in shards, converted and compared by processes whose",
            "own peak of resident memory is counted, pages of mapped files included.",
            "",
            *large_models.table(figures["large_models"]),
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="run the benchmarks first")
    if parser.parse_args().measure:
        FIGURES.write_text(json.dumps(measured(), indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(json.loads(FIGURES.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
