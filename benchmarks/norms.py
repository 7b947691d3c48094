"""Norms of vectors in float32 on a CPU: the error of each framework's operators, and the time they take.

    OMP_NUM_THREADS=2 python benchmarks/norms.py

`paddle.linalg.norm`, and so `paddle.nn.utils.clip_grad_norm_`, adds one square after the other, and rounds away small
terms in a sum of millions; LARS divides by such norms. `squared_l2_norm`, which `ClipGradByGlobalNorm` takes and so
does `moco_paddle.training.optimizer`, adds in a tree. The errors are measured against numpy in float64.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import torch

from moco_paddle.training.optimizer import euclidean_norm

SIZES = (1 << 10, 1 << 14, 1 << 18, 1 << 21, 1 << 23, 1 << 25)
REPEATS = 7


def median_seconds(work: Callable[[], Any]) -> float:
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        float(work())
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    print("| elements | operator | relative error | time over paddle.linalg.norm's |")
    print("| --- | --- | --- | --- |")
    for size in SIZES:
        values = np.random.default_rng(0).standard_normal(size).astype(np.float32)
        exact = np.linalg.norm(values.astype(np.float64))
        of_torch, of_paddle = torch.from_numpy(values), paddle.to_tensor(values)
        operators: dict[str, Callable[[], Any]] = {
            "paddle.linalg.norm": lambda x=of_paddle: paddle.linalg.norm(x),
            "squared_l2_norm, root": lambda x=of_paddle: euclidean_norm(x),
            "torch.linalg.vector_norm": lambda x=of_torch: torch.linalg.vector_norm(x),
        }
        base = None
        for name, work in operators.items():
            error = float(work()) / exact - 1
            seconds = median_seconds(work)
            base = base or seconds
            print(f"| {size} | `{name}` | {error:+.1e} | {seconds / base:.2f} |", flush=True)


if __name__ == "__main__":
    main()
