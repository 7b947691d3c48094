"""Training alignment, measured: stage 06 of the digits with several seeds, and a change of framework on the way.

    python benchmarks/training_alignment.py [--seeds 5] [--margin 5] [--out DIR] [--from DIR]

Trains the small MoCo v3 of the main job in both frameworks, from the same weights on the same batches, and writes
docs/training-alignment.md: how many steps before each curve departs in either precision, also for the reference's own
perturbed copy, whether the outcomes are equivalent, and what the encoder has learned. `--from` uses a finished run
instead.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
PAGE = HERE / "docs" / "training-alignment.md"
CURVES = ("loss", "gradient_norm", "ema_distance")
STEPS_LIMIT, POINTS_LIMIT, MINUTES_LIMIT = 50, 10.0, 20.0
MINUTES = "minutes.json"
FLOAT64_STEPS, SWITCH_AT = 60, 52
SETTINGS = ["--set", "epochs=5", "--set", f"float64_train_steps={FLOAT64_STEPS}"]
"""One epoch more than the main job trains, so that the curves go on for longer."""


def run(out: Path, seeds: int, margin: float) -> dict[str, float]:
    """Minutes of the run, and of processor time: on a busy machine the former mean little."""
    started = time.monotonic()
    options = ["--seeds", str(seeds), "--margin", f"{margin:g}", *SETTINGS]
    command = [sys.executable, "-m", "twinalign", "run", "pipeline.digits:DigitsTraining", "--stages", "train"]
    finished = subprocess.run([*command, *options, "--out", str(out), "--no-locate"], cwd=HERE, check=False)
    if finished.returncode not in (0, 1, 3):
        raise SystemExit(f"the run ended with exit code {finished.returncode}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "wall": (time.monotonic() - started) / 60,
        "processor": (used.ru_utime + used.ru_stime) / 60,
        "load": os.getloadavg()[1],
    }


def switch(out: Path) -> None:
    """The run once more, which reuses its recordings, with a training that changes framework on the way."""
    options = [*SETTINGS, "--switch-at", str(SWITCH_AT), "--no-locate"]
    command = [sys.executable, "-m", "twinalign", "run", "pipeline.digits:DigitsTraining", "--stages", "train"]
    subprocess.run([*command, *options, "--out", str(out)], cwd=HERE, check=False)


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    """Lines of a Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "| " + " | ".join(["---"] + ["---:"] * (len(header) - 1)) + " |"]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def horizons(training: dict[str, Any]) -> list[str]:
    """Steps within each tolerance, of the port and of the perturbed copy."""
    rows = []
    for found in training["horizons"]:
        if found["curve"] in CURVES:
            counts = [f"{a} / {b}" for a, b in zip(found["port"], found["reference"], strict=True)]
            most = f"{found['port_most']:.1e} / {found['reference_most']:.1e}"
            rows.append([f"{found['curve']}, {found['precision']}", str(found["steps"]), *counts, most])
    return table(["curve", "steps", "within 1e-6", "within 1e-4", "within 1e-2", "greatest"], rows)


def outcomes(training: dict[str, Any]) -> list[str]:
    """Both sides' intervals, and the result of the two one-sided tests."""
    rows = []
    for found in training["outcomes"]:
        bands = [_band(found[side]) for side in ("reference", "port")]
        low, high = found["interval"]
        needed = str(found["seeds_needed"] or "> 10 000")
        name = found["name"].removeprefix("outcome.")
        rows.append([name, *bands, f"{low:+.2f} to {high:+.2f}", f"{found['p_value']:.1e}", found["verdict"], needed])
    header = ["top-1, %", "reference", "port", "90% interval", "p", "verdict", "seeds needed"]
    return table(header, rows)


def _band(values: list[float]) -> str:
    mean = sum(values) / len(values)
    deviation = (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5
    return f"{mean:.2f} ± {deviation:.2f}"


def limits(training: dict[str, Any], minutes: dict[str, float]) -> list[str]:
    """The requirements and the results."""
    by_key = {(h["curve"], h["precision"]): h for h in training["horizons"]}
    high, low = by_key["loss", "float64"], by_key["loss", "float32"]
    means = {
        o["name"].removeprefix("outcome."): [sum(o[s]) / len(o[s]) for s in ("reference", "port")]
        for o in training["outcomes"]
    }
    gains = [after - before for after, before in zip(means["knn_top1"], means["knn_top1_untrained"], strict=True)]
    of_training = [o for o in training["outcomes"] if not o["name"].endswith("_untrained")]
    rows = [
        ["float64 loss within 1e-6, steps", f"{high['port'][0]}", f"at least {STEPS_LIMIT}"],
        ["float64 loss, largest difference", f"{high['port_most']:.1e}", f"{high['reference_most']:.1e} (repeat)"],
        ["step at which the float32 loss has departed by 1%", f"{low['port'][-1]}", f"{low['reference'][-1]} (repeat)"],
        ["kNN top-1 above the untrained encoder's", f"{min(gains):.1f} points", f"at least {POINTS_LIMIT:g}"],
        [
            f"outcomes equivalent within {of_training[0]['margin']:g} points, {len(of_training[0]['port'])} seeds",
            f"{sum(o['verdict'] == 'aligned' for o in of_training)} of {len(of_training)}",
            "all",
        ],
    ]
    if minutes:
        text = f"{minutes['wall']:.1f}, {minutes['processor']:.1f} of processors, at a load of {minutes['load']:.0f}"
        rows.append(["minutes on two processors", text, f"at most {MINUTES_LIMIT:g}"])
    return table(["", "measured", "wanted"], rows)


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description="Measure training alignment.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--margin", type=float, default=5.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--from", dest="finished", type=Path, help="use this finished run, and measure no time")
    arguments = parser.parse_args()
    minutes: dict[str, float] = {}
    out = arguments.finished or arguments.out or Path(tempfile.mkdtemp(prefix="twinalign-training-"))
    if arguments.finished is None:
        minutes = run(out, arguments.seeds, arguments.margin)
        (out / MINUTES).write_text(json.dumps(minutes), encoding="utf-8")
    elif (out / MINUTES).exists():
        minutes = json.loads((out / MINUTES).read_text(encoding="utf-8"))
    kept = out / "seeds.json"  # the second run, without seeds, writes its own summary
    if not kept.exists() or arguments.finished is None:
        kept.write_text((out / "summary.json").read_text(encoding="utf-8"), encoding="utf-8")
    training = json.loads(kept.read_text(encoding="utf-8"))["stages"]["train"]["training"]
    command = f"`python benchmarks/training_alignment.py --seeds {arguments.seeds} --margin {arguments.margin:g}`"
    lines = ["# Training alignment, measured", "", f"{command} trains the small MoCo v3 on the handwritten digits in"]
    lines += [
        f"both frameworks: 105 steps in float32, the first {FLOAT64_STEPS} in float64. The validation split has 397"
    ]
    lines += ["digits: two standard errors of a difference between accuracies of 84% are 5 points.", ""]
    lines += limits(training, minutes)
    lines += ["", "## Steps before each curve departs", ""]
    lines += ["The port against the reference / the reference's own repeat against the reference.", ""]
    lines += horizons(training)
    lines += ["", "## Outcomes", "", *outcomes(training)]
    if arguments.finished is None:
        switch(out)
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))["stages"]["train"]["training"]
    if "switched" in summary:
        found = summary["switched"]
        lines += ["", "## A change of framework during training", ""]
        lines += [f"{found['step']} steps in torch, the rest in paddle: {found['verdict']}; {found['reason']}."]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
