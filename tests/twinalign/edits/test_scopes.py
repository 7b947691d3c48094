"""What is to be written in a line has only names that the port has there."""

from __future__ import annotations

import pytest

from twinalign.edits.scopes import runs_there

TEXT = """import paddle
LIMIT = 2.0

class Block:
    scale = 3

    def forward(self, x, size=1):
        n, c = x.shape
        rows = [row for row in x]
        y = x.reshape([n, c])
        later = y * 2
        return y

def other(b):
    return b
"""


@pytest.mark.parametrize(
    ("before", "after", "runs"),
    [
        ("x.reshape([n, c])", "x.reshape([c, n])", True),
        ("x.reshape([n, c])", "paddle.clip(x, -LIMIT, size)", True),
        ("x.reshape([n, c])", "self.scale * len(other(x))", True),
        ("x.reshape([n, c])", "[one + n for one in x]", True),
        ("x.reshape([n, c])", "x.reshape([b, c])", False),  # of another function
        ("x.reshape([n, c])", "x * scale", False),  # of the class
        ("x.reshape([n, c])", "x * row", False),  # inside of the list alone
        ("x.reshape([n, c])", "x + later", False),
        ("x.reshape([n, c])", "torch.relu(x)", False),
        ("y = x.reshape([n, c])", "y = x", True),
        ("y = x.reshape([n, c])", "fs, fh = x, x", False),  # which the next line does not read
        ("axis=1", "axis=2", True),
    ],
)
def test_names_that_a_line_has(before: str, after: str, runs: bool) -> None:
    assert runs_there(TEXT, 10, before, after) == runs
