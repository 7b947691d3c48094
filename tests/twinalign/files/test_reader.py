"""Every format, written by the framework that owns it, read without it."""

from __future__ import annotations

import collections
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import paddle
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch_file

from twinalign.errors import InputError
from twinalign.files.reader import read_arrays, read_tree

RNG = np.random.default_rng(0)
ARRAYS = {
    "weight": RNG.standard_normal((4, 6)).astype("f4"),
    "bias": RNG.standard_normal(6).astype("f8"),
    "steps": np.array(7),
    "mask": np.array([True, False, True]),
    "labels": np.arange(5, dtype="i8"),
    "pixels": np.arange(256, dtype="u1").reshape(16, 16),
    "empty": np.zeros((0, 3), "f4"),
}


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype, name
        assert found[name].shape == array.shape, name
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("name", list(ARRAYS))
def test_plain_npy(name: str, version: tuple[int, int], tmp_path: Path) -> None:
    with open(tmp_path / "a.npy", "wb") as stream:
        np.lib.format.write_array(stream, ARRAYS[name], version=version)
    assert_same(read_arrays(tmp_path / "a.npy"), {"array": ARRAYS[name]})


def test_plain_npy_in_fortran_order_and_big_endian(tmp_path: Path) -> None:
    array = np.asfortranarray(ARRAYS["weight"]).astype(">f4")
    np.save(tmp_path / "a.npy", array)
    found = read_arrays(tmp_path / "a.npy")["array"]
    np.testing.assert_array_equal(found, array)


def test_npy_of_bfloat16(tmp_path: Path) -> None:
    array = np.array([1.0, -2.5, 3.0], ml_dtypes.bfloat16)
    np.save(tmp_path / "a.npy", array)
    found = read_arrays(tmp_path / "a.npy")["array"]
    assert found.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(found.astype("f4"), array.astype("f4"))


def test_structured_npy_becomes_fields(tmp_path: Path) -> None:
    array = np.array([(1, 2.0), (3, 4.0)], dtype=[("step", "i4"), ("loss", "f4")])
    np.save(tmp_path / "a.npy", array)
    assert_same(read_arrays(tmp_path / "a.npy"), {"step": array["step"], "loss": array["loss"]})


def test_reprod_log_dictionary(tmp_path: Path) -> None:
    from reprod_log import ReprodLogger

    logger = ReprodLogger()
    for name, array in ARRAYS.items():
        logger.add(name, array)
    logger.save(str(tmp_path / "a.npy"))
    assert_same(read_arrays(tmp_path / "a.npy"), ARRAYS)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_object_arrays_of_every_pickle_protocol(protocol: int, tmp_path: Path) -> None:
    # numpy 1.x wrote protocol 3 with the module name numpy.core; Python 2 protocol 2.
    import pickle

    header = b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '|O', 'fortran_order': False, 'shape': (), }".ljust(117) + b"\n"
    payload = pickle.dumps(np.array(ARRAYS, dtype=object), protocol=protocol)
    (tmp_path / "a.npy").write_bytes(header + payload)
    assert_same(read_arrays(tmp_path / "a.npy"), ARRAYS)


def test_pickles_of_numpy_1_name_another_module(tmp_path: Path) -> None:
    import pickle

    payload = pickle.dumps({"a": np.ones(3, "f4")}, protocol=2)
    (tmp_path / "a.pdparams").write_bytes(payload.replace(b"numpy._core.", b"numpy.core."))
    assert_same(read_arrays(tmp_path / "a.pdparams"), {"a": np.ones(3, "f4")})


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(save: object, tmp_path: Path) -> None:
    save(tmp_path / "a.npz", **ARRAYS)  # type: ignore[operator]
    assert_same(read_arrays(tmp_path / "a.npz"), ARRAYS)


def test_safetensors(tmp_path: Path) -> None:
    save_file(ARRAYS, str(tmp_path / "a.safetensors"), metadata={"format": "pt"})
    found = read_arrays(tmp_path / "a.safetensors")
    assert_same({name: found[name] for name in ARRAYS}, ARRAYS)


def test_safetensors_of_bfloat16_and_float8(tmp_path: Path) -> None:
    tensors = {"b": torch.tensor([1.0, 2.5]).bfloat16(), "e": torch.tensor([1.0, 2.5]).to(torch.float8_e4m3fn)}
    save_torch_file(tensors, str(tmp_path / "a.safetensors"))
    found = read_arrays(tmp_path / "a.safetensors")
    assert [str(found[name].dtype) for name in "be"] == ["bfloat16", "float8_e4m3fn"]
    assert found["b"].astype("f4").tolist() == found["e"].astype("f4").tolist() == [1.0, 2.5]


_TORCH_DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.complex128,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("dtype", _TORCH_DTYPES, ids=str)
def test_torch_dtypes(dtype: torch.dtype, zipped: bool, tmp_path: Path) -> None:
    tensor = torch.tensor([0.0, 1.0, 2.0, 1.0]).to(dtype)
    torch.save({"a": tensor}, tmp_path / "a.pth", _use_new_zipfile_serialization=zipped)
    found = read_arrays(tmp_path / "a.pth")["a"]
    assert str(found.dtype) == str(dtype).removeprefix("torch.")
    expected = tensor.to(torch.complex128).numpy()
    np.testing.assert_array_equal(found.astype("c16"), expected)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_torch_training_state(zipped: bool, tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 5])
    model(torch.randn(8, 3)).sum().backward()
    optimizer.step()
    shared = torch.arange(12.0)
    state = {
        "epoch": 3,
        "arch": "vit_small",
        "state_dict": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "parameter": model[0].weight,
        "views": [shared.reshape(3, 4).T, shared[4:8], shared[::3], torch.tensor(2.5).expand(4)],
        "size": torch.Size([2, 3]),
        "device": torch.device("cpu"),
        "ordered": collections.OrderedDict(a=torch.ones(2)),
        "nothing": None,
    }
    torch.save(state, tmp_path / "a.pth", _use_new_zipfile_serialization=zipped)
    found = read_arrays(tmp_path / "a.pth")
    for name, tensor in model.state_dict().items():
        np.testing.assert_array_equal(found[f"state_dict.{name}"], tensor.numpy())
    np.testing.assert_array_equal(found["optimizer.state.0.exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"])
    np.testing.assert_array_equal(found["parameter"], model[0].weight.detach().numpy())
    for index, view in enumerate(state["views"]):
        np.testing.assert_array_equal(found[f"views.{index}"], view.numpy())
    assert found["epoch"] == 3
    assert "arch" not in found
    tree = read_tree(tmp_path / "a.pth")
    assert (tree["arch"], tree["epoch"], tree["nothing"], tree["device"]) == ("vit_small", 3, None, "cpu")


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_paddle_state(protocol: int, tmp_path: Path) -> None:
    layer = paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.BatchNorm1D(4))
    paddle.save(layer.state_dict(), str(tmp_path / "a.pdparams"), protocol=protocol)
    expected = {name: tensor.numpy() for name, tensor in layer.state_dict().items()}
    assert_same(read_arrays(tmp_path / "a.pdparams"), expected)


def test_paddle_optimizer_and_nested_tensors(tmp_path: Path) -> None:
    layer = paddle.nn.Linear(3, 4)
    schedule = paddle.optimizer.lr.CosineAnnealingDecay(0.1, 10)
    optimizer = paddle.optimizer.AdamW(parameters=layer.parameters(), learning_rate=schedule)
    layer(paddle.ones([2, 3])).sum().backward()
    optimizer.step()
    paddle.save(optimizer.state_dict(), str(tmp_path / "a.pdopt"))
    found = read_arrays(tmp_path / "a.pdopt")
    for name, value in optimizer.state_dict().items():
        if name != "LR_Scheduler":
            np.testing.assert_array_equal(found[name], value.numpy())
    assert found["LR_Scheduler.last_lr"] == 0.1
    paddle.save({"epoch": 3, "nested": {"a": [paddle.ones([2]), paddle.zeros([1])]}}, str(tmp_path / "b.pdparams"))
    assert list(read_arrays(tmp_path / "b.pdparams")) == ["epoch", "nested.a.0", "nested.a.1"]


def test_paddle_bfloat16_is_no_integer(tmp_path: Path) -> None:
    tensor = paddle.to_tensor([1.0, -2.5]).astype("bfloat16")
    paddle.save({"a": tensor, "nested": [tensor]}, str(tmp_path / "a.pdparams"))
    found = read_arrays(tmp_path / "a.pdparams")
    for name in ("a", "nested.0"):
        assert found[name].dtype == ml_dtypes.bfloat16
        assert found[name].astype("f4").tolist() == [1.0, -2.5]


def test_paddle_dense_tensor_is_read_without_eval(tmp_path: Path) -> None:
    # paddle writes a DenseTensor as a call of eval; what stands in the file is checked, and nothing is evaluated.
    tensor = paddle.to_tensor([1.0, 2.0])
    paddle.save(tensor.get_tensor(), str(tmp_path / "a.pdparams"))
    assert b"eval" in (tmp_path / "a.pdparams").read_bytes()
    assert read_arrays(tmp_path / "a.pdparams")["array"].tolist() == [1.0, 2.0]


def test_large_paddle_tensors_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What paddle.save makes of a tensor over a gigabyte under protocol 2, from its own function, in small.
    import pickle

    pieces = {"w@@.0": np.arange(4.0), "w@@.1": np.arange(4.0, 6.0)}
    joint = {"UnpackBigParamInfor@@": {"w": {"OriginShape": (2, 3), "slices": list(pieces)}}}
    (tmp_path / "a.pdparams").write_bytes(pickle.dumps({**pieces, **joint}, protocol=2))
    assert_same(read_arrays(tmp_path / "a.pdparams"), {"w": np.arange(6.0).reshape(2, 3)})


def test_format_is_known_by_content_and_not_by_suffix(tmp_path: Path) -> None:
    save_file(ARRAYS, str(tmp_path / "a.pth"))
    assert set(read_arrays(tmp_path / "a.pth")) == set(ARRAYS)


def test_arrays_are_mapped_and_read_only(tmp_path: Path) -> None:
    array = np.zeros(1 << 20, "f4")
    torch.save({"a": torch.from_numpy(array)}, tmp_path / "a.pth")
    np.save(tmp_path / "a.npy", {"a": array})  # type: ignore[arg-type]
    np.savez(tmp_path / "a.npz", a=array)
    save_file({"a": array}, str(tmp_path / "a.safetensors"))
    for suffix in ("pth", "npy", "npz", "safetensors"):
        found = read_arrays(tmp_path / f"a.{suffix}")["a"]
        assert not found.flags.writeable
        assert not found.flags.owndata
        with pytest.raises(ValueError, match="read-only"):
            found[0] = 1


def test_two_names_that_become_one_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", {"a.b": np.ones(1), "a": {"b": np.ones(1)}})  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"two of its arrays are both called 'a.b' once nesting is dotted"):
        read_arrays(tmp_path / "a.npy")


_NO_FRAMEWORK = """
import sys
from twinalign.files.reader import read_arrays
read_arrays(sys.argv[1])
print(sorted({name.split(".")[0] for name in sys.modules} & {"torch", "paddle", "reprod_log", "rich"}))
"""


@pytest.mark.parametrize("kind", ["pth", "pdparams", "npy", "safetensors"])
def test_reading_imports_no_framework(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{kind}"
    if kind == "pth":
        torch.save({"a": torch.ones(2)}, path)
    elif kind == "pdparams":
        paddle.save({"a": paddle.ones([2])}, str(path))
    elif kind == "npy":
        np.save(path, np.ones(2))
    else:
        save_file({"a": np.ones(2)}, str(path))
    run = subprocess.run([sys.executable, "-c", _NO_FRAMEWORK, str(path)], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
