"""Every MoCo v3 model, both ways, bit for bit."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
import torch

from moco_paddle.builder import build_moco as build_paddle
from moco_ref.builder import ARCHITECTURES
from moco_ref.builder import build_moco as build_torch
from twinalign.backends import paddle_backend, torch_backend
from twinalign.convert import convert_state

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
    state = torch_backend.state_arrays(reference)
    there = convert_state(state, *layouts)
    assert there.unproven == []
    assert there.ledger.unaccounted(list(state), list(there.arrays)) == []
    back = convert_state(there.arrays, *reversed(layouts), source="paddle").arrays
    assert list(back) == list(state)
    assert all(back[key].tobytes() == state[key].tobytes() for key in state)
    state = paddle_backend.state_arrays(port)
    there = convert_state(state, *reversed(layouts), source="paddle").arrays
    back = convert_state(there, *layouts).arrays
    assert list(back) == list(state)
    assert all(np.array_equal(back[key], state[key]) for key in state)
