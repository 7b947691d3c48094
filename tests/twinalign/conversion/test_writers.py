"""The writers against each framework's own loader, and against the libraries' own files."""

from __future__ import annotations

import threading

import ml_dtypes
import numpy as np
import paddle
import pytest
import safetensors.numpy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from twinalign.conversion import writers
from twinalign.errors import InputError
from twinalign.files.reader import read_tree

DTYPES = ["float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"]


@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3), (1, 2, 3, 4)])
def test_torch_loads_what_is_written(tmp_path, dtype, shape):
    numpy_dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    array = np.random.default_rng(0).integers(0, 2, shape).astype(numpy_dtype)
    writers.write_torch(tmp_path / "a.pth", {"x": array})
    loaded = torch.load(tmp_path / "a.pth", weights_only=True)["x"]
    assert (str(loaded.dtype), tuple(loaded.shape)) == (f"torch.{dtype}", shape)
    assert np.array_equal(loaded.double().numpy(), array.astype("float64"))
    assert torch.equal(torch.load(tmp_path / "a.pth", weights_only=True, mmap=True)["x"], loaded)


@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_paddle_loads_what_is_written(tmp_path, dtype, shape):
    numpy_dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    array = np.random.default_rng(0).integers(0, 2, shape).astype(numpy_dtype)
    writers.write_paddle(tmp_path / "a.pdparams", {"x": array}, {"x": "linear_0.w_0"})
    loaded = paddle.load(str(tmp_path / "a.pdparams"))["x"]
    assert (str(loaded.dtype), tuple(loaded.shape), loaded.name) == (f"paddle.{dtype}", shape, "linear_0.w_0")
    assert np.array_equal(loaded.astype("float64").numpy(), array.astype("float64"))


@settings(max_examples=40, deadline=None)
@given(
    array=arrays.arrays(
        st.sampled_from([np.dtype(name) for name in DTYPES]), arrays.array_shapes(min_dims=0, max_dims=3, min_side=0)
    )
)
def test_every_format_reads_back_bit_for_bit(tmp_path_factory, array):
    folder = tmp_path_factory.mktemp("bits")
    writers.write_torch(folder / "a.pth", {"x": array})
    writers.write_paddle(folder / "a.pdparams", {"x": array})
    writers.write_safetensors(folder / "a.safetensors", {"x": array}, {})
    writers.write_npz(folder / "a.npz", {"x": array})
    with np.load(folder / "a.npz", allow_pickle=False) as file:
        assert (file["x"].dtype, file["x"].shape, file["x"].tobytes()) == (array.dtype, array.shape, array.tobytes())
    for name in ("a.pth", "a.pdparams", "a.safetensors", "a.npz"):
        back = read_tree(folder / name)["x"]
        assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes()), name


def test_safetensors_is_what_the_library_writes(tmp_path):
    state = {"a": np.arange(6, dtype="float32").reshape(2, 3), "b": np.array([True])}
    writers.write_safetensors(tmp_path / "a.safetensors", state, {"format": "pt"})
    loaded = safetensors.numpy.load_file(tmp_path / "a.safetensors")
    assert list(loaded) == list(state)
    assert all(np.array_equal(loaded[key], value) for key, value in state.items())


def test_a_tensor_that_occurs_twice_is_stored_once(tmp_path):
    array = np.zeros((100, 100), "float32")
    writers.write_torch(tmp_path / "a.pth", {"x": array, "y": array})
    loaded = torch.load(tmp_path / "a.pth", weights_only=True)
    assert loaded["x"].data_ptr() == loaded["y"].data_ptr()
    assert (tmp_path / "a.pth").stat().st_size < 1.5 * array.nbytes


def test_plain_values_survive(tmp_path):
    tree = {"epoch": 3, "big": 2**40, "negative": -(2**70), "rate": 0.1, "no": None, "l": [1, (2, "é")], "d": {1: True}}
    writers.write_torch(tmp_path / "a.pth", tree)
    assert torch.load(tmp_path / "a.pth", weights_only=True) == tree


def test_views_and_big_endian_arrays_are_written_as_they_read(tmp_path):
    array = np.arange(12, dtype=">f4").reshape(3, 4)[:, ::2].T
    writes = (writers.write_torch, "a.pth"), (writers.write_paddle, "a.pdparams"), (writers.write_npz, "a.npz")
    for write, name in writes:
        write(tmp_path / name, {"x": array})
        assert np.array_equal(read_tree(tmp_path / name)["x"], array)


class Making:
    """A deferred array of one number that says when it is made."""

    dtype = np.dtype("float32")

    def __init__(self, number, size):
        self.number, self.shape, self.made = number, (size,), threading.Event()

    def load(self, scratch):
        lent = scratch(4 * self.shape[0]).view(np.float32)
        lent[:] = self.number
        self.made.set()
        return lent


def test_the_next_large_array_is_made_while_one_is_written_and_no_other():
    # A small one between two large ones, as the bias beside every weight, must not stop the making ahead.
    sizes = [2**20, 8, 2**20, 8, 2**20]
    arrays = [Making(number, size) for number, size in enumerate(sizes)]
    with writers.Loader(arrays) as load:
        written = load(arrays[0])
        assert arrays[2].made.wait(10)
        assert not arrays[4].made.wait(0.2)
        assert set(written) == {0}
        assert [set(load(array)) for array in arrays[1:]] == [{1}, {2}, {3}, {4}]


@pytest.mark.parametrize(
    ("write", "value", "expected"),
    [
        (writers.write_torch, {"x": object()}, "a checkpoint holds a object, which is not plain data"),
        (writers.write_torch, {"x": np.zeros(2, "float128")}, "torch has no tensors of float128"),
    ],
)
def test_what_a_format_cannot_hold_is_refused(tmp_path, write, value, expected):
    with pytest.raises(InputError, match=expected):
        write(tmp_path / "a", value)
    assert list(tmp_path.iterdir()) == []
