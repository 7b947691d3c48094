"""A small net for series: gated causal convolutions, a recurrent cell, a codebook, sums over parts; in torch."""

import torch
from torch import nn
from torch.nn import functional as F


class Gated(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.dilation = dilation
        self.conv = nn.Conv1d(width, 2 * width, 3, dilation=dilation)
        self.skip = nn.Conv1d(width, width, 1)
        self.norm = nn.GroupNorm(2, width)

    def forward(self, x):
        padded = F.pad(x, (2 * self.dilation, 0))
        filtered, gate = self.conv(padded).chunk(2, 1)
        done = torch.tanh(filtered) * torch.sigmoid(gate)
        skip = self.skip(done)
        return self.norm(x + skip) * 0.7071, skip


class Cell(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.given = nn.Linear(width, 4 * width)
        self.kept = nn.Linear(width, 4 * width, bias=False)
        self.peep = nn.Parameter(torch.randn(width) * 0.3)

    def forward(self, x, state, memory):
        i, f, g, o = (self.given(x) + self.kept(state)).chunk(4, -1)
        memory = torch.sigmoid(f + 1.0) * memory + torch.sigmoid(i) * torch.tanh(g)
        state = torch.sigmoid(o + self.peep * memory) * torch.tanh(memory)
        return state, memory


class Codebook(nn.Module):
    def __init__(self, count, width):
        super().__init__()
        self.codes = nn.Parameter(torch.randn(count, width))
        self.register_buffer("used", torch.ones(count))

    def forward(self, x):
        apart = x.square().sum(-1, keepdim=True) - 2.0 * x @ self.codes.t() + self.codes.square().sum(-1)
        which = apart.argmin(-1)
        chosen = F.embedding(which, self.codes)
        if self.training:
            counts = F.one_hot(which, self.codes.shape[0]).to(x.dtype).sum((0, 1))
            self.used.mul_(0.9).add_(counts, alpha=0.1)
        commit = F.mse_loss(x, chosen.detach()) * 0.25 + F.mse_loss(chosen, x.detach())
        return x + (chosen - x).detach(), commit


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Conv1d(3, 6, 1)
        self.near, self.far = Gated(6, 1), Gated(6, 2)
        self.cell = Cell(6)
        self.codes = Codebook(5, 6)
        self.head = nn.Linear(12, 2)

    def forward(self, x, parts, lengths):
        x = F.leaky_relu(self.enter(x), 0.1)
        x, one = self.near(x)
        x, two = self.far(x)
        steps = F.relu(one + two).transpose(1, 2)
        x = x.transpose(1, 2) + torch.cumsum(steps, 1) / torch.arange(1, steps.shape[1] + 1)[:, None]
        x, commit = self.codes(x)
        state = memory = torch.zeros_like(x[:, 0])
        kept = []
        for step in range(x.shape[1]):
            state, memory = self.cell(x[:, step], state, memory)
            kept.append(state)
        kept = torch.stack(kept, 1)
        last = kept.gather(1, (lengths - 1)[:, None, None].expand(-1, 1, kept.shape[-1])).squeeze(1)
        sums = torch.zeros(x.shape[0], 3, x.shape[-1], dtype=x.dtype)
        sums = sums.scatter_add(1, parts[..., None].expand(-1, -1, x.shape[-1]), kept)
        return self.head(torch.cat([last, sums.max(1).values], -1)), commit


def loss(outputs, inputs):
    """Pinball and Huber losses of the first outputs, a rank loss of the second, and the codebook's."""
    values, commit = outputs
    apart = inputs["wanted"] - values[:, 0]
    pinball = torch.maximum(0.9 * apart, (0.9 - 1.0) * apart)
    huber = F.smooth_l1_loss(values[:, 0], inputs["wanted"], beta=0.5)
    order = values[:, None, 1] - values[None, :, 1]
    right = torch.sign(inputs["wanted"][:, None] - inputs["wanted"][None, :])
    rank = F.softplus(-right * order).triu(1).sum() / 3.0
    return pinball.mean() + huber + 0.5 * rank + commit
