"""One training step of both twins compared with the bare forward and backward of the same encoders.

    python benchmarks/step_speed.py [--arch vit_small --arch resnet50] [--batch 8] [--steps 5] [--threads 2]

Bare is the minimum of a step: both views through the base encoder and the predictor with their gradients, and
through the momentum encoder without. The step adds the loss, the momentum encoder's move, the finiteness check and the
optimizer (AdamW for a ViT, LARS for a ResNet). Each side runs in a process of its own; both kinds take turns, so that a
change of the machine's speed affects both, and medians are given, as seconds and as seconds of CPU time. `encoder` is
one forward and backward of the base encoder alone at twice the batch, for comparing the frameworks. `library` is the
same step in torch built from timm's and torchvision's modules, like the official release.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
import types
from collections.abc import Callable
from typing import Any

import numpy as np

PACKAGES = {"torch": "moco_ref", "paddle": "moco_paddle"}
LIBRARY = "library"
SIDES = (*PACKAGES, LIBRARY)
LIMIT = 1.15


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds, and seconds of CPU time of all threads."""
    start, cpu_start = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - cpu_start


def measure(side: str, arch: str, batch: int, steps: int, threads: int) -> dict[str, list[float]]:
    """Medians of one side: {kind: [seconds, CPU seconds]}."""
    package = PACKAGES[side]
    twin, training = (importlib.import_module(f"{package}{name}") for name in ("", ".training.pretraining"))
    if side == "torch":
        import torch as framework

        framework.set_num_threads(threads)
        tensor = framework.from_numpy
    else:
        import paddle as framework

        tensor = framework.to_tensor
    model = twin.build_moco(arch)
    model.train()
    optimizer = twin.build_optimizer("adamw" if arch.startswith("vit") else "lars", model.parameters(), 1e-4, 0.1)
    arguments = types.SimpleNamespace(lr=1e-4, epochs=10, warmup_epochs=1, moco_m=0.99, moco_m_cos=True)
    generator = np.random.default_rng(0)
    size = model.base_encoder.image_size
    views = [tensor(generator.standard_normal((batch, 3, size, size), dtype="float32")) for _ in range(2)]
    joined = tensor(generator.standard_normal((2 * batch, 3, size, size), dtype="float32"))

    def clear() -> None:
        for parameter in model.parameters():
            if side == "torch":
                parameter.grad = None
            else:
                parameter.clear_gradient(set_to_zero=False)

    def bare() -> None:
        queries = [model.predictor(model.base_encoder(view)) for view in views]
        with framework.no_grad():
            for view in views:
                model.momentum_encoder(view)
        (queries[0].mean() + queries[1].mean()).backward()
        clear()

    def encoder() -> None:
        model.base_encoder.forward_features(joined).mean().backward()
        clear()

    def step() -> None:
        training.train_step(model, optimizer, *views, 1.5, arguments)

    kinds: dict[str, Callable[[], Any]] = {"bare": bare, "step": step, "encoder": encoder}
    return medians(kinds, steps)


def measure_library(arch: str, batch: int, steps: int, threads: int) -> dict[str, list[float]]:
    """As `measure`, of the step made of libraries' modules."""
    import torch
    from library_step import LibraryStep

    torch.set_num_threads(threads)
    step = LibraryStep(arch)
    views = [torch.randn(batch, 3, 224, 224) for _ in range(2)]
    return medians({"step": lambda: step(*views)}, steps)


def medians(kinds: dict[str, Callable[[], Any]], steps: int) -> dict[str, list[float]]:
    """Seconds and CPU seconds of each kind, which take turns; the first turn warms up."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    for turn in range(steps + 1):
        for name, work in kinds.items():
            found = timed(work)
            if turn:
                times[name].append(found)
    return {name: [statistics.median(values) for values in zip(*found, strict=True)] for name, found in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", action="append")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--side", choices=SIDES, help="measure one side in this process and print JSON")
    options = parser.parse_args()
    if options.side:
        sizes = options.arch[0], options.batch, options.steps, options.threads
        print(json.dumps(measure_library(*sizes) if options.side == LIBRARY else measure(options.side, *sizes)))
        return
    threads = str(options.threads)
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    print(f"batch {options.batch}, {threads} threads; seconds (CPU seconds)")
    for arch in options.arch or ["vit_small", "resnet50"]:
        found = {}
        for side in SIDES:
            command = [sys.executable, __file__, "--side", side, "--arch", arch, "--batch", str(options.batch)]
            command += ["--steps", str(options.steps), "--threads", threads]
            finished = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            found[side] = json.loads(finished.stdout.splitlines()[-1])
            texts = [f"{kind} {wall:.2f} ({cpu:.2f})" for kind, (wall, cpu) in found[side].items()]
            if side in PACKAGES:
                ratio = found[side]["step"][1] / found[side]["bare"][1]
                texts.append(f"step/bare {ratio:.3f} (limit {LIMIT})")
            print(f"{arch:16} {side:7} {'  '.join(texts)}", flush=True)
        for name, one, other, kind in (
            ("torch/library, step", "torch", LIBRARY, "step"),
            ("paddle/torch, encoder", "paddle", "torch", "encoder"),
        ):
            ratios = [found[one][kind][place] / found[other][kind][place] for place in (0, 1)]
            print(f"{arch:16} {name}: {ratios[0]:.2f} ({ratios[1]:.2f})", flush=True)


if __name__ == "__main__":
    main()
