"""Batch normalisation of the projection heads, the convolutional stem and the ResNets.

paddle's own layers keep other running statistics than torch's. The layers here subclass them, so that parameter and
buffer names stay paddle's (`weight`, `bias`, `_mean`, `_variance`), and replace only the update of the statistics.
"""

from __future__ import annotations

import math

import paddle
from paddle import Tensor, nn
from paddle.nn import functional as F

__all__ = ["BatchNorm1D", "BatchNorm2D"]


class _UnbiasedRunningVariance:
    """Mixin over a paddle batch-norm layer: the running statistics move as torch's do.

    `running = momentum * running + (1 - momentum) * batch`, with paddle's sense of `momentum` (0.9, torch's 0.1).
    """

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `x`, `[N, C]` or `[N, C, H, W]`, in the layer's dtype, by the batch or the running statistics.

        Raises:
            ValueError: in training, where there is one value a channel and hence no variance.
        """
        self._check_input_dim(x)
        # diff: paddle's kernel rounds its epsilon to float32. Batch norm of c x with c² epsilon is that of x with
        # epsilon, and a power of two survives the rounding: c makes it one. (In float32 there is nothing to mend.)
        scale, epsilon = 1.0, self._epsilon
        if x.dtype == paddle.float64:
            epsilon = 2.0 ** round(math.log2(self._epsilon))
            scale = math.sqrt(epsilon / self._epsilon)
            x = x * scale
        options = {"weight": self.weight, "bias": self.bias, "epsilon": epsilon}
        if not self.training:
            return F.batch_norm(x, self._mean * scale, self._variance * scale**2, training=False, **options)
        count = x.size // x.shape[1]
        # diff: paddle hands a batch with one value a channel through unchanged; torch refuses it.
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
