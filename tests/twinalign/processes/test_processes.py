"""Child processes: calls, failures, deaths, and what becomes of a child whose parent is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from twinalign.errors import InputError
from twinalign.processes import stillness, tracebacks
from twinalign.processes.guardian import temporary_folder
from twinalign.processes.rank_group import RankGroup
from twinalign.processes.side_process import ChildError, SideProcess, borrowed_package
from twinalign.recorder.diagnosis import check
from twinalign.recorder.kept_processes import KeptProcesses
from twinalign.recorder.worker import Worker
from twinalign.replay.training import read_curves
from twinalign.stages.context import step_inputs


def test_calls_failures_and_a_death(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "ref.log"
    with SideProcess("ref", log=log) as process:
        answer = process.call(check, framework="nothing")
        reason = "ImportError: there is no backend for nothing; there are torch and paddle"
        assert answer == {"installed": False, "reason": reason}
        with pytest.raises(ChildError, match=r"^the ref side crashed while searching: TypeError: check") as raised:
            process.call(check, stranger=1)
        assert not raised.value.died
        assert raised.value.reason.startswith("TypeError")
        assert "TypeError" in log.read_text()
        with pytest.raises(ChildError, match="not a function of twinalign"):
            process.call(test_calls_failures_and_a_death)
        with pytest.raises(InputError, match="no module nowhere"):
            process.start(Worker, device="cpu", case="nowhere.at_all:Case", options={})
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(
            ChildError, match=r"while searching \(killed by SIGKILL, often because memory ran out\)"
        ) as raised:
            process.call(check, framework="nothing")
        assert raised.value.died
        assert not process.alive
        # This request stays in the buffer: leaving the block must not send it.
        with pytest.raises(ChildError, match="killed by SIGKILL"):
            process.call(check, framework="nothing")


def test_a_process_that_has_died_begins_again_with_its_service(tmp_path: Path) -> None:
    with SideProcess("ref", log=tmp_path / "ref.log") as process:
        assert not process.revive()  # it lives, and serves nothing
        process.start(Worker, device="cpu", case="tests.cases.tiny:TinyMoCo", options={})
        described, before = process.call(Worker.describe), process.pid
        os.kill(before, signal.SIGKILL)
        with pytest.raises(ChildError):
            process.call(Worker.describe)
        assert process.revive()
        assert process.pid != before
        assert process.call(Worker.describe) == described
        assert process.log == tmp_path / "ref_again.log"


def test_a_thread_that_goes_on_gets_nothing_of_the_next_run(tmp_path: Path) -> None:
    with contextlib.closing(KeptProcesses()) as kept:

        def lent() -> SideProcess:
            ignored: dict[str, Any] = {"progress": lambda *_: None, "points": lambda *_: None}
            return kept.start("ref", python=None, log=tmp_path / "log", threads=1, debug=False, **ignored)

        process = lent()
        process.close()
        with pytest.raises(ChildError, match=r"^the ref side crashed while searching: its process was closed$"):
            process.call(check, framework="torch")
        assert lent() is process
        assert process.call(check, framework="torch")["installed"]


def test_a_process_that_is_closed_ends_the_thread_that_waits_for_it(tmp_path: Path) -> None:
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            process.call(time.sleep, secs=60)
        except ChildError as error:
            ended.append(error)

    process = SideProcess("ref", log=tmp_path / "log")
    output = process._process.stdout
    assert output is not None
    thread = threading.Thread(target=wait)
    with process._reads:  # no pipe is closed while this thread may read from it
        thread.start()
        closing = threading.Thread(target=process.close)
        closing.start()
        process._process.wait()
        time.sleep(0.2)
        assert not output.closed
    closing.join()
    thread.join()
    assert output.closed
    assert len(ended) == 1


def test_an_interpreter_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--paddle-python .*/nothing: cannot be started"):
        SideProcess("paddle", python=str(tmp_path / "nothing"))


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="reads /proc")
def test_freed_memory_stays_for_the_next_pass_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MALLOC_MMAP_THRESHOLD_", raising=False)
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "4096")
    with borrowed_package(None) as environment:
        assert environment["MALLOC_TRIM_THRESHOLD_"] == "4096"
        # glibc before 2.35 ignores more than this, and would then return memory as before.
        assert environment["MALLOC_MMAP_THRESHOLD_"] == str(32 << 20)


def test_a_child_ends_when_its_parent_is_killed() -> None:
    text = (
        "import time\nfrom twinalign.processes.side_process import SideProcess\n"
        "process = SideProcess('ref')\nprint(process.pid, flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    ended = time.monotonic() + 30
    while Path(f"/proc/{child}").exists() and time.monotonic() < ended:
        time.sleep(0.1)
    assert not Path(f"/proc/{child}").exists()


def raised_by(code: str, name: str) -> Exception:
    """What the function of this name raises, in a file of the user's."""
    space: dict[str, Any] = {}
    exec(compile(code, f"/home/user/{name}.py", "exec"), space)
    try:
        space[name]()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_the_error_that_another_was_raised_from_is_said() -> None:
    error = raised_by(
        "def load():\n"
        "    try:\n"
        "        import no_such_module_at_all\n"
        "    except ImportError as error:\n"
        "        raise RuntimeError('Could not import module') from error\n",
        "load",
    )
    because = "(because of ModuleNotFoundError: No module named 'no_such_module_at_all')"
    assert tracebacks.last_line(error) == f"RuntimeError: Could not import module {because}"
    text = tracebacks.full(error)
    assert text.index("No module named") < text.index("which led to:") < text.index("Could not import module")
    assert tracebacks.last_line(raised_by("def plain():\n    return {}['x']\n", "plain")) == "KeyError: 'x'"


def test_what_twinalign_raises_is_not_blamed_on_the_user(tmp_path: Path) -> None:
    users = raised_by("def call():\n    return [][0]\n", "call")
    assert tracebacks.own_place(users) == ""
    with pytest.raises(FileNotFoundError) as raised:  # from numpy, which twinalign's own code has called
        read_curves(tmp_path / "missing.npz")
    assert tracebacks.own_place(raised.value).startswith("replay/training.py:")
    with SideProcess("ref", log=tmp_path / "log") as process, pytest.raises(ChildError) as failed:
        process.call(read_curves, path=str(tmp_path / "missing.npz"))
    assert str(failed.value).startswith("twinalign itself failed (replay/training.py:")
    assert "): the ref side crashed while searching: FileNotFoundError: " in str(failed.value)
    assert str(failed.value).endswith("this should not happen: please report it with the traceback")
    assert "in read_curves" in (tmp_path / "log").read_text(encoding="utf-8")


def test_a_function_of_the_user_that_takes_other_arguments_is_the_users() -> None:
    space: dict[str, Any] = {}
    exec(compile("def inputs(): ...", "/home/user/case.py", "exec"), space)
    case = types.SimpleNamespace(inputs=space["inputs"], seed=0)
    with pytest.raises(TypeError) as raised:
        step_inputs(case)  # type: ignore[arg-type]
    assert tracebacks.own_place(raised.value) == ""


def test_what_the_user_gives_a_watched_framework_is_not_twinaligns_fault() -> None:
    import torch

    from twinalign.backends.torch.reference_only.graph import CastCount
    from twinalign.backends.torch.training import distance

    single = torch.zeros(1, 2)
    space: dict[str, Any] = {"layer": torch.nn.functional.linear, "x": single, "weight": single.double()}
    exec(compile("def train():\n    layer(x, weight)\n", "/home/user/case.py", "exec"), space)
    with CastCount(), pytest.raises(RuntimeError) as raised:
        space["train"]()
    assert tracebacks.own_place(raised.value) == ""
    assert tracebacks.place(raised.value) == "/home/user/case.py:2"
    with CastCount(), pytest.raises(RuntimeError) as own:  # what twinalign's own code gives it is
        distance([(single, torch.zeros(3, 5))])
    assert tracebacks.own_place(own.value).startswith("backends/torch/training.py:")


# A function that waits for ever if its file is a pipe that nobody writes to.
WAIT: Any = types.SimpleNamespace(__module__="twinalign.processes.serving", __qualname__="os.open", doing="waiting")


def await_end(processes: Iterable[int], seconds: float = 60.0) -> list[int]:
    """Those of the processes that are still there after so many seconds."""
    ended, left = time.monotonic() + seconds, list(processes)
    while left and time.monotonic() < ended:
        time.sleep(0.1)
        left = [process for process in left if is_running(process)]
    return left


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stillness, "STOPPED_SECONDS", 1.0)
    monkeypatch.setattr(stillness, "IDLE_SECONDS", 3.0)


@pytest.mark.usefixtures("impatient")
@pytest.mark.slow
def test_a_side_that_is_stopped_or_waits_for_ever_is_named_and_ended(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for stop, why in (
        (True, "it was stopped by a signal"),
        (False, "it has neither computed nor read anything for 3 s"),
    ):
        with SideProcess("paddle", log=tmp_path / "log") as process:
            if stop:
                os.kill(process.pid, signal.SIGSTOP)
            said = rf"^the paddle side crashed while waiting: process {process.pid} stands still: {why} \(output in "
            with pytest.raises(ChildError, match=said) as raised:
                process.call(WAIT, path=str(tmp_path / "pipe"), flags=os.O_RDONLY)
            assert raised.value.died
            assert not is_running(process.pid)


@pytest.mark.usefixtures("impatient")
@pytest.mark.slow
def test_a_side_that_stood_still_begins_again(tmp_path: Path) -> None:
    with SideProcess("ref", log=tmp_path / "ref.log") as process:
        process.start(Worker, device="cpu", case="tests.cases.tiny:TinyMoCo", options={})
        described = process.call(Worker.describe)
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(ChildError, match="stands still: it was stopped by a signal") as raised:
            process.call(Worker.describe)
        assert raised.value.died
        assert process.revive()
        assert process.call(Worker.describe) == described


def test_who_computes_does_not_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stillness, "_BETWEEN_LOOKS", 0.0)
    monkeypatch.setattr(stillness, "IDLE_SECONDS", 0.0)
    observed = stillness.Stillness()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        assert observed.look([busy.pid]) == {busy.pid: "it has neither computed nor read anything for 0 s"}
        while stillness._activity(busy.pid)[1] < 1.0:
            time.sleep(0.1)
        assert observed.look([busy.pid]) == {}
        busy.kill()


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("side", ["ref", "paddle"])
def test_a_rank_that_is_stopped_is_named_and_all_are_ended(side: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    group = RankGroup(side, 2, device="cpu", python=None, log=tmp_path / "log.txt", threads=1)
    processes = [connection.process for _, connection in sorted(group._connections.items())]
    os.kill(processes[1], signal.SIGSTOP)
    with pytest.raises(ChildError, match=rf"rank 1 of 2 \(process {processes[1]}\) stands still: it was stopped by a"):
        group.call(WAIT, path=str(tmp_path / "pipe"), flags=os.O_RDONLY)
    assert await_end([*processes, group._launcher.pid]) == []


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_ranks_that_all_wait_for_ever_are_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    group = RankGroup("ref", 2, device="cpu", python=None, log=tmp_path / "log", threads=1)
    said = r"rank 0 of 2 \(process \d+\) and rank 1 of 2 \(process \d+\) stand still: it has neither computed nor"
    with pytest.raises(ChildError, match=said):
        group.call(WAIT, path=str(tmp_path / "pipe"), flags=os.O_RDONLY)


@pytest.mark.slow
def test_launcher_ranks_and_folders_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    text = f"""
import os, signal, time
from pathlib import Path
from twinalign.processes.rank_group import RankGroup
group = RankGroup("ref", 2, device="cpu", python=None, log=Path({str(tmp_path / "log")!r}), threads=1)
processes = [connection.process for connection in group._connections.values()]
os.kill(processes[0], signal.SIGSTOP)
print(group._folder, group._launcher.pid, *processes, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        folder, *processes = parent.stdout.readline().split()
        parent.kill()
    assert await_end(map(int, processes)) == []
    ended = time.monotonic() + 60
    while Path(folder).exists() and time.monotonic() < ended:
        time.sleep(0.1)
    assert not Path(folder).exists()


def test_a_guarded_folder_goes_with_a_process_that_is_killed_and_a_released_one_stays(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("guarded", "released")]
    for folder in folders:
        folder.mkdir()
    text = f"""
import os, signal
from pathlib import Path
from twinalign.processes import guardian
guarded, released = map(Path, {[*map(str, folders)]!r})
guardian.guard(guarded)
guardian.guard(released)
guardian.release(released)
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", text]).returncode == -signal.SIGKILL
    ended = time.monotonic() + 60
    while folders[0].exists() and time.monotonic() < ended:
        time.sleep(0.1)
    assert [folder.exists() for folder in folders] == [False, True]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_nothing_is_left_of_a_folder_whose_maker_is_killed_as_it_is_made(moment: str, tmp_path: Path) -> None:
    text = f"""
import os, signal
from twinalign.processes.guardian import temporary_folder
make = os.mkdir
def mkdir(*arguments, **named):
    if {moment == "after"}:
        make(*arguments, **named)
    os.kill(os.getpid(), signal.SIGKILL)
os.mkdir = mkdir
with temporary_folder():
    pass
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    assert subprocess.run([sys.executable, "-c", text], env=environment).returncode == -signal.SIGKILL
    ended = time.monotonic() + 60
    while list(tmp_path.iterdir()) and time.monotonic() < ended:
        time.sleep(0.1)
    assert list(tmp_path.iterdir()) == []


def test_a_temporary_folder_goes_at_its_end_and_stays_where_it_was_moved_to(tmp_path: Path) -> None:
    with temporary_folder("first.", tmp_path) as folder:
        (folder / "file").touch()
        assert folder.parent == tmp_path
        assert folder.stat().st_mode & 0o777 == 0o700
    with temporary_folder("second.", tmp_path) as folder:
        folder.rename(tmp_path / "kept")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_temporary_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(InputError, match=r"taken/a.*: cannot be written"), temporary_folder("a", tmp_path / "taken"):
        pass
