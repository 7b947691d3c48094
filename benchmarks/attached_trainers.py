"""Faults planted in trainers' loops, found from attached recordings alone; and what attaching costs a step.

`python benchmarks/attached_trainers.py` writes docs/attached-trainers.md; `--only FAULT` prints one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from twinalign import compare

ROOT = Path(__file__).parents[1]
CASES = "tests.cases.attached"
# Fault of the port: the step and the quantity that differ first, and the cause to be proven.
PADDLE_FAULTS = {
    "schedule_early": (0, "setting", "schedule_moved"),
    "schedule_late": (1, "setting", "schedule_moved"),
    "schedule_never": (1, "setting", "schedule_not_stepped"),
    "learning_rate": (0, "setting", "learning_rate"),
    "decay_everywhere": (0, "setting", "decay_groups"),
    "coupled_decay": (0, "setting", "decay_coupled"),
    "beta1": (0, "setting", "optimizer_beta1"),
    "beta2": (0, "setting", "optimizer_beta2"),
    "epsilon": (0, "setting", "optimizer_epsilon"),
    "not_averaged": (0, "loss", "accumulation_not_averaged"),
    "clip_each_micro_batch": (0, "unclipped", "clip_over_micro_batches"),
    "clip_norm": (0, "gradient", "clip_limit"),
    "clip_each_tensor": (0, "gradient", "clip_kind"),
    "no_clip": (0, "gradient", "no_clipping"),
    "sequence_average": (0, "loss", "loss_average"),
    "padding_in_average": (0, "loss", "loss_average"),
    "padding_counted": (0, "labels", "padding_counted"),
    "labels_shifted_twice": (0, "labels", "labels_shifted_twice"),
    "other_order": (0, "input", "batch_order"),
    "other_batches": (0, "input", "batches_shifted"),
    "dropout": (0, "output", "random_draws"),
    "gelu": (0, "output", "model"),
    "other_weights": (0, "weights", "initial_weights"),
    "skipped_step": (1, "input", "step_skipped"),
    "not_cleared": (1, "first_gradient", "gradients_not_cleared"),
    "frozen": (0, "gradient", "parameters_not_trained"),
    "moved_between": (1, "weights", "weights_moved_between_steps"),
}
# Of a port in torch: what paddle has no kernels for on a CPU.
TORCH_FAULTS = {
    "half_weights": (0, "weights", "half_precision_weights"),
    "clip_before_unscaling": (0, "gradient", "clip_before_unscaling"),
}


def record(framework: str, out: Path, fault: str = "", **settings: object) -> str:
    """Run a trainer with twinalign attached; returns what it said on standard error."""
    attach = {"out": str(out), "steps": [0, 1, 2], **settings.pop("attach", {})}  # type: ignore[dict-item]
    given = json.dumps({"attach": attach, "fault": fault, **settings})
    command = [sys.executable, "-m", f"{CASES}.{framework}_trainer", given]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stderr


def table(folder: Path, only: str = "") -> list[list[str]]:
    """A row per trainer: fault, verdict, what differs first, causes, whether that is the fault."""
    references = {"": {}, "clip_before_unscaling": {"scaler": True}}
    for name, settings in references.items():
        record("torch", folder / f"ref{name}", **settings)
        record("torch", folder / f"repeat{name}", **settings, attach={"repeat": True})
    rows = []
    clean = {"clean": (None, None, None), "clean, torch": (None, None, None)}
    for fault, (step, quantity, cause) in (clean | PADDLE_FAULTS | TORCH_FAULTS).items():
        if only and fault != only:
            continue
        is_clean = fault.startswith("clean")
        framework = "torch" if fault in TORCH_FAULTS or fault == "clean, torch" else "paddle"
        own = fault if fault in references else ""
        out = folder / fault
        weights = {"weights": str(folder / f"ref{own}")} if framework == "paddle" else {}
        record(framework, out, "" if is_clean else fault, attach=weights, **references[own])
        for repeat in (folder / f"repeat{own}", None):
            found = compare(folder / f"ref{own}", out, reference_repeat=repeat)
            first, causes = found.attached["first"] or {}, [one["id"] for one in found.attached["causes"]]
            place = f"step {first['step']}, {first['quantity']}" if first else "–"
            right = found.verdict == "diverged" and causes[:1] == [cause] and place == f"step {step}, {quantity}"
            right = right if not is_clean else found.verdict == "aligned" and not causes
            noise = "repeat" if repeat else "none"
            rows.append([fault, noise, found.verdict, place, ", ".join(causes) or "–", "yes" if right else "no"])
            print(" | ".join(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = table(Path(folder), asked.only)
    if asked.only:
        return
    from benchmarks.attached_cost import cost_lines

    right = {noise: [row for row in rows if row[1] == noise and row[5] == "yes"] for noise in ("repeat", "none")}
    count = len(rows) // 2
    head = ["fault of the port", "noise", "verdict", "first to differ", "causes", "as planted"]
    lines = [
        "# Attached trainers",
        "",
        "A small language model is trained by a loop in torch and one in paddle: two micro-batches a step, clipping,",
        "warm-up, AdamW with two groups of weight decay. Faults are planted in the port's loop, one each, and found",
        "from the recordings of `twinalign.attach` alone. Written by `benchmarks/attached_trainers.py`.",
        "",
        f"With a repeat of the reference {len(right['repeat'])} of {count} trainers are judged as planted, clean ones",
        "included;",
        f"without any measure of noise {len(right['none'])} of {count}.",
        "",
        f"| {' | '.join(head)} |",
        "|" + " --- |" * len(head),
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
        *cost_lines(),
    ]
    (ROOT / "docs" / "attached-trainers.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
