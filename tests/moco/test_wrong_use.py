"""What a user gets wrong ends in one line that names option or file, and in exit code 2."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from moco_common.files import check_settings
from moco_common.programs import classification, train

TINY = "-a vit_digits -b 2 --epochs 1 --workers 0"
TRAIN = f"{TINY} --optimizer adamw --warmup-epochs 0 --moco-dim 8 --moco-mlp-dim 16"


@pytest.fixture
def checkpoint(twin, tmp_path: Path) -> Path:
    path = tmp_path / f"pretrained{twin.module('files.checkpoint').SUFFIX}"
    twin.save(path)
    return path


@pytest.mark.parametrize("command", ["train", "lincls", "finetune", "knn", "predict"])
def test_a_gpu_that_is_not_there_is_refused(
    twin, command: str, data: Path, checkpoint: Path, capsys, monkeypatch
) -> None:
    monkeypatch.setattr(twin.module("devices"), "number_of_gpus", lambda: 0)
    options = {
        "train": TRAIN,
        "lincls": f"{TINY} --pretrained {checkpoint}",
        "finetune": f"{TINY} --warmup-epochs 0",
        "knn": "-a vit_digits --workers 0",
        "predict": f"--checkpoint {checkpoint}",
    }[command]
    library = "torch" if twin.is_torch else "paddle"
    assert twin.refusal(capsys, command, data, *options.split(), "--device", "gpu") == (
        f"--device gpu: {library} sees no GPU here; give --device cpu, or mend its installation"
    )


def test_more_processes_than_gpus_are_refused(twin, monkeypatch) -> None:
    devices = twin.module("devices")
    monkeypatch.setattr(devices, "number_of_gpus", lambda: 2)
    devices.require_gpu(1)
    message = (
        r"^--device gpu: process 2 of this node has no GPU, 2 are visible; start as many processes as there are GPUs$"
    )
    with pytest.raises(ValueError, match=message):
        devices.require_gpu(2)


def test_bad_pictures_may_be_left_out_on_resume(twin, data: Path, tmp_path: Path, capsys) -> None:
    root = tmp_path / "pictures"
    for path in data.glob("train/*/*.png"):
        (root / path.parent.name).mkdir(parents=True, exist_ok=True)
        (root / path.parent.name / path.name).write_bytes(path.read_bytes())
    options = [*TRAIN.replace("--epochs 1", "--epochs 2").split(), "--device", "cpu", "--output", tmp_path]
    resume = ["--resume", tmp_path / f"checkpoint_0001{twin.module('files.checkpoint').SUFFIX}"]
    assert twin.run("train", root, *options) == 0
    (root / "a" / "0.png").write_bytes(b"no picture")
    message = twin.refusal(capsys, "train", root, *options, *resume)
    assert message.startswith(f"{root / 'a' / '0.png'}: cannot be read as an image (")
    assert message.endswith("); mend or remove it, or leave such out: --on-bad-image skip")
    assert twin.run("train", root, *options, *resume, "--on-bad-image", "skip") == 0
    assert "on_bad_image" in classification.FREE_ON_RESUME


def test_a_missing_scipy_is_named_with_its_extra(twin, data: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    for module in ("scipy.special", "scipy.io"):
        monkeypatch.setitem(sys.modules, module, None)
    for option in ("--mixup", "--cutmix"):
        assert twin.refusal(capsys, "finetune", data, *TINY.split(), "--warmup-epochs", "0", option, "0.8") == (
            "--mixup, --cutmix: the package scipy is missing; pip install 'twinalign[example]'"
        )
    labels = tmp_path / "imagelabels.mat"
    labels.touch()
    assert twin.refusal(capsys, "knn", tmp_path, "-a", "vit_digits", "--workers", "0") == (
        f"{labels}: the package scipy, which reads it, is missing; pip install 'twinalign[example]'"
    )


FINITE, SHARE = "0 or more and finite", "from 0 to 1"
IMPOSSIBLE = [
    ("train lincls finetune", "--lr", "nan", FINITE),
    ("train lincls finetune", "--lr", "-1.0", FINITE),
    ("train lincls finetune", "--weight-decay", "-0.1", FINITE),
    ("train lincls finetune", "--weight-decay", "inf", FINITE),
    ("train lincls finetune", "--momentum", "1.0", "from 0 to below 1"),
    ("train", "--moco-m", "1.5", SHARE),
    ("train", "--moco-t", "0.0", "more than 0 and finite"),
    ("train lincls finetune knn", "--workers", "-1", "0 or more"),
    ("train lincls finetune knn", "--seed", "-1", "from 0 to below 2**63"),
    ("train lincls finetune knn", "--seed", str(2**63), "from 0 to below 2**63"),
    ("train lincls finetune", "--rank-timeout", "0.0", "more than 0"),
    ("train finetune", "--model-ema-decay", "1.5", SHARE),
    ("train", "--crop-min", "0.0", "more than 0 and at most 1"),
    ("knn", "--temperature", "0.0", "more than 0 and finite"),
]


@pytest.mark.parametrize(("programs", "option", "value", "words"), IMPOSSIBLE)
def test_impossible_values_are_refused(
    twin, programs: str, option: str, value: str, words: str, data: Path, capsys
) -> None:
    more = {"train": TRAIN, "lincls": f"{TINY} --pretrained x", "finetune": f"{TINY} --warmup-epochs 0", "knn": ""}
    for program in programs.split():
        message = twin.refusal(capsys, program, data, *more[program].split(), f"{option}={value}")
        assert message == f"{option}: must be {words}, got {value}"


def test_possible_values_at_the_ends_of_their_ranges_are_not() -> None:
    text = "--lr 0 --wd 0 --momentum 0 --moco-m 1 --workers 0 --model-ema-decay 1 --crop-min 1"
    parser = train.build_parser("moco_ref", ["resnet50"], "cpu", ["lars"])
    train.check_options(parser.parse_args(["DATA", *text.split(), "--seed", str(2**63 - 1)]))


def test_repeats_without_repeated_augmentation_are_refused(twin, data: Path, capsys) -> None:
    options = [*TINY.split(), "--warmup-epochs", 0, "--repeats", 7]
    assert twin.refusal(capsys, "finetune", data, *options) == (
        "--repeats: counts the copies that --repeated-aug shows; give --repeated-aug too, or leave it out"
    )


def test_another_programs_checkpoint_is_refused_by_the_programs_name(twin, data: Path, tmp_path: Path, capsys) -> None:
    suffix = twin.module("files.checkpoint").SUFFIX
    common = ["--device", "cpu", "--output", tmp_path]
    assert twin.run("train", data, *TRAIN.split(), *common) == 0
    assert twin.run("finetune", data, *TINY.split(), "--warmup-epochs", 0, *common) == 0
    pretraining, classifier = tmp_path / f"checkpoint_0001{suffix}", tmp_path / f"checkpoint{suffix}"
    capsys.readouterr()
    for program, options, path, writer in (
        ("lincls", TINY, pretraining, "train"),
        ("lincls", TINY, classifier, "finetune"),
        ("finetune", f"{TINY} --warmup-epochs 0", pretraining, "train"),
        ("train", TRAIN, classifier, "finetune"),
    ):
        assert twin.refusal(capsys, program, data, *options.split(), *common, "--resume", path) == (
            f"{path}: was written by {writer}, this is {program}; give a checkpoint of {program}"
        )


def test_checkpoints_of_earlier_versions_are_taken(tmp_path: Path) -> None:
    check_settings(tmp_path, {"seed": 3, "on_bad_image": "refuse"}, {"seed": 3, "program": "train"})
    with pytest.raises(ValueError, match=r"was written with seed = 3, this run has 4; resume with the same options$"):
        check_settings(tmp_path, {"seed": 3}, {"seed": 4, "program": "train"})


def test_a_run_begins_with_what_decides_it(twin, data: Path, tmp_path: Path, capsys) -> None:
    common = [*TINY.split(), "--device", "cpu", "--output", tmp_path]
    dims = "--moco-dim 8 --moco-mlp-dim 16 --warmup-epochs 0".split()  # noqa: SIM905
    assert twin.run("train", data, "--recipe", "vit-s-300ep", *common, *dims) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("options: ")] == lines[:1]
    for part in ("program=train", "arch=vit_digits", "optimizer=adamw", "lr=0.00015", "weight_decay=0.1", "moco_t=0.2"):
        assert part in lines[0].split()
    pretrained = tmp_path / f"checkpoint_0001{twin.module('files.checkpoint').SUFFIX}"
    assert twin.run("lincls", data, "--recipe", "vit-s-linear", *common, "--pretrained", pretrained) == 0
    first = capsys.readouterr().out.splitlines()[0].split()
    assert first[:2] == ["options:", "program=lincls"]
    assert {"lr=3.0", "epochs=1", "batch_size=2"} <= set(first)
