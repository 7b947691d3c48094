"""Parts of a MoCo v3 checkpoint in other programs' forms: DeiT or timm for fine-tuning, the linear classifier."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.conversion import writers
from twinalign.conversion.checkpoint import Checkpoint
from twinalign.conversion.ledger import Ledger, LedgerEntry
from twinalign.conversion.options import ConversionResult, Options
from twinalign.errors import InputError

FORMS = ("deit", "timm", "linear-probe")
_ENCODERS = ("base_encoder.", "encoder.", "backbone.")


def exported_keys(keys: Mapping[str, Any], form: str, path: str) -> dict[str, str]:
    """Target key → new name, for the keys that the form includes: the base encoder without its projection head.

    `deit` and `timm`: bare names. `linear-probe`: `base_encoder.` is kept, as a linear classifier expects (a torch file
    also gets `module.`, because the official program loads checkpoints of wrapped models).

    A bare encoder (a trained linear classifier) is exported whole. Raises InputError if there is no encoder.
    """
    if form not in FORMS:
        raise InputError(f"--export {form}: there are {', '.join(FORMS)}")
    prefix = next((p for p in _ENCODERS if any(key.startswith(p) for key in keys)), None)
    if prefix is None:
        if any(key.startswith(("momentum_encoder.", "predictor.")) for key in keys):
            raise InputError(f"{path}: no key starts with base_encoder., so there is no encoder to export")
        return {key: f"base_encoder.{key}" if form == "linear-probe" else key for key in keys}
    # Where MoCo v3 puts its projector: `fc.` of a ResNet, `head.` of a ViT.
    head = next((name for name in ("head.", "fc.") if any(key.startswith(prefix + name) for key in keys)), "head.")
    kept = {
        key: key.removeprefix(prefix) for key in keys if key.startswith(prefix) and not key.startswith(prefix + head)
    }
    if form == "linear-probe":
        return {key: f"base_encoder.{name}" for key, name in kept.items()}
    return kept


def exported_entry(entry: LedgerEntry, names: Mapping[str, str], form: str) -> LedgerEntry:
    """The ledger's entry of a target key under its new name, or as dropped."""
    assert entry.target is not None
    if entry.target not in names:
        return dataclasses.replace(entry, target=None, actions=("dropped",), reason=f"no part of the {form} form")
    name = names[entry.target]
    actions = tuple(action for action in entry.actions if action != "copied")
    if name != entry.target and "renamed" not in actions:
        actions = (*actions, "renamed")
    return dataclasses.replace(entry, target=name, actions=actions or entry.actions)


def exported_tree(arrays: Mapping[str, np.ndarray | Any], form: str, framework: str, values: Mapping[str, Any]) -> Any:
    """The tree to write: `{"model": …}` for DeiT, a bare state dict for timm and paddle, the program's for probes."""
    if framework == "paddle" or form == "timm":
        return dict(arrays)
    if form == "deit":
        return {"model": dict(arrays)}
    kept = {name: values[name] for name in ("arch", "epoch") if name in values}
    return {**kept, "state_dict": {f"module.{key}": value for key, value in arrays.items()}}


def write_exported(
    target: Path, arrays: Mapping[str, np.ndarray | Any], form: str, framework: str, values: Mapping[str, Any]
) -> None:
    """Write the form's arrays in the target's format; formats that hold only arrays get no wrapping."""
    if target.suffix == ".safetensors":
        writers.write_safetensors(target, arrays, {"format": "pt" if framework == "torch" else "pd"})
    elif target.suffix == ".npz":
        writers.write_npz(target, arrays)
    elif framework == "torch":
        writers.write_torch(target, exported_tree(arrays, form, framework, values))
    else:
        writers.write_paddle(target, exported_tree(arrays, form, framework, values))


def export_within(checkpoint: Checkpoint, target: Path, framework: str, options: Options) -> ConversionResult:
    """Export into a file of the checkpoint's own framework: numbers and layout stay the same, so no model is needed.

    Raises InputError if there is no encoder, and for options that only a conversion uses.
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
    return ConversionResult(Ledger(entries, facts), [target])
