"""Parts of a MoCo v3 checkpoint as other programs expect them: DeiT or timm for fine-tuning, the linear classifier."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.convert import writers
from twinalign.convert.checkpoint import Checkpoint
from twinalign.convert.ledger import Ledger, LedgerEntry
from twinalign.convert.options import Options, Report
from twinalign.errors import InputError

FORMS = ("deit", "timm", "linear-probe")
_ENCODERS = ("base_encoder.", "encoder.", "backbone.")


def exported_keys(keys: Mapping[str, Any], form: str, path: str) -> dict[str, str]:
    """Target key → new name, for what the form takes: the base encoder without its projection head.

    `deit` and `timm`: bare names. `linear-probe`: the names that a linear classifier loads, `base_encoder.` kept (the
    official program takes checkpoints of wrapped models, so a torch file gets `module.` before that).

    A bare encoder (a trained linear classifier) goes whole. Raises InputError where there is no encoder.
    """
    if form not in FORMS:
        raise InputError(f"--export {form}: there are {', '.join(FORMS)}")
    prefix = next((p for p in _ENCODERS if any(key.startswith(p) for key in keys)), None)
    if prefix is None:
        if any(key.startswith(("momentum_encoder.", "predictor.")) for key in keys):
            raise InputError(f"{path}: no key starts with base_encoder., so there is no encoder to export")
        return {key: f"base_encoder.{key}" if form == "linear-probe" else key for key in keys}
    head = _head(keys, prefix)
    kept = {
        key: key.removeprefix(prefix) for key in keys if key.startswith(prefix) and not key.startswith(prefix + head)
    }
    if form == "linear-probe":
        return {key: f"base_encoder.{name}" for key, name in kept.items()}
    return kept


def _head(keys: Mapping[str, Any], prefix: str) -> str:
    """`fc.` of a ResNet, `head.` of a ViT: where MoCo v3 puts its projector."""
    for name in ("head.", "fc."):
        if any(key.startswith(prefix + name) for key in keys):
            return name
    return "head."


def exported_entry(entry: LedgerEntry, names: Mapping[str, str], form: str) -> LedgerEntry:
    """The ledger's entry of a target key, under its new name or dropped."""
    assert entry.target is not None
    if entry.target not in names:
        return dataclasses.replace(entry, target=None, actions=("dropped",), reason=f"no part of the {form} form")
    name = names[entry.target]
    actions = tuple(action for action in entry.actions if action != "copied")
    if name != entry.target and "renamed" not in actions:
        actions = (*actions, "renamed")
    return dataclasses.replace(entry, target=name, actions=actions or entry.actions)


def exported_tree(arrays: Mapping[str, np.ndarray | Any], form: str, framework: str, values: Mapping[str, Any]) -> Any:
    """What is written: `{"model": …}` for DeiT, a bare state dict for timm and paddle, the program's for probes."""
    if framework == "paddle" or form == "timm":
        return dict(arrays)
    if form == "deit":
        return {"model": dict(arrays)}
    kept = {name: values[name] for name in ("arch", "epoch") if name in values}
    return {**kept, "state_dict": {f"module.{key}": value for key, value in arrays.items()}}


def write_exported(
    target: Path, arrays: Mapping[str, np.ndarray | Any], form: str, framework: str, values: Mapping[str, Any]
) -> None:
    """Write the form's arrays in the target's format; what holds arrays only gets them without the form's wrapping."""
    if target.suffix == ".safetensors":
        writers.write_safetensors(target, arrays, {"format": "pt" if framework == "torch" else "pd"})
    elif target.suffix == ".npz":
        writers.write_npz(target, arrays)
    elif framework == "torch":
        writers.write_torch(target, exported_tree(arrays, form, framework, values))
    else:
        writers.write_paddle(target, exported_tree(arrays, form, framework, values))


def export_within(checkpoint: Checkpoint, target: Path, framework: str, options: Options) -> Report:
    """Export into a file of the checkpoint's own framework: numbers and layout stay, so no model is asked.

    Raises InputError where there is no encoder, and for options that only a conversion has a use for.
    """
    idle = [name for name in ("cast", "verify", "rename", "layers") if getattr(options, name)]
    if idle:
        raise InputError(f"{target}: an export within {framework} converts nothing; leave out --{idle[0].rstrip('s')}")
    form = options.export or ""
    names = exported_keys(checkpoint.weights, form, str(checkpoint.path))
    entries = []
    for key, array in checkpoint.weights.items():
        entry = LedgerEntry(
            (key,), key, ("copied",), f"the {form} form", (array.shape,), array.shape, array.dtype.name, "name"
        )
        entries.append(exported_entry(entry, names, form))
    lost = {**dict.fromkeys(checkpoint.rest, f"no part of the {form} form"), **checkpoint.dropped}
    entries += [LedgerEntry((key,), None, ("dropped",), reason) for key, reason in lost.items()]
    arrays = {name: checkpoint.weights[key] for key, name in names.items()}
    write_exported(target, arrays, form, framework, {} if options.weights_only else checkpoint.rest)
    facts = {
        "source": {"file": str(checkpoint.path), "framework": framework, "format": checkpoint.format},
        "target": {"file": str(target), "framework": framework},
    }
    return Report(Ledger(entries, facts), [target])
