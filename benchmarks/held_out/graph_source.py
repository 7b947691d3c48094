"""A small net over graphs: mean over neighbours, a gated recurrence over rounds, attention over nodes; in torch."""

import torch
from torch import nn
from torch.nn import functional as F


class Gates(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.given = nn.Linear(width, 3 * width)
        self.kept = nn.Linear(width, 3 * width)

    def forward(self, x, state):
        reset, update, new = self.given(x).chunk(3, -1)
        reset_kept, update_kept, new_kept = self.kept(state).chunk(3, -1)
        reset = torch.sigmoid(reset + reset_kept)
        update = torch.sigmoid(update + update_kept)
        new = torch.tanh(new + reset * new_kept)
        return (1.0 - update) * new + update * state


class Messages(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.message = nn.Linear(width, width)
        self.weight = nn.Parameter(torch.rand(width, width))

    def forward(self, x, edges):
        edges = edges + torch.eye(edges.shape[-1], dtype=edges.dtype)
        degree = edges.sum(-1)
        edges = edges * degree[:, :, None].pow(-0.5) * degree[:, None, :].pow(-0.5)
        sent = torch.matmul(edges, self.message(x))
        return F.elu(sent + torch.einsum("bnc,cd->bnd", x, self.weight) * 0.1)


class Readout(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.score = nn.Linear(width, 2)
        self.value = nn.Linear(width, width)

    def forward(self, x):
        weights = torch.softmax(self.score(x), 1)
        pooled = torch.einsum("bnh,bnc->bhc", weights, torch.tanh(self.value(x)))
        best = x.topk(2, 1)[0].mean(1)
        spread = x.var(1, unbiased=True)
        return torch.cat([pooled.flatten(1), best, spread], -1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(4, 6)
        self.messages = Messages(6)
        self.gates = Gates(6)
        self.readout = Readout(6)
        self.head = nn.Linear(24, 3)

    def forward(self, x, edges):
        state = torch.tanh(self.enter(x))
        first = state
        for _ in range(2):
            state = self.gates(self.messages(state, edges), state)
        state = F.normalize(state + 0.5 * first, dim=-1)
        state = state * state.shape[-1] ** 0.5
        return self.head(self.readout(state))


def loss(outputs, inputs):
    """A contrastive loss between the rows, and a Huber loss."""
    rows = F.normalize(outputs, dim=1)
    alike = torch.matmul(rows, rows.t()) / 0.2
    same = (inputs["labels"][:, None] == inputs["labels"][None, :]).to(outputs.dtype)
    alike = alike - alike.amax(1, keepdim=True).detach()
    logs = alike - torch.log(torch.exp(alike).sum(1, keepdim=True))
    contrast = -(same * logs).sum(1) / same.sum(1)
    distance = (outputs - inputs["wanted"]).abs()
    huber = torch.where(distance < 1.0, 0.5 * distance**2, distance - 0.5)
    return contrast.mean() + huber.sum(1).mean()
