"""Which lines of a constructor make a table."""

from __future__ import annotations

from typing import Any

import pytest

from twinalign.replay.table_lines import constructor_of, made_in


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
