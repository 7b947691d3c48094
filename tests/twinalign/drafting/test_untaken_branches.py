"""Branches that never ran become a `raise`; line numbers stay, and what ran stays as it was."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from twinalign.drafting.untaken_branches import came_to, without_untaken

SOURCE = """def f(x):
    if x > 2:
        y = 1
        y += 2
    elif x > 1:
        y = 5
    else:
        y = 7
    for item in []:
        y += item
    try:
        y += 1
    except ValueError:
        y = 0
    if x: y += 1
    return y


def never(x):
    if x:
        return 2
    return 3


class C:
    def g(self, x):
        if x == 0:
            return (
                1,
                2,
            )
        return 4
"""


def lines_run(source: str, name: str, *given: Any) -> set[int]:
    names: dict[str, Any] = {}
    exec(compile(source, "traced.py", "exec"), names)
    ran: set[int] = set()

    def trace(frame: FrameType, event: str, value: Any) -> Any:
        if frame.f_code.co_filename != "traced.py":
            return None
        ran.add(frame.f_lineno)
        return trace

    function = names["C"]().g if name == "g" else names[name]
    sys.settrace(trace)
    try:
        function(*given)
    finally:
        sys.settrace(None)
    return ran


@pytest.mark.parametrize(("given", "gone"), [(3, {6, 8, 10, 14}), (2, {3, 8, 10, 14}), (0, {3, 6, 10, 14})])
def test_each_untaken_block_raises(given: int, gone: set[int]) -> None:
    ran = lines_run(SOURCE, "f", given)
    found = without_untaken("mine.module", SOURCE, ran)
    lines = found.splitlines()
    assert {number for number, line in enumerate(lines, 1) if "raise NotImplementedError" in line} == gone
    assert len(lines) == len(SOURCE.splitlines())
    names: dict[str, Any] = {}
    exec(found, names)
    expected: dict[str, Any] = {}
    exec(SOURCE, expected)
    assert names["f"](given) == expected["f"](given)
    assert names["never"](1) == 2  # it never ran as a whole: selected as a stub, not here


def test_a_branch_that_is_taken_after_all_says_where_it_was() -> None:
    found = without_untaken("mine.module", SOURCE, lines_run(SOURCE, "g", 1))
    names: dict[str, Any] = {}
    exec(found, names)
    assert names["C"]().g(5) == 4
    with pytest.raises(NotImplementedError) as raised:
        names["C"]().g(0)
    assert str(raised.value) == "left out of the port: the model never came to line 28 of mine.module"
    assert came_to(f"NotImplementedError: {raised.value}") == ("mine.module", 28)
    assert came_to("ValueError: other") is None


def test_a_handler_that_needs_nothing_stays() -> None:
    source = """def f(x):
    try:
        return isinstance(x, getattr(int, "real").Fake)
    except ImportError:
        x = asked(x)
    except AttributeError:
        return False
"""
    found = without_untaken("mine.module", source, {2, 3})
    assert found.splitlines()[5:] == source.splitlines()[5:]
    assert "never came to line 5 of mine.module" in found
    names: dict[str, Any] = {}
    exec(found, names)
    assert names["f"](1) is False
