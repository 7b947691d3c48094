"""Lines of ports and what paddle gives for them: run as `python paddle_expressions.py OUTPUTS.npz`, without torch."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

EXPRESSIONS = [
    "paddle.concat([x, y], 1)",
    "paddle.concat(x=[x, y], axis=-1)",
    "paddle.stack([x, y], axis=2)",
    "x.transpose([0, 2, 1])",
    "paddle.transpose(x, perm=[2, 0, 1])",
    "x.reshape([0, -1])",
    "x.reshape([2, 3, 2, -1]).flatten(1, 2)",
    "x.flatten(1)",
    "x.sum(1)",
    "paddle.median(x)",
    "x.median(axis=1)",
    "x[:, :2].median(1, keepdim=True)",
    "paddle.median(x, keepdim=True)",
    "paddle.median(x, mode='min')",
    "paddle.median(x, axis=2, mode='min')[0]",
    "x.sum(axis=(0, 2), keepdim=True)",
    "x.mean(-1, keepdim=True)",
    "paddle.mean(x)",
    "x.max(1)",
    "x.max()",
    "x.amin((1, 2))",
    "x.std(1)",
    "x.var(axis=[1, 2], unbiased=False, keepdim=True)",
    "x.norm(axis=-1)",
    "paddle.norm(x, p=1, axis=1)",
    "paddle.logsumexp(x, axis=-1)",
    "x.prod(1)",
    "x.cumsum(1)",
    "paddle.cumsum(x)",
    "paddle.argmax(x, axis=1).astype(x.dtype)",
    "x.argsort(-1, descending=True).astype('float64')",
    "paddle.sort(x, axis=1)",
    "x.topk(2, axis=1)[0]",
    "paddle.topk(x, 2)[1].astype('float64')",
    "x.split(2, axis=2)[1]",
    "paddle.split(x, [1, -1], 1)[1]",
    "x.chunk(2, 2)[0]",
    "x.unbind(1)[2]",
    "x.unsqueeze([0, 2]).squeeze(0)",
    "x.tile([1, 2, 1])",
    "x.unsqueeze(1).expand([-1, 2, -1, -1])",
    "paddle.broadcast_to(x[:, :1], [2, 3, 4])",
    "x.repeat_interleave(2, axis=1)",
    "paddle.roll(x, shifts=(1, -1), axis=(1, 2))",
    "paddle.flip(x, [1])",
    "paddle.flip(x, axis=2)",
    "paddle.matmul(x, y, transpose_y=True)",
    "paddle.einsum('abc,adc->abd', x, y)",
    "x.abs() ** 0.7",
    "paddle.pow(x.abs(), 1.3)",
    "2.0 ** x",
    "x.clip(-0.5, 0.5)",
    "paddle.clip(x, min=0.1)",
    "paddle.where(x > 0.0, x, y)",
    "x.masked_fill(x > 0.5, -3.0)",
    "paddle.take_along_axis(x, i, 1)",
    "paddle.put_along_axis(x, i, y[:, :1], 1)",
    "paddle.put_along_axis(x, i, y[:, :1], 1, reduce='add')",
    "paddle.gather(x, j, axis=1)",
    "paddle.index_select(x, j, axis=2)",
    "paddle.gather_nd(x, paddle.to_tensor([[0, 1], [1, 2]]))",
    "paddle.scatter(x[0], j, y[1, :2])",
    "paddle.scatter(x[0], j, y[1, :2], overwrite=False)",
    "paddle.scatter_nd_add(x[0], j.unsqueeze(-1), y[1, :2])",
    "paddle.norm(x[0])",
    "paddle.norm(x, axis=[1, 2])",
    "paddle.norm(x, p='fro', axis=[1, 2])",
    "F.one_hot(j, 4)",
    "F.embedding(j, x[0])",
    "F.softmax(x)",
    "F.softmax(x, axis=1)",
    "F.log_softmax(x, -1)",
    "F.gelu(x)",
    "F.gelu(x, approximate=True)",
    "F.silu(x)",
    "F.swish(x)",
    "F.log_sigmoid(x)",
    "F.thresholded_relu(x, 0.4)",
    "F.square_error_cost(x, y)",
    "paddle.mod(x, y.abs() + 0.5)",
    "paddle.add_n([x, y])",
    "paddle.unstack(x, axis=1)[0]",
    "paddle.greater_than(x, y).astype(x.dtype)",
    "x.floor_mod(y.abs() + 0.5)",
    "paddle.fft.fft(x).real()",
    "paddle.fft.fft(x, axis=1, norm='ortho').imag()",
    "paddle.fft.irfft(paddle.conj(paddle.fft.rfft(x)), n=5)",
    "paddle.real(paddle.as_complex(x.reshape([2, 3, 2, 2])) * paddle.complex(x[:, :, :2], y[:, :, :2]))",
    "F.elu(x, 0.7)",
    "F.softshrink(x, threshold=0.3)",
    "F.hardshrink(x, 0.3)",
    "F.layer_norm(x * 1e-3, [4])",
    "F.celu(x, alpha=0.7)",
    "F.leaky_relu(x, 0.2)",
    "F.hardsigmoid(x)",
    "F.hardsigmoid(x, slope=1 / 6)",
    "F.hardswish(x)",
    "F.hardtanh(x, -0.7, 0.7)",
    "F.softplus(x, beta=2.0)",
    "F.glu(x)",
    "F.normalize(x)",
    "F.normalize(x, p=1, axis=-1)",
    "F.cosine_similarity(x, y, axis=-1)",
    "F.linear(x, y[0].t())",
    "F.layer_norm(x, [4], epsilon=0.001)",
    "F.pad(x, [1, 2])",
    "F.pad(x.unsqueeze(0), [1, 2, 0, 1], value=0.5)",
    "F.pad(x.unsqueeze(0), [1, 1, 1, 1], mode='reflect')",
    "F.avg_pool2d(x.unsqueeze(0), 2, 1, 1)",
    "F.avg_pool2d(x.unsqueeze(0), 2, 1, 1, exclusive=False)",
    "F.max_pool2d(x.unsqueeze(0), 2, 1)",
    "F.adaptive_avg_pool2d(x.unsqueeze(0), 1)",
    "F.unfold(x.unsqueeze(0), 2, strides=1, paddings=1)",
    "F.pixel_shuffle(x.reshape([1, 4, 3, 2]), 2)",
    "F.interpolate(x.unsqueeze(0), scale_factor=2)",
    "F.interpolate(x.unsqueeze(0), size=[6, 8], mode='bilinear')",
    "F.scaled_dot_product_attention(x.unsqueeze(0), y.unsqueeze(0), x.unsqueeze(0), is_causal=True)",
    "F.cross_entropy(x[:, 0], k)",
    "F.cross_entropy(x[:, 0], k.unsqueeze(-1), reduction='sum')",
    "F.cross_entropy(x, F.softmax(y), soft_label=True)",
    "F.mse_loss(x, y, reduction='sum')",
    "F.l1_loss(x, y)",
    "F.smooth_l1_loss(x, y, delta=0.7)",
    "F.kl_div(F.log_softmax(x), F.softmax(y), reduction='batchmean')",
    "F.binary_cross_entropy_with_logits(x, F.sigmoid(y), pos_weight=x[0].abs())",
    "F.binary_cross_entropy(F.sigmoid(x), F.sigmoid(y))",
    "F.nll_loss(F.log_softmax(x[:, 0]), k)",
    "x * paddle.tril(paddle.ones([3, 4]), diagonal=1)",
    "paddle.full([2, 2], 0.3)",
    "paddle.full_like(x, 0.3)",
    "paddle.eye(3, dtype=x.dtype)",
    "paddle.arange(1, 4).astype(x.dtype)",
    "paddle.linspace(0, 1, 5)",
    "paddle.meshgrid(paddle.arange(2.0), paddle.arange(3.0))[1]",
    "paddle.multiply(x, y) - paddle.divide(x, y) + paddle.subtract(x, y)",
    "paddle.maximum(x, y) * paddle.less_than(x, y).astype('float64')",
    "paddle.rsqrt(x.square() + 0.1)",
    "x / x.shape[-1] + len(x.shape) * x.ndim",
    "x.size * paddle.sign(x)",
    "paddle.outer(x[0, 0], y[0, 0])",
    "paddle.any(x > 1.0, axis=1).astype('float64')",
    "paddle.logical_and(x > 0.0, y > 0.0).astype('float64')",
    "x.astype('float32').astype('float64')",
    "paddle.as_real(paddle.as_complex(x.reshape([2, 3, 2, 2])) * 2.0)",
    "paddle.fft.rfft(x, norm='ortho').abs()",
    "F.ctc_loss(x.transpose([1, 0, 2]), k.unsqueeze(-1).astype('int32') + 1, j[:1].expand([2]) * 0 + 3, k * 0 + 1)",
    "F.ctc_loss(x.transpose([1, 0, 2]), k.astype('int32')[:, None] + 1, 0 * k + 3, k * 0 + 1, norm_by_times=True)",
    "paddle.assign(x).detach().clone()",
]

LAYERS = [
    "nn.Identity()",
    "nn.LayerNorm(4, weight_attr=False, bias_attr=False)",
    "nn.InstanceNorm1D(3)",
    "nn.BatchNorm1D(3)",
    "nn.GroupNorm(3, 3)",
    "nn.AvgPool1D(3, 2, 1)",
    "nn.AvgPool1D(3, 2, 1, exclusive=False)",
    "nn.MaxPool1D(2)",
    "nn.AdaptiveAvgPool1D(2)",
    "nn.AdaptiveMaxPool1D(1)",
    "nn.Upsample(scale_factor=2, mode='linear', data_format='NCW')",
    "nn.Pad1D([1, 2], mode='reflect')",
    "nn.LocalResponseNorm(3)",
    "nn.Flatten()",
    "nn.Flatten(0, 1)",
    "nn.Softmax(1)",
    "nn.GLU()",
    "nn.GELU(True)",
    "nn.ELU(0.5)",
    "nn.CELU(0.5)",
    "nn.LeakyReLU(0.2)",
    "nn.Hardtanh(-0.5, 0.7)",
    "nn.Softplus(2.0)",
    "nn.Hardshrink()",
    "nn.Hardsigmoid()",
    "nn.Hardswish()",
    "nn.Silu()",
    "nn.Swish()",
    "nn.ReLU6()",
    "nn.Tanhshrink()",
    "nn.LogSigmoid()",
]


def arrays() -> dict[str, np.ndarray]:
    """What the lines are given: `x` and `y` of [2, 3, 4], `i`, `j` and `k` of indices."""
    rng = np.random.default_rng(5)
    x, y = rng.standard_normal((2, 2, 3, 4))
    i = np.array([[[2, 0, 1, 1]], [[0, 2, 2, 1]]])
    return {"x": x, "y": y, "i": i, "j": np.array([2, 0]), "k": np.array([3, 1])}


def main() -> None:
    """Write what paddle gives for each line, and for each layer of `x`, with the layers' classes and settings."""
    import paddle
    from paddle import nn
    from paddle.nn import functional as F

    from twinalign.backends.paddle.port_only.kernels import make_float64_exact
    from twinalign.replay.layers import facts_of

    make_float64_exact()  # as a side of the search has them
    paddle.set_default_dtype("float64")
    given: dict[str, Any] = {name: paddle.to_tensor(value) for name, value in arrays().items()}
    results = [eval(text, {"paddle": paddle, "F": F, **given}) for text in EXPRESSIONS]
    layers = [eval(text, {"nn": nn}) for text in LAYERS]
    results += [layer(given["x"]) for layer in layers]
    facts = json.dumps([(type(layer).__name__, facts_of(layer)) for layer in layers])
    np.savez(sys.argv[1], *[result.numpy() for result in results], facts=facts)


if __name__ == "__main__":
    main()
