"""Checkpoints and exports as files: damaged, of the other framework, of the official release, in wrong folders."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import timm
import torch

UNWRITABLE = Path("/sys/kernel")
"""A folder that takes no files, of the administrator neither."""


@pytest.fixture
def checkpoint(twin, tmp_path: Path) -> Path:
    path = tmp_path / f"saved{twin.module('files.checkpoint').SUFFIX}"
    twin.save(path)
    return path


def train_options(*more: Any) -> list[Any]:
    text = "-a vit_digits -b 2 --epochs 2 --workers 0 --optimizer adamw --warmup-epochs 0 --device cpu --moco-dim 8"
    return [*text.split(), "--moco-mlp-dim", 16, *more]


def flip_a_bit(path: Path, content: bytes) -> None:
    """Change one bit of what the file has of `content`."""
    data = bytearray(path.read_bytes())
    place = data.find(content)
    assert place > 0
    data[place + len(content) // 2] ^= 1
    path.write_bytes(data)


def test_a_flipped_bit_is_damage(twin, data: Path, checkpoint: Path, capsys) -> None:
    weights = twin.module("files.weights").read_weights(checkpoint)[0]
    flip_a_bit(checkpoint, np.asarray(weights["base_encoder.blocks.0.mlp.fc1.weight"]).tobytes())
    knn = twin.refusal(capsys, "knn", data, "-a", "vit_digits", "--workers", 0, "--pretrained", checkpoint)
    resumed = twin.refusal(capsys, "train", data, *train_options("--resume", checkpoint))
    part = "(the checksum of its part " if twin.is_torch else "(Bad CRC-32 for file 'state_dict/base_encoder."
    for message in (knn, resumed):
        assert message.startswith(f"{checkpoint}: is damaged (")
        assert message.endswith("); give another copy")
        assert part in message


def test_torchs_files_without_checksums_are_read(tmp_path: Path) -> None:
    from moco_ref.files.weights import read_weights

    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"weight": torch.ones(3)}, tmp_path / "plain.pth")
    finally:
        torch.serialization.set_crc32_options(True)
    assert read_weights(tmp_path / "plain.pth")[0]["weight"].tolist() == [1, 1, 1]


def test_torchs_checkpoint_is_named_with_the_conversion(twins, data: Path, tmp_path: Path, capsys) -> None:
    path, paddle = tmp_path / "saved.pth.tar", twins[1]
    twins[0].save(path)
    model = 'build_moco(arch="ARCH")'
    expected = (
        f"{path}: is torch's own file, which is converted before it is read: twinalign convert {path} "
        f"{tmp_path / 'saved.npz'} --ref 'moco_ref:{model}' --paddle 'moco_paddle:{model}'"
    )
    assert paddle.refusal(capsys, "knn", data, "-a", "vit_digits", "--workers", 0, "--pretrained", path) == expected
    assert paddle.refusal(capsys, "train", data, *train_options("--resume", path)) == expected


@pytest.mark.parametrize("arch", ["vit_digits", "resnet18"])
def test_either_twin_reads_what_either_exports(twins, arch: str, tmp_path: Path) -> None:
    for writer in twins:
        checkpoint, exported = (
            tmp_path / f"saved{writer.module('files.checkpoint').SUFFIX}",
            tmp_path / "encoder.safetensors",
        )
        expected = writer.state(writer.save(checkpoint, arch))
        assert writer.run("export", checkpoint, exported) == 0
        for reader in twins:
            model = reader.module("models.moco").build_encoder(arch, 3)
            reader.module("files.weights").load_encoder(model, exported)
            found = reader.state(model)
            uncompared = ("head.", "fc."), "num_batches_tracked"  # paddle's batch norms count no batches
            compared = [key for key in found if not (key.startswith(uncompared[0]) or key.endswith(uncompared[1]))]
            assert len(compared) > 20
            assert [key for key in compared if not np.array_equal(found[key], expected[f"base_encoder.{key}"])] == []
            with pytest.raises(ValueError, match=r"encoder.safetensors: holds no average; leave --use-ema out"):
                reader.module("files.weights").load_encoder(model, exported, True)


@pytest.mark.slow
def test_only_linear_weights_are_matrices(twins) -> None:
    """What the paddle twin turns by its number of axes."""
    paddle = twins[1]
    for arch in paddle.module("models.moco").ARCHITECTURES:
        if "152" in arch or "101" in arch or "base" in arch:
            continue  # deeper, not other
        model = paddle.module("models.moco").build_encoder(arch)
        assert {key for key, value in model.state_dict().items() if value.ndim == 2} == paddle.transposed(model)


def test_the_printed_call_of_timm_gives_our_features(twin, tmp_path: Path, capsys) -> None:
    checkpoint, exported = tmp_path / f"saved{twin.module('files.checkpoint').SUFFIX}", tmp_path / "encoder.safetensors"
    twin.save(checkpoint, "vit_small")
    assert twin.run("export", checkpoint, exported) == 0
    line = capsys.readouterr().out.splitlines()[1]
    start, _, call = line.partition("build it as ")
    assert start == "timm's vit_small_patch16_224 has another number of heads, into which these weights load as well; "
    assert call == 'timm.create_model("vit_small_patch16_224", num_heads=12, num_classes=0)'
    arrays = safetensors.numpy.load_file(exported)
    state = {key: torch.from_numpy(array) for key, array in arrays.items()}
    images = np.random.RandomState(0).randn(2, 3, 224, 224).astype("float32")
    model = twin.module("models.moco").build_encoder("vit_small")
    twin.module("files.weights").load_encoder(model, exported)
    model.eval()
    with twin.without_gradients():
        expected = twin.array(model.forward_features(twin.tensor(images)))
    differences = []
    for theirs in (eval(call), timm.create_model("vit_small_patch16_224", num_classes=0)):
        theirs.load_state_dict(state, strict=True)
        with torch.no_grad():
            differences.append(np.abs(theirs.eval()(torch.from_numpy(images)).numpy() - expected).max())
    assert differences[0] < 1e-5
    assert differences[1] > 0.01


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_an_export_into_a_missing_folder_is_one_line(
    twin, suffix: str, checkpoint: Path, tmp_path: Path, capsys
) -> None:
    if suffix == ".pth" and not twin.is_torch:
        pytest.skip("torch's own form")
    folder = tmp_path / "missing"
    assert twin.refusal(capsys, "export", checkpoint, folder / f"encoder{suffix}") == (
        f"{folder}: cannot be written to (No such file or directory); make it, or name another"
    )


def test_an_output_that_takes_no_files_is_found_before_the_first_step(twin, data: Path, capsys) -> None:
    folder = UNWRITABLE
    if not folder.is_dir():
        pytest.skip("there is no folder that takes no files")
    text = "-a vit_digits -b 2 --epochs 1 --workers 0 --device cpu --warmup-epochs 0"
    for program, options in (("train", train_options()), ("finetune", text.split())):
        assert twin.run(program, data, *options, "--output", folder) == 2
        captured = capsys.readouterr()
        assert "[epoch" not in captured.out
        assert captured.err.startswith(f"error: {folder}: cannot be written to (")
        assert captured.err.endswith("); give another --output\n")


def test_a_full_disk_is_one_line(twin, tmp_path: Path, monkeypatch) -> None:
    """Writing fails in the middle of the file; what was there stays."""
    path = tmp_path / "saved"
    twin.save(path)
    before = path.read_bytes()
    module = twin.module("files.checkpoint")

    class Full:
        def __init__(self, file: Any) -> None:
            self.file = file

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *error: Any) -> None:
            self.file.close()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

        def write(self, data: Any) -> int:
            if self.file.tell() > 10000:
                raise OSError(28, "No space left on device")
            return self.file.write(data)

    def limited(path: Path, mode: str) -> Any:
        return (Full if mode == "wb" else lambda file: file)(open(path, mode))

    monkeypatch.setattr(module, "open", limited, raising=False)
    with pytest.raises(OSError, match=r"No space left on device|cannot be written"):
        twin.save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["saved"]


def official_form(path: Path, arch: str = "vit_digits", optimizer: str = "adamw") -> tuple[Any, Any]:
    """Write what the official pre-training writes after its first epoch; return model and optimizer."""
    model = importlib.import_module("moco_ref.models.moco").build_moco(arch, 8, 16)
    moving = importlib.import_module("moco_ref.training.optimizer").build_optimizer(
        optimizer, model.parameters(), 0.1, 0.1
    )
    model(torch.randn(4, 3, 32, 32), torch.randn(4, 3, 32, 32), 0.9).backward()
    moving.step()
    file = {
        "epoch": 1,
        "arch": arch,
        "state_dict": {f"module.{key}": value for key, value in model.state_dict().items()},
        "optimizer": moving.state_dict(),
        "scaler": {"scale": 65536.0, "growth_factor": 2.0, "_growth_tracker": 3},
    }
    torch.save(file, path)
    return model, moving


@pytest.mark.parametrize("name", ["adamw", "lars"])
def test_a_checkpoint_of_the_official_form_is_gone_on_from(name: str, data: Path, tmp_path: Path, capsys) -> None:
    from moco_ref.files.checkpoint import load_checkpoint
    from moco_ref.models.moco import build_moco
    from moco_ref.training.optimizer import build_optimizer

    path = tmp_path / "official.pth.tar"
    model, moving = official_form(path, optimizer=name)
    other = build_moco("vit_digits", 8, 16)
    optimizer = build_optimizer(name, other.parameters(), 0.1, 0.1)
    assert load_checkpoint(path, other, optimizer, {"seed": 0}, {}) == (1, 0)
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in other.state_dict().items())
    saved, loaded = moving.state_dict()["state"], optimizer.state_dict()["state"]
    assert saved.keys() == loaded.keys()
    assert len(saved) > 20
    assert all(torch.equal(saved[n][slot], loaded[n][slot]) for n in saved for slot in saved[n])


def test_an_official_checkpoint_that_does_not_fit_is_refused(twins, data: Path, tmp_path: Path, capsys) -> None:
    path, torchs = tmp_path / "official.pth.tar", twins[0]
    options = train_options("--resume", path, "--output", tmp_path)
    official_form(path)
    assert torchs.run("train", data, *options) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("[epoch 1, iter 0]")
    wide = torchs.refusal(capsys, "train", data, *options, "--moco-mlp-dim", 32)
    assert wide == f"{path}: holds another model's weights; resume with the options of its run"
    other = torchs.refusal(capsys, "train", data, *options, "--optimizer", "sgd")
    assert other == f"{path}: holds another optimizer's state; resume with the options of its run"
