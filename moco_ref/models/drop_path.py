"""Drop path, or stochastic depth (Huang et al., arXiv 1603.09382): residual branches that are left out at random.

A branch is left out for each sample independently, and scaled up where it is kept, so that its expectation stays the
same. The draws depend on epoch and iteration alone and are made before the step: a run resumes to the bit, both twins
leave out the same branches, and several ranks leave out those that one process would.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from moco_common.data.samplers import places_of_rank
from moco_common.images.augmentation import addressed_uniforms
from moco_ref.distributed import rank, world_size

_VIEW = 7
"""Place among the views (`moco_common.images.training_augmentation` lists them). An iteration stands for a sample."""


class DropPath(nn.Module):
    """The end of a residual branch; it has no parameters.

    Attributes:
        rate: chance that a sample's branch is left out.
        factors: what this step's samples are multiplied by, 0 or 1 / (1 - rate), `[N]` float64; None before any draw.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.factors: np.ndarray | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return `x`, `[N, …]`, times the drawn factors in training, as it is in evaluation.

        Raises:
            RuntimeError: in training, without draws for as many samples.
        """
        if not self.training:
            return x
        if self.factors is None or len(self.factors) != x.shape[0]:
            raise RuntimeError(f"drop path: nothing is drawn for {x.shape[0]} samples; call draw_paths before the step")
        factors = torch.from_numpy(self.factors).to(x.device, x.dtype)
        return x * factors.reshape([-1] + [1] * (x.ndim - 1))


def drop_path_rates(rate: float, depth: int) -> list[float]:
    """Return the rates of `depth` blocks, rising linearly from 0 to `rate`.

    Raises:
        ValueError: `rate` is not from 0 to below 1.
    """
    if not 0 <= rate < 1:
        raise ValueError(f"--drop-path: must be from 0 to below 1, got {rate}")
    return [float(value) for value in np.linspace(0, rate, depth)]


def build_drop_path(rate: float) -> DropPath | None:
    """Return the drop path of a branch; for a rate of 0, which needs no layer, None."""
    return DropPath(rate) if rate else None


def dropped(path: DropPath | None, x: Tensor) -> Tensor:
    """Return a branch's output after its drop path, if it has one."""
    return x if path is None else path(x)


def draw_paths(model: nn.Module, samples: int, seed: int, epoch: int, iteration: int) -> None:
    """Draw which branches of `model` are left out in a step.

    Args:
        model: perhaps with drop paths in it.
        samples: the number in this rank's batch, which is the same on every rank.
        seed, epoch, iteration: the address of the draws.
    """
    paths = [layer for layer in model.modules() if isinstance(layer, DropPath)]
    if not paths:
        return
    total = samples * world_size()
    uniforms = addressed_uniforms(seed, epoch, iteration, _VIEW, total * len(paths)).reshape(total, len(paths))
    own = uniforms[places_of_rank(total, rank(), world_size())]
    for path, column in zip(paths, own.T, strict=True):
        path.factors = (column >= path.rate) / (1 - path.rate)
