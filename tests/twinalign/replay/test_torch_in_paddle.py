"""Expressions of the reference in paddle's words."""

from __future__ import annotations

import ast

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")
torch = pytest.importorskip("torch")

from twinalign.replay.torch_in_paddle import in_paddle  # noqa: E402


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("torch.cdist(x, x).sort(dim=1).values[:, k]", "paddle.cdist(x, x).sort(axis=1)[:, k]"),
        ("x.max(dim=0).values", "x.max(axis=0)"),
        ("x.sort(dim=1).indices", "x.argsort(axis=1)"),
        ("torch.topk(x, 2).indices", "paddle.topk(x, 2)[1]"),
        ("x.reshape(x.shape[::-1])", "x.reshape(x.shape[::-1])"),
        ("x.view(k, -1)", "x.reshape([k, -1])"),
        ("(x * 1).mul_(k).add_(x, alpha=1 - k)", "x * 1 * k + x * (1 - k)"),
        ("torch.nn.MaxPool1d(2)(x[None])", "paddle.nn.MaxPool1D(2)(x[None])"),
        ("x.expand(*(k, 4, 3))", "x.expand([*(k, 4, 3)])"),
        (
            "torch.triu(torch.ones(k, 3, dtype=torch.float32), 1)",
            "paddle.triu(paddle.ones([k, 3], dtype=paddle.float32), 1)",
        ),
    ],
)
def test_it_gives_in_paddle_what_it_gives_in_torch(written: str, meant: str) -> None:
    tree = ast.parse(written, mode="eval").body
    found = ast.unparse(in_paddle(tree, {"torch": "torch"}, {"paddle": "paddle"}))
    assert found == meant
    array = np.random.default_rng(0).standard_normal((4, 3), dtype=np.float32)
    right = eval(written, {"torch": torch, "x": torch.tensor(array), "k": 2})
    ours = eval(found, {"paddle": paddle, "x": paddle.to_tensor(array), "k": 2})
    np.testing.assert_allclose(ours.numpy(), right.numpy(), rtol=1e-5)
