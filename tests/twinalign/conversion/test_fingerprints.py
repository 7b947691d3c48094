"""The same values are recognised in another layout, and others are not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from twinalign.backends.torch import backend
from twinalign.conversion.fingerprints import agree, all_agree, fingerprint

X = np.random.default_rng(0).standard_normal((2, 8, 4, 6))


@pytest.mark.parametrize(
    "same",
    [X, X.reshape(2, 8, 24), X.reshape(16, 24), X.transpose(0, 2, 3, 1).reshape(2, 24, 8), X.transpose(0, 2, 3, 1)],
    ids=["itself", "reshaped", "folded batch", "tokens", "channels last"],
)
def test_a_layout_makes_no_difference(same):
    assert agree(fingerprint(X), fingerprint(same))


@pytest.mark.parametrize(
    "other",
    [
        X[:, ::-1],
        X[:, :, :2],
        (X + 1e-4).reshape(2, 8, 24),
        X.reshape(2, 8, 24) * (1 + 1e-4),
        -X,
        np.abs(X).reshape(-1),
    ],
    ids=["reordered", "a part", "shifted", "scaled", "negated", "magnitudes"],
)
def test_other_values_do_not_agree(other):
    assert not agree(fingerprint(X), fingerprint(other))


@pytest.mark.parametrize("shape", [(8, 4, 6), (1, 8, 4, 6)], ids=["no batch", "a batch of one"])
def test_one_sample_is_the_same_as_itself_repeated_for_the_batch(shape):
    one = X[0].reshape(shape)
    assert agree(fingerprint(one), fingerprint(np.stack([X[0]] * 3)))
    assert agree(fingerprint(np.stack([X[0]] * 3)), fingerprint(one))
    assert not agree(fingerprint(one), fingerprint(X))
    assert not agree(fingerprint(np.concatenate([X[0]] * 3, axis=1)), fingerprint(X[0]))  # nothing broadcasts to that


def test_one_tensor_given_three_times_is_given_once():
    x, y = fingerprint(X), fingerprint(X + 1)
    assert all_agree([x, x, x], [x])
    assert not all_agree([x, y], [x])


class Own(torch.nn.Module):
    def __init__(self, compute, *shapes):
        super().__init__()
        self.compute = compute
        for number, shape in enumerate(shapes):
            setattr(self, f"p{number}", torch.nn.Parameter(torch.ones(shape)))

    def forward(self, x):
        return self.compute(x, *self.parameters())


def layer_norm(x, shift, scale):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], scale, shift, 1e-3)


def channels_first(x, scale, shift):
    return layer_norm(x.movedim(1, -1), shift.flatten(), scale.flatten()).movedim(-1, 1)


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (Own(layer_norm, 5, 5), {"p0": "bias", "p1": "weight"}),
        (Own(channels_first, (5, 1, 1), (5, 1, 1)), {"p0": "weight", "p1": "bias"}),
        (Own(lambda x, w: torch.nn.functional.rms_norm(x, x.shape[-1:], w, 1e-6), 5), {"p0": "weight"}),
        (Own(lambda x, w: x * w, 5), None),
        (Own(lambda x, w: layer_norm(x, torch.zeros(5), 1 + w), 5), None),
        (Own(lambda x, w, b: layer_norm(x, b, w) + 1, 5, 5), None),
        (Own(lambda x, w: x / x.norm() * w, 5), None),
        (torch.nn.LayerNorm(5), None),  # torch's own, which has a rule
    ],
)
def test_a_hand_written_layer_norm_is_known_by_what_it_computes(layer, expected):
    found = [entry["config"].get("acts_like") for entry in backend.describe_state(layer)]
    assert found == [expected and {"kind": "layer norm", "slots": expected}] * len(found)
