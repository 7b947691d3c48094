"""A statement of the reference at another place is told only by the statements of the port that are the same ones."""

from __future__ import annotations

from twinalign.replay.aligned_code import Code, Difference, parsed
from twinalign.replay.helpers import Helpers
from twinalign.replay.port_lines import LinesVariant
from twinalign.replay.reordered_statements import reordered

THEIRS = """
def forward(self, x):
    out = self.gate(x)
    skip = self.to_skip(out)
    out = self.residual(out)
    return out, skip
"""


def code(source: str, file: str, side: str) -> Code:
    found = parsed(source.strip(), file, 1, "Block.forward", side)
    assert found is not None
    return found


def told(ours: str) -> list[str]:
    theirs, port = code(THEIRS, "ref.py", "torch"), code(ours, "port.py", "paddle")
    line = Difference(theirs, port, (id(theirs.tree.body[1]), "instead"), theirs.tree.body[1], None)
    one = LinesVariant("", (line,), None, {"skips": "to_skip", "second": "residual"}, Helpers({}, ()))
    return [found.detail for found in reordered([one])]


def test_the_same_layers_are_called() -> None:
    lines = ["out = self.gate(x)", "out = self.second(out)", "skip = self.skips(out)", "return out, skip"]
    ours = "\n    ".join(["def forward(self, x):", *lines])
    assert (
        "`skip = self.skips(out)` stands behind `out = self.second(out)`, in the reference before it" in told(ours)[0]
    )


def test_a_statement_that_calls_another_layer_is_another_one() -> None:
    ours = (
        "def forward(self, x):\n    out = self.gate(x)\n    skip = self.second(out)\n    return skip, self.skips(skip)"
    )
    assert told(ours) == []
