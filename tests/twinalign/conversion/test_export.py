"""The base encoder alone, as fine-tuning programs and linear classifiers take it."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
import torch

from moco_paddle.models.moco import build_encoder as build_paddle_encoder
from moco_ref.models.moco import build_encoder, build_moco
from tests.twinalign.conversion.ledgers import source_keys_in
from twinalign.conversion.checkpoint import read_checkpoint
from twinalign.conversion.convert_file import convert_checkpoint
from twinalign.conversion.options import Options
from twinalign.errors import InputError


@pytest.fixture(params=["vit_digits", "resnet18"])
def checkpoint(request, tmp_path, in_process):
    arch = request.param
    torch.manual_seed(0)
    model = build_moco(arch, 16, 32)
    state = {f"module.{key}": value for key, value in model.state_dict().items()}
    torch.save({"epoch": 5, "arch": arch, "state_dict": state}, tmp_path / "a.pth.tar")
    factories = {
        "ref": f"moco_ref:build_moco(arch={arch!r}, dim=16, mlp_dim=32)",
        "paddle": f"moco_paddle:build_moco(arch={arch!r}, dim=16, mlp_dim=32)",
    }
    return arch, model, tmp_path, factories


def encoder_state(arch, model):
    wanted = build_encoder(arch).state_dict().keys()
    head = "fc." if arch == "resnet18" else "head."
    return {key: model.base_encoder.state_dict()[key] for key in wanted if not key.startswith(head)}


@pytest.mark.slow
def test_from_torch_to_paddle_and_from_paddle_to_torch(checkpoint):
    arch, model, folder, factories = checkpoint
    expected = encoder_state(arch, model)
    options = Options(factories=factories, export="timm")
    convert_checkpoint(folder / "a.pth.tar", folder / "encoder.pdparams", options)
    loaded = paddle.load(str(folder / "encoder.pdparams"))
    port = build_paddle_encoder(arch)
    missing, unexpected = port.set_state_dict(loaded)
    assert not unexpected
    assert {key.split(".")[0] for key in missing} == {"fc" if arch == "resnet18" else "head"}
    convert_checkpoint(folder / "a.pth.tar", folder / "a.pdparams", Options(factories=factories))
    for form, unwrap in (
        ("deit", lambda tree: tree["model"]),
        ("timm", lambda tree: tree),
        (
            "linear-probe",
            lambda tree: {k.removeprefix("module.base_encoder."): v for k, v in tree["state_dict"].items()},
        ),
    ):
        options = Options(factories=factories, export=form)
        report = convert_checkpoint(folder / "a.pdparams", folder / f"{form}.pth", options)
        tree = torch.load(folder / f"{form}.pth", weights_only=True)
        found = unwrap(tree)
        assert set(found) == set(expected)
        assert all(torch.equal(found[key], value) for key, value in expected.items())
        dropped = [e for e in report.ledger.entries if e.reason == f"no part of the {form} form"]
        assert any(key.startswith("momentum_encoder") for e in dropped for key in e.source)
    assert tree["arch"] == arch
    assert np.all([name.startswith("module.base_encoder.") for name in tree["state_dict"]])


@pytest.mark.parametrize("form", ["deit", "timm", "linear-probe"])
def test_within_one_framework_no_model_is_needed(checkpoint, form):
    arch, model, folder, _ = checkpoint
    expected = encoder_state(arch, model)
    report = convert_checkpoint(folder / "a.pth.tar", folder / "own.pth", Options(export=form))
    tree = torch.load(folder / "own.pth", weights_only=True)
    prefix = "module.base_encoder." if form == "linear-probe" else ""
    found = tree if form == "timm" else tree[{"deit": "model", "linear-probe": "state_dict"}[form]]
    assert set(found) == {prefix + key for key in expected}
    assert all(torch.equal(found[prefix + key], value) for key, value in expected.items())
    assert set(model.state_dict()) <= source_keys_in(report.ledger)
    with pytest.raises(InputError, match="an export within torch converts nothing; leave out --verify"):
        convert_checkpoint(folder / "a.pth.tar", folder / "own.pth", Options(export=form, verify=True))


@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_formats_of_arrays_alone_get_the_bare_arrays(checkpoint, suffix):
    arch, _, folder, factories = checkpoint
    target = folder / f"encoder{suffix}"
    convert_checkpoint(folder / "a.pth.tar", target, Options(factories=factories, export="deit"))
    port = build_paddle_encoder(arch).state_dict()
    found = read_checkpoint(target).weights
    assert {key: list(value.shape) for key, value in found.items()} == {
        key: list(port[key].shape) for key in port if not key.startswith(("fc.", "head."))
    }


def test_a_checkpoint_without_an_encoder_is_refused(checkpoint, tmp_path):
    from twinalign.conversion.export import exported_keys

    with pytest.raises(InputError, match=r"x: no key starts with base_encoder\., so there is no encoder to export"):
        exported_keys({"momentum_encoder.a": 1}, "timm", "x")
    assert exported_keys({"conv1.weight": 1, "fc.weight": 1}, "timm", "x") == {
        "conv1.weight": "conv1.weight",
        "fc.weight": "fc.weight",
    }
