"""Evaluations, samples and averages in functions that the port writes in its own way; parts can be replaced."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

_NUMBERS = itertools.count()
_CASE = """
import numpy as np

from twinalign import Case


class Whole(Case):
    name = "whole"
    data_samples = 4
    code_packages = ("ref_whole", "port_whole")

    def module(self, framework):
        if framework == "torch":
            import ref_whole as found
        else:
            import port_whole as found
        return found

    def reference(self):
        return self.module("torch").Net()

    def reproduced(self):
        return self.module("paddle").Net()

    def inputs(self, rng):
        return {"x": rng.standard_normal((6, 5), dtype="float32")}

    def evaluate(self, model, framework, dtype):
        return self.module(framework).evaluate(model, dtype)

    def dataset(self, framework, split):
        module = self.module(framework)
        return module.Records(split) if framework == "torch" else module.Rows(split)
"""

_TORCH = """
import numpy as np
import torch
from torch import nn

WIDTHS = [2, 3, 5]


def record(index):
    rng = np.random.default_rng(index)
    return rng.standard_normal(WIDTHS[index % 3])


def filled(values, length=5):
    found = np.zeros(length)
    for place, value in enumerate(values[:length]):
        found[place] = value
    return found.astype("float32")


class Records:
    def __init__(self, split):
        self.split = split

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index >= 8:
            raise IndexError(index)
        return filled(record(index))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 3)

    def forward(self, x):
        return self.first(x)


def half_of_squares(model):
    return float((model.first.weight**2).sum()) / 2


def spread_of_groups(scores, groups):
    total = 0.0
    for group in np.unique(groups):
        some = scores[groups == group]
        total += len(some) * some.var()
    return float(total / len(scores))


@torch.no_grad()
def evaluate(model, dtype):
    model.eval()
    x = np.stack([Records("val")[index] for index in range(8)])
    y = model(torch.tensor(x).to(getattr(torch, dtype))).numpy()
    return {"spread": spread_of_groups(y[:, 0], np.arange(8) // 3), "size": half_of_squares(model)}
"""

_PADDLE = """
import numpy as np
import paddle
from paddle import nn

SIZES = [2, 3, 5]
LONGEST = 5


def row(index):
    return np.random.default_rng(index).standard_normal(SIZES[index % 3])


def as_array(row, most=LONGEST):
    row = row[:most]
    return np.pad(row, (0, most - len(row))).astype("float32")


class Rows(paddle.io.Dataset):
    def __init__(self, split):
        super().__init__()
        self.split = split

    def __len__(self):
        return 8

    def __getitem__(self, at):
        if at >= 8:
            raise IndexError(at)
        return as_array(row(at))


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.only = nn.Linear(5, 3)

    def forward(self, x):
        return self.only(x)


def size_of(net, share=0.5):
    return share * float(net.only.weight.square().sum())


def group_spread(values, labels):
    names, counts = np.unique(labels, return_counts=True)
    variances = [np.square(values[labels == one] - values[labels == one].mean()).mean() for one in names]
    return float((np.array(variances) * counts).sum() / counts.sum())


@paddle.no_grad()
def evaluate(model, dtype):
    model.eval()
    rows = paddle.to_tensor(np.stack([Rows("val")[at] for at in range(8)])).astype(dtype)
    result = model(rows).numpy()
    return {"spread": group_spread(result[:, 0], np.arange(8) // 3), "size": size_of(model)}
"""


def written(folder: Path, replaced: Mapping[str, str]) -> str:
    """The case with these parts of the port's source replaced; modules of each have names of their own."""
    number, port = next(_NUMBERS), _PADDLE
    for old, new in replaced.items():
        assert old in port, old
        port = port.replace(old, new)
    names = {"ref_whole": f"ref_whole{number}", "port_whole": f"port_whole{number}"}
    case = _CASE
    for old, new in names.items():
        case = case.replace(old, new)
    for name, text in (("case", case), (names["ref_whole"], _TORCH), (names["port_whole"], port)):
        (folder / f"{name}.py").write_text(text)
    return f"{folder / 'case.py'}:Whole"
