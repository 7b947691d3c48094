import paddle
from paddle import nn
from paddle.nn import functional as F


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2D(3, 8, 3, stride=2, padding=1, padding_mode="reflect")
        self.bn = nn.BatchNorm2D(8, epsilon=1e-3, momentum=0.8)
        self.mix = nn.Conv2D(8, 8, 3, padding=2, dilation=2, groups=2)
        self.gn = nn.GroupNorm(4, 8, epsilon=1e-4)
        self.pool = nn.AvgPool2D(3, stride=2, padding=1, ceil_mode=True, exclusive=True)
        self.norm = nn.LayerNorm(8, epsilon=1e-6)
        self.rise = nn.Linear(8, 16)
        self.act = nn.GELU(approximate=True)
        self.fall = nn.Linear(16, 8)
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        x = F.silu(self.bn(self.stem(x)))
        x = F.leaky_relu(self.gn(self.mix(x)), negative_slope=0.2)
        x = self.pool(x).flatten(2).transpose([0, 2, 1])
        x = x + self.fall(self.act(self.rise(self.norm(x))))
        weights = F.softmax(x, axis=1)
        return self.head((weights * x).sum(1))


def loss(outputs, labels):
    return F.cross_entropy(outputs, labels, label_smoothing=0.1)


def optimizer(parameters):
    return paddle.optimizer.AdamW(1e-3, parameters=parameters, beta1=0.9, beta2=0.95, epsilon=1e-6, weight_decay=0.05)
