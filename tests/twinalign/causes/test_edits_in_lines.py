"""A formula that the port writes otherwise, of which one part is wrong: the edit of that part is told."""

from __future__ import annotations

import inspect
import textwrap

import pytest
import torch
from torch import nn

from tests.twinalign.causes.test_lines_of_other_forms import explained


class Attention(nn.Module):
    """Causal attention whose values are its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.w = 0.5, nn.Parameter(torch.randn(6, 6, generator=torch.Generator().manual_seed(0)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = torch.einsum("bnd,bmd->bnm", x @ self.w, x) * self.scale
        mask = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), 1)
        p = scores.masked_fill(mask, -1e9).softmax(-1)
        return x + p @ x


ATTENTION = """
def forward(self, x):
    n = x.shape[1]
    q = paddle.matmul(x, self.w)
    allowed = paddle.tril(paddle.ones([n, n])) > 0
    s = paddle.matmul(q, x, transpose_y=True) / 2.0
    s = paddle.where(allowed, s, paddle.full_like(s, -1e9))
    attn = F.softmax(s, axis=-1)
    return x + paddle.matmul(attn, x)
"""


class Coupling(nn.Module):
    """An affine coupling whose output is scaled by its log-determinant."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        s = torch.tanh(a) * 0.5
        y = b * torch.exp(s) + a
        ld = s.sum((1, 2))
        return torch.cat([a, y], -1) * ld[:, None, None]


COUPLING = """
def forward(self, x):
    half = x.shape[-1] // 2
    first = x[:, :, :half]
    second = x[:, :, half:]
    log_scale = paddle.tanh(first) / 2
    moved = first + second * log_scale.exp()
    logdet = paddle.sum(log_scale, axis=[1, 2])
    out = paddle.concat([first, moved], axis=-1)
    return out * logdet.reshape([-1, 1, 1])
"""


class Shares(nn.Module):
    """What is kept of two functions of one tensor; the first is summed up along the rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        share = torch.sigmoid(x[..., :1])
        return (torch.relu(x) * share).cumsum(1) + torch.tanh(x) * (1 - share)


SHARES = """
def forward(self, x):
    share = F.sigmoid(x[:, :, 0]).unsqueeze(-1)
    low = F.relu(x) * share
    rows = paddle.arange(x.shape[1])
    high = paddle.tanh(x) * (1 - share)
    low = paddle.stack([low[:, :at + 1].sum(1) for at in range(len(rows))], axis=1)
    return low + high
"""


def test_parts_of_two_statements_stand_in_each_others_place() -> None:
    source = textwrap.dedent(inspect.getsource(Shares.forward))
    wrong = source.replace("* share)", "* (1 - share))").replace("torch.tanh(x) * (1 - share)", "torch.tanh(x) * share")
    port = SHARES.replace("* share", "* (1-share)").replace("tanh(x) * (1 - share)", "tanh(x) * share")
    found = explained(Shares(), wrong, port)
    assert found is not None
    assert "`1 - share`, line 3 of port.py, and `share`, line 5 of port.py, stand in each other's place" in found.text
    assert found.evidence["helper_edit"]["to_do"] == "exchange `1 - share` and `share`"
    assert [line for _, line, _ in found.evidence["lines_of_port"]] == [3, 5]


@pytest.mark.parametrize(
    ("right", "port", "wrong", "said"),
    [
        (
            Attention,
            ("/ 2.0", "* 2.0"),
            ("* self.scale", "* 2.0"),
            "the attention's scale differs: 2 in place of 0.5",
        ),
        (
            Attention,
            ("axis=-1", "axis=1"),
            ("softmax(-1)", "softmax(1)"),
            "softmax runs along another axis: 1 in place of 2",
        ),
        (
            Attention,
            ("paddle.tril(", "paddle.triu("),
            ("torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), 1)",
             "torch.tril(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), -1)"),
            "`paddle.triu(paddle.ones([n, n]))` in place of `paddle.tril(paddle.ones([n, n]))`, line 4 of port.py",
        ),
        (
            Attention,
            ("matmul(attn, x)", "matmul(attn, q)"),
            ("p @ x", "p @ (x @ self.w)"),
            "`paddle.matmul(attn, q)` in place of `paddle.matmul(attn, x)`, line 8 of port.py",
        ),
        (
            Coupling,
            ("log_scale.exp()", "(-log_scale).exp()"),
            ("torch.exp(s)", "torch.exp(-s)"),
            "`-log_scale` in place of `log_scale`, line 6 of port.py",
        ),
        (
            Coupling,
            ("paddle.sum(", "paddle.mean("),
            ("s.sum(", "s.mean("),
            "another reduction is used: mean in place of sum",
        ),
        (
            Coupling,
            ("second * log_scale.exp()", "second * log_scale"),
            ("torch.exp(s)", "s"),
            "`second * log_scale` in place of `second * log_scale.exp()`, line 6 of port.py",
        ),
    ],
)  # fmt: skip
def test_the_wrong_part_of_a_formula_in_another_form(
    right: type[nn.Module], port: tuple[str, str], wrong: tuple[str, str], said: str
) -> None:
    written = {Attention: ATTENTION, Coupling: COUPLING}[right]
    source = textwrap.dedent(inspect.getsource(right.forward))
    assert written.count(port[0]) == 1
    assert source.count(wrong[0]) == 1
    found = explained(right(), source.replace(*wrong), written.replace(*port))
    assert found is not None
    assert found.text == (said if ": " in said else f"a line of the port computes something else: {said}")
    (_, first, last), *more = found.evidence["lines_of_port"]
    changed = next(n for n, line in enumerate(written.replace(*port).strip().splitlines(), start=1) if port[1] in line)
    assert (first, last, more) == (changed, changed, [])


def test_names_of_the_reference_alone_are_not_proposed() -> None:
    """`y` still holds what the reference's own lines have made of it: any line that reads it would seem mended."""
    source = textwrap.dedent(inspect.getsource(Coupling.forward))
    found = explained(
        Coupling(),
        source.replace("y = b * torch.exp(s) + a", "y = b * torch.exp(s) + a * a.abs().sqrt()"),
        COUPLING.replace("first + second", "first * first.abs().sqrt() + second"),
    )
    assert found is not None
    assert "y" not in found.text.replace("`", " ").split()
