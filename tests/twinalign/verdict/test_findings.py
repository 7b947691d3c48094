"""Findings name what was done to a tensor, and say nothing where nothing simple was."""

from __future__ import annotations

import numpy as np
import pytest

from twinalign.verdict.findings import describe_difference

RNG = np.random.default_rng(0)
SQUARE = RNG.standard_normal((12, 12)).astype("f4")
QKV = RNG.standard_normal((12, 5)).astype("f4")
IMAGE = RNG.standard_normal((2, 3, 6, 6)).astype("f4")

DONE = {
    "transposed": (SQUARE, SQUARE.T, "transpose", "it is the reference with its axes in the order [1, 0]"),
    "transposed oblong": (QKV, QKV.T, "transpose", "it is the reference with its axes in the order [1, 0]"),
    "reshaped": (QKV, QKV.reshape(6, 10), "reshape", "it is the reference reshaped to [6, 10]"),
    "heights for widths": (
        IMAGE,
        IMAGE.transpose(0, 1, 3, 2),
        "transpose",
        "it is the reference with its axes in the order [0, 1, 3, 2]",
    ),
    "flattened otherwise": (
        QKV,
        QKV.T.reshape(12, 5),
        "layout",
        "it is the reference flattened with its axes in the order [1, 0]",
    ),
    "halved": (QKV, QKV / 2, "factor", "it is the reference times 0.5"),
    "negated": (QKV, -QKV, "factor", "it is the reference times -1"),
    "unbiased": (QKV, QKV * np.float32(12 / 11), "factor", "it is the reference times 1.090909 = 12/11"),
    "offset": (QKV, QKV + 1, "offset", "it is the reference plus 1"),
    "scaled and moved": (QKV, QKV * 2 + 1, "affine", "it is the reference times 2 plus 1"),
    "BGR": (IMAGE, IMAGE[:, ::-1], "reversal", "it is the reference reversed along axis 1"),
    "mirrored": (IMAGE, IMAGE[..., ::-1], "reversal", "it is the reference reversed along axis 3"),
    "rotated": (QKV, np.roll(QKV, 2, 0), "rotation", "it is the reference rotated by 2 along axis 0"),
    "shifted": (
        IMAGE,
        np.concatenate([np.zeros((2, 3, 6, 1), "f4"), IMAGE[..., :-1]], -1),
        "shift",
        "it is the reference shifted by 1 along axis 3",
    ),
    "k, q, v": (
        QKV,
        np.concatenate([QKV[4:8], QKV[:4], QKV[8:]]),
        "permutation",
        "it is the reference permuted along axis 0: [4:8, 0:4, 8:12]",
    ),
    "shuffled": (
        SQUARE,
        RNG.permutation(SQUARE.reshape(-1)).reshape(12, 12),
        "order",
        "it holds the reference's numbers in another order",
    ),
}


@pytest.mark.parametrize("name", DONE)
def test_what_was_done_is_named(name: str) -> None:
    reference, reproduced, identifier, text = DONE[name]
    found = describe_difference(reference, np.ascontiguousarray(reproduced))
    assert [(finding["id"], finding["text"]) for finding in found] == [(identifier, text)]


@pytest.mark.parametrize("name", DONE)
def test_rounding_on_top_hides_nothing(name: str) -> None:
    reference, reproduced, identifier, _ = DONE[name]
    noisy = reproduced * (1 + 1e-6 * RNG.standard_normal(reproduced.shape))
    assert [finding["id"] for finding in describe_difference(reference, noisy.astype("f4"))] == [identifier]


@pytest.mark.parametrize(
    "reproduced",
    [
        SQUARE,
        SQUARE + 0.1 * RNG.standard_normal((12, 12)),
        RNG.standard_normal((12, 12)),
        SQUARE**2,
        np.zeros((12, 12)),
    ],
    ids=["the same", "noise", "another", "squared", "zeros"],
)
def test_nothing_is_made_up(reproduced: np.ndarray) -> None:
    assert describe_difference(SQUARE, reproduced.astype("f4")) == []


def test_constants_and_nonfinite_say_nothing() -> None:
    assert describe_difference(np.ones((3, 3)), np.full((3, 3), 2.0)) == []
    assert describe_difference(np.array([1.0, np.nan]), np.array([2.0, np.nan])) == []
