"""Batch normalisation of the projection heads, the convolutional stem and the ResNets.

paddle's own layers, and their variants whose statistics cover the batches of all ranks.
"""

# diff: paddle's own layers keep other running statistics than torch's. The layers here subclass them, so that parameter
# and buffer names stay paddle's (`weight`, `bias`, `_mean`, `_variance`), and replace only how the statistics move.

from __future__ import annotations

import math

import paddle
from paddle import Tensor, nn
from paddle.nn import functional as F

from moco_paddle.distributed import sum_over_ranks, world_size

__all__ = ["BatchNorm1D", "BatchNorm2D", "synchronise_batch_norm"]


def synchronise_batch_norm(model: nn.Layer) -> nn.Layer:
    """Let the batch norms of `model` normalise by the statistics of all ranks' batches together, in training.

    The layers change their class; names of parameters and buffers stay. Returns the model.
    """
    # diff: on a GPU too; paddle.nn.SyncBatchNorm moves the running variance by the biased batch variance.
    for layer in model.sublayers(include_self=True):
        if type(layer) in _SYNCHRONISED:
            layer.__class__ = _SYNCHRONISED[type(layer)]
    return model


class _UnbiasedRunningVariance:
    """Mixin over a paddle batch-norm layer: the running statistics move as torch's do.

    `running = momentum * running + (1 - momentum) * batch`, with paddle's sense of `momentum` (0.9, torch's 0.1).
    """

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `x`, `[N, C]` or `[N, C, H, W]`, in the layer's dtype, by the batch or the running statistics.

        Raises:
            ValueError: in training, with one value per channel and hence no variance.
        """
        self._check_input_dim(x)
        # diff: paddle's kernel rounds its epsilon to float32. Batch norm of c x with c² epsilon is that of x with
        # epsilon, and c makes it a power of two, which is not rounded. (In float32 there is nothing to correct.)
        scale, epsilon = 1.0, self._epsilon
        if x.dtype == paddle.float64:
            epsilon = 2.0 ** round(math.log2(self._epsilon))
            scale = math.sqrt(epsilon / self._epsilon)
            x = x * scale
        options = {"weight": self.weight, "bias": self.bias, "epsilon": epsilon}
        if not self.training:
            return F.batch_norm(x, self._mean * scale, self._variance * scale**2, training=False, **options)
        count = x.size // x.shape[1]
        # diff: paddle returns a batch with one value per channel unchanged; torch refuses it.
        if count == 1:
            raise ValueError(f"Expected more than 1 value per channel when training, got input size {list(x.shape)}")
        # diff: paddle's kernel rounds its momentum to float32 and moves the running variance by the biased batch
        # variance. With a momentum of 0, which is exact, it hands out the batch statistics, and the update is ours.
        mean, variance = paddle.zeros_like(self._mean), paddle.zeros_like(self._variance)
        y = F.batch_norm(x, mean, variance, training=True, momentum=0.0, **options)
        with paddle.no_grad():
            mean, variance = mean / scale, variance / scale**2 * (count / (count - 1))
            self._mean.set_value(self._mean * self._momentum + mean * (1 - self._momentum))
            self._variance.set_value(self._variance * self._momentum + variance * (1 - self._momentum))
        return y


class BatchNorm1D(_UnbiasedRunningVariance, nn.BatchNorm1D):
    """Batch norm over `[N, C]` with torch's running statistics."""


class BatchNorm2D(_UnbiasedRunningVariance, nn.BatchNorm2D):
    """Batch norm over `[N, C, H, W]` with torch's running statistics."""


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
        own = paddle.full([1], x.size // x.shape[1], dtype=x.dtype)
        sums = sum_over_ranks(paddle.concat([x.sum(axis=axes), own]))
        count = float(sums[-1].detach())
        if count <= 1:
            raise ValueError(f"Expected more than 1 value per channel when training, got input size {list(x.shape)}")
        mean = sums[:-1] / count
        centred = x - mean.reshape(shape)
        variance = sum_over_ranks((centred * centred).sum(axis=axes)) / count
        y = centred * paddle.rsqrt(variance + self._epsilon).reshape(shape)
        if self.weight is not None:
            y = y * self.weight.reshape(shape) + self.bias.reshape(shape)
        with paddle.no_grad():
            # diff: paddle's momentum is one minus torch's.
            unbiased = variance * (count / (count - 1))
            self._mean.set_value(self._mean * self._momentum + mean * (1 - self._momentum))
            self._variance.set_value(self._variance * self._momentum + unbiased * (1 - self._momentum))
        return y


class _BatchNorm1DOverRanks(_OverRanks, BatchNorm1D):
    pass


class _BatchNorm2DOverRanks(_OverRanks, BatchNorm2D):
    pass


_SYNCHRONISED = {BatchNorm1D: _BatchNorm1DOverRanks, BatchNorm2D: _BatchNorm2DOverRanks}
