"""The net for series of `series_source`, in paddle."""

import paddle
import paddle.nn as nn
import paddle.nn.functional as F


class Gated(nn.Layer):
    def __init__(self, width, dilation):
        super().__init__()
        self.dilation = dilation
        self.conv = nn.Conv1D(width, 2 * width, 3, dilation=dilation)
        self.skip = nn.Conv1D(width, width, 1)
        self.norm = nn.GroupNorm(2, width)

    def forward(self, x):
        padded = F.pad(x, [2 * self.dilation, 0], data_format="NCL")
        filtered, gate = paddle.chunk(self.conv(padded), 2, axis=1)
        done = F.tanh(filtered) * F.sigmoid(gate)
        skip = self.skip(done)
        return self.norm(x + skip) * 0.7071, skip


class Cell(nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.given = nn.Linear(width, 4 * width)
        self.kept = nn.Linear(width, 4 * width, bias_attr=False)
        self.peep = self.create_parameter([width])

    def forward(self, x, state, memory):
        gates = self.given(x) + self.kept(state)
        i, f, g, o = gates.chunk(4, axis=-1)
        memory = F.sigmoid(f + 1.0) * memory + F.sigmoid(i) * F.tanh(g)
        state = F.sigmoid(o + self.peep * memory) * F.tanh(memory)
        return state, memory


class Codebook(nn.Layer):
    def __init__(self, count, width):
        super().__init__()
        self.codes = self.create_parameter([count, width])
        self.register_buffer("used", paddle.ones([count]))

    def forward(self, x):
        apart = x.square().sum(-1, keepdim=True) - 2.0 * x @ self.codes.t() + self.codes.square().sum(-1)
        which = apart.argmin(-1)
        chosen = F.embedding(which, self.codes)
        if self.training:
            counts = F.one_hot(which, self.codes.shape[0]).astype(x.dtype).sum((0, 1))
            self.used.set_value(self.used * 0.9 + counts * 0.1)
        commit = F.mse_loss(x, chosen.detach()) * 0.25 + F.mse_loss(chosen, x.detach())
        return x + (chosen - x).detach(), commit


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.enter = nn.Conv1D(3, 6, 1)
        self.near, self.far = Gated(6, 1), Gated(6, 2)
        self.cell = Cell(6)
        self.codes = Codebook(5, 6)
        self.head = nn.Linear(12, 2)

    def forward(self, x, parts, lengths):
        x = F.leaky_relu(self.enter(x), 0.1)
        x, one = self.near(x)
        x, two = self.far(x)
        steps = F.relu(one + two).transpose([0, 2, 1])
        count = paddle.arange(1, steps.shape[1] + 1).astype(x.dtype)
        x = x.transpose([0, 2, 1]) + paddle.cumsum(steps, axis=1) / count[:, None]
        x, commit = self.codes(x)
        state = memory = paddle.zeros_like(x[:, 0])
        kept = []
        for step in range(x.shape[1]):
            state, memory = self.cell(x[:, step], state, memory)
            kept.append(state)
        kept = paddle.stack(kept, axis=1)
        last = paddle.take_along_axis(kept, (lengths - 1)[:, None, None].expand([-1, 1, kept.shape[-1]]), 1).squeeze(1)
        sums = paddle.zeros([x.shape[0], 3, x.shape[-1]], dtype=x.dtype)
        places = parts.unsqueeze(-1).expand([-1, -1, x.shape[-1]])
        sums = paddle.put_along_axis(sums, places, kept, 1, reduce="add")
        return self.head(paddle.concat([last, sums.max(1)], axis=-1)), commit


def loss(outputs, inputs):
    """Pinball and Huber losses of the first outputs, a rank loss of the second, and the codebook's."""
    values, commit = outputs
    apart = inputs["wanted"] - values[:, 0]
    pinball = paddle.maximum(0.9 * apart, (0.9 - 1.0) * apart)
    huber = F.smooth_l1_loss(values[:, 0], inputs["wanted"], delta=0.5) / 0.5
    order = values[:, None, 1] - values[None, :, 1]
    right = paddle.sign(inputs["wanted"][:, None] - inputs["wanted"][None, :])
    rank = F.softplus(-right * order).triu(1).sum() / 3.0
    return pinball.mean() + huber + 0.5 * rank + commit
