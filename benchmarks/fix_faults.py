"""How many faults in a port's source `twinalign fix` repairs: `python benchmarks/fix_faults.py [--only NAME,…]`.

Each fault is one edit of the source of a small right port (`PORT`), written as the text before and after. `fix` is run
on the faulty source in a folder of its own. *Located*: the fault is named; *repaired*: aligned with the patch, exit
code 0. A repaired port is checked again by a plain `twinalign run`, in another process and with another seed: *wrong
edit* counts those that this run does not call aligned. Writes docs/fix.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "fix.md"

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


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tools"), str(folder)])}
    line = [sys.executable, "-m", "twinalign", *arguments]
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True)


def trial(before: str, after: str) -> tuple[bool, bool, bool, float, str]:
    """Located, repaired, wrong edit, seconds, and the edits or what is left."""
    if PORT.count(before) != 1:
        raise SystemExit(f"{before!r} stands {PORT.count(before)} times in the port")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in (("case.py", CASE), ("source.py", SOURCE), ("port.py", PORT.replace(before, after))):
            (folder / file).write_text(text, encoding="utf-8")
        started = time.perf_counter()
        done = command(folder, "fix", "case.py", "--write", "--json", "fix.json")
        seconds = time.perf_counter() - started
        if not (folder / "fix.json").exists():
            return False, False, False, seconds, done.stderr.strip().splitlines()[-1][:120]
        found = json.loads((folder / "fix.json").read_text(encoding="utf-8"))
        repaired, wrong = done.returncode == 0, False
        if repaired:
            again = command(folder, "run", "case.py", "--out", "again", "--set", "seed=4711", "--no-locate")
            wrong = again.returncode != 0
        changed = (folder / "port.py").read_text(encoding="utf-8").splitlines()
        before_lines = set(PORT.replace(before, after).splitlines())
        edits = "; ".join(f"`{line.strip()}`" for line in changed if line not in before_lines)
        return bool(found["edits"] or found["left"]), repaired, wrong, seconds, edits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="faults, comma-separated")
    only = [name for name in parser.parse_args().only.split(",") if name]
    rows, counts = [], [0, 0, 0]
    for name, (before, after) in FAULTS.items():
        if only and name not in only:
            continue
        *found, seconds, edits = trial(before, after)
        counts = [count + one for count, one in zip(counts, found, strict=True)]
        words = ["yes" if one else "no" for one in found]
        rows.append(f"| {name} | {words[0]} | {words[1]} | {words[2]} | {edits or '–'} | {seconds:.0f} |")
        print(rows[-1], flush=True)
        if not only:
            PAGE.write_text(page(rows, counts), encoding="utf-8")


def page(rows: list[str], counts: list[int]) -> str:
    located, repaired, wrong = counts
    return f"""# `twinalign fix`, measured

Written by `python benchmarks/fix_faults.py`, on a CPU. Each fault is planted in the source of a small port, one at a
time ([the port and the faults](../benchmarks/fix_faults.py)); *repaired* ports are run again in another process with
another seed, and a *wrong edit* is one that this run does not call aligned.

**{len(rows)} faults: {located} located, {repaired} repaired, {wrong} wrong edits.**

| fault | located | repaired | wrong edit | lines written | seconds |
| --- | --- | --- | --- | --- | ---: |
{chr(10).join(rows)}
"""


if __name__ == "__main__":
    main()
