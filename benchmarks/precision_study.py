"""The mixed-precision study in small: every precision mode from the same weights on the same batches, in either twin.

    python benchmarks/precision_study.py [--page docs/precision-study.md] [--quick]

A small ViT is pre-trained with MoCo v3 on the digits of lite_data: by AdamW with a moderate batch and rate, by AdamW
with a large batch and a rate scaled to it, and by momentum SGD. The tables show the result: the mean loss of the last
five steps, the kNN accuracy, how many steps the loss scale skipped, the scale at the end, or where and in which layer a
number was no longer finite. On a CPU half precision is emulated, and o1 is the same as amp. Each twin begins with its
own weights, so compare only rows of the same twin. `moved` is fp32 with initial weights changed by one unit in the last
place: its difference from fp32 is what rounding alone does to such a training.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import subprocess
import sys
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
PACKAGES = {"torch": "moco_ref", "paddle": "moco_paddle"}
MODES = ("fp32", "moved", "bf16", "amp", "o1", "o2", "o3", "half")
ALIKE = {"o1": "amp"}
"""Modes that are the same on a CPU: the first is not run if the second is."""
ROOT = HERE / "lite_data" / "digits"
LAST = 5


@dataclasses.dataclass(frozen=True)
class Setting:
    """One recipe."""

    optimizer: str
    batch: int
    rate: float
    decay: float
    epochs: int
    modes: tuple[str, ...] = MODES

    def describe(self) -> str:
        """The setting as a heading."""
        return f"{self.optimizer}, batch {self.batch}, rate {self.rate:g}, {self.epochs} epochs"


SETTINGS = {
    "moderate": Setting("adamw", 64, 2e-3, 0.1, 3),
    "large": Setting("adamw", 350, 1e-2, 0.1, 4),
    "sgd": Setting("sgd", 64, 0.03, 1e-4, 2, ("fp32", "moved", "amp", "half")),
}


class Kept:
    """A loader that makes each epoch once: the views depend on seed and address alone, not on the run."""

    def __init__(self, loader: Any) -> None:
        self.loader, self.epochs, self.epoch = loader, {}, 0

    def __len__(self) -> int:
        return len(self.loader)

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        """Choose the epoch, which begins at its first batch."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        if self.epoch not in self.epochs:
            self.loader.set_epoch(self.epoch)
            self.epochs[self.epoch] = list(self.loader)
        return iter(self.epochs[self.epoch])


class Side:
    """One twin, in this process."""

    def __init__(self, side: str) -> None:
        self.twin = importlib.import_module(PACKAGES[side])
        parts = ("data", "devices", "training.evaluation", "training.precision", "training.pretraining")
        self.module = types.SimpleNamespace(
            **{name.rpartition(".")[2]: importlib.import_module(f"{PACKAGES[side]}.{name}") for name in parts}
        )
        build = self.module.data.build_evaluation_loader
        self.evaluation = [list(build(ROOT / split, 256, 32)) for split in ("train", "val")]

    def study(self, name: str, modes: list[str], epochs: int | None) -> Iterator[dict[str, Any]]:
        """Train once a mode."""
        setting = SETTINGS[name]
        setting = dataclasses.replace(setting, epochs=epochs or setting.epochs)
        loader = Kept(self.module.data.build_pretraining_loader(ROOT / "train", setting.batch, 32, crop_min=0.5))
        found: dict[str, dict[str, Any]] = {}
        for mode in (mode for mode in modes if mode in setting.modes):
            found[mode] = found.get(ALIKE.get(mode, "")) or self.train(setting, mode, loader)
            yield {"setting": name, "mode": mode, **found[mode]}

    def train(self, setting: Setting, mode: str, loader: Kept) -> dict[str, Any]:
        """Train one model; return its losses and its outcome."""
        module = self.module
        module.devices.seed_everything(0)
        model = self.twin.build_moco("vit_digits", dim=64, mlp_dim=256)
        if mode == "moved":
            move(model)
        precision = module.precision.Precision("fp32" if mode == "moved" else mode, model)
        optimizer = self.twin.build_optimizer(setting.optimizer, model.parameters(), setting.rate, setting.decay)
        args = types.SimpleNamespace(
            lr=setting.rate, epochs=setting.epochs, warmup_epochs=1, moco_m=0.99, moco_m_cos=True
        )
        losses: list[float] = []
        failure, accuracy = "", None
        try:
            module.pretraining.train(
                model, loader, optimizer, args, on_step=lambda step: losses.append(step.loss), precision=precision
            )
        except FloatingPointError as error:
            failure = f"step {len(losses) + 1}: {str(error).partition(';')[0]}"
        else:
            extract = module.evaluation.extract_features
            features = [extract(model.base_encoder, batches) for batches in self.evaluation]
            accuracy = module.evaluation.knn_accuracy(*features[0], *features[1])
        scale = None if precision.scaler is None else precision.scaler.scale
        last = losses[-LAST:]
        return {
            "loss": sum(last) / len(last) if last else None,
            "failure": failure,
            "accuracy": accuracy,
            "skipped": precision.skipped,
            "scale": scale,
        }


def move(model: Any) -> None:
    """Move every weight by one unit in the last place or two."""
    for parameter in model.parameters():
        moved = parameter.detach() * (1 + 2**-23)
        parameter.set_value(moved) if hasattr(parameter, "set_value") else parameter.data.copy_(moved)


def run_sides(words: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Both sides at the same time, each in a process with half the cores; prints a line after each run."""
    environment = {**os.environ, "PYTHONPATH": f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    environment["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // len(PACKAGES)))

    def run(side: str) -> list[dict[str, Any]]:
        command = [sys.executable, __file__, "--side", side, *words]
        found = []
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout or ():
                if line.startswith("{"):
                    found.append(json.loads(line))
                    print(side, found[-1]["setting"], *row(found[-1]), flush=True)
        if process.returncode:
            raise SystemExit(f"{side}: ended with exit code {process.returncode}")
        return found

    with ThreadPoolExecutor() as pool:
        return dict(zip(PACKAGES, pool.map(run, PACKAGES), strict=True))


def row(found: dict[str, Any]) -> list[str]:
    """The columns of one run."""
    scale = "–" if found["scale"] is None else f"{found['scale']:g}"
    if found["failure"]:
        return [found["mode"], "–", "–", str(found["skipped"]), scale, found["failure"]]
    return [found["mode"], f"{found['loss']:.3f}", f"{found['accuracy']:.1f}", str(found["skipped"]), scale, "trained"]


def page(results: dict[str, list[dict[str, Any]]], picture: str, command: str) -> list[str]:
    """The tables as Markdown."""
    lines = ["# Precision modes, measured", "", f"`{command}`", "", str(__doc__).split("\n\n")[-1].strip(), ""]
    lines += [f"![kNN accuracy by mode; a cross marks a run that ended early]({picture})", ""]
    for name in dict.fromkeys(found["setting"] for runs in results.values() for found in runs):
        lines += [f"## {name}: {SETTINGS[name].describe()}", ""]
        lines += ["| twin | mode | loss | kNN top-1, % | steps left out | scale at the end | |"]
        lines += ["| --- | --- | ---: | ---: | ---: | ---: | --- |"]
        for side, runs in results.items():
            lines += [f"| {' | '.join([side, *row(found)])} |" for found in runs if found["setting"] == name]
        lines.append("")
    return lines


def plot(results: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Plot the accuracies by mode, one panel per setting; a cross below marks a run that ended early."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(found["setting"] for runs in results.values() for found in runs))
    figure = Figure(figsize=(4.2 * len(names), 3.2), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        modes = SETTINGS[name].modes
        for side, runs in results.items():
            of_setting = {found["mode"]: found for found in runs if found["setting"] == name}
            places = [place for place, mode in enumerate(modes) if mode in of_setting]
            values = [of_setting[modes[place]]["accuracy"] for place in places]
            (line,) = axes.plot(
                [place for place, value in zip(places, values, strict=True) if value is not None],
                [value for value in values if value is not None],
                "o",
                label=side,
            )
            ended = [place for place, value in zip(places, values, strict=True) if value is None]
            axes.plot(ended, [0.0] * len(ended), "x", color=line.get_color())
        axes.set_xticks(range(len(modes)), modes, rotation=45)
        axes.set(title=name, ylabel="kNN top-1, %", ylim=(-5, 100))
        axes.legend(fontsize=7)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setting", action="append", choices=SETTINGS)
    parser.add_argument("--mode", action="append", choices=MODES)
    parser.add_argument("--epochs", type=int, help="instead of each setting's own")
    parser.add_argument("--quick", action="store_true", help="only fp32, amp and half, two epochs, two settings")
    parser.add_argument("--page", type=Path, help="write the tables there, and the plot beside it as .png")
    parser.add_argument("--side", choices=PACKAGES, help="one side in this process, a line of JSON a run")
    options = parser.parse_args()
    settings, modes = options.setting or list(SETTINGS), options.mode or list(MODES)
    if options.quick:
        settings, modes, options.epochs = ["moderate", "sgd"], ["fp32", "amp", "half"], 2
    if options.side:
        side = Side(options.side)
        for name in settings:
            for found in side.study(name, modes, options.epochs):
                print(json.dumps(found), flush=True)
        return
    words = [word for name in settings for word in ("--setting", name)]
    words += [word for mode in modes for word in ("--mode", mode)]
    words += ["--epochs", str(options.epochs)] if options.epochs else []
    results = run_sides(words)
    if options.page:
        picture = options.page.with_suffix(".png")
        plot(results, picture)
        command = " ".join(["python benchmarks/precision_study.py", *sys.argv[1:]])
        options.page.write_text("\n".join(page(results, picture.name, command)), encoding="utf-8")


if __name__ == "__main__":
    main()
