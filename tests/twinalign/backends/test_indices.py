"""What paddle's kernels read beyond a tensor raises, and what is there is read and written as without a look."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest

from twinalign.backends.paddle.port_only.indices import checked_indices

PLACES = paddle.to_tensor([0, 2])


@pytest.mark.parametrize(
    "item",
    [
        paddle.to_tensor([0, 3]),
        np.array([0, -4]),
        (slice(None), paddle.to_tensor([4])),
        (Ellipsis, paddle.to_tensor([0, 4])),
        (None, paddle.to_tensor([7])),
    ],
)
def test_places_beyond_an_axis_raise(item: Any) -> None:
    tensor = paddle.arange(12).reshape([3, 4])
    with checked_indices():
        with pytest.raises(IndexError, match=r"^places from -?\d+ to \d+ along an axis of [34]$"):
            tensor[item]
        with pytest.raises(IndexError, match=r"^places from"):
            tensor[item] = 0


@pytest.mark.parametrize(
    "item",
    [
        PLACES,
        1,
        (Ellipsis, 3),
        (slice(0, 2), PLACES),
        (PLACES, PLACES),
        (None, slice(None), np.array([3])),
        paddle.to_tensor([True, False, True]),
        (Ellipsis, paddle.to_tensor([3, -4])),
    ],
)
def test_what_is_there_is_read_as_before(item: Any) -> None:
    tensor = paddle.arange(12).reshape([3, 4])
    before = tensor[item].numpy()
    with checked_indices():
        assert np.array_equal(tensor[item].numpy(), before)
