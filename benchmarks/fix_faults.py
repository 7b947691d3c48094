"""How many faults in a port's source `twinalign fix` repairs: `python benchmarks/fix_faults.py [--drawn N] [--only …]`.

Each fault is one edit of the source of a small right port, written as the text before and after: of `PORT`, and, drawn
by lot, of the three ports of `benchmarks/held_out`, N of either half. `fix` is run on the faulty source in a folder of
its own. *Located*: the fault is named; *repaired*: aligned with the patch, exit code 0. A repaired port is checked
again by a plain `twinalign run`, in another process and with another seed: *wrong edit* counts those that this run does
not call aligned. Goes on where it was ended (result/fix_faults.json), but measures again what was measured on other
sources. Writes docs/fix.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "fix.md"
HELD = ROOT / "benchmarks" / "held_out"

from held_out_faults import state_of_sources  # noqa: E402
from page import FAULTS as HELD_OUT  # noqa: E402
from page import halves  # noqa: E402

CASE = """
import numpy as np
from twinalign import Case

class Net(Case):
    train_mode = True
    accept = ("bn_running_var_biased",)

    def reference(self):
        from source import Net
        return Net()

    def reproduced(self):
        from port import Net
        return Net()

    def inputs(self, rng):
        images = rng.standard_normal((4, 3, 17, 17)).astype(np.float32)
        return {"x": images, "labels": rng.integers(0, 10, 4)}

    def loss(self, outputs, inputs, framework):
        from source import loss as reference_loss
        from port import loss
        return (reference_loss if framework == "torch" else loss)(outputs, inputs["labels"])

    def optimizer(self, parameters, framework):
        from source import optimizer as reference_optimizer
        from port import optimizer
        return (reference_optimizer if framework == "torch" else optimizer)(parameters)
"""

SOURCE = """
import torch
from torch import nn
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1, padding_mode="reflect")
        self.bn = nn.BatchNorm2d(8, eps=1e-3, momentum=0.2)
        self.mix = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=2)
        self.gn = nn.GroupNorm(4, 8, eps=1e-4)
        self.pool = nn.AvgPool2d(3, stride=2, padding=1, ceil_mode=True, count_include_pad=False)
        self.norm = nn.LayerNorm(8, eps=1e-6)
        self.rise = nn.Linear(8, 16)
        self.act = nn.GELU(approximate="tanh")
        self.fall = nn.Linear(16, 8)
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        x = F.silu(self.bn(self.stem(x)))
        x = F.leaky_relu(self.gn(self.mix(x)), negative_slope=0.2)
        x = self.pool(x).flatten(2).transpose(1, 2)
        x = x + self.fall(self.act(self.rise(self.norm(x))))
        weights = torch.softmax(x, dim=1)
        return self.head((weights * x).sum(1))

def loss(outputs, labels):
    return F.cross_entropy(outputs, labels, label_smoothing=0.1)

def optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.05)
"""

PORT = """
import paddle
from paddle import nn
from paddle.nn import functional as F

class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2D(3, 8, 3, stride=2, padding=1, padding_mode="reflect")
        self.bn = nn.BatchNorm2D(8, epsilon=1e-3, momentum=0.8)
        self.mix = nn.Conv2D(8, 8, 3, padding=2, dilation=2, groups=2)
        self.gn = nn.GroupNorm(4, 8, epsilon=1e-4)
        self.pool = nn.AvgPool2D(3, stride=2, padding=1, ceil_mode=True, exclusive=True)
        self.norm = nn.LayerNorm(8, epsilon=1e-6)
        self.rise = nn.Linear(8, 16)
        self.act = nn.GELU(approximate=True)
        self.fall = nn.Linear(16, 8)
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        x = F.silu(self.bn(self.stem(x)))
        x = F.leaky_relu(self.gn(self.mix(x)), negative_slope=0.2)
        x = self.pool(x).flatten(2).transpose([0, 2, 1])
        x = x + self.fall(self.act(self.rise(self.norm(x))))
        weights = F.softmax(x, axis=1)
        return self.head((weights * x).sum(1))

def loss(outputs, labels):
    return F.cross_entropy(outputs, labels, label_smoothing=0.1)

def optimizer(parameters):
    return paddle.optimizer.AdamW(
        1e-3, parameters=parameters, beta1=0.9, beta2=0.95, epsilon=1e-6, weight_decay=0.05
    )
"""

FAULTS = {
    "padding mode forgotten": (', padding_mode="reflect"', ""),
    "batch norm's epsilon forgotten": ("epsilon=1e-3, ", ""),
    "momentum as in torch": ("momentum=0.8", "momentum=0.2"),
    "dilation forgotten": ("padding=2, dilation=2, groups=2", "padding=1, groups=2"),
    "group norm of 2 groups": ("nn.GroupNorm(4, 8", "nn.GroupNorm(2, 8"),
    "group norm's epsilon forgotten": (", epsilon=1e-4", ""),
    "pool counts the padding": ("exclusive=True", "exclusive=False"),
    "maximum for average": (
        "nn.AvgPool2D(3, stride=2, padding=1, ceil_mode=True, exclusive=True)",
        "nn.MaxPool2D(3, stride=2, padding=1, ceil_mode=True)",
    ),
    "layer norm's epsilon forgotten": ("nn.LayerNorm(8, epsilon=1e-6)", "nn.LayerNorm(8)"),
    "exact GELU": ("nn.GELU(approximate=True)", "nn.GELU()"),
    "ReLU for GELU": ("nn.GELU(approximate=True)", "nn.ReLU()"),
    "ReLU for SiLU": ("F.silu(", "F.relu("),
    "default slope": (", negative_slope=0.2", ""),
    "softmax over features": ("axis=1", "axis=-1"),
    "residual forgotten": ("x = x + self.fall", "x = self.fall"),
    "layer norm forgotten": ("self.rise(self.norm(x))", "self.rise(x)"),
    "sum for mean": ("label_smoothing=0.1", 'label_smoothing=0.1, reduction="sum"'),
    "label smoothing forgotten": (", label_smoothing=0.1", ""),
    "default beta2": (", beta2=0.95", ""),
    "default epsilon of the optimizer": (", epsilon=1e-6, weight", ", weight"),
    "default weight decay": (", weight_decay=0.05", ""),
    "Adam for AdamW": ("paddle.optimizer.AdamW", "paddle.optimizer.Adam"),
    "mean for sum": ("(weights * x).sum(1)", "(weights * x).mean(1)"),
    "operands subtracted": ("x = x + self.fall", "x = x - self.fall"),
}


HELD_CASE = """
from cases import {kind} as Pair

class Held(Pair):
    def reproduced(self):
        from {port}_port import Net
        return Net()

    def loss(self, outputs, inputs, framework):
        from {port}_source import loss as reference_loss
        from {port}_port import loss
        return (reference_loss if framework == "torch" else loss)(outputs, inputs)
"""
HEAD = """# `twinalign fix`, measured

Written by `python benchmarks/fix_faults.py`, on a CPU. Each fault is planted in the source of a small port, one at a
time ([the port and the faults](../benchmarks/fix_faults.py)), or drawn by lot from
[those that were held out](held-out-faults.md); *repaired* ports are run again in another process with another seed, and
a *wrong edit* is one that this run does not call aligned.

"""
_OF = {
    "own": "Faults of one port",
    "A": "Drawn from the half that was looked at",
    "B": "Drawn from the half of which nothing but the count was looked at",
}


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tools"), str(folder)])}
    line = [sys.executable, "-m", "twinalign", *arguments]
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True)


def trial(files: dict[str, str], port: str) -> dict[str, Any]:
    """What becomes of a faulty `port`, one of the `files`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
        started = time.perf_counter()
        done = command(folder, "fix", "case.py", "--write", "--json", "fix.json")
        row: dict[str, Any] = {"seconds": time.perf_counter() - started, "repaired": False, "wrong": False}
        if not (folder / "fix.json").exists():
            return {**row, "located": False, "edits": done.stderr.strip().splitlines()[-1][:120]}
        found = json.loads((folder / "fix.json").read_text(encoding="utf-8"))
        if done.returncode == 0 and found["edits"]:
            again = command(folder, "run", "case.py", "--out", "again", "--set", "seed=4711", "--no-locate")
            row |= {"repaired": True, "wrong": again.returncode != 0}
        changed = (folder / port).read_text(encoding="utf-8").splitlines()
        edits = "; ".join(f"`{line.strip()}`" for line in changed if line not in files[port].splitlines())
        return {**row, "located": bool(found["edits"] or found["left"]), "edits": edits}


def spoiled(right: str, before: str, after: str) -> str:
    if before not in right:
        raise SystemExit(f"{before!r} is not in the port")
    return right.replace(before, after, 1)


def written_here() -> Iterator[tuple[str, str, dict[str, str], str]]:
    for name, (before, after) in FAULTS.items():
        files = {"case.py": CASE, "source.py": SOURCE, "port.py": spoiled(PORT, before, after)}
        yield "own", name, files, "port.py"


def drawn(number: int) -> Iterator[tuple[str, str, dict[str, str], str]]:
    """So many faults of either held-out half; half A may be looked at, of B only the count is shown."""
    of = halves()
    for half in "AB":
        names = sorted(name for name, found in of.items() if found == half)
        for name in random.Random(5).sample(names, number):
            port, _, at = name.rpartition("-")
            _, before, after = HELD_OUT[port][int(at)]
            right = (HELD / f"{port}_port.py").read_text(encoding="utf-8")
            files = {file: (HELD / file).read_text(encoding="utf-8") for file in ("cases.py", f"{port}_source.py")}
            files |= {"case.py": HELD_CASE.format(port=port, kind=port.title())}
            yield half, name, {**files, f"{port}_port.py": spoiled(right, before, after)}, f"{port}_port.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="faults, comma-separated")
    parser.add_argument("--drawn", type=int, default=0, help="faults of either held-out half")
    arguments = parser.parse_args()
    only = [name for name in arguments.only.split(",") if name]
    kept = ROOT / "result" / "fix_faults.json"
    rows: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    state = state_of_sources()
    wanted = [*written_here(), *drawn(arguments.drawn)]
    for of, name, *given in wanted:
        if (only and name not in only) or rows.get(name, {}).get("state") == state:
            continue
        rows[name] = {**trial(*given), "of": of, "state": state}
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(json.dumps(rows), encoding="utf-8")
        print(name, *(rows[name].values() if of != "B" else ()), flush=True)
    if not only:
        PAGE.write_text(page([{**rows[name], "name": name} for _, name, *_ in wanted]), encoding="utf-8")


def page(rows: list[dict[str, Any]]) -> str:
    lines = []
    for of, words in _OF.items():
        some = [row for row in rows if row["of"] == of]
        counts = [sum(row[key] for row in some) for key in ("located", "repaired", "wrong")]
        if some:
            lines.append(
                f"**{words}: {len(some)}; {counts[0]} located, {counts[1]} repaired, {counts[2]} wrong edits.**"
            )
            lines.append("")
    lines += [
        "| fault | located | repaired | wrong edit | lines written | seconds |",
        "| --- | --- | --- | --- | --- | ---: |",
    ]
    for row in [row for row in rows if row["of"] != "B"]:
        words = " | ".join("yes" if row[key] else "no" for key in ("located", "repaired", "wrong"))
        lines.append(f"| {row['name']} | {words} | {row['edits'] or '–'} | {row['seconds']:.0f} |")
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
