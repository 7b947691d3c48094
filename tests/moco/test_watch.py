"""The watch over the other ranks ends with the run that it watches."""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import Any

import pytest


class SlowStore:
    """A key-value store whose every answer takes a while."""

    def __init__(self, asked: threading.Event) -> None:
        self.asked = asked

    def add(self, key: str, amount: int) -> int:
        self.asked.set()
        time.sleep(0.3)
        return 0


class GoneStore(SlowStore):
    """One whose node goes away while it is asked."""

    def add(self, key: str, amount: int) -> int:
        super().add(key, amount)
        raise RuntimeError("connection reset by peer")


@pytest.mark.parametrize("store", [SlowStore, GoneStore])
def test_no_thread_is_left_in_the_stores_code(twin: Any, monkeypatch: pytest.MonkeyPatch, store: type) -> None:
    # The interpreter's end would find it there, and abort a process that has done all its work.
    watch = twin.module("watch")
    asked = threading.Event()
    for name, answer in (("is_launched", True), ("rank", 0), ("world_size", 1)):
        monkeypatch.setattr(watch.distributed, name, lambda answer=answer: answer)
    monkeypatch.setattr(watch.distributed, "gather_objects", lambda _: [(socket.gethostname(), os.getpid())])
    monkeypatch.setattr(watch, "_store", lambda *_: store(asked))
    ended = []
    monkeypatch.setattr(watch.Watch, "_give_up", lambda _, why: ended.append(why))
    with watch.Watch(0.1) as watching:
        assert asked.wait(10)
    assert not watching._thread.is_alive()
    assert ended == []
