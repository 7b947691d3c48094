"""Which lines of a constructor make a table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from twinalign.backends import load_backend
from twinalign.replay.table_lines import constructor_of, made_in, values_of_port


def constructor(*body: str) -> dict[str, Any]:
    source = "".join(f"    {line}\n" for line in ("def __init__(self, size):", *(f"    {one}" for one in body)))
    return {"source": source, "file": "port.py", "line": 10, "name": "Net.__init__"}


class Net:
    """The reference."""

    def __init__(self, size: int) -> None:
        steps = range(size)
        self.other = 7
        self.table = [2.0 * step for step in steps]


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (["steps = range(size)", "self.other = 8", "self.table = [3.0 * step for step in steps]"], [13]),
        (["steps = range(1, size)", "self.other = 8", "self.table = [2.0 * step for step in steps]"], [11]),
        (["steps = range(size)", "self.other = 8", "self.table = [2.0 * step for step in steps]"], [13]),
        (["self.other = 7"], []),
    ],
    ids=["itself", "what it comes of", "nothing else differs", "no line"],
)
def test_the_line_that_makes_a_table(body: list[str], lines: list[int]) -> None:
    text, places = made_in(["table"], constructor(*body), Net(3))
    assert [first for _, first, _ in places] == lines
    assert ("line " in text) == bool(lines)


def test_a_layer_without_a_source_has_no_constructor() -> None:
    assert constructor_of(3) == {}
    assert made_in(["table"], {}, Net(3)) == ("", ())


class Offsets(torch.nn.Module):
    """Two tables of one shape and one of another."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("starts", torch.arange(3), persistent=False)
        self.ends, self.scale = torch.arange(3) + 1, torch.ones(2)


@pytest.mark.parametrize(
    ("port", "expected"),
    [
        ({"scale": [1.0, 2.0]}, {"scale": "scale"}),
        ({"factor": [1.0, 2.0]}, {"factor": "scale"}),
        ({"factor": [1.0, 1.0]}, {}),
        ({"offset": [0, 4, 5]}, {}),
        ({"offset": [0, 4, 5], "starts": [0, 1, 2]}, {"offset": "ends"}),
    ],
    ids=["of the same name", "the one of its shape", "equal", "one of two of its shape", "the other has its name"],
)
def test_tables_of_other_names(port: dict[str, list[float]], expected: dict[str, str]) -> None:
    arrays = {name: np.array(values) for name, values in port.items()}
    found = values_of_port(load_backend("torch"), Offsets(), arrays)
    assert {name: theirs for name, (theirs, _) in found.items()} == expected
    assert all(np.array_equal(values.numpy(), arrays[name]) for name, (_, values) in found.items())
