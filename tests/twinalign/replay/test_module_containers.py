"""Code with an edit in it changes what modules hold: whatever runs next reads it as it was."""

import contextlib
import sys
import textwrap
import time
import types

import numpy as np
import pytest

from twinalign.replay.guarded import guarded
from twinalign.replay.module_containers import containers_kept

SOURCE = """
WORDS, IDS, KNOWN = ["a", "b"], {"a": 0}, {1, 2}
CACHE = []


class Samples:
    LABELS = [["O"], ["B", "I"]]
"""


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    made = types.ModuleType("words_of_a_port")
    exec(textwrap.dedent(SOURCE), vars(made))
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def spoil(module: types.ModuleType) -> None:
    module.WORDS.append(("a", "b"))
    module.IDS["b"] = 1
    module.KNOWN.discard(1)
    module.Samples.LABELS[1][0] = "X"


def test_what_is_changed_inside_is_undone(module: types.ModuleType) -> None:
    words = module.WORDS
    for _ in range(2):  # what was restored is watched as before
        with containers_kept():
            spoil(module)
        assert module.WORDS is words
        assert (words, module.IDS, module.KNOWN) == (["a", "b"], {"a": 0}, {1, 2})
        assert module.Samples.LABELS == [["O"], ["B", "I"]]


def test_what_is_changed_outside_stays_and_arrays_are_left_alone(module: types.ModuleType) -> None:
    with containers_kept():
        pass
    module.WORDS.append("c")
    module.CACHE.append(np.zeros(3))
    with containers_kept():
        module.WORDS[0] = np.ones(2)
        module.CACHE.append(np.ones(3))
    assert module.WORDS == ["a", "b", "c"]
    assert len(module.CACHE) == 2


def test_it_is_undone_where_an_edit_raises(module: types.ModuleType) -> None:
    del module.IDS
    with pytest.raises(AttributeError), guarded():
        spoil(module)
    assert module.WORDS == ["a", "b"]


def compute(after: contextlib.AbstractContextManager[None] | None = None) -> None:
    with after or contextlib.nullcontext():
        pass
    while True:
        pass


def test_the_bound_of_a_block_holds_inside_of_another() -> None:
    with pytest.raises(TimeoutError), guarded(0.2), guarded(60.0):
        compute()
    begun = time.process_time()
    with pytest.raises(TimeoutError), guarded(0.4):
        compute(guarded(0.1))
    assert time.process_time() - begun < 30.0  # the bound around it is there again
