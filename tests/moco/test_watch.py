"""The watch over the other ranks ends with the run that it watches."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from moco_common import distributed
from moco_common.distributed import LostRankError, Watch, ended_with_launcher
from tests.conftest import ROOT


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
    own = twin.module("distributed")
    asked = threading.Event()
    monkeypatch.setattr(own, "is_launched", lambda: True)
    monkeypatch.setattr(own, "_store", lambda _: store(asked))
    ended = []
    monkeypatch.setattr(Watch, "_give_up", lambda _, why: ended.append(why))
    with own.watch(0.1) as watching:
        assert asked.wait(10)
    assert not watching._thread.is_alive()
    assert ended == []


class SharedStore:
    """What the ranks of a test tell each other."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def add(self, key: str, amount: int) -> int:
        self.numbers[key] = self.numbers.get(key, 0) + amount
        return self.numbers[key]


def watched(monkeypatch: pytest.MonkeyPatch, exchanges: int, peers: dict[str, int], seconds: float = 60.0) -> list[str]:
    """Why rank 0 gives up on a rank 1 that told the store these numbers and says no more."""
    for name in ("_SILENT_SECONDS", "_IDLE_SECONDS"):
        monkeypatch.setattr(distributed, name, 0.5)
    monkeypatch.setattr(distributed, "_TURNS", 1)
    store, ended, over = SharedStore(), [], threading.Event()
    store.numbers = {f"{name}/1": value for name, value in peers.items()}

    def give_up(_: Watch, why: str) -> None:
        ended.append(why)
        over.set()

    monkeypatch.setattr(Watch, "_give_up", give_up)
    with Watch(1000.0, 0, [("here", 1), ("there", 2)], lambda: exchanges, lambda: store) as watching:
        watching.timeout = 1000.0
        if not over.wait(seconds):
            return []
        watching._over.set()
    return ended[:1]


def test_a_rank_that_shows_no_sign_of_life_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    why = ["rank 1 (process 2 on there) stands still: it has shown no sign of life for 0.5 s"]
    assert watched(monkeypatch, 3, {"exchanges": 3, "looks": 7}) == why


def test_a_rank_that_is_done_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watched(monkeypatch, 3, {"exchanges": 3, "looks": 7 + (1 << 40)}, 4.0) == []


def test_a_rank_that_computes_nothing_while_others_wait_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    why = ["rank 1 (process 2 on there) stands still: the others wait for it, and it has computed nothing for 0.5 s"]
    assert watched(monkeypatch, 4, {"exchanges": 3, "looks": 7 + (1 << 40)}) == why


def test_a_launcher_that_ends_this_rank_too_does_not_keep_it_from_saying_why() -> None:
    program = """
import os, signal, threading, time
from moco_common.distributed import Watch

class SlowStore:
    def add(self, key, amount):
        asked.set()
        broken.wait()
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30)

asked, broken = threading.Event(), threading.Event()
with Watch(1.0, 0, [("elsewhere", 1)], lambda: 0, SlowStore):
    asked.wait()
    broken.set()
    raise RuntimeError("gloo: Connection closed by peer")
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == distributed.LOST_RANK
    assert ended.stderr == (
        "error: the ranks can no longer exchange anything: gloo: Connection closed by peer; "
        "--resume goes on from the last checkpoint\n"
    )


def test_a_rank_that_closes_its_connections_before_it_has_ended_is_named() -> None:
    dying = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1)"])
    peers = [("elsewhere", 1), (socket.gethostname(), dying.pid)]
    message = f"rank 1 is gone: its process {dying.pid} has ended; --resume goes on from the last checkpoint"
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(LostRankError, match=f"^{message}$"), Watch(10.0, 0, peers, lambda: 0, SharedStore):
            raise RuntimeError("gloo: Connection reset by peer")
    finally:
        signal.signal(signal.SIGTERM, handler)
        dying.wait()


def test_nobody_is_left_unwatched_if_the_store_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    monkeypatch.setattr(Watch, "_give_up", lambda _, why: ended.append(why))
    with Watch(10.0, 0, [("here", 1)], lambda: 0, lambda: {}["PADDLE_MASTER"]) as watching:
        watching._thread.join(10)
    assert ended == ["the launcher's store cannot be reached ('PADDLE_MASTER')"]


@pytest.mark.parametrize(
    ("parents", "first", "ends"),
    [
        ([7, 7, 1], "/sbin/init", True),
        ([1, 1, 1], "/sbin/init\0splash", True),  # it was gone before this rank could look
        ([1, 1, 1], "/usr/bin/python3\0/usr/bin/torchrun", False),  # in a container
        ([7, 7, 7], "/sbin/init", False),
    ],
)
def test_a_rank_ends_with_its_launcher(
    parents: list[int], first: str, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    seen = iter(parents)
    looked = threading.Event()

    def parent() -> int:
        found = next(seen, None)
        if found is None:
            looked.set()
        return parents[-1] if found is None else found

    monkeypatch.setattr(distributed.os, "getppid", parent)
    monkeypatch.setattr(distributed, "_command", lambda process: first)

    def end(why: str) -> None:
        ended.append(why)
        looked.set()

    monkeypatch.setattr(distributed, "_end_this_rank", end)
    with ended_with_launcher():
        assert looked.wait(30)
    assert ended == ["the launcher is gone"] * ends


LAUNCHED = {
    "moco_ref": {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
        "WORLD_SIZE": "2",
        "RANK": "1",
        "TORCHELASTIC_RUN_ID": "none",
    },
    "moco_paddle": {
        "PADDLE_MASTER": "127.0.0.1:1",
        "PADDLE_TRAINER_ENDPOINTS": "127.0.0.1:1,127.0.0.1:2",
        "PADDLE_CURRENT_ENDPOINT": "127.0.0.1:2",
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_TRAINER_ID": "1",
        "PADDLE_LOCAL_SIZE": "2",
    },
}
"""What each launcher tells rank 1 of two, whose rank 0 never comes."""


@pytest.mark.slow
def test_a_rank_that_waits_for_the_others_ends_with_its_launcher(twin: Any) -> None:
    environment = {**os.environ, **LAUNCHED[twin.package], "PYTHONPATH": str(ROOT)}
    rank = f"import {twin.package}.distributed as d\nprint(1, flush=True)\nwith d.process_group('cpu'): pass"
    text = f"import subprocess, sys\nrank = subprocess.Popen([sys.executable, '-c', {rank!r}])\nrank.wait()"
    with subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as launcher:
        assert launcher.stdout is not None
        assert launcher.stderr is not None
        assert launcher.stdout.readline() == "1\n"
        time.sleep(1.0)
        launcher.kill()
        killed = time.monotonic()
        told = launcher.stderr.read()  # to the end of the rank
    assert time.monotonic() - killed < 20
    if twin.is_torch:  # paddle's ranks wait in C++, and only the kernel can end them
        assert "error: the launcher is gone; --resume goes on" in told
