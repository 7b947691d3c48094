"""What a line of the port is made into from the reference's function; which edit is right, a re-run decides."""

from __future__ import annotations

import pytest

from twinalign.edits.from_reference import edits_from_reference
from twinalign.edits.source import Source, applied

REFERENCE = '''def forward(self, x):
    """What it computes."""
    y = self.act(self.norm(x))
    y = torch.softmax(y, dim=1) * self.scale
    x = x + self.fall(y)  # the residual
    x = x.flatten(1)
    return self.head(x.mean(1))
'''
PORT = """def forward(self, x):
    y = self.act(self.norm(x))
    y = paddle.softmax(y, axis=1) * self.scale
    x = x + self.fall(y)
    x = x.flatten(1)
    return self.head(x.mean(1))
"""


def made(port: str) -> list[str]:
    """The texts that the edits make of a port, in their order."""
    sources = Source("port.py", port), Source("source.py", REFERENCE)
    (mine, theirs) = ((1, source.text.count("\n")) for source in sources)
    edits = edits_from_reference(sources[0], mine, sources[1], theirs)
    return [applied(port, [edit]) for edit in edits if edit is not None]


def test_equal_functions_have_no_edits() -> None:
    assert made(PORT) == []


@pytest.mark.parametrize(
    ("right", "wrong", "attempts"),
    [
        ("x = x + self.fall(y)", "x = self.fall(y)", 2),
        ("x + self.fall(y)", "x - self.fall(y)", 1),
        ("self.act(self.norm(x))", "self.act(x)", 2),
        ("self.act(self.norm(x))", "self.norm(self.act(x))", 4),
        ("axis=1", "axis=-1", 2),
        ("* self.scale", "* self.shift", 2),
        (" * self.scale", "", 3),
        ("x.mean(1)", "x.sum(1)", 1),
        ("    x = x.flatten(1)\n", "", 1),
        ("x = x.flatten(1)", "x = x.flatten(1)\n    x = x * 2", 1),
    ],
)
def test_the_right_edit_is_among_the_first(right: str, wrong: str, attempts: int) -> None:
    assert PORT.count(right) == 1
    found = made(PORT.replace(right, wrong))
    wanted = "".join(PORT.split())
    plain = ["".join(text.replace("; ", "\n").replace("pass\n", "").split()) for text in found]
    assert wanted in plain[:attempts]
