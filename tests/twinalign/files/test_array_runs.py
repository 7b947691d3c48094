"""Runs of opcodes that are taken in one step, against the machine that takes them one by one."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plain_pickles import machine as pickle_machine
from plain_pickles.array_runs import _HEAD, ArrayRuns
from plain_pickles.machine import PickleMachine
from plain_pickles.reading import settle
from plain_pickles.symbols import NUMPY_SYMBOLS


def tree() -> dict[str, Any]:
    """Arrays of each rank and of lengths that each opcode writes, some of them one object, names of many lengths."""
    rng = np.random.default_rng(0)
    shared = rng.standard_normal(3).astype("f4")
    arrays: dict[str, Any] = {f"x{n}": rng.standard_normal((2,) * n) for n in range(6)}
    arrays |= {"shared": shared, "é" * 40: shared, "large": np.zeros((3, 40_000), "f4"), "none": np.zeros((0, 300))}
    arrays |= {"fortran": np.asfortranarray(np.ones((2, 3))), "n" * 300: np.arange(70_000), "flag": np.array(True)}
    arrays |= {f"later{n}": np.full((n + 1, 256), n, "i8") for n in range(40)}
    return arrays


PICKLES = {protocol: pickle.dumps(tree(), protocol) for protocol in (2, 3, 4, 5)}


class Counted:
    """How many runs are taken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken, take = 0, ArrayRuns.take

        def counted(runs: ArrayRuns, *arguments: Any) -> Any:
            found = take(runs, *arguments)
            self.taken += found is not None
            return found

        monkeypatch.setattr(ArrayRuns, "take", counted)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def read(content: bytes, in_runs: bool) -> tuple[Any, int, str]:
    """What the machine makes of a pickle: memo and tree in words, where it stands, and its error."""
    machine = PickleMachine(memoryview(content), NUMPY_SYMBOLS)
    begin = pickle_machine._BEGIN_RUNS
    pickle_machine._BEGIN_RUNS = begin if in_runs else ()
    try:
        found, error = machine.load(), ""
    except Exception as raised:
        found, error = None, f"{type(raised).__name__}: {raised}"
    finally:
        pickle_machine._BEGIN_RUNS = begin
    try:
        words = repr(settle(found)) if not error else ""
    except Exception as raised:
        words = f"{type(raised).__name__}: {raised}"
    memo = [(place, type(value).__name__) for place, value in machine._memo.items()]
    return (words, memo), machine.position, error


@pytest.mark.parametrize("protocol", PICKLES)
def test_the_same_tree_and_memo(protocol: int, counted: Counted) -> None:
    assert read(PICKLES[protocol], True) == read(PICKLES[protocol], False)
    assert (counted.taken > 40) == (protocol == 4)  # what numpy.save writes
    found = settle(PickleMachine(memoryview(PICKLES[protocol]), NUMPY_SYMBOLS).load())
    for name, array in pickle.loads(PICKLES[protocol]).items():
        assert np.array_equal(found[name], array), name
        assert found[name].dtype == array.dtype


SMALL = pickle.dumps({f"a{n}": np.arange(n + 2.0).reshape(-1, n + 2) for n in range(4)} | OrderedDict(b=np.ones(3)), 4)


@settings(max_examples=400, deadline=None)
@given(
    changes=st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), min_size=1, max_size=3),
    end=st.one_of(st.just(len(SMALL)), st.integers(0, len(SMALL))),
)
def test_what_is_odd_meets_the_machine(changes: list[tuple[int, int]], end: int) -> None:
    """Any bytes changed, and cut short anywhere: the same tree, or the same error at the same place."""
    content = bytearray(SMALL)
    for place, value in changes:
        content[place] = value
    assert read(bytes(content[:end]), True) == read(bytes(content[:end]), False)


def test_every_byte_of_a_run_changed_meets_the_machine(counted: Counted) -> None:
    for place in range(len(SMALL)):
        for value in (0, 1, ord("h"), ord("K"), 0x85, 0x94, 0x8C, 255):
            content = bytearray(SMALL)
            content[place] = value
            assert read(bytes(content), True) == read(bytes(content), False), place
    assert counted.taken > 1000


def test_a_memo_with_gaps_is_not_read_past_a_run(counted: Counted) -> None:
    """A place that the run itself fills before it names it: only the machine knows what stands there by then."""
    start = SMALL.index(b"\x8c\x02a1")
    head = _HEAD.match(SMALL, start + 5)
    assert head is not None
    at = head.start(5) + 1
    dtype = SMALL[at : at + 1]
    for place in range(256):
        there = bytes([place])
        put = b"h" + dtype + b"q" + there + b"0"  # the dtype, once more, at any place of the memo
        content = SMALL[:start] + put + SMALL[start:at] + there + SMALL[at + 1 :]
        assert read(content, True) == read(content, False), place
    assert counted.taken > 256
