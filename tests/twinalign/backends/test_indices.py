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
        (None, slice(None), np.array([2])),
        paddle.to_tensor([True, False, True]),
        (Ellipsis, paddle.to_tensor([3, -4])),
    ],
)
def test_what_is_there_is_read_as_before(item: Any) -> None:
    tensor = paddle.arange(12).reshape([3, 4])
    before = tensor[item].numpy()
    with checked_indices():
        assert np.array_equal(tensor[item].numpy(), before)


@pytest.mark.parametrize("lengths", [[5, 6], [-1, 5]])
def test_lengths_beyond_a_sequence_raise(lengths: list[int]) -> None:
    layer, values = paddle.nn.LSTM(4, 3), paddle.ones([2, 5, 4])
    scores, labels = paddle.zeros([5, 2, 4]), paddle.to_tensor([[1, 2], [1, 2]], dtype="int32")
    given, two = paddle.to_tensor(lengths), paddle.to_tensor([2, 2])
    with checked_indices():
        with pytest.raises(IndexError, match=r"^numbers from -?\d to \d where 0 to 5 are possible$"):
            layer(values, sequence_length=given)
        with pytest.raises(IndexError, match=r"where 0 to 5 are possible$"):
            paddle.nn.functional.ctc_loss(scores, labels, given, two)
        with pytest.raises(IndexError, match=r"where 0 to 2 are possible$"):
            paddle.nn.functional.ctc_loss(scores, labels, paddle.to_tensor([5, 5]), given)
        with pytest.raises(IndexError, match=r"where 0 to 3 are possible$"):
            paddle.nn.functional.ctc_loss(scores, labels + 2, paddle.to_tensor([5, 5]), two)
        right = layer(values, sequence_length=paddle.to_tensor([5, 3]))[0]
    np.testing.assert_array_equal(right.numpy(), layer(values, sequence_length=paddle.to_tensor([5, 3]))[0].numpy())


def test_rows_that_a_table_has_not_raise() -> None:
    table = paddle.nn.Embedding(4, 2)
    with checked_indices():
        assert table(paddle.to_tensor([0, 3])).shape == [2, 2]
        with pytest.raises(IndexError, match=r"^numbers from 0 to 4 where 0 to 3 are possible$"):
            table(paddle.to_tensor([0, 4]))


def test_arrays_in_place_of_numbers_do_not_end_the_process() -> None:
    drawn = paddle.nn.initializer.Normal(np.ones(3), 0.02)
    with checked_indices():
        assert paddle.arange(np.array(3)).tolist() == [0, 1, 2]
        assert paddle.full([2], 1.5).tolist() == [1.5, 1.5]
        assert paddle.randn([2]).shape == [2]
        with pytest.raises(TypeError, match=r"^numbers are drawn between or around numbers, not "):
            drawn(paddle.zeros([2, 2]))
