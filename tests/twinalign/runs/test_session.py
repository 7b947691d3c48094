import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import twinalign
from twinalign.processes.side_process import SideProcess
from twinalign.recorder.kept_processes import KeptProcesses, import_framework

CASE = """
from twinalign import Case
class Small(Case):
    def reference(self):
        import torch
        return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh())
    def reproduced(self):
        from session_port import build
        return build()
    def inputs(self, rng):
        return {"x": rng.standard_normal((2, 4), dtype="float32")}
"""
PORT = "import paddle\ndef build():\n    return paddle.nn.Sequential(paddle.nn.Linear(4, 8), paddle.nn.{})\n"


@pytest.mark.slow
def test_each_run_sees_the_port_as_it_was_saved(tmp_path: Path) -> None:
    (tmp_path / "case.py").write_text(CASE)
    port, out = tmp_path / "session_port.py", tmp_path / "out"
    port.write_text(PORT.format("Tanh()"))
    with twinalign.session(tmp_path / "case.py", out=out, locate=False) as session:
        assert session.run().verdict == "aligned"
        recorded = (out / "forward_ref.npy").stat().st_mtime_ns
        (weights,) = (out / "weights").glob("*_ref.npz")
        built = weights.stat().st_mtime_ns
        port.write_text(PORT.format("Sigmoid()"))
        told: list[tuple[str, str]] = []
        assert session.run(progress=lambda side, text: told.append((side, text))).verdict == "diverged"
        found = [text for side, text in told if side == "found"]
        assert found[0].startswith("01 forward: diverged, 1 tensors; output: ")
        assert (out / "forward_ref.npy").stat().st_mtime_ns == recorded  # the reference has not changed
        assert weights.stat().st_mtime_ns == built
        port.write_text("def build(:\n")
        with pytest.raises(twinalign.TwinalignError, match=rf"forward: SyntaxError: .* in {port}, line 1") as raised:
            session.run()
        assert raised.value.__notes__[0].endswith(f'File "{port}", line 1, in <module>\n    def build(:')
        port.write_text(PORT.format("Tanh( )"))
        weights.write_bytes(weights.with_name(weights.name.replace("_ref", "_paddle")).read_bytes())  # transposed
        assert session.run().verdict == "aligned"
        assert weights.stat().st_mtime_ns != built
    twinalign.run(tmp_path / "case.py", out=tmp_path / "plain", locate=False)
    for name in ("forward_ref.npy", "forward_paddle.npy"):
        assert (out / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()


def test_a_session_follows_into_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    (tmp_path / "named_by_pythonpath.py").write_text("")
    used = []
    with twinalign.session(locate=False) as session:
        # The processes start in a folder that PYTHONPATH names as well, where it is still found from the next one.
        for folder, activation, verdict in ((".", "Sigmoid()", "diverged"), ("next", "Tanh()", "aligned")):
            (tmp_path / folder / "cases").mkdir(parents=True)
            monkeypatch.chdir(tmp_path / folder)
            Path("cases/case.py").write_text(CASE)
            Path("session_port.py").write_text("import named_by_pythonpath\n" + PORT.format(activation))
            assert session.run("cases/case.py").verdict == verdict
            assert Path("result/summary.json").is_file()
            used.append({process.pid for _, process in session._kept._idle.values()})
    assert used[0] == used[1] != set()


def test_a_session_without_a_case_says_what_to_give() -> None:
    with twinalign.session() as session, pytest.raises(twinalign.InputError, match=r"there is no case; give one here"):
        session.run()


@pytest.mark.parametrize("side", ["ref", "paddle"])
def test_importing_a_framework_starts_no_thread_that_a_fork_would_miss(side: str) -> None:
    with SideProcess(side, forks=True) as process:
        process.call(import_framework, side=side, optimizers=False)
        importing = len(os.listdir(f"/proc/{process.pid}/task"))
    program = "import numpy, os; print(len(os.listdir('/proc/self/task')))"
    numpy_alone = int(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout)
    assert importing <= numpy_alone  # OpenBLAS handles forks by itself


@pytest.mark.slow
def test_a_killed_fork_ends_its_process_in_the_same_way_and_the_next_run_gets_another(tmp_path: Path) -> None:
    kept = KeptProcesses()
    versions = kept.versions(sys.executable, "ref")
    assert kept.versions(sys.executable, "ref") is versions
    asked = {"python": None, "threads": 1, "debug": False, "progress": print, "points": print}
    process = kept.start("ref", log=tmp_path / "one.log", **asked)
    fork = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
    os.kill(fork, signal.SIGKILL)
    with pytest.raises(twinalign.SideCrashError, match="killed by SIGKILL"):
        process.call(import_framework, side="ref", optimizers=False)
    assert kept.versions(sys.executable, "ref") is versions
    process.close()
    assert kept.versions(sys.executable, "ref") is not versions
    other = kept.start("ref", log=tmp_path / "two.log", **asked)
    assert other is not process
    other.close()
    again = kept.start("ref", log=tmp_path / "three.log", **asked)
    assert again is other
    kept.close()
    assert not again.alive


def test_layers_are_matched_anew_where_the_reference_has_changed(tmp_path: Path) -> None:
    """Both sides name their layers in their own way, so that every run of the port is matched by running."""
    case = CASE.replace("return build()", "return named(build())") + (
        "\ndef named(model):\n    import paddle\n    class Own(paddle.nn.Layer):\n        def __init__(self):\n"
        "            super().__init__()\n            self.body, self.act = model[0], model[1]\n"
        "        def forward(self, x):\n            return self.act(self.body(x))\n    return Own()\n"
    )
    (tmp_path / "case.py").write_text(case)
    port = tmp_path / "session_port.py"
    port.write_text(PORT.format("Tanh()"))
    with twinalign.session(tmp_path / "case.py", out=tmp_path / "out", locate=False) as session:
        for change, verdict in (("Tanh()", "aligned"), ("Sigmoid()", "diverged"), ("Tanh( )", "aligned")):
            port.write_text(PORT.format(change))
            assert session.run().verdict == verdict
        (tmp_path / "case.py").write_text(case.replace("Tanh()", "Sigmoid()"))
        assert session.run().verdict == "diverged"
        port.write_text(PORT.format("Sigmoid()"))
        assert session.run().verdict == "aligned"
