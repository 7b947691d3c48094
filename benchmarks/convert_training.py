"""Training that changes the framework midway: ten steps, a conversion and ten more, compared with twenty in one.

python benchmarks/convert_training.py [--optimizer NAME] [--seeds 1] [--batch 16] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import types
import warnings
from pathlib import Path

warnings.simplefilter("ignore")

import numpy as np  # noqa: E402
import paddle  # noqa: E402
import torch  # noqa: E402

import moco_paddle.files.checkpoint  # noqa: E402
import moco_paddle.training.pretraining  # noqa: E402
import moco_ref.files.checkpoint  # noqa: E402
import moco_ref.training.pretraining  # noqa: E402
from twinalign.conversion.convert_file import convert_checkpoint  # noqa: E402
from twinalign.conversion.options import Options  # noqa: E402

STEPS = 10
CASES = [("resnet18", "lars", 0.05, 1e-6), ("vit_digits", "adamw", 1e-4, 0.1), ("vit_digits", "sgd", 0.05, 1e-6)]
SIDES = {"torch": (moco_ref, torch.from_numpy, ".pth.tar"), "paddle": (moco_paddle, paddle.to_tensor, ".npz")}


class Run:
    """One model with its optimizer in one framework."""

    def __init__(self, side: str, arch: str, name: str, rate: float, decay: float, dtype: str, seed: int) -> None:
        self.package, self.tensor, self.suffix = SIDES[side]
        self.settings = {"optimizer": name, "weight_decay": decay, "momentum": 0.9}
        self.arguments = types.SimpleNamespace(lr=rate, epochs=5, warmup_epochs=1, moco_m=0.99, moco_m_cos=True)
        torch.manual_seed(seed)
        paddle.seed(seed)
        self.seed = seed
        self.model = self.package.build_moco(arch, 16, 32)
        self.model.to(dtype=getattr(torch, dtype) if side == "torch" else dtype)
        self.model.train()
        self.optimizer = self.package.build_optimizer(name, self.model.parameters(), rate, decay)

    def train(self, steps: range, batch: int) -> list[float]:
        losses = []
        for step in steps:
            generator = np.random.default_rng([self.seed, step])
            views = [self.tensor(generator.standard_normal((batch, 3, 32, 32))) for _ in range(2)]
            arguments = (self.model, self.optimizer, *views, step / STEPS, self.arguments)
            losses.append(self.package.training.pretraining.train_step(*arguments)[0])
        return losses

    def save(self, path: Path) -> None:
        self.package.files.checkpoint.save_checkpoint(path, self.model, self.optimizer, 1, 0, self.settings)

    def load(self, path: Path) -> None:
        self.package.files.checkpoint.load_checkpoint(path, self.model, self.optimizer, self.settings)


def largest_difference(
    start: str, end: str, case: tuple[str, str, float, float], dtype: str, seed: int, batch: int
) -> float:
    """Largest relative difference of a loss after the conversion."""
    arch = case[0]
    factories = {
        side: f"{package}:build_moco(arch={arch!r}, dim=16, mlp_dim=32)"
        for side, package in (("ref", "moco_ref"), ("paddle", "moco_paddle"))
    }
    with tempfile.TemporaryDirectory() as folder:
        first = Run(start, *case, dtype, seed)
        first.train(range(STEPS), batch)
        source, target = (Path(folder) / f"c{SIDES[side][2]}" for side in (start, end))
        first.save(source)
        whole = first.train(range(STEPS, 2 * STEPS), batch)
        convert_checkpoint(source, target, Options(factories=factories))
        second = Run(end, *case, dtype, seed)
        second.load(target)
        continued = second.train(range(STEPS, 2 * STEPS), batch)
    return float(np.max(np.abs(np.array(continued) - whole) / np.abs(whole)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--optimizer", choices=[case[1] for case in CASES])
    parser.add_argument("--seeds", type=int, default=1, help="the largest difference over so many is given")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = {}
    for case in CASES:
        if arguments.optimizer not in (None, case[1]):
            continue
        for dtype in ("float64", "float32"):
            for start, end in (("torch", "paddle"), ("paddle", "torch")):
                name = f"{case[0]} {case[1]} {dtype} {start} -> {end}"
                results[name] = max(
                    largest_difference(start, end, case, dtype, seed, arguments.batch)
                    for seed in range(arguments.seeds)
                )
                print(f"{name:45} {results[name]:.1e}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
