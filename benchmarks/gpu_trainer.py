"""A trainer that twinalign must not touch, for benchmarks/gpu.py: `python gpu_trainer.py cuda` or `cpu`."""

from __future__ import annotations

import sys

import torch
from torch import nn


def train(device: str, steps: int = 5) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.GELU(), nn.Flatten(), nn.Linear(16 * 36, 10))
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        images = torch.randn(16, 3, 8, 8, generator=generator).to(device)
        labels = torch.randint(0, 10, (16,), generator=generator).to(device)
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


train(sys.argv[1])
