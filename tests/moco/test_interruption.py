"""Runs that a real signal ends go on to the bits of a run that was never stopped."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.queues
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from moco_common.training.interruption import StopRequest, set_up_worker
from moco_common.training.reporting import Reporter

ROOT = Path(__file__).resolve().parents[2]
OPTION_TEXT = (
    "--arch vit_digits --batch-size 8 --epochs 3 --warmup-epochs 1 --optimizer adamw --lr 0.03 --weight-decay 0.1 "
    "--moco-m-cos --moco-dim 8 --moco-mlp-dim 16 --print-freq 1 --device cpu --model-ema"
)
LINEAR_TEXT = "--arch vit_digits --batch-size 8 --epochs 3 --lr 0.3 --print-freq 1 --device cpu --workers 0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """26 pictures in two classes: three batches of eight."""
    root = tmp_path_factory.mktemp("pictures")
    generator = np.random.RandomState(0)
    for number in range(26):
        path = root / f"class{number % 2}" / f"{number:02d}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(generator.randint(0, 256, (32, 32, 3), dtype="uint8")).save(path)
    return root


def started(twin, *arguments: str) -> subprocess.Popen:
    """A program in a process group of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tools"), str(ROOT)])}
    return subprocess.Popen(
        [sys.executable, "-m", twin.package, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env=environment,
    )  # fmt: skip


def run(twin, program: str, *arguments: Any) -> int:
    return twin.module(f"programs.{program}").main([str(argument) for argument in arguments])


def arrays(twin, path: Path) -> dict[str, np.ndarray]:
    """Every array of a checkpoint: weights, averages and the optimizer's state."""
    if not twin.is_torch:
        with np.load(path) as file:
            return {name: file[name] for name in file.files if name != "run"}
    import torch

    file = torch.load(path, weights_only=True)
    found = {
        f"{entry}/{key}": a.numpy() for entry in ("state_dict", "model_ema") for key, a in file.get(entry, {}).items()
    }
    for number, slots in file["optimizer"]["state"].items():
        found |= {f"optimizer/{number}/{slot}": value.numpy() for slot, value in slots.items()}
    return found


def assert_same_bits(twin, first: Path, second: Path) -> None:
    one, other = arrays(twin, first), arrays(twin, second)
    assert one.keys() == other.keys()
    assert any(name.startswith("optimizer/") for name in one)
    assert [name for name in one if one[name].tobytes() != other[name].tobytes()] == []


def stop_at(monkeypatch, place: tuple[int, int], number: signal.Signals) -> None:
    """Send this process a signal while the step at `place` is reported."""
    report = Reporter.__call__

    def call(self: Any, record: Any) -> None:
        report(self, record)
        if (record.epoch, record.iteration) == place:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(Reporter, "__call__", call)


def test_training_stopped_anywhere_goes_on_bit_by_bit(twin, folder: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    suffix = twin.module("files.checkpoint").SUFFIX
    options = [folder, *OPTION_TEXT.split(), "--workers", 0]
    assert run(twin, "train", *options, "--output", tmp_path / "whole") == 0
    lines = capsys.readouterr().out.splitlines()[1:]  # after the options
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    for place, number, code in (((0, 1), signal.SIGINT, 130), ((1, 2), signal.SIGTERM, 143)):
        output = tmp_path / number.name
        with monkeypatch.context() as patch:
            stop_at(patch, place, number)
            assert run(twin, "train", *options, "--output", output) == code
        captured = capsys.readouterr()
        stopped = output / f"interrupted{suffix}"
        assert captured.err == f"{number.name}: stopped; go on with --resume {stopped}\n"
        steps = 3 * place[0] + place[1] + 1
        assert len(captured.out.splitlines()) == 1 + steps
        # Other options that change no bit may change.
        assert run(twin, "train", *options, "--output", output, "--resume", stopped, "--keep", 1) == 0
        first = [line.partition(", avg_reader")[0] for line in capsys.readouterr().out.splitlines()[1:]]
        assert first == [line.partition(", avg_reader")[0] for line in lines[steps:]]
        assert_same_bits(twin, tmp_path / "whole" / f"checkpoint_0003{suffix}", output / f"checkpoint_0003{suffix}")
        assert not (output / f"checkpoint_0002{suffix}").exists()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_a_linear_classification_stopped_goes_on_bit_by_bit(
    twin, folder: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    suffix = twin.module("files.checkpoint").SUFFIX
    pretrained = tmp_path / f"pretrained{suffix}"
    model = twin.module("models.moco").build_moco("vit_digits", 8, 16)
    optimizer = twin.module("training.optimizer").build_optimizer("sgd", model.parameters(), 0.1, 0.0)
    twin.module("files.checkpoint").save_checkpoint(pretrained, model, optimizer, 1, 0, {"arch": "vit_digits"})
    options = [folder, *LINEAR_TEXT.split()]
    start = ["--pretrained", pretrained]
    assert run(twin, "lincls", *options, *start, "--output", tmp_path / "whole") == 0
    with monkeypatch.context() as patch:
        stop_at(patch, (1, 2), signal.SIGTERM)
        assert run(twin, "lincls", *options, *start, "--output", tmp_path / "parts") == 143
    resume = ["--resume", tmp_path / "parts" / f"interrupted{suffix}", "--output", tmp_path / "parts"]
    capsys.readouterr()
    assert run(twin, "lincls", *options, *resume) == 0
    # The last batch, of two pictures, was still to come in epoch 1.
    assert capsys.readouterr().out.splitlines()[1].startswith("[epoch 1, iter 3]")
    assert_same_bits(twin, *(tmp_path / name / f"checkpoint{suffix}" for name in ("whole", "parts")))


@pytest.mark.slow
def test_control_c_on_the_whole_process_group_loses_no_batch(twin, folder: Path, tmp_path: Path) -> None:
    """A terminal sends SIGINT to the workers too."""
    suffix = twin.module("files.checkpoint").SUFFIX
    options = [*OPTION_TEXT.replace("--epochs 3", "--epochs 60").split(), "--workers", "2", "--output", str(tmp_path)]
    process = started(twin, "train", str(folder), *options)
    try:
        assert process.stdout.readline().startswith("options: program=train ")
        assert process.stdout.readline().startswith("[epoch 0, iter 0]")
        assert process.stdout.readline().startswith("[epoch 0, iter 1]")
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130, errors
    assert f"SIGINT: stopped; go on with --resume {tmp_path / f'interrupted{suffix}'}" in errors.splitlines()
    assert (tmp_path / f"interrupted{suffix}").is_file()


def children(process: int) -> list[int]:
    """The processes that a process has started and that are alive."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == process and state not in "ZX":
                found.append(int(path.parent.name))
    return found


def is_alive(process: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="looks processes up in /proc")
@pytest.mark.slow
def test_workers_end_with_a_parent_that_is_killed(twin, folder: Path, tmp_path: Path) -> None:
    options = [*OPTION_TEXT.replace("--epochs 3", "--epochs 500").split(), "--workers", "2", "--output", str(tmp_path)]
    process = started(twin, "train", str(folder), *options)
    try:
        assert any(line.startswith("[epoch 1, iter 0]") for line in process.stdout)
        workers = children(process.pid)
        assert len(workers) >= 2
    finally:
        process.kill()
        process.wait()  # not communicate(): workers that are left have the other ends of the pipes
        process.stdout.close()
        process.stderr.close()
    end = time.monotonic() + 15
    while (left := [worker for worker in workers if is_alive(worker)]) and time.monotonic() < end:
        time.sleep(0.1)
    for worker in left:
        os.kill(worker, signal.SIGKILL)
    assert left == []


def as_worker(path: Path) -> None:
    """What becomes of errors in a worker's threads, standard error being a file."""
    sys.stderr = open(path, "w", buffering=1)  # noqa: SIM115
    set_up_worker(0)
    tell_of_queue: Any = multiprocessing.queues.Queue._on_queue_feeder_error
    for error in (BrokenPipeError("pipe"), EOFError("end"), ValueError("worth telling")):
        sys.excepthook(type(error), error, None)
        tell_of_queue(error, None)


def test_a_worker_is_silent_about_a_parent_that_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "errors"
    worker = multiprocessing.get_context("fork").Process(target=as_worker, args=(path,))
    worker.start()
    worker.join(60)
    assert worker.exitcode == 0
    assert path.read_text() == "ValueError: worth telling\n" * 2


def test_a_second_signal_ends_at_once() -> None:
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.signal == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_other_threads_leave_signals_alone() -> None:
    before = signal.getsignal(signal.SIGINT)
    errors = []

    def use() -> None:
        try:
            with StopRequest():
                pass
        except ValueError as error:
            errors.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert errors == []
    assert signal.getsignal(signal.SIGINT) is before
