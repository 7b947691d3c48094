"""What locating holds in memory: nothing longer than it is needed, and no copy where a look is enough."""

from __future__ import annotations

import gc
import json
import os
import weakref

import numpy as np
import paddle
import pytest
import torch

from twinalign.backends.paddle import backend as paddle_backend
from twinalign.replay.nested_tensors import put_together, take_apart
from twinalign.replay.tensor_store import TensorStore, remove_stores
from twinalign.verdict.array_difference import difference, sample_of


class Tensor:
    pass


def test_taking_apart_leaves_no_cycle_that_keeps_tensors():
    tensor = Tensor()
    watched = weakref.ref(tensor)
    gc.disable()
    try:
        tensors, skeleton = take_apart({"a": [tensor, (1, tensor)]}, lambda item: isinstance(item, Tensor))
        made = put_together(skeleton, tensors)
        assert made == {"a": [tensor, (1, tensor)]}
        del tensor, tensors, made
        assert watched() is None
    finally:
        gc.enable()


def test_named_tuples_whose_constructor_looks_at_tensors_are_put_together():
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.ones(2, 3, 4), torch.tensor([3, 2]), batch_first=True)
    tensors, skeleton = take_apart(packed, lambda item: isinstance(item, torch.Tensor))
    made = put_together(skeleton, [tensor + 1 for tensor in tensors])
    assert isinstance(made, type(packed))
    assert (made.data == 2).all()


def test_complex_numbers_are_measured_as_pairs():
    reference = np.array([3 + 4j, 0, 1j])
    found = difference(reference + np.array([0, 0.5j, 0]), reference)
    assert (found.max_abs, found.worst_index) == (0.5, (1, 1))
    assert found.reference_rms == pytest.approx((26 / 6) ** 0.5)
    assert sample_of(reference) == [3, 4, 0, 0, 0, 1]
    json.dumps(found.to_json())


@pytest.mark.parametrize(
    ("in_memory", "on_disk"), [(None, [0, 0]), (0, [6, 6]), (100_000, [4, 6])], ids=["plenty", "none", "little"]
)
def test_arrays_of_a_store_are_still_right_after_their_pages_were_given_up(tmp_path, in_memory, on_disk):
    store, other = TensorStore(tmp_path / "values", in_memory), TensorStore(tmp_path / "values")
    for growth, expected in zip((1, 5), on_disk, strict=True):
        store.restart()
        arrays = [growth * np.random.default_rng(n).standard_normal((growth * 50, 100 + n)) for n in range(6)]
        numbers = [store.add(array) for array in arrays]
        assert sum(number >= 1 << 48 for number in numbers) == expected
        found = [other.read(number) for number in numbers]
        for array, stored in zip(arrays, found, strict=True):
            np.testing.assert_array_equal(stored, array)


def test_the_memory_of_a_store_is_freed_with_its_folder(tmp_path):
    store = TensorStore(tmp_path / "values" / "of the reference")
    store.add(np.zeros(1000))
    (file,) = (tmp_path / "values").iterdir()
    assert file.stat().st_size > 8000
    with file.open("rb") as opened:
        remove_stores(tmp_path / "values")
        assert os.fstat(opened.fileno()).st_size == 0
    assert not (tmp_path / "values").exists()


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int64", "bool"])
def test_looking_at_a_paddle_tensor_gives_the_values_of_a_copy(dtype):
    tensor = (paddle.arange(6, dtype="float32").reshape([2, 3]) / 4).astype(dtype).transpose([1, 0])
    tensor.stop_gradient = dtype in ("int64", "bool")
    looked = paddle_backend.values_of(tensor)
    np.testing.assert_array_equal(looked, paddle_backend.to_array(tensor))
    assert looked.shape == (3, 2)


def test_looking_at_a_paddle_tensor_makes_no_copy():
    tensor = paddle.zeros([4])
    looked = paddle_backend.values_of(tensor)
    tensor[0] = 7.0
    assert looked[0] == 7.0


def test_a_difference_that_is_allowed_is_told_by_the_estimated_scale():
    reference = np.random.default_rng(0).standard_normal(1000)
    port = reference * (1 + 1e-12)
    quick = difference(port, reference, 1.1, 1e-10)
    assert quick.max_abs == 0.0
    assert quick.relative == pytest.approx(difference(port, reference).relative, rel=0.2)
    # One that may be over the bound is measured in full, however wrong the estimate.
    assert difference(port, reference, 1.1, 1e-12).relative == difference(port, reference).relative
