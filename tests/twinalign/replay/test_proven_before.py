"""What was proven of one component is tried first in the next."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from twinalign.causes.registry import Explanation
from twinalign.replay import proven_before
from twinalign.replay.proven_before import forget_proven, lines_proven, note_proven, was_proven


@pytest.fixture(autouse=True)
def _nothing_proven() -> Iterator[None]:
    forget_proven(None)
    yield
    forget_proven(None)


def test_a_variant_is_known_by_its_words_in_any_order() -> None:
    note_proven(None, None)
    assert not was_proven("decay")
    note_proven(Explanation("decay", "another decay"), SimpleNamespace(detail="not a, b"))
    assert was_proven("decay")
    assert was_proven("decay", SimpleNamespace(detail="not b, a"))
    assert not was_proven("decay", SimpleNamespace(detail="not c"))
    assert not was_proven("rate", SimpleNamespace(detail="not a, b"))


def test_lines_are_known_by_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [SimpleNamespace(lines_of_port=[("port.py", n, n)]) for n in (3, 4)]
    monkeypatch.setattr(proven_before, "lines_of", lambda *given, **options: lines)
    assert list(lines_proven(dict, None)) == []
    note_proven(Explanation("line_of_port", "", evidence={"lines_of_port": [["port.py", 4, 4]]}), None)
    assert list(lines_proven(dict, None)) == [lines[1]]
