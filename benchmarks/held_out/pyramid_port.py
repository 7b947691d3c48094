"""The net of `pyramid_source`, in paddle."""

import paddle
from paddle import nn
from paddle.nn import functional as F


class Squeeze(nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.fall = nn.Conv2D(width, width // 2, 1)
        self.rise = nn.Conv2D(width // 2, width, 1)

    def forward(self, x):
        pooled = x.mean((2, 3), keepdim=True)
        return x * F.hardsigmoid(self.rise(F.relu(self.fall(pooled))), slope=1 / 6, offset=0.5)


class Unit(nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.BatchNorm2D(width)
        self.deep = nn.Conv2D(width // 2, width // 2, 3, padding=1, groups=width // 2)
        self.excite = Squeeze(width)

    def forward(self, x):
        kept, worked = self.norm(x).chunk(2, 1)
        both = paddle.concat([kept, F.leaky_relu(self.deep(worked), 0.2)], 1)
        batch, width, high, wide = both.shape
        both = both.reshape([batch, 2, width // 2, high, wide]).transpose([0, 2, 1, 3, 4]).reshape(both.shape)
        return x + self.excite(both)


class Pyramid(nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.side = nn.Conv2D(width, width, 1)
        self.smooth = nn.Conv2D(width, width, 3, padding=1)

    def forward(self, fine, coarse):
        raised = F.interpolate(coarse, size=fine.shape[2:], mode="bilinear", align_corners=False)
        merged = self.side(fine) + raised
        merged = F.pad(merged, [1, 0, 1, 0], mode="reflect")[:, :, 1:, 1:]
        return self.smooth(merged)


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2D(3, 8, 3, padding=1)
        self.unit = Unit(8)
        self.pyramid = Pyramid(8)
        self.head = nn.Linear(24, 4)

    def forward(self, x):
        x = (x - x.mean((2, 3), keepdim=True)) / (x.std((2, 3), keepdim=True, unbiased=False) + 1e-3)
        fine = F.relu6(self.stem(x) * 3.0)
        coarse = self.unit(F.max_pool2d(fine, 3, 2, 1))
        merged = self.pyramid(fine, coarse)
        peak = merged.amax((2, 3))
        mean = F.avg_pool2d(merged, 2).mean((2, 3))
        energy = merged.flatten(2).norm(axis=-1) / 4.0
        return self.head(paddle.concat([peak, mean, energy], 1))


def loss(outputs, inputs):
    """A focal loss and a margin between the right class and the best other one."""
    target = F.one_hot(inputs["labels"], 4).astype(outputs.dtype)
    chances = F.softmax(outputs, 1)
    right = (chances * target).sum(1)
    focal = -((1.0 - right) ** 2) * paddle.log(right + 1e-6)
    other = (outputs - 100.0 * target).amax(1)
    margin = F.relu(0.5 + other - (outputs * target).sum(1))
    return focal.mean() + 0.25 * margin.mean()
