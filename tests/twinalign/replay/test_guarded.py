"""Code with an edit in it may compute, wait, or start processes without end."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time

import pytest

from twinalign.replay import guarded as module
from twinalign.replay.guarded import guarded


def _wait() -> None:
    time.sleep(60)


def test_what_waits_for_ever_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WAITED", 0.2)
    with pytest.raises(TimeoutError), guarded(0.01):
        _wait()


def test_a_block_inside_of_another_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WAITED", 0.2)
    with pytest.raises(TimeoutError), guarded(0.01), guarded(60.0):
        _wait()


def test_a_loader_of_hundreds_of_workers_starts_a_few_and_leaves_none() -> None:
    started: list[int] = []

    def load() -> None:
        for number in range(600):
            multiprocessing.get_context("fork").Process(target=_wait, daemon=True).start()
            started.append(number)

    with pytest.raises(BlockingIOError, match="too many processes"), guarded(5.0):
        load()
    assert 0 < len(started) <= 16
    assert multiprocessing.active_children() == []


def test_processes_of_before_stay_and_can_be_started_behind_it() -> None:
    child = multiprocessing.get_context("fork").Process(target=_wait, daemon=True)
    child.start()
    with guarded(5.0):
        pass
    assert child.is_alive()
    child.kill()
    assert os.fork.__name__ == "fork"


def test_a_loader_that_is_left_is_ended_and_others_work_behind_it() -> None:
    paddle = pytest.importorskip("paddle")
    loader = paddle.io.DataLoader(list(range(64)), batch_size=2, num_workers=2)

    def leave() -> None:
        for _ in loader:
            raise ValueError("left")

    with pytest.raises(ValueError, match="left"), guarded(20.0):
        leave()
    assert multiprocessing.active_children() == []
    assert sum(len(batch) for batch in loader) == 64


def test_what_ends_the_process_is_an_error_like_others() -> None:
    """As a parser of arguments does that is given what it does not know."""
    with pytest.raises(RuntimeError, match=r"^the code ends its process with 2$"), guarded(5.0):
        sys.exit(2)
