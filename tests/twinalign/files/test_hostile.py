"""Broken and hostile files: one line that names the file, and nothing of them is run."""

from __future__ import annotations

import io
import json
import os
import pickle
import pickletools
import struct
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from twinalign.errors import InputError
from twinalign.files.reader import read_arrays

WITNESS = "witness-of-execution"


class Touch:
    """Unpickled by Python, creates the witness file."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (WITNESS,)


class Evaluate:
    def __reduce__(self) -> tuple[object, ...]:
        return eval, (f"__import__('os').mkdir({WITNESS!r})",)


class EvaluateNamed:
    """The shape in which paddle writes a tensor, with code where the name stands."""

    def __reduce__(self) -> tuple[object, ...]:
        return eval, (f"__import__('os').mkdir({WITNESS!r})", {"data": 1})


class Execute:
    def __reduce__(self) -> tuple[object, ...]:
        return exec, (f"import os; os.mkdir({WITNESS!r})",)


class Spawn:
    def __reduce__(self) -> tuple[object, ...]:
        return subprocess.call, (["mkdir", WITNESS],)


class Getattr:
    def __reduce__(self) -> tuple[object, ...]:
        return getattr, ("text", "upper")


class LoadFromBytes:
    """torch's own way to nest a pickle in a pickle."""

    def __reduce__(self) -> tuple[object, ...]:
        return torch.storage._load_from_bytes, (pickle.dumps(Touch()),)


class OrderedDictAttribute(dict):
    pass


def pickled(value: object, protocol: int = 4) -> bytes:
    return pickle.dumps(value, protocol=protocol)


def npy(header: str, data: bytes = b"", version: int = 1, length: int | None = None) -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(text) if length is None else length) + text + data


def object_npy(payload: bytes) -> bytes:
    return npy("{'descr': '|O', 'fortran_order': False, 'shape': (), }", payload)


def zipped(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def torch_zip(payload: bytes, storages: dict[str, bytes] | None = None) -> bytes:
    members = {f"a/data/{key}": data for key, data in (storages or {}).items()}
    return zipped({"a/data.pkl": payload, **members, "a/version": b"3\n"})


def torch_tensor(size: tuple[int, ...], stride: tuple[int, ...], offset: int = 0, count: int = 4) -> bytes:
    """A torch file of one tensor over a storage of 4 floats, with whatever geometry."""
    stream = io.BytesIO()
    pickler = pickle._Pickler(stream, protocol=2)  # the one in Python: it writes what it is told
    pickler.persistent_id = lambda value: (  # type: ignore[method-assign]
        ("storage", torch.FloatStorage, "0", "cpu", count) if isinstance(value, Storage) else None
    )

    class Tensor:
        def __reduce__(self) -> tuple[object, ...]:
            return torch._utils._rebuild_tensor_v2, (Storage(), offset, size, stride, False, {})

    pickler.dump({"a": Tensor()})
    return torch_zip(stream.getvalue(), {"0": bytes(16)})


class Storage:
    pass


def safetensors(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def recursive_list() -> list[object]:
    value: list[object] = []
    value.append(value)
    return value


def bomb() -> bytes:
    """Ten lists, each of which holds the one before ten times: 10^10 values in 200 bytes."""
    value: list[object] = [np.ones(1)]
    for _ in range(10):
        value = [value] * 10
    return pickled(value)


def entry(offsets: list[object], dtype: str = "F32", shape: object = (1,)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def deep() -> bytes:
    return b"\x80\x04" + b"]" * 500 + b"a" * 499 + b"."


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def pdparams(value: bytes, key: bytes = text("a")) -> bytes:
    """A pickle of a dictionary with one key, both given in opcodes."""
    return b"\x80\x02}" + key + value + b"s."


def one_array(after: bytes = b"") -> bytes:
    """An array in opcodes, its type in the memo as 1; `after` it stands on the stack."""
    dtype = (
        b"cnumpy\ndtype\n"
        + text("f4")
        + b"\x89\x88\x87Rq\x01(K\x03"
        + text("<")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    begin = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    return begin + b"(K\x01K\x01\x85" + dtype + b"\x89U\x04\x00\x00\x80?tb" + after


def torch_value(value: bytes, storages: dict[str, bytes] | None = None) -> bytes:
    return torch_zip(pdparams(value), storages)


def torch_opcodes(
    metadata: bytes = b"", kind: str = "FloatStorage", size: bytes = b"K\x04\x85", stride: int = 1
) -> bytes:
    """A tensor of torch in opcodes, with whatever metadata behind its hooks."""
    storage = b"(" + text("storage") + b"ctorch\n" + kind.encode() + b"\n" + text("0") + text("cpu") + b"K\x04tQ"
    steps = b"\x8a\x08" + struct.pack("<q", stride) + b"\x85"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00" + size + steps + b"\x89}" + metadata + b"tR"


def with_wrong_checksum() -> bytes:
    data = bytearray(zipped({"a.npy": npy_bytes(np.arange(100.0))}))
    data[data.index(bytes(np.float64(50.0)))] ^= 1
    return bytes(data)


def nested_tuples(depth: int) -> bytes:
    """A tuple of two tuples, each of two, and so on, all shared: 2^depth to hash or to print."""
    places = range(100, 100 + depth)  # in the memo, behind those of a pickle around it
    doubled = b"".join(b"h%ch%c\x86q%c0" % (n, n, n + 1) for n in places)
    return b")q%c0" % places[0] + doubled + b"h%c" % (places[-1] + 1)


REBUILD = "torch._utils\n_rebuild_tensor_v2"
OVERSIZED = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4000000000, 4000000000), }", bytes(16))
MADE = {
    # What asks for code.
    "os in a pdparams": (lambda: pickled({"a": Touch()}), r"asks for posix\.mkdir, .* nothing was run"),
    "os in a reprod_log file": (lambda: object_npy(pickled({"a": Touch()})), r"asks for posix\.mkdir"),
    "os under protocol 2": (lambda: pickled({"a": Touch()}, 2), r"asks for posix\.mkdir"),
    "os in a torch zip": (lambda: torch_zip(pickled({"a": Touch()}, 2)), r"asks for posix\.mkdir"),
    "os in an npz": (lambda: zipped({"a.npy": object_npy(pickled(Touch()))}), r"asks for posix\.mkdir"),
    "eval": (lambda: pickled(Evaluate()), r"calls eval; nothing was run"),
    "eval in paddle's shape": (lambda: pickled(EvaluateNamed()), r"calls eval; nothing was run"),
    "exec": (lambda: pickled(Execute()), r"asks for builtins\.exec"),
    "subprocess": (lambda: pickled(Spawn()), r"asks for subprocess\.call"),
    "getattr": (lambda: pickled(Getattr()), r"asks for builtins\.getattr"),
    "a pickle in a pickle": (lambda: pickled(LoadFromBytes()), r"asks for torch\.storage\._load_from_bytes"),
    "a whole module": (
        lambda: torch_zip(pickled(torch.nn.ReLU(), 2)),
        r"asks for torch\.nn\.modules\.activation\.ReLU",
    ),
    "Python 2's os": (lambda: b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00lsq\x00\x85R.", r"asks for os\.system"),
    "the opcode INST": (lambda: b"\x80\x02(ios\nsystem\n.", r"uses the opcode INST"),
    "the opcode OBJ": (lambda: b"\x80\x02(cnumpy\nndarray\no.", r"uses the opcode OBJ"),
    "the opcode EXT1": (lambda: b"\x80\x02\x82\x01.", r"uses the opcode EXT1"),
    "a call of a text": (lambda: b"\x80\x04\x8c\x01a)R.", r"calls a str; only allowed names can be called"),
    "a call of a name": (lambda: b"\x80\x02cnumpy\nndarray\n)R.", r"calls numpy\.ndarray"),
    "attributes of a list": (lambda: b"\x80\x04]}b.", r"sets attributes of a list"),
    "a persistent id": (lambda: b"\x80\x04\x8c\x01aQ.", r"refers to storages outside"),
    "a matrix class": (
        lambda: b"\x80\x02cnumpy._core.multiarray\n_reconstruct\ncnumpy\ndtype\nK\x00\x85U\x01b\x87R.",
        r"builds a subclass of numpy\.ndarray",
    ),
    "a numpy type by expression": (lambda: b"\x80\x02cnumpy\ndtype\nX\x05\x00\x00\x00f4,i4\x85R.", r"the numpy type"),
    "TorchScript": (lambda: zipped({"a/data.pkl": b"\x80\x02N.", "a/constants.pkl": b""}), r"TorchScript program"),
    # What is cut short or malformed.
    "an empty file": (lambda: b"", r"it is empty"),
    "one byte": (lambda: b"\x80", r"content is not"),
    "text": (lambda: b"loss: 0.5\n", r"content is not"),
    "half a numpy magic": (lambda: b"\x93NUMPY\x01", r"cut short"),
    "a numpy version of the future": (lambda: b"\x93NUMPY\x09\x00" + bytes(64), r"format version 9"),
    "a numpy header cut short": (lambda: npy("{'descr': '<f4', ", length=4000), r"header claims 4000 bytes"),
    "a numpy header of code": (lambda: npy("__import__('os').mkdir('x')"), r"numpy header is malformed"),
    "a numpy header without shape": (lambda: npy("{'descr': '<f4', 'fortran_order': False}"), r"header is malformed"),
    "a negative shape": (lambda: npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }"), r"malformed"),
    "a shape beyond memory": (lambda: OVERSIZED, r"cut short: shape \(4000000000, 4000000000\)"),
    "text elements": (lambda: npy("{'descr': '<U4', 'fortran_order': False, 'shape': (1,), }", bytes(16)), r"<U4"),
    "a pickle without end": (lambda: pickled({"a": np.ones(4)})[:-1], r"cut short"),
    "a pickle cut in an array": (lambda: pickled({"a": np.ones(400)})[:300], r"cut short"),
    "a pickle that claims terabytes": (lambda: b"\x80\x04\x8e" + struct.pack("<Q", 1 << 45), r"cut short"),
    "a huge memo index": (lambda: b"\x80\x02j\xff\xff\xff\x7f.", r"malformed"),
    "an empty stack": (lambda: b"\x80\x04.", r"malformed"),
    "an unknown opcode": (lambda: b"\x80\x04\xff.", r"no opcode 0xff"),
    "protocol 9": (lambda: b"\x80\x05\x80\x09.", r"protocol 9"),
    "unhashable keys": (lambda: b"\x80\x04}]Ns.", r"a key that is a list; keys are text"),
    "a list in itself": (lambda: pickled(recursive_list()), r"nested more than 100 deep"),
    "depth": (deep, r"nested more than 100 deep"),
    "a bomb of lists": (bomb, r"unfolds to more than 1000000 values"),
    "an array with too little data": (
        lambda: pickled({"a": np.ones(4)}).replace(b"K\x04\x85", b"K\x05\x85"),
        r"an array of shape \(5,\) and type float64 has 32 bytes",
    ),
    "torch: beyond the storage": (lambda: torch_tensor((8,), (1,)), r"reaches beyond its storage"),
    "torch: before the storage": (lambda: torch_tensor((2,), (1,), offset=-1), r"torch tensor is malformed"),
    "torch: a negative stride": (lambda: torch_tensor((2,), (-1,)), r"an array has an impossible shape"),
    "torch: a terabyte on 16 bytes": (lambda: torch_tensor((1 << 40,), (0,)), r"stands on 16 bytes"),
    "torch: a storage cut short": (lambda: torch_tensor((4,), (1,), count=400), r"storage 0 in it is cut short"),
    "torch: no storage": (lambda: torch_zip(torch_only_pickle()), r"'a/data/0' is missing"),
    "a zip of texts": (lambda: zipped({"readme.txt": b"hello"}), r"neither an \.npz nor"),
    "an empty zip with a header": (lambda: b"PK\x03\x04" + bytes(30), r"starts like a zip archive but is not one"),
    "a zip cut short": (lambda: zipped({"a.npy": npy_bytes(np.ones(100))})[:-30], r"starts like a zip archive"),
    "safetensors: an offset beyond": (lambda: safetensors({"a": entry([0, 4])}), r"lies at bytes 0 to 4 of 0"),
    "safetensors: overlap": (
        lambda: safetensors({"a": entry([0, 4]), "b": entry([0, 4])}, bytes(4)),
        r"lies at bytes 0 to 4 of 4, 4 expected",
    ),
    "safetensors: a gap": (lambda: safetensors({"a": entry([4, 8])}, bytes(8)), r"0 expected"),
    "safetensors: bytes left over": (lambda: safetensors({"a": entry([0, 4])}, bytes(8)), r"belong to no tensor"),
    "safetensors: a wrong size": (lambda: safetensors({"a": entry([0, 4], shape=[2])}, bytes(4)), r"shape \(2,\)"),
    "safetensors: an unknown type": (lambda: safetensors({"a": entry([0, 4], "F33", [1])}, bytes(4)), r"type 'F33'"),
    "safetensors: no offsets": (
        lambda: safetensors({"a": {"dtype": "F32", "shape": [1]}}),
        r"no valid offsets in the file",
    ),
    "safetensors: a name twice": (
        lambda: safetensors(b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{}}', bytes(4)),
        r"a name appears twice",
    ),
    "safetensors: not JSON": (lambda: safetensors(b"{'a': 1}"), r"header is malformed"),
    # What a recording does not hold.
    "bytes as a key": (lambda: pickled({b"a": np.ones(1)}), r"a key that is bytes; keys are text"),
    "a tuple as a key": (lambda: pickled({("a", 1): np.ones(1)}), r"a key that is a tuple; keys are text"),
    "tuples in tuples as a key": (lambda: pdparams(b"K\x00", nested_tuples(60)), r"a key that is a tuple"),
    "a key twice": (lambda: b"\x80\x02}(" + (text("a") + one_array()) * 2 + b"u.", r"has the key 'a' twice"),
    "a key as a number and as text": (
        lambda: pickled({1: np.ones(1), "1": np.ones(1)}),
        r"one key as a number and as t",
    ),
    "a set": (lambda: pickled({"a": {1, 2}}), r"uses the opcode EMPTY_SET"),
    "a frozen set": (lambda: pickled({"a": frozenset({1})}), r"uses the opcode FROZENSET"),
    "a set of Python 2": (lambda: pickled({"a": {1}}, 2), r"asks for __builtin__\.set"),
    "an allowed global as a value": (
        lambda: pdparams(b"c__builtin__\neval\n"),
        r"holds builtins\.eval itself where data",
    ),
    "a type of torch as a value": (
        lambda: torch_value(b"ctorch\nfloat32\n"),
        r"holds torch\.float32 itself where data",
    ),
    "a numpy type as a value": (lambda: pickled({"a": np.dtype("f4")}), r"a bare numpy type where data should be"),
    "a text in a recording": (
        lambda: object_npy(pickled({"a": "b"})),
        r"'a' in it is of type str, and a recording holds",
    ),
    "None in a recording": (lambda: object_npy(pickled({"a": None})), r"'a' in it is None, and a recording holds"),
    "65 bits": (lambda: pickled({"a": 2**64}), r"'a' in it is a whole number beyond 64 bits"),
    "a number of 100 bytes": (lambda: pickled({"a": 2**790}), r"a whole number of 99 bytes"),
    "bytes after a pickle": (lambda: pickled({"a": np.ones(1)}) + b"x", r"1 bytes at its end belong to nothing"),
    "bytes after a recording": (lambda: object_npy(pickled({"a": np.ones(1)})) + b"x", r"1 bytes at its end belong"),
    "bytes after an array": (lambda: npy_bytes(np.ones(1)) + b"xy", r"2 bytes at its end belong to nothing"),
    "a second archive behind the first": (
        lambda: zipped({"a.npy": npy_bytes(np.ones(1))}) + zipped({"a.npy": npy_bytes(np.zeros(1))}),
        r"bytes between its members that belong to none, or two archives",
    ),
    "bytes after an archive": (lambda: zipped({"a.npy": npy_bytes(np.ones(1))}) + b"x", r"bytes follow its end"),
    "a wrong checksum of a stored member": (
        with_wrong_checksum,
        r"'a\.npy' in it is damaged \(its checksum is wrong\)",
    ),
    "a type turned over after use": (
        lambda: pdparams(one_array(b"h\x01(K\x03" + text(">") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb0")),
        r"changes a numpy type that is in use",
    ),
    "an array filled twice": (
        lambda: pdparams(one_array(b"(K\x01K\x01\x85h\x01\x89U\x04\x00\x00\x00\x00tb")),
        r"state is malfo",
    ),
    "a type that is a list of lists": (
        lambda: pdparams(b"cnumpy\ndtype\n" + nested_tuples(60) + b"\x85R"),
        r"a numpy type that is not given by name",
    ),
    "a shape of tuples": (
        lambda: pickled({"a": np.ones(4)}, 2).replace(b"K\x04\x85", nested_tuples(60) + b"\x85"),
        r"an array has an impossible shape",
    ),
    "torch: a stride of 2^60": (
        lambda: torch_value(torch_opcodes(stride=2**60), {"0": bytes(16)}),
        r"a torch tensor of size \[4\] reaches beyond its storage",
    ),
    "torch: state set on a tensor": (
        lambda: torch_value(torch_opcodes() + b"(K\x01tb", {"0": bytes(16)}),
        r"sets the state of a torch tensor, which could replace its numbers",
    ),
    "torch: unknown metadata": (
        lambda: torch_value(torch_opcodes(b"}" + text("view") + b"\x88s"), {"0": bytes(16)}),
        r"a torch tensor with unknown metadata",
    ),
    "torch: a tensor rebuilt in itself": (
        lambda: torch_value(
            b"ctorch._tensor\n_rebuild_from_type_v2\n(h\x00ctorch\nTensor\n)}tR".replace(
                b"h\x00", b"ctorch._tensor\n_rebuild_from_type_v2\n"
            )
        ),
        r"builds a torch tensor in an unknown way",
    ),
    "torch: expanded to more than it should be": (
        lambda: torch_value(torch_opcodes(size=b"J\x00\x00\x00\x7f\x85", stride=0), {"0": bytes(16)}),
        r"a torch tensor of size \[2130706432\] stands on 16 bytes",
    ),
    "safetensors: a header beyond": (lambda: safetensors(b"{}", length=1 << 40), r"content is not"),
}


def npy_bytes(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def torch_only_pickle() -> bytes:
    with zipfile.ZipFile(io.BytesIO(torch_tensor((4,), (1,)))) as archive:
        return archive.read("a/data.pkl")


def test_there_are_at_least_forty() -> None:
    assert len(MADE) >= 40


@pytest.mark.parametrize("name", MADE)
def test_is_refused_in_one_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, reason = MADE[name]
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "hostile.bin"
    path.write_bytes(make())
    with pytest.raises(InputError, match=reason) as caught:
        read_arrays(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert not (tmp_path / WITNESS).exists()


def test_the_witness_is_left_by_a_reader_that_runs_things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickled({"a": Touch()}))
    assert (tmp_path / WITNESS).exists()


def test_conjugated_and_negated_tensors_are_read_as_torch_reads_them(tmp_path: Path) -> None:
    """torch saves such a view as it was before, and its metadata say so."""
    number = torch.tensor([1 + 2j, 3 - 4j])
    tensors = {
        "conj": number.conj(),
        "neg": number.conj().imag,
        "both": torch._neg_view(number.conj()),
        "plain": number,
    }
    assert tensors["conj"].is_conj()
    assert tensors["neg"].is_neg()
    for name, tensor in tensors.items():
        torch.save({name: tensor}, tmp_path / "a.pth")
        found = read_arrays(tmp_path / "a.pth")
        assert found[name].tolist() == tensor.resolve_conj().resolve_neg().tolist(), name


def test_arrays_that_share_their_bytes_unfold_to_a_limit(tmp_path: Path) -> None:
    shared = np.zeros(1 << 20, "u1")
    np.save(tmp_path / "few.npy", {str(n): shared for n in range(16)})  # type: ignore[arg-type]
    assert len(read_arrays(tmp_path / "few.npy")) == 16
    np.save(tmp_path / "many.npy", {str(n): shared for n in range(100)})  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"its arrays share their bytes and unfold to far more than it holds"):
        read_arrays(tmp_path / "many.npy")


@pytest.mark.parametrize("flip", range(16))
def test_a_damaged_file_is_read_or_refused_and_nothing_else(flip: int, tmp_path: Path) -> None:
    """A byte changed anywhere: arrays or an InputError, no other exception."""
    torch.save({"a": torch.arange(6.0), "b": [1, torch.ones(2)]}, tmp_path / "a.pth")
    np.save(tmp_path / "a.npy", {"a": np.arange(6.0), "n": {"b": np.ones(2)}})  # type: ignore[arg-type]
    rng = np.random.default_rng(flip)
    messages: list[str] = []
    for source in ("a.pth", "a.npy"):
        data = bytearray((tmp_path / source).read_bytes())
        for _ in range(25):
            damaged = bytearray(data)
            for position in rng.integers(0, len(data), 1 + flip % 3):
                damaged[position] = rng.integers(0, 256)
            (tmp_path / "damaged").write_bytes(damaged[: rng.integers(1, len(data) + 1)] if flip % 2 else damaged)
            try:
                read_arrays(tmp_path / "damaged")
            except InputError as error:
                messages.append(str(error))
    assert not [message for message in messages if "\n" in message]


def test_a_directory_a_pipe_and_a_missing_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npy")
    for name, reason in {
        "pipe.npy": "it is not a regular file",
        "missing.npy": "No such file or directory",
        ".": "it is a directory; name a file in it",
    }.items():
        with pytest.raises(InputError, match=reason):
            read_arrays(tmp_path / name)


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import twinalign.files.zip_archive as zip_archive

    monkeypatch.setattr(zip_archive, "memory_limit", lambda: 1 << 20)
    data = npy_bytes(np.zeros(1 << 20))
    (tmp_path / "a.npz").write_bytes(zipped({"a.npy": data}, zipfile.ZIP_DEFLATED))
    with pytest.raises(InputError, match=r"unpacking it takes .* more than this machine has; save it uncompressed"):
        read_arrays(tmp_path / "a.npz")


def test_a_member_that_unpacks_to_more_than_it_says(tmp_path: Path) -> None:
    data = bytearray(zipped({"a.npy": npy_bytes(np.zeros(1000))}, zipfile.ZIP_DEFLATED))
    central = data.rindex(b"PK\x01\x02")
    data[central + 24 : central + 28] = struct.pack("<I", 200)  # uncompressed size in the central directory
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(InputError, match=r"'a.npy' in it is damaged"):
        read_arrays(tmp_path / "a.npz")


def test_steps_are_limited() -> None:
    from plain_pickles import RefusedError, read_pickle

    assert read_pickle(memoryview(pickled([1, 2])), most_steps=20) == [1, 2]
    with pytest.raises(RefusedError, match=r"^its pickle takes more than 5 steps, more than arrays need$"):
        read_pickle(memoryview(pickled([1, 2])), most_steps=5)


def test_every_opcode_is_known_or_refused_by_name() -> None:
    from plain_pickles import machine

    known = {
        *machine._COUNTED, *machine._STRUCTS, *machine._CONSTANTS, *machine._FIXED_TUPLES, *machine._ACTIONS, 0x2E,
    }  # fmt: skip
    for opcode in pickletools.opcodes:
        code = opcode.code.encode("latin-1")[0]
        if code in known:
            assert code not in machine._REFUSED, opcode.name
        else:
            assert machine._REFUSED[code] == opcode.name


@pytest.mark.parametrize("seed", range(20))
def test_plain_pickles_are_read_as_python_reads_them(seed: int) -> None:
    """The machine against Python's own unpickler, on trees without arrays, under every protocol."""
    from plain_pickles import read_pickle

    rng = np.random.default_rng(seed)

    def tree(depth: int) -> object:
        kind = rng.integers(0, 9 if depth else 6)
        if kind < 6:
            choices: list[Callable[[], object]] = [
                lambda: int(rng.integers(-(2**62), 2**62)) * int(rng.integers(1, 99)),
                lambda: float(rng.standard_normal()),
                lambda: "text " + "é" * int(rng.integers(0, 300)),
                lambda: None,
                lambda: bool(rng.integers(0, 2)),
                lambda: int(rng.integers(-300, 300)),
            ]
            return choices[kind]()
        items = [tree(depth - 1) for _ in range(rng.integers(0, 5))]
        return items if kind == 6 else tuple(items) if kind == 7 else {f"k{i}": item for i, item in enumerate(items)}

    value = tree(4)
    for protocol in range(2, 6):
        assert read_pickle(memoryview(pickle.dumps(value, protocol))) == value
