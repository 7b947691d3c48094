"""Lines of a port whose functions have another form than the reference's, or differ by next to nothing."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import torch
from torch import nn

from tests.twinalign.causes.module_unit import ModuleUnit
from tests.twinalign.causes.units import explain
from twinalign.causes.layers.target import Target
from twinalign.causes.registry import Explanation

NAMES = {"paddle": ["name", "paddle"], "F": ["name", "paddle.nn.functional"]}
INPUT = np.random.default_rng(3).standard_normal((2, 4, 6))


def explained(right: nn.Module, wrong: str, port: str, *inputs: Any, ran: str = "", **facts: Any) -> Explanation | None:
    """What is found for a port of this text, whose values are those of `wrong`, the same mistake in torch.

    `ran`: words of the port's lines that have assigned tensors.
    """
    found: dict[str, Any] = {"torch": torch}
    exec(textwrap.dedent(wrong), found)
    other = type("Wrong", (type(right),), {"forward": found["forward"]})()
    other.load_state_dict(right.state_dict())
    unit = ModuleUnit(right, [INPUT, *inputs], {}, facts=facts)
    unit.port = ModuleUnit(other, [INPUT, *inputs], {}).reference
    described: dict[str, Any] = {
        "source": textwrap.dedent(port).strip(),
        "file": "port.py",
        "line": 1,
        "globals": NAMES,
    }
    unit.functions = [{**described, "name": f"{type(right).__name__}.forward"}]  # type: ignore[attr-defined]
    lines = [at for at, line in enumerate(described["source"].splitlines(), start=1) if ran and ran in line]
    unit.steps = [  # type: ignore[attr-defined]
        {"file": "port.py", "line": line, "source": "", "print": [[9], [0.0] * 9]} for line in lines
    ]
    return explain(unit)


class Scaled(nn.Module):
    """Divides by the root mean square."""

    epsilon = 1e-6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        variance = x.pow(2).mean(-1, keepdim=True)
        return x * torch.rsqrt(variance + self.epsilon)


def test_a_line_is_found_that_changes_less_than_rounding_to_float32_does() -> None:
    wrong = """
    def forward(self, x):
        variance = x.pow(2).mean(-1, keepdim=True)
        return x / (variance.sqrt() + self.epsilon)
    """
    port = """
    def forward(self, x):
        variance = x.pow(2).mean(-1, keepdim=True)
        return x / (paddle.sqrt(variance) + self.epsilon)
    """
    found = explained(Scaled(), wrong, port)
    assert found is not None
    assert "`x / (paddle.sqrt(variance) + self.epsilon)` in place of" in found.text


class HandingOn(nn.Module):
    """Does its work in another method."""

    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(6, 6)

    def _mixed(self, x: torch.Tensor) -> torch.Tensor:
        q = self.proj(x)
        scores = torch.matmul(q, x.transpose(1, 2))
        weights = torch.softmax(scores, dim=-1)
        return torch.matmul(weights, x) + q.cos().tan()

    def forward(self, x: torch.Tensor, other: torch.Tensor | None = None) -> torch.Tensor:
        if other is None:
            return self._mixed(x)
        return self._mixed(x + other)


def test_a_port_may_do_at_once_what_the_reference_hands_on_to_another_method() -> None:
    wrong = """
    def forward(self, x):
        q = self.proj(x)
        weights = torch.softmax(torch.matmul(q, x.transpose(1, 2)), dim=-1)
        return torch.matmul(weights, x) + q.tan().cos()
    """
    port = """
    def forward(self, x):
        q = self.proj(x)
        scores = paddle.matmul(q, x.transpose([0, 2, 1]))
        weights = F.softmax(scores, axis=-1)
        return paddle.matmul(weights, x) + q.tan().cos()
    """
    found = explained(HandingOn(), wrong, port)
    assert found is not None
    assert "q.tan().cos()` in place of" in found.text
    assert "lacks" not in found.text


class Reduced(nn.Module):
    """An attention that makes keys and values fewer, in a branch of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.pool: nn.Module | None = None
        self.norm = nn.LayerNorm(6)
        self.mix = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor, size: tuple[int, int] = (2, 2)) -> torch.Tensor:
        h, w = size
        if self.pool is not None:
            x = x.permute(0, 2, 1).reshape(2, 6, h, w)
            x = self.pool(x)
        else:
            x = x.permute(0, 2, 1).reshape(2, 6, h, w)
            x = self.mix(x).reshape(2, 6, h * w).permute(0, 2, 1)
            x = self.norm(x)
        return x.sin() * 2.0


def test_a_branch_that_stands_elsewhere_in_the_port_is_compared_with_the_one_that_ran() -> None:
    wrong = """
    def forward(self, x):
        x = self.norm(x).permute(0, 2, 1).reshape(2, 6, 2, 2)
        x = self.mix(x).reshape(2, 6, 4).permute(0, 2, 1)
        return x.sin() * 2.0
    """
    port = """
    def forward(self, x, h, w):
        if not self.linear:
            if self.ratio > 1:
                y = self.norm(x).transpose([0, 2, 1]).reshape([2, 6, h, w])
                y = self.mix(y)
                y = y.reshape([2, 6, h * w]).transpose([0, 2, 1])
                x = y
            else:
                x = x.transpose([0, 2, 1]).reshape([2, 6, h, w])
        else:
            x = x.transpose([0, 2, 1]).reshape([2, 6, h, w])
            x = self.pool(x)
        return x.sin() * 2.0
    """
    found = explained(Reduced(), wrong, port, ran="self.mix(y)", linear=False, ratio=2)
    assert found is not None
    assert found.id == "line_of_port"
    assert "`y = self.norm(x).transpose([0, 2, 1]).reshape([2, 6, h, w])` stands before " in found.text
    assert ", in the reference behind it, line 4 of port.py" in found.text


def test_what_stands_beside_a_mask_of_the_least_number_is_judged_by_its_own_size() -> None:
    mask = np.full(6, np.finfo(np.float64).min)
    target = Target({"slopes": np.ones(6), "mask": mask}, {"slopes": np.full(6, 2.0), "mask": mask})
    assert target.wrong() == ["slopes"]
    assert target.reproduces_reference({"slopes": np.full(6, 2.0), "mask": mask})
    assert not target.reproduces_reference({"slopes": np.ones(6), "mask": mask})


class PerPixel(nn.Module):
    """Adds one number for every pixel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h, w = x.shape[1:]
        return x + x.mean((1, 2), keepdim=True) * h * w


def test_a_factor_that_nobody_writes_as_a_number_is_told_by_the_line() -> None:
    wrong = """
    def forward(self, x):
        return x + x.mean((1, 2), keepdim=True)
    """
    port = """
    def forward(self, x):
        h, w = x.shape[1:]
        return x + x.mean([1, 2], keepdim=True)
    """
    found = explained(PerPixel(), wrong, port)
    assert found is not None
    assert found.id == "line_of_port", found
    assert "in place of `x.mean((1, 2), keepdim=True) * h * w`" in found.text


class ScaledSum(nn.Module):
    """Its gain could as well stand at the sum ahead of it, which is linear."""

    def __init__(self, scaling: float = 0.5) -> None:
        super().__init__()
        self.scaling = scaling

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        turned = x + x.flip(-1)
        return turned * self.scaling


def test_an_attribute_with_another_number_is_not_named_by_a_factor_elsewhere() -> None:
    wrong = """
    def forward(self, x):
        turned = x + x.flip(-1)
        return turned * 0.125
    """
    port = """
    def forward(self, x):
        turned = x + x.flip(-1)
        return turned * self.scaling
    """
    found = explained(ScaledSum(), wrong, port, scaling=0.125)
    assert found is not None
    assert "`scaling` is 0.125 in place of 0.5" in found.text


class Penalised(nn.Module):
    """Its penalty is that of the values before they are normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.gain = nn.LayerNorm(6), nn.Parameter(torch.full((6,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(x)
        y = torch.mul(y, self.gain.exp())
        penalty = y.pow(2).mean()
        y = self.norm(y)
        return y * penalty


def test_a_statement_stands_behind_another_one_that_changes_what_it_reads() -> None:
    wrong = """
    def forward(self, x):
        y = self.norm(torch.tanh(x) * self.gain.exp())
        return y * y.pow(2).mean()
    """
    port = """
    def forward(self, x):
        y = paddle.multiply(paddle.tanh(x), self.gain.exp())
        y = self.norm(y)
        penalty = y.square().mean()
        return y * penalty
    """
    found = explained(Penalised(), wrong, port)
    assert found is not None
    assert found.text.startswith(
        "a line of the port computes something else: `penalty = y.square().mean()` stands behind `y = self.norm(y)`, "
        "in the reference before it, line 4 of port.py and line"
    )
    assert "alike" not in found.evidence
    assert [line for _, line, _ in found.evidence["lines_of_port"]] == [4]
