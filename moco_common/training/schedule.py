"""Learning rate and MoCo momentum, both as functions of the fractional epoch (arXiv 2104.02057, section 5)."""

from __future__ import annotations

import math
from typing import Any


def learning_rate_at(epoch: float, args: Any) -> float:
    """Return the learning rate at `epoch` (epoch + iteration / iterations): linear warm-up, then half a cosine.

    `args` has `lr` (the peak, scaled by the batch size already), `warmup_epochs` and `epochs`. The first iteration of
    a run with warm-up has the rate 0.
    """
    if epoch < args.warmup_epochs:
        return args.lr * epoch / args.warmup_epochs
    progress = (epoch - args.warmup_epochs) / (args.epochs - args.warmup_epochs)
    return args.lr * 0.5 * (1.0 + math.cos(math.pi * progress))


def adjust_moco_momentum(epoch: float, args: Any) -> float:
    """Return the MoCo momentum at `epoch`: a cosine from `args.moco_m` at the start to 1 at `args.epochs`."""
    return 1.0 - 0.5 * (1.0 + math.cos(math.pi * epoch / args.epochs)) * (1.0 - args.moco_m)
