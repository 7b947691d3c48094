"""What ended before the change in which two passes differ does not run again in the second one."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from twinalign.backends import backend_of_side
from twinalign.replay.known_before import KnownBefore

BEFORE = {1: "outer.last", 2: "outer.middle"}
"""All changes."""


class _Model:
    """`outer` calls `first`, `middle` and `last`, each of which adds one, and `tail` follows; notes what runs."""

    def __init__(self, last: Callable[[Any], Any] = lambda x: x + 1, first: Callable[[Any], Any] | None = None) -> None:
        import torch

        self.known = KnownBefore(backend_of_side("ref"))
        self.first, self.last = first or (lambda x: x + 1), last
        self.given = torch.zeros(2)

    def __call__(self, changes: Mapping[int, str], other_inputs: bool = False) -> tuple[list[str], float, Counter[str]]:
        self.ran: list[str] = []
        self.counts: Counter[str] = Counter()
        self.known.begin(changes, other_inputs)
        value = self._call("tail", lambda x: x + 1, self._call("outer", self._outer, self.given))
        return self.ran, float(value[0]), self.counts

    def _outer(self, x: Any) -> Any:
        x = self._call("outer.first", self.first, x)
        return self._call("outer.last", self.last, self._call("outer.middle", lambda x: x + 1, x))

    def _call(self, path: str, run: Callable[[Any], Any], x: Any) -> Any:
        key = path, self.counts[path]
        self.counts[path] += 1
        return self.known.result(key, self.counts, functools.partial(self._run, path, run, x))

    def _run(self, path: str, run: Callable[[Any], Any], x: Any) -> Any:
        self.ran.append(path)
        return run(x)


ALL = ["tail", "outer", "outer.first", "outer.middle", "outer.last"]


@pytest.mark.parametrize(
    ("changes", "runs"),
    [
        (BEFORE, []),
        ({2: "outer.middle"}, ["outer", "outer.last", "tail"]),
        ({1: "outer.last"}, ["outer", "outer.middle", "outer.last", "tail"]),
        ({}, ["outer", "outer.middle", "outer.last", "tail"]),
        ({**BEFORE, 3: "tail"}, ["tail"]),
        ({**BEFORE, 3: "outer"}, ["outer", "outer.first", "outer.middle", "outer.last", "tail"]),
    ],
)
def test_what_ended_before_the_first_difference_stands(changes: Mapping[int, str], runs: list[str]) -> None:
    model = _Model()
    first = model(BEFORE)
    assert sorted(first[0]) == sorted(ALL)
    ran, value, counts = model(changes)
    assert ran == runs
    assert value == first[1] == 4.0
    assert counts == first[2]  # a second call of a layer has the same number in all passes


def test_on_other_inputs_everything_runs() -> None:
    model = _Model()
    model(BEFORE)
    assert sorted(model(BEFORE, other_inputs=True)[0]) == sorted(ALL)
    assert model(BEFORE)[0] == []


def test_a_result_that_is_changed_in_place_afterwards_is_not_taken() -> None:
    model = _Model(last=lambda x: x.add_(1))
    model(BEFORE)
    # What `middle` returned is what `last` returned: with another `last` it is none of the results.
    assert model({2: "outer.middle"})[0] == ["outer", "outer.middle", "outer.last", "tail"]


def test_what_draws_random_numbers_runs_again() -> None:
    import torch

    model = _Model(first=lambda x: x + torch.rand(2))
    model(BEFORE)
    assert model({2: "outer.middle"})[0] == ["outer", "outer.first", "outer.last", "tail"]
