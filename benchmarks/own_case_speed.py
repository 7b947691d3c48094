"""The cost of a three-method case: `twinalign run` compared with running the two models by hand.

By hand: one process per framework, one after the other, imports it, builds the model and calls it once, in float32 and,
in a second column, in float64 as well, as `run` does. The limit is twice that. Everything is done several times, in
turns; medians are compared.

    python benchmarks/own_case_speed.py [--repeat 3] [--size 224] [NAME …]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 2.0

# Name → import and call of the torch model and of the paddle model.
PAIRS = {
    "resnet50": (
        ("from torchvision.models import resnet50 as build", "build()"),
        ("from paddle.vision.models import resnet50 as build", "build()"),
    ),
    "vit_small": (
        ("from moco_ref import build_encoder as build", "build('vit_small')"),
        ("from moco_paddle import build_encoder as build", "build('vit_small')"),
    ),
}

CASE = """
from twinalign import Case

class Own(Case):
    name = "{name}"
    def reference(self):
        {torch[0]}
        return {torch[1]}
    def reproduced(self):
        {paddle[0]}
        return {paddle[1]}
    def inputs(self, rng):
        return {{"x": rng.standard_normal((2, 3, {size}, {size}), dtype="float32")}}
"""

BY_HAND = """
import numpy as np
{framework[0]}
import {package}
x = np.random.default_rng(0).standard_normal((2, 3, {size}, {size}), dtype="float32")
model = {framework[1]}
model.eval()
with {package}.no_grad():
    for dtype in {dtypes}:
        model.to(dtype={as_dtype})
        model({to_tensor}(x.astype(dtype)))
"""


def seconds(command: list[str], folder: Path) -> float:
    """Wall time of a command; ends the benchmark where it fails."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tools"), str(ROOT)])}
    started = time.monotonic()
    finished = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    taken = time.monotonic() - started
    if finished.returncode:
        sys.exit(f"{' '.join(command)} ended with {finished.returncode}: {finished.stdout}{finished.stderr}")
    return taken


def by_hand(name: str, size: int, dtypes: tuple[str, ...], folder: Path) -> float:
    """Seconds of both frameworks' scripts, one after the other."""
    total = 0.0
    torch, paddle = PAIRS[name]
    for package, framework, to_tensor, as_dtype in (
        ("torch", torch, "torch.from_numpy", "getattr(torch, dtype)"),
        ("paddle", paddle, "paddle.to_tensor", "dtype"),
    ):
        script = folder / f"by_hand_{package}.py"
        script.write_text(
            BY_HAND.format(
                framework=framework, package=package, size=size, dtypes=dtypes, to_tensor=to_tensor, as_dtype=as_dtype
            )
        )
        total += seconds([sys.executable, script.name], folder)
    return total


def measure(name: str, size: int, repeat: int) -> dict[str, float]:
    """Medians in seconds: by hand in float32, by hand in both precisions, and the run into an empty folder."""
    taken: dict[str, list[float]] = {"by hand": [], "by hand, float64 too": [], "run": []}
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            torch, paddle = PAIRS[name]
            (folder / "case.py").write_text(CASE.format(name=name, torch=torch, paddle=paddle, size=size))
            taken["by hand"].append(by_hand(name, size, ("float32",), folder))
            taken["by hand, float64 too"].append(by_hand(name, size, ("float32", "float64"), folder))
            taken["run"].append(seconds([sys.executable, "-m", "twinalign", "run", "case.py"], folder))
    return {what: statistics.median(values) for what, values in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(PAIRS))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--size", type=int, default=224)
    arguments = parser.parse_args()
    print("| three-method case | by hand | by hand, float64 too | twinalign run | ratio | ratio to both | limit |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in arguments.names:
        found = measure(name, arguments.size, arguments.repeat)
        first, both, run = found["by hand"], found["by hand, float64 too"], found["run"]
        cells = [
            name,
            f"{first:.1f} s",
            f"{both:.1f} s",
            f"{run:.1f} s",
            f"{run / first:.2f}",
            f"{run / both:.2f}",
            LIMIT,
        ]
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
