"""A group of ranks that ends."""

from types import SimpleNamespace
from typing import Any

import pytest

from twinalign.processes import rank_group
from twinalign.processes.rank_group import RankGroup


def test_a_group_may_be_closed_again_while_it_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure of one side closes both groups, and each closes itself when it fails."""
    monkeypatch.setattr(rank_group.guardian, "release", lambda process: None)
    monkeypatch.setattr(rank_group.os, "kill", lambda process, number: None)
    group: Any = object.__new__(RankGroup)
    closed: list[int] = []

    def close(rank: int) -> None:
        closed.append(rank)
        group.close()

    group._launcher = SimpleNamespace(pid=0, poll=lambda: 0, wait=lambda: 0)
    group._held = SimpleNamespace(close=lambda: None)
    group._connections = {
        rank: SimpleNamespace(process=0, socket=SimpleNamespace(close=lambda rank=rank: close(rank))) for rank in (0, 1)
    }
    group.close()
    assert closed == [0, 1]
    assert group._connections == {}
