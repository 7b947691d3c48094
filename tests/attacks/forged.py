"""Forged bundles: an honest one of `tests.cases.compact`, altered by somebody who has read the source of `verify`.

Each forger makes every claim fit what he altered: summary, logs, digests and hashes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tests.twinalign.bundle.forging import Forgery

SIDES, DTYPES = ("ref", "paddle"), ("float32", "float64")
SUMMARY, CASE, MANIFEST, LEDGER = (
    "result/summary.json",
    "result/case.json",
    "manifest.json",
    "result/weights/compact_ledger.json",
)
STEMS = {"forward": "forward", "loss": "loss", "backward": "losses"}
SOURCE = "source/compact.py"

Forge = Callable[[Forgery], Any]


def member(stage: str, side: str, dtype: str = "float32", ending: str = "npy") -> str:
    """Name of a recording or of its metadata."""
    return f"result/{'' if dtype == 'float32' else dtype + '/'}{STEMS[stage]}_{side}.{ending}"


def change(forgery: Forgery, alter: Callable[[dict[str, np.ndarray], str, str], Any], stage: str = "forward") -> None:
    """Alter the arrays of every recording of a stage; `alter` is given side and precision too."""
    for side in SIDES:
        for dtype in DTYPES:
            if member(stage, side, dtype) in forgery.members:
                forgery.change_arrays(member(stage, side, dtype), lambda a, s=side, d=dtype: alter(a, s, d))


def tell(
    forgery: Forgery, alter: Callable[[Any], Any], stages: Iterable[str] = (*STEMS, "initial"), side: str = ""
) -> None:
    """Alter the metadata of every recording of these stages."""
    for name in [name for name in forgery.members if re.search(r"_(ref|paddle)\.json$", name)]:
        if any(f"/{STEMS.get(stage, stage)}_" in name for stage in stages) and name.endswith(f"{side}.json"):
            forgery.edit(name, alter)


def describe(forgery: Forgery, **fields: Any) -> None:
    """Alter what the case says of itself."""
    forgery.edit(CASE, lambda case: case["description"].update(fields))


def rewrite_source(forgery: Forgery, alter: Callable[[str], str]) -> None:
    """Alter the case's source, and every hash of it."""
    name = next(name for name in forgery.members if name.endswith("compact.py"))
    path = forgery.json(MANIFEST)["source"][name]
    forgery.members[name] = alter(forgery.members[name].decode()).encode()
    digest = hashlib.sha256(forgery.members[name]).hexdigest()
    tell(forgery, lambda metadata: metadata["code_sha256"].update({path: digest}))
    forgery.edit(MANIFEST, lambda manifest: manifest["hashes"]["code"].update({path: digest}))


def noise(array: np.ndarray, share: float, seed: int = 0) -> np.ndarray:
    """The array with normal noise of this share of its size."""
    drawn = np.random.default_rng(seed).standard_normal(array.shape)
    return (array + drawn * share * np.abs(array).max(initial=0)).astype(array.dtype)


def drawn(array: np.ndarray, seed: int = 1) -> np.ndarray:
    """Random numbers of the array's size."""
    return (np.random.default_rng(seed).standard_normal(array.shape) * np.abs(array).std()).astype(array.dtype)


def random_port(forgery: Forgery, name: str = "output", stage: str = "forward") -> None:
    """The port's tensor is made up, alike in both precisions."""

    def alter(arrays: dict[str, np.ndarray], side: str, dtype: str) -> None:
        if side == "paddle":
            arrays[name] = drawn(arrays[name].astype("float64")).astype(dtype)

    change(forgery, alter, stage)


def made_up_repeat(forgery: Forgery, share: float, names: Iterable[str] | None = None, stage: str = "forward") -> None:
    """A repeat of the reference that is `share` away from it, in some tensors or in all."""
    arrays = forgery.arrays(member(stage, "ref"))
    chosen = set(arrays if names is None else names)
    moved = {n: noise(a, share if n in chosen else 1e-6) if a.dtype.kind == "f" else a for n, a in arrays.items()}
    forgery.store(f"result/repeat/{STEMS[stage]}_ref.npy", moved)
    forgery.members[f"result/repeat/{STEMS[stage]}_ref.json"] = forgery.members[member(stage, "ref", ending="json")]


def without_float64(forgery: Forgery, sides: Iterable[str], stages: Iterable[str] = ("forward",)) -> None:
    """The float64 recordings are gone, and the summary has an excuse."""
    for stage in stages:
        for side in sides:
            for ending in ("npy", "json"):
                forgery.members.pop(member(stage, side, "float64", ending), None)
        excuse = dict.fromkeys(sides, "RuntimeError: no kernel")
        forgery.edit(SUMMARY, lambda s, stage=stage, e=excuse: s["stages"][stage].update(without_float64=e))


def in_float32_alone(forgery: Forgery) -> None:
    """As if it had been run with --precision float32."""
    for name in [name for name in forgery.members if "/float64/" in name]:
        del forgery.members[name]
    forgery.edit(SUMMARY, lambda summary: summary.update(precision="float32"))


def only_stage(forgery: Forgery, *stages: str) -> None:
    """The others were never run."""
    gone = [stage for stage in STEMS if stage not in stages]
    for name in [n for n in forgery.members if any(f"/{STEMS[s]}_" in n or f"log/{s}_" in n for s in gone)]:
        del forgery.members[name]
    order = ("forward", "data", "metric", "loss", "backward", "train")
    missing = [stage for stage in order if stage not in stages]
    forgery.edit(MANIFEST, lambda m: m.update(stages=list(stages), missing_stages=missing))

    def forget(summary: Any) -> None:
        summary["stages"] = {stage: summary["stages"][stage] for stage in stages}
        summary["not_checked"] = missing

    forgery.edit(SUMMARY, forget)


def drop(forgery: Forgery, pattern: str, stage: str = "backward") -> None:
    """No recording of the stage has the tensors whose names match."""

    def alter(arrays: dict[str, np.ndarray], side: str, dtype: str) -> None:
        for name in [name for name in arrays if re.search(pattern, name)]:
            del arrays[name]

    change(forgery, alter, stage)
    tell(forgery, lambda m: [m.get("sampled", {}).pop(n) for n in [*m.get("sampled", {})] if re.search(pattern, n)])


def settle(forgery: Forgery) -> None:
    """The manifest's copies of what the other files say."""
    metadata = {n: forgery.json(n) for n in forgery.members if re.search(r"_(ref|paddle)\.json$", n)}

    def copy(manifest: Any) -> None:
        hashes: dict[str, dict[str, str]] = {"weights": {}, "inputs": {}, "code": {}, "data": {}}
        for entry in metadata.values():
            hashes["weights"]["compact"] = entry["weights_sha256"]
            hashes["inputs"] |= {f"compact {step}": sha for step, sha in entry.get("inputs_sha256", {}).items()}
            hashes["code"] |= entry["code_sha256"]
        manifest["hashes"] = {kind: dict(sorted(found.items())) for kind, found in hashes.items()}
        manifest["environment"] = forgery.json(SUMMARY)["environment"]

    forgery.edit(MANIFEST, copy)


def as_json(value: Any) -> bytes:
    """Any value as a file."""
    return json.dumps(value).encode()
