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
BY_HAND = "## Trainers of others"
"""From here on the page is written by hand."""
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
# Of a port with two models, two optimizers and a moving average.
GAN_FAULTS = {
    "slope": (0, "output", "model"),
    "beta1": (0, "setting", "optimizer_beta1"),
    "smooth": (0, "loss", "loss"),
    "not_halved": (0, "loss", "loss"),
    "not_detached": (0, "first_gradient", "not_detached"),
    "one_batch": (0, "input", "model_calls"),
    "generator_first": (0, "input", "optimizers_order"),
    "twice": (1, "input", "optimizers_order"),
    "evaluation": (0, "output", "training_mode"),
    "not_cleared": (2, "first_gradient", "gradients_not_cleared"),
    "average_decay": (2, "untrained", "average_decay"),
    "average_before": (1, "buffer", "average_before_update"),  # it copies the buffers, too, before the step ends
    "average_never": (2, "untrained", "average_never_moves"),
    "average_of_statistics": (2, "buffer", "average_of_statistics"),
}
# Of a port with three losses, a teacher and checkpointing; planted when the rules above stood.
DETECTOR_FAULTS = {
    "gelu": (0, "output", "model"),
    "body_detached": (0, "first_gradient", "no_gradient"),
    "box_detached": (0, "first_gradient", "backward"),
    "no_smoothing": (0, "labels", "label_smoothing"),
    "box_mean": (0, "loss", "loss"),
    "box_of_all": (0, "loss", "loss"),
    "loss_weight": (0, "loss", "loss"),
    "temperature": (1, "loss", "loss"),  # in step 0 the teacher gives what the student gives
    "divergence_mean": (1, "loss", "loss"),
    "teacher_detached": (1, "first_gradient", "backward"),
    "schedule_each_step": (1, "setting", "schedule_interval"),
    "average_swapped": (1, "untrained", "average_decay"),
    "average_each_epoch": (1, "untrained", "average_interval"),
    "same_epoch": (2, "input", "batches_shifted"),
}
# Of a port in torch: what paddle has no kernels for on a CPU.
TORCH_FAULTS = {
    "half_weights": (0, "weights", "half_precision_weights"),
    "clip_before_unscaling": (0, "gradient", "clip_before_unscaling"),
    "no_autocast": (0, "output", "autocast"),
}
_SCALED = {"clip_before_unscaling": "scaled", "no_autocast": "scaled", "clean, scaled": "scaled"}
# Name of a reference: the trainers' name and the settings of both sides.
REFERENCES = {
    "": ("trainer", {}),
    "scaled": ("trainer", {"scaler": True}),
    "gan": ("gan", {}),
    "detector": ("detector", {}),
}
_NAMES = {"trainer": "language model", "gan": "GAN", "detector": "detector"}


def record(framework: str, trainer: str, out: Path, **settings: object) -> str:
    """Run a trainer with twinalign attached; returns what it said on standard error."""
    attach = {"out": str(out), "steps": [0, 1, 2], **settings.pop("attach", {})}  # type: ignore[dict-item]
    given = json.dumps({"attach": attach, **settings})
    command = [sys.executable, "-m", f"{CASES}.{framework}_{trainer}", given]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stderr


def table(folder: Path, only: str = "") -> list[list[str]]:
    """A row per trainer: fault, verdict, what differs first, causes, whether that is the fault."""
    for name, (trainer, settings) in REFERENCES.items():
        record("torch", trainer, folder / f"ref{name}", **settings)
        record("torch", trainer, folder / f"repeat{name}", **settings, attach={"repeat": True})
    clean = (None, None, None)
    planted = [("", "paddle", fault, wanted) for fault, wanted in {"clean": clean, **PADDLE_FAULTS}.items()]
    planted += [
        (_SCALED.get(fault, ""), "torch", fault, wanted)
        for fault, wanted in {"clean, torch": clean, "clean, scaled": clean, **TORCH_FAULTS}.items()
    ]
    planted += [("gan", "paddle", fault, wanted) for fault, wanted in {"clean": clean, **GAN_FAULTS}.items()]
    planted += [("detector", "paddle", fault, wanted) for fault, wanted in {"clean": clean, **DETECTOR_FAULTS}.items()]
    rows = []
    for reference, framework, fault, (step, quantity, cause) in planted:
        if only and fault != only:
            continue
        (trainer, settings), is_clean = REFERENCES[reference], fault.startswith("clean")
        out = folder / f"{reference}{fault}"
        weights = {"weights": str(folder / f"ref{reference}")} if framework == "paddle" else {}
        planted_here = {} if is_clean else {"fault": fault}
        record(framework, trainer, out, attach=weights, **planted_here, **settings)
        for repeat in (folder / f"repeat{reference}", None):
            given = {"reference_repeat": repeat, "accept": ["bn_running_var_biased"]}
            found = compare(folder / f"ref{reference}", out, **given)
            first, causes = found.attached["first"] or {}, [one["id"] for one in found.attached["causes"]]
            place = f"step {first['step']}, {first['quantity']}" if first else "–"
            right = found.verdict == "diverged" and causes[:1] == [cause] and place == f"step {step}, {quantity}"
            right = right if not is_clean else found.verdict == "aligned" and not causes
            noise, trained = "repeat" if repeat else "none", _NAMES[trainer]
            said = [", ".join(causes) or "–", "yes" if right else "no"]
            rows.append([trained, fault, noise, found.verdict, place, *said])
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

    right = {noise: [row for row in rows if row[2] == noise and row[6] == "yes"] for noise in ("repeat", "none")}
    count = len(rows) // 2
    head = ["trainer", "fault of the port", "noise", "verdict", "first to differ", "causes", "as planted"]
    lines = [
        "# Attached trainers",
        "",
        "A small language model is trained by a loop in torch and one in paddle: two micro-batches a step, clipping,",
        "warm-up, AdamW with two groups of weight decay. So is a generative adversarial network: two models, two",
        "optimizers, batch norm, a moving average of the generator; and a detector: three losses, a teacher that is",
        "its moving average, checkpointing, a learning rate that moves every epoch. Faults are planted in the port,",
        "one each, and found from the recordings of `twinalign.attach` alone. Paddle's running variance is accepted",
        "(`--accept bn_running_var_biased`). The rules were adjusted on these faults, on the detector's last of all.",
        "Its faults `temperature` and `divergence_mean` change a loss by less than float32 shows in the first steps,",
        "and its gradients by more. Written by `benchmarks/attached_trainers.py`.",
        "",
        f"With a repeat of the reference {len(right['repeat'])} of {count} trainers are judged as planted, clean ones",
        f"included; without any measure of noise {len(right['none'])} of {count}.",
        "",
        f"| {' | '.join(head)} |",
        "|" + " --- |" * len(head),
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
        *cost_lines(),
    ]
    page = ROOT / "docs" / "attached-trainers.md"
    _, heading, by_hand = page.read_text(encoding="utf-8").partition(BY_HAND)
    page.write_text("\n".join([*lines, "", heading]) + by_hand, encoding="utf-8")


if __name__ == "__main__":
    main()
