"""The initial weights of a part of a case: the reference's, converted for the port."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from twinalign.conversion.canonical_names import names_of_moves
from twinalign.conversion.convert_file import convert_between
from twinalign.conversion.model_factory import load_rules
from twinalign.conversion.options import Options
from twinalign.conversion.remote_model import RemoteModel
from twinalign.conversion.unmatched import note_of, text_of
from twinalign.errors import InputError
from twinalign.files.reader import read_arrays
from twinalign.files.recordings import hash_arrays, save_npz, write_json, write_text
from twinalign.sides import SIDES


def convert_weights(
    ledger: Path,
    files: Mapping[str, WeightFiles],
    options: Options,
    models: Callable[[], contextlib.AbstractContextManager[Mapping[str, RemoteModel]]],
    for_paddle: bool,
) -> dict[str, Any]:
    """Convert a part's reference weights for the port, if it needs them, and write a ledger of every key.

    The reference's `files` and the port's layout must exist. `models` opens both models, if names do not show which
    layer is which. Returns what each side's recorder is given, and `sha256`, the hash of the reference's weights.

    Raises:
        InputError: the reference has not been recorded, or its weights do not fit the port.
    """
    reference = files["ref"]
    if not reference.arrays.exists() or not reference.layout.exists():
        raise InputError(
            f"{reference.arrays}: no reference weights; record the reference side first and copy its weights folder"
        )
    arrays = read_arrays(reference.arrays)
    layout = json.loads(reference.layout.read_text(encoding="utf-8"))
    sha256 = hash_arrays(arrays)
    given: dict[str, Any] = {"sha256": sha256, "ref": {"path": str(reference.arrays), "sha256": sha256}}
    if for_paddle:
        port = files["paddle"]
        own_layout = json.loads(port.layout.read_text(encoding="utf-8"))
        inputs = [str(reference.inputs)] if reference.inputs.exists() else []
        load_rules(options.rules)
        conversion = convert_between(
            arrays, {"torch": layout, "paddle": own_layout}, dataclasses.replace(options, inputs=inputs), models
        )
        save_npz(port.arrays, conversion.arrays)
        write_json(ledger, conversion.ledger.to_json())
        _explain(ledger, conversion.ledger.facts.get("unmatched", {}))
        canonical = names_of_moves(conversion.moves, {key: array.shape for key, array in arrays.items()})
        given["ref"]["left_out"], kept = conversion.alone
        given["paddle"] = {"path": str(port.arrays), "sha256": sha256, "canonical": canonical, "kept": kept}
        given["paddle"]["tied_apart"] = tied_apart(layout, own_layout, canonical)
        given["paddle"]["buffers_there"] = buffers_there(layout, own_layout, canonical)
    return given


def buffers_there(
    reference: Sequence[Mapping[str, Any]],
    port: Sequence[Mapping[str, Any]],
    canonical: Mapping[str, Sequence[Sequence[Any]]],
) -> list[str]:
    """Keys of the port's parameters that the reference holds in buffers; arguments as for `tied_apart`."""
    buffers = {entry["key"] for entry in reference if entry["role"] == "buffer"}
    own = [entry["key"] for entry in port if entry["role"] != "buffer"]
    return [key for key in own if (parts := canonical.get(key)) and all(part[0] in buffers for part in parts)]


def tied_apart(
    reference: Sequence[Mapping[str, Any]],
    port: Sequence[Mapping[str, Any]],
    canonical: Mapping[str, Sequence[Sequence[Any]]],
) -> dict[str, list[list[str]]]:
    """Side -> keys, in groups, of tensors that are one there and several on the other side.

    They start equal, so that nothing but a training shows it. The layouts are those of `describe_state`, `canonical`
    what `names_of_moves` returns.
    """
    tensors = [{entry["key"]: entry["tied_to"] or entry["key"] for entry in layout} for layout in (reference, port)]
    keys: list[dict[str, list[str]]] = [{}, {}]
    for of_side, found in zip(tensors, keys, strict=True):
        for key, tensor in of_side.items():
            found.setdefault(tensor, []).append(key)
    partners: list[dict[str, set[str]]] = [{}, {}]
    for key, parts in canonical.items():
        for name in [part[0] for part in parts]:
            ours, theirs = tensors[0].get(name, name), tensors[1].get(key, key)
            partners[0].setdefault(ours, set()).add(theirs)
            partners[1].setdefault(theirs, set()).add(ours)
    return {
        side: [tied for tensor, tied in found.items() if len(tied) > 1 and len(others.get(tensor, ())) > 1]
        for side, found, others in zip(SIDES, keys, partners, strict=True)
    }


def _explain(ledger: Path, facts: Mapping[str, Any]) -> None:
    """Write, or remove, the text that says what has no partner."""
    if facts:
        write_text(_names_file(ledger), text_of(facts))
    else:
        _names_file(ledger).unlink(missing_ok=True)


def _names_file(ledger: Path) -> Path:
    return ledger.with_name(ledger.name.replace("_ledger.json", "_rename.txt"))


@dataclasses.dataclass(frozen=True)
class Unmatched:
    """What has no proven partner; all empty if everything has one."""

    note: str = ""
    """The whole in words."""
    keys: Sequence[str] = ()
    """The port's keys whose values may therefore be wrong."""
    extra: Sequence[str] = ()
    """The port's layers that make it another network."""
    in_pairs: bool = False
    """Whether everything has a partner, but not a proven one."""


def unmatched_of(ledger: Path) -> Unmatched:
    """From a ledger that `convert_weights` wrote."""
    try:
        facts = json.loads(ledger.read_text(encoding="utf-8"))["unmatched"]
    except (OSError, ValueError, KeyError):
        return Unmatched()
    if not facts:
        return Unmatched()
    keys = facts["paddle"] if facts["reason"] else []
    extra = facts.get("extra", ())
    in_pairs = not (facts["reference"] or facts["paddle"] or extra)
    return Unmatched(note_of(facts, str(_names_file(ledger))), keys, extra, in_pairs)


@dataclasses.dataclass(frozen=True)
class WeightFiles:
    """Paths of one side's initial weights, of its model's layout, and of the inputs for a trial."""

    arrays: Path
    layout: Path
    inputs: Path

    @classmethod
    def of(cls, folder: Path, part: str, side: str) -> WeightFiles:
        stem = folder / f"{part}_{side}"
        return cls(*(stem.with_name(stem.name + end) for end in (".npz", "_layout.json", "_inputs.npz")))

    def all_exist(self) -> bool:
        return all(path.exists() for path in (self.arrays, self.layout, self.inputs))

    def request(self) -> dict[str, str]:
        return {"arrays": str(self.arrays), "layout": str(self.layout), "inputs": str(self.inputs)}
