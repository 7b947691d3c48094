"""Pairs of models for the converter's tests: `Torch…` and `Paddle…` are the same network unless the name says not."""

from __future__ import annotations

import paddle
import torch


class TorchBranches(torch.nn.Module):
    """Two branches of equal layers whose outputs are joined in an order, then a square head."""

    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.left = torch.nn.Conv2d(4, 4, 1)
        self.right = torch.nn.Conv2d(4, 4, 1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.head = torch.nn.Linear(8, 8)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        x = torch.relu(self.norm(torch.cat([self.left(x), self.right(x)], 1)))
        return self.head(x.mean((2, 3)))


class PaddleBranches(paddle.nn.Layer):
    """TorchBranches under other names, its branches registered the other way round."""

    def __init__(self):
        super().__init__()
        self.conv0 = paddle.nn.Conv2D(3, 4, 3, padding=1)
        self.second = paddle.nn.Conv2D(4, 4, 1)
        self.first = paddle.nn.Conv2D(4, 4, 1)
        self.bn = paddle.nn.BatchNorm2D(8)
        self.fc = paddle.nn.Linear(8, 8)

    def join(self, x):
        return paddle.concat([self.first(x), self.second(x)], 1)

    def forward(self, x):
        x = paddle.nn.functional.relu(self.conv0(x))
        x = paddle.nn.functional.relu(self.bn(self.join(x)))
        return self.fc(x.mean((2, 3)))


class PaddleBranchesDifferent(PaddleBranches):
    """The same layers with another activation in the middle."""

    def forward(self, x):
        x = paddle.nn.functional.relu(self.conv0(x))
        x = paddle.nn.functional.gelu(self.bn(self.join(x)))
        return self.fc(x.mean((2, 3)))


class TorchRaw(torch.nn.Module):
    """A square matrix of the model's own that the port keeps transposed."""

    def __init__(self):
        super().__init__()
        self.matrix = torch.nn.Parameter(torch.zeros(4, 4))
        self.norm = torch.nn.LayerNorm(4)
        self.head = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.norm(x @ self.matrix))


class PaddleRaw(paddle.nn.Layer):
    """TorchRaw with the matrix kept (out, in)."""

    def __init__(self):
        super().__init__()
        self.matrix = self.create_parameter([4, 4])
        self.norm = paddle.nn.LayerNorm(4)
        self.head = paddle.nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.norm(x @ self.matrix.T))


class TorchMatrices(torch.nn.Module):
    """Eight square matrices of the model's own, some of them one straight after another."""

    def __init__(self):
        super().__init__()
        for number in range(8):
            setattr(self, f"matrix{number}", torch.nn.Parameter(torch.zeros(4, 4)))
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(4) for _ in range(3))

    def forward(self, x):
        for norm, numbers in zip(self.norms, ((0, 1, 2), (3,), (4, 5)), strict=True):
            for number in numbers:
                x = torch.tanh(x @ getattr(self, f"matrix{number}"))
            x = norm(x)
        return torch.tanh(x @ self.matrix6) @ self.matrix7


class PaddleMatrices(paddle.nn.Layer):
    """TorchMatrices with half of them kept (out, in)."""

    turned = (0, 2, 5, 6)

    def __init__(self):
        super().__init__()
        for number in range(8):
            setattr(self, f"matrix{number}", self.create_parameter([4, 4]))
        self.norms = paddle.nn.LayerList([paddle.nn.LayerNorm(4) for _ in range(3)])

    def matrix(self, number):
        found = getattr(self, f"matrix{number}")
        return found.T if number in self.turned else found

    def forward(self, x):
        for norm, numbers in zip(self.norms, ((0, 1, 2), (3,), (4, 5)), strict=True):
            for number in numbers:
                x = paddle.tanh(x @ self.matrix(number))
            x = norm(x)
        return paddle.tanh(x @ self.matrix(6)) @ self.matrix(7)


class PaddleMatricesOther(PaddleMatrices):
    """The same matrices, and another function after them."""

    def forward(self, x):
        return paddle.exp(super().forward(x))


class TorchIdle(TorchRaw):
    """TorchRaw and a matrix that no output depends on."""

    def __init__(self):
        super().__init__()
        self.idle = torch.nn.Parameter(torch.zeros(3, 3))


class PaddleIdle(PaddleRaw):
    """PaddleRaw with TorchIdle's matrix."""

    def __init__(self):
        super().__init__()
        self.idle = self.create_parameter([3, 3])


class TorchPacked(torch.nn.Module):
    """Attention with q, k and v in one Linear, as timm's."""

    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(4, 12)
        self.proj = torch.nn.Linear(4, 4)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.proj(torch.softmax(q @ k.transpose(-1, -2), -1) @ v)


class PaddleApart(paddle.nn.Layer):
    """TorchPacked with three Linear layers under other names."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (paddle.nn.Linear(4, 4) for _ in range(3))
        self.out_proj = paddle.nn.Linear(4, 4)

    def forward(self, x):
        q, k, v = self.query(x), self.key(x), self.value(x)
        return self.out_proj(paddle.nn.functional.softmax(q @ k.transpose([0, 2, 1]), -1) @ v)


class PaddleApartSwapped(PaddleApart):
    """Its query and value change places, so that the usual packing is wrong."""

    def forward(self, x):
        v, k, q = self.query(x), self.key(x), self.value(x)
        return self.out_proj(paddle.nn.functional.softmax(q @ k.transpose([0, 2, 1]), -1) @ v)


def torch_in_order():
    layers = torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)
    return torch.nn.Sequential(*layers)


class PaddleBackwards(paddle.nn.Layer):
    """torch_in_order with layers that are registered from the last to the first."""

    def __init__(self):
        super().__init__()
        self.last = paddle.nn.LayerNorm(4)
        self.second, self.first = paddle.nn.Linear(4, 4), paddle.nn.Linear(4, 4)

    def forward(self, x):
        return self.last(self.second(paddle.nn.functional.relu(self.first(x))))


class PaddleFused(paddle.nn.Layer):
    """A Linear that keeps its bias as the last row of its matrix."""

    def __init__(self):
        super().__init__()
        self.both = self.create_parameter([5, 4])

    def forward(self, x):
        return x @ self.both[:4].T + self.both[4]


class TorchCosine(torch.nn.Linear):
    """A Linear on unit vectors."""

    def forward(self, x):
        return torch.nn.functional.linear(x, torch.nn.functional.normalize(self.weight, dim=1), self.bias)


class PaddleCosine(paddle.nn.Linear):
    """TorchCosine; derived from paddle's Linear, it keeps its weight (out, in) all the same."""

    def forward(self, x):
        return x @ paddle.nn.functional.normalize(self.weight, axis=1).T + self.bias


def torch_cosine():
    return TorchCosine(4, 4)


def paddle_cosine():
    return PaddleCosine(4, 4)


def torch_linear():
    return torch.nn.Linear(4, 4)


def torch_mlp(width=4):
    return torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.BatchNorm1d(width), torch.nn.Linear(width, width))


def paddle_mlp(width=4):
    return paddle.nn.Sequential(
        paddle.nn.Linear(3, width), paddle.nn.BatchNorm1D(width), paddle.nn.Linear(width, width)
    )


def torch_token():
    return torch.nn.Sequential(torch.nn.Embedding(7, 4), torch.nn.LSTM(4, 4, batch_first=True))


def paddle_token():
    return paddle.nn.Sequential(paddle.nn.Embedding(7, 4), paddle.nn.LSTM(4, 4))


def no_model():
    return 3


def failing():
    raise RuntimeError("the data is not here")


class TorchVersioned(torch.nn.Module):
    """Refuses a state without the version that torch keeps beside its tensors, as torchvision's MNASNet does."""

    _version = 2

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 4)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
        if local_metadata.get("version") != 2:
            raise ValueError(f"a state of version {local_metadata.get('version')}")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


def torch_versioned():
    return TorchVersioned()


class PaddleVersioned(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.fc = paddle.nn.Linear(3, 4)


def paddle_versioned():
    return PaddleVersioned()
