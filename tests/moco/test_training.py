"""The training program of both twins: its log, its checkpoints, resuming bit by bit, and what it refuses."""

from __future__ import annotations

import pickle
import re
import resource
import shutil
import signal
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from moco_common.files import make_output_folder, written_beside
from moco_common.programs import train

LINE = re.compile(
    r"\[epoch (\d+), iter (\d+)\] lr: (\S+), loss: (\d+\.\d{5}), avg_reader_cost: \d+\.\d{5} sec, "
    r"avg_batch_cost: \d+\.\d{5} sec, avg_ips: \d+\.\d{2} images/sec, eta: \d+:\d\d:\d\d"
)
OPTION_TEXT = (
    "--arch vit_digits --batch-size 8 --epochs 2 --warmup-epochs 1 --optimizer adamw --lr 0.03 --weight-decay 0.1 "
    "--moco-m-cos --moco-dim 8 --moco-mlp-dim 16 --workers 0 --print-freq 2 --device cpu"
)
OPTIONS = OPTION_TEXT.split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """26 pictures in two classes: three batches of eight."""
    root = tmp_path_factory.mktemp("pictures")
    generator = np.random.RandomState(0)
    for number in range(26):
        path = root / f"class{number % 2}" / f"{number:02d}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(generator.randint(0, 256, (12, 12, 3), dtype="uint8")).resize((32, 32)).save(path)
    return root


def run(twin, *arguments: Any) -> int:
    return twin.module("programs.train").main([str(argument) for argument in arguments])


def setup(twin, folder: Path, name: str = "adamw") -> tuple[Any, Any, Any, Namespace]:
    twin.seed(3)
    model = twin.module("models.moco").build_moco("vit_digits", dim=8, mlp_dim=16)
    loader = twin.module("data").build_pretraining_loader(folder, 8, 32)
    args = Namespace(lr=1e-3, epochs=2, warmup_epochs=1, moco_m=0.9, moco_m_cos=True)
    return model, loader, twin.module("training.optimizer").build_optimizer(name, model.parameters(), 1e-3, 0.1), args


def assert_equal_states(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> None:
    assert first.keys() == second.keys()
    assert [key for key in first if not np.array_equal(first[key], second[key])] == []


def test_program_logs_saves_and_resumes(twin, folder: Path, tmp_path: Path, capsys) -> None:
    suffix = twin.module("files.checkpoint").SUFFIX
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    assert run(twin, folder, *OPTIONS, "--output", whole) == 0
    options, *lines = capsys.readouterr().out.splitlines()
    assert options.startswith("options: program=train arch=vit_digits batch_size=8 ")
    found = [LINE.fullmatch(line) for line in lines]
    assert all(found), lines
    assert [match.groups()[:3] for match in found] == [
        ("0", "0", "0"),
        ("0", "2", "0.000625"),
        ("1", "0", "0.0009375"),
        ("1", "2", "0.000234375"),
    ]
    assert sorted(path.name for path in whole.iterdir()) == [f"checkpoint_0001{suffix}", f"checkpoint_0002{suffix}"]
    first = whole / f"checkpoint_0001{suffix}"
    assert run(twin, folder, *OPTIONS, "--output", resumed, "--resume", first) == 0
    states = []
    for path in (whole, resumed):
        model, _, optimizer, _ = setup(twin, folder)
        checkpoint = twin.module("files.checkpoint")
        settings = saved_settings(twin, path / f"checkpoint_0002{suffix}")
        assert checkpoint.load_checkpoint(path / f"checkpoint_0002{suffix}", model, optimizer, settings) == (2, 0)
        states.append({key: value.copy() for key, value in twin.state(model).items()})
    assert_equal_states(*states)


def saved_settings(twin, path: Path) -> dict[str, Any]:
    """What the program records, from its own options."""
    parser = train.build_parser(twin.package, twin.module("models.moco").ARCHITECTURES, "cpu", ["adamw"])
    args = parser.parse_args(["anywhere", *OPTIONS])
    return {name: value for name, value in vars(args).items() if name not in train.FREE_ON_RESUME}


@pytest.mark.parametrize("name", ["adamw", "lars", "sgd"])
def test_resuming_in_the_middle_of_an_epoch_changes_no_bit(twin, folder: Path, tmp_path: Path, name: str) -> None:
    training, checkpoint = twin.module("training.pretraining"), twin.module("files.checkpoint")
    path = tmp_path / f"middle{checkpoint.SUFFIX}"
    model, loader, optimizer, args = setup(twin, folder, name)
    records = []

    def on_step(record: Any) -> None:
        records.append(record)
        if (record.epoch, record.iteration) == (0, 1):
            checkpoint.save_checkpoint(path, model, optimizer, 0, 2, {"seed": 3})

    training.train(model, loader, optimizer, args, on_step=on_step)
    other, loader, optimizer, args = setup(twin, folder, name)
    place = checkpoint.load_checkpoint(path, other, optimizer, {"seed": 3})
    assert place == (0, 2)
    resumed = []
    training.train(other, loader, optimizer, args, start=place, on_step=resumed.append)
    assert [(r.epoch, r.iteration, r.loss) for r in resumed] == [(r.epoch, r.iteration, r.loss) for r in records[2:]]
    assert_equal_states(twin.state(other), twin.state(model))


def test_records_tell_the_steps(twin, folder: Path) -> None:
    model, loader, optimizer, args = setup(twin, folder)
    records, epochs = [], []
    twin.module("training.pretraining").train(
        model, loader, optimizer, args, on_step=records.append, on_epoch=epochs.append
    )
    assert epochs == [1, 2]
    assert [(r.epoch, r.iteration) for r in records] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert [r.learning_rate for r in records] == pytest.approx([0, 1 / 3e3, 2 / 3e3, 1e-3, 0.75e-3, 0.25e-3])
    assert records[0].moco_momentum == pytest.approx(0.9)
    assert records[3].moco_momentum == pytest.approx(0.95)
    assert all(0 <= r.reader_cost <= r.batch_cost for r in records)
    args.moco_m_cos = False
    args.epochs, args.warmup_epochs = 1, 0
    records.clear()
    twin.module("training.pretraining").train(model, loader, optimizer, args, on_step=records.append)
    assert {r.moco_momentum for r in records} == {0.9}


def test_twins_train_alike(twins, folder: Path) -> None:
    """Same weights, same batches, five steps in float64."""
    losses = []
    weights: dict[str, np.ndarray] = {}
    for twin in twins:
        model, loader, optimizer, args = setup(twin, folder, "lars")
        weights = weights or {key: value.copy() for key, value in twin.state(model).items()}
        twin.load(model, weights)
        twin.to(model, "float64")
        optimizer = twin.module("training.optimizer").build_optimizer("lars", model.parameters(), 1e-3, 0.1)
        records = []
        twin.module("training.pretraining").train(model, loader, optimizer, args, on_step=records.append)
        losses.append([record.loss for record in records])
    assert losses[1] == pytest.approx(losses[0], rel=1e-7)
    assert len(set(losses[0])) == 6


def test_a_loss_that_is_not_finite_ends_the_run(twin, folder: Path, tmp_path: Path, capsys) -> None:
    assert run(twin, folder, *OPTIONS, "--output", tmp_path, "--moco-t", "1e-40") == 1
    assert capsys.readouterr().err == (
        "error: the loss is nan at epoch 0.0000; a lower --lr may help, or another --precision\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epochs", "0"], "--epochs: must be 1 or more, got 0"),
        (["--warmup-epochs", "2"], "--warmup-epochs: must be from 0 to below --epochs 2, got 2"),
        (["--batch-size", "64"], "batch_size: 64 is more than the 26 samples; give at most 26"),
        (
            ["--arch", "resnet18", "--stop-grad-conv1"],
            "stop_grad_conv1 is for the ViT architectures, 'resnet18' is none",
        ),
        (["--resume", "missing"], "missing: no such file; give a checkpoint of this program to --resume"),
    ],
)
def test_wrong_options_get_one_line(twin, folder: Path, capsys, arguments: list[str], message: str) -> None:
    assert run(twin, folder, *OPTIONS, *arguments) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"error: {message}\n")


def test_a_missing_folder_gets_one_line(twin, tmp_path: Path, capsys) -> None:
    assert run(twin, tmp_path / "missing", *OPTIONS) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {tmp_path / 'missing'}: no such folder;")
    assert error.count("\n") == 1


def test_several_processes_are_refused_by_what_is_for_one(twin, folder: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("WORLD_SIZE" if twin.is_torch else "PADDLE_TRAINERS_NUM", "2")
    options = ["--arch", "vit_digits", "--pretrained", "x", "--device", "cpu"]
    assert twin.module("programs.knn").main([str(folder), *options]) == 2
    assert capsys.readouterr().err.startswith("error: several processes were started, this program is for one;")


def test_other_settings_are_refused(twin, folder: Path, tmp_path: Path) -> None:
    checkpoint = twin.module("files.checkpoint")
    model, _, optimizer, _ = setup(twin, folder)
    path = tmp_path / "saved"
    checkpoint.save_checkpoint(path, model, optimizer, 1, 0, {"seed": 3, "lr": 0.1})
    with pytest.raises(checkpoint.CheckpointError) as caught:
        checkpoint.load_checkpoint(path, model, optimizer, {"seed": 3, "lr": 0.2})
    assert str(caught.value) == f"{path}: was written with lr = 0.1, this run has 0.2; resume with the same options"


class Payload:
    def __reduce__(self):
        return (Path.touch, (Path("payload-ran"),))


@pytest.mark.parametrize("kind", ["pickle", "text", "cut"])
def test_files_that_are_no_checkpoints_are_refused(twin, folder: Path, tmp_path: Path, monkeypatch, kind: str) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint = twin.module("files.checkpoint")
    model, _, optimizer, _ = setup(twin, folder)
    path = tmp_path / "saved"
    if kind == "pickle":
        path.write_bytes(pickle.dumps(Payload()))
    elif kind == "text":
        path.write_text("hello")
    else:
        checkpoint.save_checkpoint(path, model, optimizer, 1, 0, {})
        path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(
        checkpoint.CheckpointError, match=r"saved: no checkpoint of this program \(\w+\); give another$"
    ):
        checkpoint.load_checkpoint(path, model, optimizer, {})
    assert not Path("payload-ran").exists()


def test_a_failed_save_leaves_the_old_file(twin, tmp_path: Path) -> None:
    path = tmp_path / "saved"
    path.write_text("old")

    def save() -> None:
        with written_beside(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save()
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("saved", "old")]


@pytest.mark.parametrize("kind", ["checkpoint", "text"])
def test_a_file_for_which_there_is_no_room_is_named(twin, folder: Path, tmp_path: Path, kind: str) -> None:
    model, _, optimizer, _ = setup(twin, folder)
    path, limits = tmp_path / "saved", resource.getrlimit(resource.RLIMIT_FSIZE)

    def write() -> None:
        if kind == "checkpoint":
            twin.module("files.checkpoint").save_checkpoint(path, model, optimizer, 1, 0, {})
        else:
            with written_beside(path) as temporary:
                temporary.write_text("x" * 5000)

    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, limits[1]))  # as on a full disk, but for this process alone
    try:
        with pytest.raises(OSError, match=rf"^{path}: cannot be written \(File too large\)$"):
            write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert list(tmp_path.iterdir()) == []


def test_a_newline_in_the_name_of_a_folder_stays_one_line(twin, tmp_path: Path, capsys) -> None:
    assert run(twin, tmp_path / "a\nb", *OPTIONS, "--output", tmp_path / "out") == 2
    assert capsys.readouterr().err.startswith(f"error: {tmp_path}/a?b: no such folder; ")


def test_a_killed_save_is_cleared_and_one_that_goes_on_is_not(tmp_path: Path) -> None:
    abandoned = tmp_path / ".checkpoint_0001.12.partial"
    abandoned.write_text("half")
    with written_beside(tmp_path / "saved") as temporary:
        temporary.write_text("whole")
        make_output_folder(tmp_path)
        assert not abandoned.exists()
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("saved", "whole")]


def test_bad_pictures_are_named(twin, folder: Path, tmp_path: Path, capsys) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    bad = copy / "class0" / "00.png"
    bad.write_bytes(b"no picture")
    assert run(twin, copy, *OPTIONS, "--output", tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {bad}: cannot be read as an image")
    assert error.count("\n") == 1
    assert run(twin, copy, *OPTIONS, "--output", tmp_path / "out", "--on-bad-image", "skip") == 0
    assert f"left out, cannot be read: {bad}\n" in capsys.readouterr().err
