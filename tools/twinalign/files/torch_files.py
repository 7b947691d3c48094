"""torch.save's files: a zip archive with `data.pkl` and one member per storage."""

from typing import Any

from plain_pickles.dtypes import numpy_dtype
from plain_pickles.errors import BrokenFileError, RefusedError
from plain_pickles.machine import PickleMachine, Symbol
from plain_pickles.reading import settle
from twinalign.files.pickled import storage_of
from twinalign.files.symbols import TORCH_SYMBOLS, Storage
from twinalign.files.zip_archive import ZipArchive


def read_torch(archive: ZipArchive, pickle_name: str) -> Any:
    """The tree in a torch file; its tensors are mapped, not copied.

    Raises:
        RefusedError: TorchScript, whole modules and anything else that asks for code.
    """
    folder = pickle_name[: -len("data.pkl")]
    if f"{folder}constants.pkl" in archive.members:
        raise RefusedError("it is a TorchScript program, which is code; save a state_dict instead")
    big_endian = f"{folder}byteorder" in archive.members and bytes(archive.read(f"{folder}byteorder")) == b"big"
    storages: dict[str, Storage] = {}

    def load_persistent(identifier: Any) -> Storage:
        if not isinstance(identifier, tuple) or len(identifier) != 5 or identifier[0] != "storage":
            raise BrokenFileError("a reference to a torch storage is malformed")
        _, kind, key, _, count = identifier
        if not isinstance(key, str):
            raise BrokenFileError("a reference to a torch storage is malformed")
        if key not in storages:
            storage = storage_of(kind, count)
            storage.data = archive.read(f"{folder}data/{key}")
            storage.big_endian = big_endian
            if len(storage.data) < count * numpy_dtype(storage.dtype).itemsize:
                raise BrokenFileError(f"storage {key[:80]} in it is cut short")
            if len(storage.data) > count * numpy_dtype(storage.dtype).itemsize:
                raise BrokenFileError(f"storage {key[:80]} in it has two sizes")
            storages[key] = storage
        found = storages[key]
        if isinstance(kind, Symbol) and kind.value == found.dtype:
            return found
        other = storage_of(kind, count)
        other.data, other.big_endian = found.data, big_endian
        return other

    machine = PickleMachine(archive.read(pickle_name), TORCH_SYMBOLS, 0, load_persistent)
    tree = settle(machine.load())
    machine.require_end()
    return tree
