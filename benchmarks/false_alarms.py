"""False alarms on correct ports of many kinds, through `twinalign run` as a user calls it, with optimizer steps.

    python benchmarks/false_alarms.py [--seeds 3] [--ports NAME,…] [--out docs/false-alarms.md]

Every row is a port of clean_ports.py with one optimizer and one size of its inputs; forward, loss and backward are
recorded and compared with all defaults. The column reprod_log is its classic verdict at 1e-6 on the same recordings.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import twinalign

ROOT = Path(__file__).resolve().parent.parent
PORTS: dict[str, list[dict[str, Any]]] = {
    "ConvNeXt": [{}, {"algorithm": "SGD"}, {"algorithm": "Adam", "steps": 6}],
    "Mobile": [{}, {"algorithm": "SGD"}, {"size": 160}],
    "LanguageModel": [{}, {"algorithm": "SGD"}, {"algorithm": "Adam", "steps": 8}, {"algorithm": "NAdam"}],
    "Segmenter": [{}, {"algorithm": "SGD"}, {"size": 256}],
    "Detector": [{}, {"algorithm": "SGD"}, {"size": 256}],
    "Recurrent": [{}, {"algorithm": "SGD"}, {"algorithm": "RAdam"}],
    "Attention": [{}, {"algorithm": "SGD"}],
}


def row(port: str, options: dict[str, Any], seeds: int) -> tuple[str, int, int]:
    """A row of the table, and how many runs twinalign and reprod_log object to."""
    ours = theirs = tensors = 0
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as out:
            case = f"{Path(__file__).parent / 'clean_ports.py'}:{port}"
            result = twinalign.run(case, out=out, locate=False, options={**options, "seed": seed})
        found = list(result.stages.values())
        ours += result.verdict != "aligned"
        theirs += not all(stage.classic.passed for stage in found)
        tensors += sum(len(stage.tensors) for stage in found)
        for stage in found:
            for tensor in stage.tensors:
                if tensor.verdict == "diverged" and not tensor.accepted:
                    print(f"  {port} {options} seed {seed}: {tensor.name}: {tensor.reason}", file=sys.stderr)
    changed = ", ".join(f"{name} {value}" for name, value in options.items()) or "AdamW"
    line = f"| {port} | {changed} | {tensors} | {ours} of {seeds} | {theirs} of {seeds} |"
    print(line, flush=True)
    return line, ours, theirs


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ports", default=",".join(PORTS))
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "false-alarms.md")
    asked = parser.parse_args()
    rows = [row(port, options, asked.seeds) for port in asked.ports.split(",") for options in PORTS[port]]
    ours, theirs = (sum(column) for column in list(zip(*rows, strict=True))[1:])
    runs = len(rows) * asked.seeds
    lines = [
        "# Correct ports, and which checks reject them",
        "",
        "Written by `python benchmarks/false_alarms.py`; versions as locked in `uv.lock`, on a CPU. Ports of",
        "`benchmarks/clean_ports.py`, both sides unmodified, with optimizer steps; the second column says what differs",
        "from three steps of AdamW.",
        "",
        f"Of {runs} runs twinalign calls {ours} diverged; reprod_log at 1e-6 fails {theirs}.",
        "",
        "| port | options | tensors | twinalign rejects | reprod_log rejects |",
        "| --- | --- | ---: | ---: | ---: |",
        *(line for line, _, _ in rows),
        "",
    ]
    asked.out.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
