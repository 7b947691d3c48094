"""From a saved source to a verdict: `twinalign run --watch` after an edit, and a plain `run`, of three-method cases.

By hand: one process per framework, one after the other, imports it, builds the model and calls it once in float32 and
once in float64, as `run` does. An edit changes a line of the port's source; it ends when the verdict has been printed,
and the port's own two forward passes, as the paddle process by hand takes for them, are subtracted. Seconds are given
by the clock and of the processor, of a command and everything that it starts; all is done in turns, medians are shown.

    python benchmarks/edit_to_verdict.py [--repeat 5] [--size 224] [--json FILE] [NAME …]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TICKS = os.sysconf("SC_CLK_TCK")
BY_HAND_LIMIT, EDIT_LIMIT = 1.1, 2.0
WAITING = "waiting for a source to be saved"

# Name → import and call of the torch model and of the paddle model.
_SIX_LAYERS = "import VisionTransformer as build", "build(dim=384, depth=6, num_heads=6)"
PAIRS = {
    "mobilenet_v3_small": (
        ("from torchvision.models import mobilenet_v3_small as build", "build()"),
        ("from paddle.vision.models import mobilenet_v3_small as build", "build()"),
    ),
    "vit_six_layers": (
        (f"from moco_ref.models.vision_transformer {_SIX_LAYERS[0]}", _SIX_LAYERS[1]),
        (f"from moco_paddle.models.vision_transformer {_SIX_LAYERS[0]}", _SIX_LAYERS[1]),
    ),
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
        from port import port
        return port()
    def inputs(self, rng):
        return {{"x": rng.standard_normal((2, 3, {size}, {size}), dtype="float32")}}
"""
PORT = """
{paddle[0]}

def port():
    return {paddle[1]}
"""
BY_HAND = """
import json, time
import numpy as np
{framework[0]}
import {package}
x = np.random.default_rng(0).standard_normal((2, 3, {size}, {size}), dtype="float32")
model = {framework[1]}
model.eval()
taken = np.zeros(2)
with {package}.no_grad():
    for dtype in ("float32", "float64"):
        model.to(dtype={as_dtype})
        started = np.array([time.perf_counter(), time.process_time()])
        model({to_tensor}(x.astype(dtype)))
        taken += np.array([time.perf_counter(), time.process_time()]) - started
print(json.dumps(taken.tolist()))
"""

Seconds = tuple[float, float]
"""By the clock, and of the processor."""


def environment() -> dict[str, str]:
    """This tree's package, whose compiled modules are kept, as those of an installed package are."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": os.pathsep.join([str(ROOT / "tools"), str(ROOT)])}


def timed(command: list[str], folder: Path, ends_with: int = 0) -> tuple[Seconds, str]:
    """Seconds of a command, and its output; ends the benchmark where its exit code is another."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    finished = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True)
    taken, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if finished.returncode != ends_with:
        sys.exit(f"{' '.join(command)} ended with {finished.returncode}: {finished.stdout}{finished.stderr}")
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (taken, processor), finished.stdout


def by_hand(name: str, size: int, folder: Path) -> tuple[Seconds, Seconds]:
    """Seconds of both frameworks' scripts together, and of the port's two forward passes."""
    total, forward = [0.0, 0.0], (0.0, 0.0)
    torch, paddle = PAIRS[name]
    for package, framework, to_tensor, as_dtype in (
        ("torch", torch, "torch.from_numpy", "getattr(torch, dtype)"),
        ("paddle", paddle, "paddle.to_tensor", "dtype"),
    ):
        script = folder / f"by_hand_{package}.py"
        script.write_text(
            BY_HAND.format(framework=framework, package=package, size=size, to_tensor=to_tensor, as_dtype=as_dtype)
        )
        taken, output = timed([sys.executable, script.name], folder)
        total = [one + other for one, other in zip(total, taken, strict=True)]
        clock, processor = json.loads(output.splitlines()[-1])
        forward = clock, processor  # the port's is the last
    return (total[0], total[1]), forward


def processor_seconds(root: int) -> float:
    """Of a process, everything below it, and everything below it that has ended."""
    total, children = 0.0, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append((int(entry.name), sum(map(int, fields[11:15]))))
                if int(entry.name) == root:
                    total = sum(map(int, fields[11:15]))
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        waiting += [process for process, _ in below]
        total += sum(ticks for _, ticks in below)
    return total / TICKS


def edits(folder: Path) -> Iterator[Seconds]:
    """Seconds from a saved port to its printed verdict, edit after edit, in one `run --watch`."""
    command = [sys.executable, "-m", "twinalign", "run", "case.py", "--watch", "--out", "watched"]
    with subprocess.Popen(
        command, cwd=folder, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:

        def wait() -> None:
            for line in process.stderr or ():
                if line.startswith(WAITING):
                    return
            sys.exit(f"{' '.join(command)} ended with {process.wait()}")

        try:
            wait()
            port = folder / "port.py"
            for number in range(1_000_000):
                time.sleep(1.5)  # a person's edit does not come at once
                before, started = processor_seconds(process.pid), time.perf_counter()
                port.write_text(port.read_text() + f"EDIT = {number}\n")
                wait()
                yield time.perf_counter() - started, processor_seconds(process.pid) - before
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate()


def measure(name: str, size: int, repeat: int) -> dict[str, Seconds]:
    """Medians: by hand, the port's forward passes, a run into an empty folder, an edit."""
    taken: dict[str, list[Seconds]] = {"by hand": [], "forward": [], "run": [], "edit": []}
    torch, paddle = PAIRS[name]
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryDirectory() as scripts:
        folder = Path(place)
        (folder / "case.py").write_text(CASE.format(name=name, torch=torch, size=size))
        (folder / "port.py").write_text(PORT.format(paddle=paddle))
        with contextlib.closing(edits(folder)) as edited:
            for number in range(repeat):
                whole, forward = by_hand(name, size, Path(scripts))
                taken["by hand"].append(whole)
                taken["forward"].append(forward)
                run = [sys.executable, "-m", "twinalign", "run", "case.py", "--out", f"result{number}"]
                taken["run"].append(timed(run, folder)[0])
                taken["edit"].append(next(edited))
    return {
        what: tuple(statistics.median(column) for column in zip(*rows, strict=True)) for what, rows in taken.items()
    }


def table(found: dict[str, dict[str, Any]]) -> list[str]:
    """The measured cases as Markdown."""
    lines = [
        "| three-method case | by hand | `run` | ratio | of the processor | ratio | edit to verdict | beyond the "
        "port's forward | of the processor |",
        "| --- |" + " ---: |" * 8,
    ]
    for name, row in found.items():
        hand, run, edit, forward = (row[what] for what in ("by hand", "run", "edit", "forward"))
        cells = [
            name,
            f"{hand[0]:.1f} s",
            f"{run[0]:.1f} s",
            f"{run[0] / hand[0]:.2f}",
            f"{run[1]:.1f} s against {hand[1]:.1f} s",
            f"**{run[1] / hand[1]:.2f}**",
            f"{edit[0]:.1f} s",
            f"**{edit[0] - forward[0]:.1f} s**",
            f"{edit[1] - forward[1]:.1f} s",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    lines.append(f"| limit | | | {BY_HAND_LIMIT} | | {BY_HAND_LIMIT} | | {EDIT_LIMIT} s | |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["mobilenet_v3_small", "vit_six_layers"], help=", ".join(PAIRS))
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--json", type=Path, help="write the figures there too")
    arguments = parser.parse_args()
    found = {name: measure(name, arguments.size, arguments.repeat) for name in arguments.names}
    print("\n".join(table(found)))
    if arguments.json:
        arguments.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
