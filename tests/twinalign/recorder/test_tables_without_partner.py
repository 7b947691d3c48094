"""Tables of either side in other arrangements: rounding is settled, what is wrong stays wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.twinalign.search.test_whole_layers import written as in_files
from tests.twinalign.search.written_cases import edited, faults_of, written
from twinalign.recorder.recorder import RunSettings
from twinalign.recorder.tables_without_partner import with_values_of
from twinalign.runs.run_stages import run

PLACES, WIDTH = 64, 8


def table(dtype: str, places: int = PLACES) -> np.ndarray:
    rates = (
        1 / np.asarray(10000.0, dtype) ** (np.arange(0, WIDTH, 2).astype(dtype) / np.asarray(WIDTH, dtype))
    ).astype(dtype)
    return np.cos(np.outer(np.arange(places).astype(dtype), rates)).astype(np.float64)


@pytest.mark.parametrize(
    "arranged",
    [
        lambda one: np.concatenate([one, one], axis=-1),
        lambda one: np.repeat(one, 2, axis=-1),
        lambda one: one.T,
        lambda one: one[None, :, None],
        lambda one: one[:, ::-1],
        lambda one: one[: PLACES // 2],
        lambda one: np.stack([one, -one[:, ::-1]], axis=-1),
    ],
)
def test_a_table_in_another_arrangement_takes_all_values(arranged: Callable[[np.ndarray], np.ndarray]) -> None:
    theirs = table("float32")
    found = with_values_of(arranged(table("float64")), [theirs, -theirs])
    assert found is not None
    np.testing.assert_array_equal(found, arranged(theirs))


def test_a_longer_table_takes_what_the_other_has() -> None:
    found = with_values_of(table("float64", 2 * PLACES), [table("float32")])
    assert found is not None
    np.testing.assert_array_equal(found[:PLACES], table("float32"))
    np.testing.assert_array_equal(found[PLACES:], table("float64", 2 * PLACES)[PLACES:])


def test_values_that_the_other_has_not_stay() -> None:
    right = table("float64")
    assert with_values_of(right * 1.001, [table("float32")]) is None
    found = with_values_of(np.concatenate([right, right * 1.001], axis=-1), [table("float32")])
    assert found is not None
    np.testing.assert_array_equal(found, np.concatenate([table("float32"), right * 1.001], axis=-1))


REFERENCE = """
class Net(nn.Module):
    def __init__(self, width=8, length=32):
        super().__init__()
        self.enter = nn.Linear(width, width)
        rates = 1.0 / 100.0 ** (torch.arange(0, width, 2).float() / width)
        angles = torch.outer(torch.arange(length).float(), rates)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x):
        x = self.enter(x)
        first, second = x.chunk(2, -1)
        cos, sin = self.cos[: x.shape[1]], self.sin[: x.shape[1]]
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
"""
PORT = """
class Net(nn.Layer):
    def __init__(self, width=8, length=40):
        super().__init__()
        self.enter = nn.Linear(width, width)
        rates = paddle.exp(paddle.arange(0, width, 2, dtype="float32") * (-float(np.log(100.0)) / width))
        angles = paddle.arange(length, dtype="float32").unsqueeze(1) * rates
        angles = paddle.concat([angles, angles], -1)
        KEPT

    def forward(self, x):
        x = self.enter(x)
        first, second = x.chunk(2, -1)
        turned = paddle.concat([-second, first], -1)
        return x * self.angles[0, : x.shape[1]] + turned * self.angles[1, : x.shape[1]]
"""
BUFFER = 'self.register_buffer("angles", paddle.stack([angles.cos(), angles.sin()]), persistable=False)'
INPUTS = '{"x": rng.standard_normal((2, 20, 8)).astype("float32")}'


def test_tables_of_angles_in_two_arrangements_are_aligned(tmp_path: Path) -> None:
    port = edited(PORT, [("KEPT", BUFFER)])
    case = written(tmp_path, REFERENCE, port, INPUTS)
    assert run(RunSettings(str(case), tmp_path / "out", ("forward",))).verdict == "aligned"


def test_a_table_of_other_angles_is_not(tmp_path: Path) -> None:
    port = edited(PORT, [("KEPT", BUFFER), ("np.log(100.0)", "np.log(101.0)")])
    case = written(tmp_path, REFERENCE, port, INPUTS)
    assert run(RunSettings(str(case), tmp_path / "out", ("forward",), locate=False)).verdict == "diverged"


CASE = """
from twinalign import Case

class Turning(Case):
    name = "turning"

    def reference(self):
        import theirs
        return theirs.Net()

    def reproduced(self):
        import ours
        return ours.Net()

    def inputs(self, rng):
        return {"x": rng.standard_normal((2, 20, 8)).astype("float32")}
"""


@pytest.mark.slow
def test_the_line_that_makes_a_wrong_table_is_named(tmp_path: Path) -> None:
    head = "import numpy as np\nimport paddle\nfrom paddle import nn\n"
    port = head + edited(PORT, [("KEPT", BUFFER), ("0, width, 2", "1, width, 2")])
    reference = f"import torch\nfrom torch import nn\n{REFERENCE}"
    (fault,) = faults_of(in_files(tmp_path, port, CASE, reference), stages=("forward",))
    assert fault.explanation is not None
    said = f"{fault.explanation.text} {fault.suggestion}"
    assert "paddle.arange(1, width, 2, dtype='float32')" in said
    assert "write `paddle.arange(0, width, 2" in said
