"""Read a checkpoint of either framework: find its framework, its weights and everything else in it."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.errors import InputError
from twinalign.files.reader import member_names, open_regular, read_tree
from twinalign.files.strict_json import check_sizes, parse_value
from twinalign.files.text import shown

STATE_NAMES = ("state_dict", "model", "model_state_dict", "state", "net", "network", "weights", "params", "module")
"""Names under which nested checkpoints keep their weights, in the order in which they are looked for."""
WRAPPER_PREFIXES = ("module.", "_orig_mod.")
"""What DistributedDataParallel and torch.compile put before every key."""

_MOST_FOLDERS = 100
_LEGACY_TORCH = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."


@dataclasses.dataclass
class Checkpoint:
    """The contents of one file, or of several that belong together."""

    path: Path
    framework: str | None
    """`torch` or `paddle`; None where the format does not tell (.safetensors, .npz)."""
    format: str
    """`torch`, `paddle`, `safetensors`, `npz`."""
    weights: dict[str, np.ndarray]
    """The state dict, wrapper prefixes taken off."""
    entry: str | None
    """Name under which a nested checkpoint keeps its weights."""
    prefix: str
    """The wrapper prefix that was taken off every key."""
    rest: dict[str, Any]
    """What else the file holds, by name: optimizer, epoch, scaler, …"""
    dropped: dict[str, str]
    """Keys under the entry that are no arrays, with what they are."""


def read_checkpoint(path: Path, entry: str | None = None) -> Checkpoint:
    """Read a checkpoint safely.

    `entry`: name of the weights' entry, dotted if nested; None: the usual names are tried. Sharded .safetensors are
    read through their index file; a `.pdopt` beside a `.pdparams` is read with it.

    Raises InputError naming the file and the problem.
    """
    path = Path(path)
    if path.name.endswith(".index.json"):
        return _assemble(path, None, "safetensors", _read_shards(path), entry)
    kind, framework = sniff(path)
    if kind == "npz":
        return _assemble(path, framework, kind, _read_npz(path), entry)
    tree = read_tree(path)
    if not isinstance(tree, Mapping):
        raise InputError(f"{path}: it holds a {type(tree).__name__}, not a state dict; save model.state_dict()")
    found = _assemble(path, framework, kind, dict(tree), entry)
    for suffix, name in ((".pdopt", "optimizer"), (".run.json", "run")):
        beside = path.with_suffix(suffix)
        if kind == "paddle" and path.suffix == ".pdparams" and beside.exists():
            found.rest[name] = read_tree(beside) if suffix == ".pdopt" else _read_json(beside)
    return found


def sniff(path: Path) -> tuple[str, str | None]:
    """Format and framework of a file, from its content; raises InputError if it cannot be read."""
    with open_regular(path) as file:
        head = file.read(64)
    if head.startswith(b"PK"):
        torch = any(name.split("/")[-1] == "data.pkl" for name in member_names(path))
        return ("torch", "torch") if torch else ("npz", None)
    if head.startswith(_LEGACY_TORCH):
        return "torch", "torch"
    # The length that opens a .safetensors file may begin with the byte that opens a pickle.
    if head[:1] == b"\x80" and not (head[8:9] == b"{" and int.from_bytes(head[:8], "little") < path.stat().st_size):
        return "paddle", "paddle"
    return "safetensors", None


def _assemble(path: Path, framework: str | None, kind: str, tree: dict[str, Any], entry: str | None) -> Checkpoint:
    state, name, rest = _find_state(path, tree, entry)
    weights = {str(key): value for key, value in state.items() if isinstance(value, np.ndarray)}
    if not weights:
        raise InputError(f"{path}: {f'{name!r} in it' if name else 'it'} holds no arrays")
    dropped = {str(key): type(value).__name__ for key, value in state.items() if not isinstance(value, np.ndarray)}
    prefix = next((p for p in WRAPPER_PREFIXES if all(key.startswith(p) for key in weights)), "")
    weights = {key[len(prefix) :]: value for key, value in weights.items()}
    return Checkpoint(path, framework, kind, weights, name, prefix, rest, dropped)


def _find_state(
    path: Path, tree: Mapping[str, Any], entry: str | None
) -> tuple[Mapping[str, Any], str | None, dict[str, Any]]:
    if entry is not None:
        state: Any = tree
        for step in entry.split("."):
            if not isinstance(state, Mapping) or step not in state:
                raise InputError(f"{path}: it has no entry {entry!r}; it has {_names(tree)}")
            state = state[step]
        if not isinstance(state, Mapping):
            raise InputError(f"{path}: its entry {entry!r} is a {type(state).__name__}, not a state dict")
        return state, entry, {key: value for key, value in tree.items() if key != entry.split(".")[0]}
    if any(isinstance(value, np.ndarray) for value in tree.values()):
        return tree, None, {}
    nested = [name for name in STATE_NAMES if _is_state(tree.get(name))]
    if not nested:
        others = [str(name) for name, value in tree.items() if _is_state(value)]
        if len(others) != 1:
            raise InputError(
                f"{path}: no state dict was found in it; it has {_names(tree)}: name the right one with --entry"
            )
        nested = others
    name = nested[0]
    return tree[name], name, {str(key): value for key, value in tree.items() if key != name}


def _is_state(value: Any) -> bool:
    return isinstance(value, Mapping) and any(
        isinstance(key, str) and isinstance(item, np.ndarray) for key, item in value.items()
    )


def _names(tree: Mapping[str, Any], most: int = 12) -> str:
    names = [repr(shown(str(name))) for name in tree]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _read_shards(index: Path) -> dict[str, np.ndarray]:
    """Read a sharded .safetensors checkpoint; every key must be in the shard that the index names."""
    table = _read_json(index)
    places = table.get("weight_map") if isinstance(table, dict) else None
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise InputError(f"{index}: it is not an index of shards: 'weight_map' is missing or malformed")
    shards: dict[str, Any] = {}
    arrays = {}
    for key, name in places.items():
        if name != Path(name).name:
            raise InputError(
                f"{index}: its shard {shown(name)!r} for {shown(key)!r} is not a plain file name beside the index"
            )
        if name not in shards:
            shards[name] = read_tree(index.parent / name)
        if key not in shards[name]:
            raise InputError(f"{index.parent / name}: it lacks {shown(key)!r}, which {index.name} says is in it")
        arrays[key] = shards[name][key]
    for name, shard in shards.items():
        extra = [key for key in shard if places.get(key) != name]
        if extra:
            raise InputError(f"{index.parent / name}: {shown(extra[0])!r} is in it but {index.name} does not say so")
    return arrays


def _read_json(path: Path) -> Any:
    with open_regular(path) as file:
        return _parsed(file.read(), str(path))


def _parsed(content: bytes, label: str) -> Any:
    check_sizes({"its JSON": content}, label)
    return parse_value(content, label)


def _read_npz(path: Path) -> dict[str, Any]:
    """Read an .npz: slashes in names become nesting, texts are JSON (moco_paddle keeps `run` like this)."""
    tree: dict[str, Any] = {}
    for name, value in read_tree(path).items():
        *folders, leaf = name.split("/", _MOST_FOLDERS)
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
            if not isinstance(place, dict):
                raise InputError(f"{path}: {shown(name)!r} in it stands below an array")
        if leaf in place:
            raise InputError(f"{path}: {shown(name)!r} in it stands in the place of others")
        place[leaf] = value
        if isinstance(value, str):
            place[leaf] = _parsed(value.encode(), f"{path}: its text {shown(name)!r}")
    return tree
