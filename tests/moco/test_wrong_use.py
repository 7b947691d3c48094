"""What a user gets wrong ends in one line that names option or file, and in exit code 2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

TINY = "-a vit_digits -b 2 --epochs 1 --workers 0"
TRAIN = f"{TINY} --optimizer adamw --warmup-epochs 0 --moco-dim 8 --moco-mlp-dim 16"


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """train/ and val/ with two classes of two pictures."""
    root = tmp_path_factory.mktemp("pictures")
    for place, name in enumerate(f"{split}/{cls}/{n}.png" for split in ("train", "val") for cls in "ab" for n in "01"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.RandomState(place).randint(0, 256, (32, 32, 3), dtype="uint8")).save(path)
    return root


@pytest.fixture
def checkpoint(twin, tmp_path: Path) -> Path:
    return save(twin, tmp_path / f"pretrained{twin.module('checkpoint').SUFFIX}")


def save(twin, path: Path, settings: dict[str, Any] | None = None) -> Path:
    """A pre-training checkpoint."""
    model = twin.module("builder").build_moco("vit_digits", 8, 16)
    optimizer = twin.module("optimizer").build_optimizer("adamw", model.parameters(), 0.1, 0.0)
    twin.module("checkpoint").save_checkpoint(path, model, optimizer, 1, 0, settings or {"arch": "vit_digits"})
    return path


def run(twin, *arguments: Any) -> int:
    return twin.module("__main__").main([str(argument) for argument in arguments])


def refusal(twin, capsys, *arguments: Any) -> str:
    """The one line of a program that ends with exit code 2."""
    assert run(twin, *arguments) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    return errors.removeprefix("error: ").removesuffix("\n")


@pytest.mark.parametrize("command", ["train", "lincls", "finetune", "knn", "predict"])
def test_a_gpu_that_is_not_there_is_refused(
    twin, command: str, data: Path, checkpoint: Path, capsys, monkeypatch
) -> None:
    monkeypatch.setattr(twin.module("distributed"), "number_of_gpus", lambda: 0)
    options = {
        "train": TRAIN,
        "lincls": f"{TINY} --pretrained {checkpoint}",
        "finetune": f"{TINY} --warmup-epochs 0",
        "knn": "-a vit_digits --workers 0",
        "predict": f"--checkpoint {checkpoint}",
    }[command]
    library = "torch" if twin.is_torch else "paddle"
    assert refusal(twin, capsys, command, data, *options.split(), "--device", "gpu") == (
        f"--device gpu: {library} sees no GPU here; give --device cpu, or mend its installation"
    )


def test_more_processes_than_gpus_are_refused(twin, monkeypatch) -> None:
    distributed = twin.module("distributed")
    monkeypatch.setattr(distributed, "number_of_gpus", lambda: 2)
    distributed.require_gpu(1)
    message = (
        r"^--device gpu: process 2 of this node has no GPU, 2 are visible; start as many processes as there are GPUs$"
    )
    with pytest.raises(ValueError, match=message):
        distributed.require_gpu(2)


def test_bad_pictures_may_be_left_out_on_resume(twin, data: Path, tmp_path: Path, capsys) -> None:
    root = tmp_path / "pictures"
    for path in data.glob("train/*/*.png"):
        (root / path.parent.name).mkdir(parents=True, exist_ok=True)
        (root / path.parent.name / path.name).write_bytes(path.read_bytes())
    options = [*TRAIN.replace("--epochs 1", "--epochs 2").split(), "--device", "cpu", "--output", tmp_path]
    resume = ["--resume", tmp_path / f"checkpoint_0001{twin.module('checkpoint').SUFFIX}"]
    assert run(twin, "train", root, *options) == 0
    (root / "a" / "0.png").write_bytes(b"no picture")
    message = refusal(twin, capsys, "train", root, *options, *resume)
    assert message.startswith(f"{root / 'a' / '0.png'}: cannot be read as an image (")
    assert message.endswith("); mend or remove it, or leave such out: --on-bad-image skip")
    assert run(twin, "train", root, *options, *resume, "--on-bad-image", "skip") == 0
    assert "on_bad_image" in twin.module("classification").FREE_ON_RESUME
