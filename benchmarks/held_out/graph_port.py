"""The net of `graph_source`, in paddle."""

import paddle
from paddle import nn
from paddle.nn import functional as F


class Gates(nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.given = nn.Linear(width, 3 * width)
        self.kept = nn.Linear(width, 3 * width)

    def forward(self, x, state):
        reset, update, new = self.given(x).chunk(3, -1)
        reset_kept, update_kept, new_kept = self.kept(state).chunk(3, -1)
        reset = F.sigmoid(reset + reset_kept)
        update = F.sigmoid(update + update_kept)
        new = paddle.tanh(new + reset * new_kept)
        return (1.0 - update) * new + update * state


class Messages(nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.message = nn.Linear(width, width)
        self.weight = self.create_parameter([width, width])

    def forward(self, x, edges):
        edges = edges + paddle.eye(edges.shape[-1], dtype=edges.dtype)
        degree = edges.sum(-1)
        edges = edges * degree[:, :, None].pow(-0.5) * degree[:, None, :].pow(-0.5)
        sent = paddle.matmul(edges, self.message(x))
        return F.elu(sent + paddle.einsum("bnc,cd->bnd", x, self.weight) * 0.1)


class Readout(nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.score = nn.Linear(width, 2)
        self.value = nn.Linear(width, width)

    def forward(self, x):
        weights = F.softmax(self.score(x), 1)
        pooled = paddle.einsum("bnh,bnc->bhc", weights, paddle.tanh(self.value(x)))
        best = x.topk(2, 1)[0].mean(1)
        spread = x.var(1, unbiased=True)
        return paddle.concat([pooled.flatten(1), best, spread], -1)


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(4, 6)
        self.messages = Messages(6)
        self.gates = Gates(6)
        self.readout = Readout(6)
        self.head = nn.Linear(24, 3)

    def forward(self, x, edges):
        state = paddle.tanh(self.enter(x))
        first = state
        for _ in range(2):
            state = self.gates(self.messages(state, edges), state)
        state = F.normalize(state + 0.5 * first, axis=-1)
        state = state * state.shape[-1] ** 0.5
        return self.head(self.readout(state))


def loss(outputs, inputs):
    """A contrastive loss between the rows, and a Huber loss."""
    rows = F.normalize(outputs, axis=1)
    alike = paddle.matmul(rows, rows.t()) / 0.2
    same = (inputs["labels"][:, None] == inputs["labels"][None, :]).astype(outputs.dtype)
    alike = alike - alike.amax(1, keepdim=True).detach()
    logs = alike - paddle.log(paddle.exp(alike).sum(1, keepdim=True))
    contrast = -(same * logs).sum(1) / same.sum(1)
    distance = (outputs - inputs["wanted"]).abs()
    huber = paddle.where(distance < 1.0, 0.5 * distance**2, distance - 0.5)
    return contrast.mean() + huber.sum(1).mean()
