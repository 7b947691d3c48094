"""Models that fill the memory: with `--sequential` a side is built and recorded after the other has given way."""

from __future__ import annotations

import concurrent.futures
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from twinalign.recorder.recorder import PlannedRecording, Recorder, RunSettings
from twinalign.recorder.worker import Worker


class Process:
    """Notes what it is asked for, and how many requests run at the same time."""

    running, most = 0, 0

    def __init__(self, side: str, asked: list[tuple[str, str]]) -> None:
        self.side, self.asked, self.alive = side, asked, True

    def call(self, function: Callable[..., dict[str, Any]], **values: Any) -> dict[str, Any]:
        import time

        Process.running += 1
        Process.most = max(Process.most, Process.running)
        time.sleep(0.05)
        self.asked.append((self.side, function.__name__))
        Process.running -= 1
        return {}

    def close(self) -> None:
        self.asked.append((self.side, "close"))


@pytest.mark.parametrize(("last", "gives_way"), [(False, "release"), (True, "close")])
@pytest.mark.parametrize("sequential", [True, False])
def test_a_side_releases_its_model_once_it_has_recorded(
    sequential: bool, last: bool, gives_way: str, tmp_path: Path
) -> None:
    asked: list[tuple[str, str]] = []
    recorder = Recorder(RunSettings("tests.cases.variety:Everything", out=tmp_path, sequential=sequential))
    recorder.processes = {side: Process(side, asked) for side in ("ref", "paddle")}  # type: ignore[misc]
    recorder.description = {"parts": {"forward": "net"}, "stages": ["forward"]}
    recorder._concurrent = not sequential
    Process.most = 0
    recorder._on_each(("ref", "paddle"), lambda process: process.call(Worker.initialise), together=not sequential)
    assert Process.most == (1 if sequential else 2)
    jobs = [PlannedRecording(side, "forward", "float32", tmp_path / side) for side in ("ref", "paddle")]
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    del asked[:]
    for part in recorder._queues(jobs, ("ref", "paddle")):
        recorder._record_all(part, {}, done, last)
    other = [] if sequential else [("paddle", gives_way)]  # its process ends with the run
    assert asked == [("ref", "record"), ("ref", gives_way), ("paddle", "record"), *other]
    assert [done.get(), done.get()] == [(one, None) for one in jobs]


def test_what_an_ended_side_had_half_written_is_removed(tmp_path: Path) -> None:
    recorder = Recorder(RunSettings("tests.cases.variety:Everything", out=tmp_path))
    (tmp_path / "float64").mkdir()
    left = tmp_path / "float64" / ".forward_paddle.npy.99999999.part"  # no process has this number
    left.write_bytes(b"half")
    with pytest.raises(RuntimeError, match="ref failed"), recorder.closing_on_error():
        raise RuntimeError("ref failed")
    assert not left.exists()


def test_ctrl_c_between_two_requests_does_not_wait_for_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = threading.Event()
    asked: list[tuple[str, str]] = []
    recorder = Recorder(RunSettings("tests.cases.variety:Everything", out=tmp_path))
    recorder.processes = {side: Process(side, asked) for side in ("ref", "paddle")}  # type: ignore[misc]
    for process in recorder.processes.values():
        monkeypatch.setattr(process, "close", closed.set)
    submit = concurrent.futures.ThreadPoolExecutor.submit

    def interrupted(pool: Any, ask: Any, process: Any) -> Any:
        if process.side == "paddle":
            raise KeyboardInterrupt
        return submit(pool, ask, process)

    monkeypatch.setattr(concurrent.futures.ThreadPoolExecutor, "submit", interrupted)
    ended: list[bool] = []
    with pytest.raises(KeyboardInterrupt):
        recorder._on_each(("ref", "paddle"), lambda process: ended.append(closed.wait(10)) or {}, together=True)
    assert ended == [True]
