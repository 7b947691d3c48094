"""What attaching costs a training step: numbers alone, and whole tensors of every step."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROGRAM = """
import contextlib, json, statistics, sys, tempfile, time
import numpy as np
import twinalign
framework, out = sys.argv[1:]
if framework == "torch":
    import torch
    from tests.cases.attached.torch_trainer import Model
    torch.set_num_threads(1)
    model = Model(width=256, depth=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tensor, clear = torch.from_numpy, optimizer.zero_grad
else:
    import paddle
    from tests.cases.attached.paddle_trainer import Model
    model = Model(width=256, depth=4)
    optimizer = paddle.optimizer.AdamW(1e-3, parameters=model.parameters())
    tensor, clear = paddle.to_tensor, optimizer.clear_grad
tokens = tensor(np.random.RandomState(0).randint(0, 40, (16, 64)))
def step():
    start = time.process_time()
    (model(tokens) ** 2).mean().backward()
    optimizer.step()
    clear()
    return time.process_time() - start
for _ in range(5):
    step()
median = statistics.median
plain, ratios = [], {"numbers": [], "whole": []}
for kind, steps, turns in (("numbers", (), 9), ("whole", range(100), 3)):
    for turn in range(turns):
        without = [step() for _ in range(3)]
        with twinalign.attach(model, optimizer, out=out, steps=steps):
            step()
            ratios[kind].append(median([step() for _ in range(3)]) / median(without))
        plain += without
import os
size = os.path.getsize(f"{out}/step000001.npz")
data = bytes(size)
start = time.process_time()
with open(f"{out}/bytes", "wb") as file:
    file.write(data); file.flush()
write = time.process_time() - start
found = {kind: median(of_kind) for kind, of_kind in ratios.items()}
found |= {"plain": median(plain), "write": write, "bytes": size}
print(json.dumps(found))
"""


def cost_lines() -> list[str]:
    """A Markdown table with the step's time without and with recording."""
    lines = [
        "## What it costs",
        "",
        "Four blocks of width 256, batches of 16 × 64 tokens, AdamW, one thread of a shared CPU. Processor time,",
        "three steps with recording over the three before them, medians of 9 and 3 such ratios; whole tensors are",
        "gradients, weights and moments.",
        "",
        "| framework | step | with numbers | with whole tensors | bytes of a step | to write these bytes |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for framework in ("torch", "paddle"):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-c", PROGRAM, framework, str(Path(folder) / "out")]
            finished = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        found = json.loads(finished.stdout.splitlines()[-1])
        times = f"{1e3 * found['plain']:.1f} ms | {found['numbers']:.3f} × | {found['whole']:.2f} ×"
        lines.append(f"| {framework} | {times} | {found['bytes'] / 1e6:.0f} MB | {1e3 * found['write']:.0f} ms |")
    return lines
