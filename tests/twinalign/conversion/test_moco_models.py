"""Every MoCo v3 model, both ways, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import paddle
import pytest
import torch

from moco_paddle.files.weights import load_encoder as load_paddle_encoder
from moco_paddle.models.moco import build_encoder as build_paddle_encoder
from moco_paddle.models.moco import build_moco as build_paddle
from moco_ref.files.weights import load_encoder as load_torch_encoder
from moco_ref.models.moco import ARCHITECTURES
from moco_ref.models.moco import build_encoder as build_torch_encoder
from moco_ref.models.moco import build_moco as build_torch
from tests.twinalign.conversion.ledgers import unaccounted
from twinalign.backends.paddle import backend as paddle_backend
from twinalign.backends.torch import backend as torch_backend
from twinalign.conversion import convert_state
from twinalign.conversion.convert_file import convert_checkpoint
from twinalign.conversion.options import Options

GOLDEN = Path(__file__).resolve().parents[2] / "golden"

SMALL = ("resnet18", "vit_digits")


@pytest.mark.parametrize(
    "arch", [name if name in SMALL else pytest.param(name, marks=pytest.mark.slow) for name in sorted(ARCHITECTURES)]
)
def test_round_trips_are_bit_identical(arch):
    torch.manual_seed(0)
    paddle.seed(0)
    # Projector and predictor small: their layers are the same in any size.
    reference, port = build_torch(arch, 16, 32), build_paddle(arch, 16, 32)
    layouts = torch_backend.describe_state(reference), paddle_backend.describe_state(port)
    state = dict(torch_backend.state_items(reference))
    there = convert_state(state, *layouts)
    assert there.unproven == []
    assert unaccounted(there.ledger, list(state), list(there.arrays)) == []
    back = convert_state(there.arrays, *reversed(layouts), source="paddle").arrays
    assert list(back) == list(state)
    assert all(back[key].tobytes() == state[key].tobytes() for key in state)
    state = dict(paddle_backend.state_items(port))
    there = convert_state(state, *reversed(layouts), source="paddle").arrays
    back = convert_state(there, *layouts).arrays
    assert list(back) == list(state)
    assert all(np.array_equal(back[key], state[key]) for key in state)


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("arch", ["resnet18", "vit_digits"])
def test_official_checkpoints_load_in_both_twins(tmp_path, arch):
    """The official form: a module. before every key, arch, epoch and optimizer beside them, .pth.tar."""
    torch.manual_seed(1)
    model = build_torch(arch)
    keys = json.loads((GOLDEN / "models.json").read_text(encoding="utf-8"))
    if arch in keys:
        assert list(model.state_dict()) == [key for key, _, _ in keys[arch]["state_dict"]]
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    scaler = {"scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000}
    official = {
        "epoch": 300,
        "arch": arch,
        "state_dict": {f"module.{key}": value for key, value in model.state_dict().items()},
        "optimizer": optimizer.state_dict(),
        "scaler": {**scaler, "_growth_tracker": 7},
    }
    source, target = tmp_path / "official.pth.tar", tmp_path / "official.npz"
    torch.save(official, source)
    reference = build_torch_encoder(arch, num_classes=3).eval()
    assert load_torch_encoder(reference, source)["arch"] == arch
    state = reference.state_dict()
    assert all(
        torch.equal(value, state[key.removeprefix("base_encoder.")])
        for key, value in model.state_dict().items()
        if key.startswith("base_encoder.") and not key.startswith(("base_encoder.head.", "base_encoder.fc."))
    )
    factories = {
        "ref": f"moco_ref:build_moco(arch={arch!r})",
        "paddle": f"moco_paddle:build_moco(arch={arch!r})",
    }
    convert_checkpoint(source, target, Options(factories=factories))
    port = build_paddle_encoder(arch, num_classes=3)
    assert load_paddle_encoder(port, target)["epoch"] == 300
    port.eval()
    images = np.random.default_rng(0).standard_normal((2, 3, 32, 32), dtype="float32")
    with torch.no_grad():
        expected = reference.forward_features(torch.from_numpy(images)).numpy()
    np.testing.assert_allclose(port.forward_features(paddle.to_tensor(images)).numpy(), expected, rtol=1e-3, atol=1e-4)
    # A file with a key too few or too many is refused.
    del official["state_dict"][
        "module.base_encoder.bn1.weight" if arch == "resnet18" else "module.base_encoder.norm.bias"
    ]
    torch.save(official, source)
    with pytest.raises(ValueError, match="other weights than the model's, of"):
        load_torch_encoder(reference, source)
