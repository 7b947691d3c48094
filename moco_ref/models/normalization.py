"""Batch normalisation of the projection heads, the convolutional stem and the ResNets.

torch's own layers, and their variants whose statistics cover the batches of all ranks.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import BatchNorm1d, BatchNorm2d

from moco_ref.distributed import sum_over_ranks, world_size

__all__ = ["BatchNorm1d", "BatchNorm2d", "synchronise_batch_norm"]


def synchronise_batch_norm(model: nn.Module) -> nn.Module:
    """Let the batch norms of `model` normalise by the statistics of all ranks' batches together, in training.

    On a GPU torch's own layer takes their place (`torch.nn.SyncBatchNorm`, which has no CPU kernel), on a CPU the
    layers change their class; names of parameters and buffers stay. Returns the model.
    """
    if next(iter(model.parameters())).is_cuda:
        return nn.SyncBatchNorm.convert_sync_batchnorm(model)
    for layer in model.modules():
        if type(layer) in _SYNCHRONISED:
            layer.__class__ = _SYNCHRONISED[type(layer)]
    return model


class _OverRanks:
    """Mixin over a batch-norm layer: mean and variance are those of all ranks' batches, with gradient across them."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `x`, `[N, C]` or `[N, C, H, W]`, where N may differ between the ranks.

        The gradient is that of the sum of all ranks' losses, which data-parallel training then divides by the ranks.

        Raises:
            ValueError: in training, if all ranks together have one value per channel and hence no variance.
        """
        if not self.training or world_size() == 1:
            return super().forward(x)
        self._check_input_dim(x)
        axes = [axis for axis in range(x.ndim) if axis != 1]
        shape = [-1 if axis == 1 else 1 for axis in range(x.ndim)]
        own = x.new_full((1,), x.numel() // x.shape[1])
        sums = sum_over_ranks(torch.cat([x.sum(dim=axes), own]))
        count = float(sums[-1].detach())
        if count <= 1:
            raise ValueError(f"Expected more than 1 value per channel when training, got input size {list(x.shape)}")
        mean = sums[:-1] / count
        centred = x - mean.reshape(shape)
        variance = sum_over_ranks((centred * centred).sum(dim=axes)) / count
        y = centred * torch.rsqrt(variance + self.eps).reshape(shape)
        if self.affine:
            y = y * self.weight.reshape(shape) + self.bias.reshape(shape)
        with torch.no_grad():
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * (count / (count - 1)), self.momentum)
        return y


class _BatchNorm1dOverRanks(_OverRanks, BatchNorm1d):
    pass


class _BatchNorm2dOverRanks(_OverRanks, BatchNorm2d):
    pass


_SYNCHRONISED = {BatchNorm1d: _BatchNorm1dOverRanks, BatchNorm2d: _BatchNorm2dOverRanks}
