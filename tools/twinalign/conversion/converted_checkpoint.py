"""Assemble and write a converted checkpoint: weights, optimizer, and what else the training needs."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from plain_pickles.dtypes import numpy_dtype
from twinalign.backends.state_layout import StateEntry
from twinalign.conversion import convert_arrays, export, training_state, writers
from twinalign.conversion.checkpoint import Checkpoint, read_checkpoint
from twinalign.conversion.ledger import Ledger, LedgerEntry
from twinalign.conversion.options import Options
from twinalign.conversion.pickles import Deferred, StateDict
from twinalign.conversion.plan import OTHER, Move, Plan
from twinalign.conversion.training_state import OptimizerState
from twinalign.errors import InputError
from twinalign.files.mapped_memory import release
from twinalign.files.recordings import write_text

OPTIMIZER_SETTINGS = "optimizer_settings"
"""Under this name the way back finds beside paddle's files what paddle's optimizers do not keep."""


class MovedArray(Deferred):
    """One target array, made only when it is written."""

    def __init__(self, move: Move, arrays: Mapping[str, np.ndarray]) -> None:
        """`arrays` are the source's, by key; they may be mapped files."""
        self._move, self._arrays = move, arrays
        self.shape = move.target.shape
        kept = arrays[move.pieces[0].key].dtype if move.pieces else np.dtype(move.target.dtype)
        self.dtype = numpy_dtype(move.dtype) if move.dtype else np.dtype(kept)

    def load(self, scratch: Callable[[int], np.ndarray]) -> np.ndarray:
        made = convert_arrays.make(self._move, self._arrays, scratch)
        for piece in self._move.pieces:
            release(self._arrays[piece.key])
        return made


@dataclasses.dataclass
class Output:
    """The target checkpoint."""

    checkpoint: Checkpoint
    given: str
    plan: Plan
    layouts: Mapping[str, Sequence[StateEntry]]
    options: Options
    ledger: Ledger
    versions: Mapping[str, int]
    """Path of a layer of the reference → version of its part of the state dict."""

    def __post_init__(self) -> None:
        self.wanted = OTHER[self.given]

    def write(self, target: Path) -> list[Path]:
        """Write the target file and the files beside it; returns their paths."""
        convert_arrays.check_ties(self.plan, self.checkpoint.weights)
        arrays = {f"{self.options.prefix}{key}": array for key, array in self._arrays().items()}
        if self.options.export is not None:
            return self._write_export(target, arrays, self._values())
        if target.suffix == ".safetensors":
            for name in () if self.options.weights_only else self.checkpoint.rest:
                self._enter((name,), None, "dropped", "a .safetensors file holds arrays only")
            writers.write_safetensors(target, arrays, {"format": "pt" if self.wanted == "torch" else "pd"})
            return [target]
        optimizer, values = self._optimizer(), self._values()
        if self.wanted == "torch":
            return self._write_torch(target, arrays, optimizer, values)
        return self._write_paddle(target, arrays, optimizer, values)

    def _arrays(self) -> dict[str, Any]:
        """Key → deferred array of the target; tied keys share one object, so that it is written once."""
        weights = self.checkpoint.weights
        found: dict[str, Any] = {}
        made: dict[Any, MovedArray] = {}
        given = self.options.defaults
        defaults = {} if given is None else read_checkpoint(given).weights
        holders = {move.target.tied_to for move in self.plan.moves}
        for move in self.plan.moves:
            key = move.target.key
            if not move.pieces and key in defaults:
                found[key] = defaults[key]
                continue
            source = (move.pieces, move.transposed, move.target.shape, move.dtype)
            tied = move.target.tied_to is not None or key in holders
            found[key] = made.setdefault(source, MovedArray(move, weights)) if tied else MovedArray(move, weights)
        return found

    def _values(self) -> dict[str, Any]:
        """Plain values other than weights: epoch, architecture, settings, scaler, schedule."""
        if self.options.weights_only:
            return {}
        found: dict[str, Any] = {}
        for name, value in self.checkpoint.rest.items():
            if name == "optimizer":
                continue
            try:
                plain = _plain(value)
            except ValueError:
                self._enter((name,), None, "dropped", "arrays that belong to no parameter of the model")
                continue
            found.update(plain if name == "run" and isinstance(plain, dict) else {name: plain})
            self._enter((name,), name, "copied", "a plain value")
        if isinstance(found.get("scaler"), Mapping):
            turn = training_state.scaler_to_paddle if self.wanted == "paddle" else training_state.scaler_to_torch
            try:
                found["scaler"] = turn(found["scaler"])
            except KeyError as error:
                raise InputError(
                    f"{self.checkpoint.path}: its scaler lacks {error}; leave it out with --weights-only"
                ) from None
        if self.options.settings:
            found["settings"] = {**found.get("settings", {}), **self.options.settings}
        return found

    def _optimizer(self) -> OptimizerState | None:
        """The optimizer's state by the target's keys, in the target's layout."""
        state = self.checkpoint.rest.get("optimizer")
        if self.options.weights_only or not isinstance(state, Mapping) or not state:
            return None
        path, layout = str(self.checkpoint.path), self.layouts[self.given]
        if self.given == "torch":
            read = training_state.read_torch(state, layout, path)
        else:
            run = self.checkpoint.rest.get("run", {})
            settings = {**run.get("settings", {}), **self.options.settings}
            if {"lr", "batch_size"} <= settings.keys():
                settings["lr"] = settings["lr"] * settings["batch_size"] / 256  # as both twins' programs scale it
            settings = {**run.get(OPTIMIZER_SETTINGS, {}), **settings}
            read = training_state.read_paddle(state, layout, settings, path)
        return self._moved(read)

    def _moved(self, state: OptimizerState) -> OptimizerState:
        slots: dict[str, dict[str, Any]] = {}
        steps: dict[str, int] = {}
        for move in self.plan.moves:
            if not move.pieces or move.target.tied_to is not None:
                continue
            keys = [piece.key for piece in move.pieces]
            for slot, values in state.slots.items():
                if all(key in values for key in keys):
                    slots.setdefault(slot, {})[move.target.key] = MovedArray(move, values)
                    self._enter(
                        tuple(f"optimizer/{slot}/{key}" for key in keys),
                        f"optimizer/{slot}/{move.target.key}",
                        "copied",
                        "moved as its parameter is",
                    )
            if keys[0] in state.steps:
                steps[move.target.key] = state.steps[keys[0]]
        return OptimizerState(state.kind, slots, steps, state.settings)

    def _enter(self, source: tuple[str, ...], target: str | None, action: str, reason: str) -> None:
        self.ledger.entries.append(LedgerEntry(source, target, (action,), reason))

    def _write_torch(
        self, target: Path, arrays: dict[str, Any], optimizer: OptimizerState | None, values: dict[str, Any]
    ) -> list[Path]:
        versions = {f"{self.options.prefix}{path}".removesuffix("."): known for path, known in self.versions.items()}
        state = StateDict(arrays, versions)
        if optimizer is None and not values:
            writers.write_torch(target, state)
            return [target]
        values.pop(OPTIMIZER_SETTINGS, None)  # torch keeps them in its groups
        tree: dict[str, Any] = {**values, "state_dict": state}
        if optimizer is not None:
            tree["optimizer"] = training_state.write_torch(optimizer, self.layouts["torch"], str(self.checkpoint.path))
        writers.write_torch(target, tree)
        return [target]

    def _write_paddle(
        self, target: Path, arrays: dict[str, Any], optimizer: OptimizerState | None, values: dict[str, Any]
    ) -> list[Path]:
        slots = training_state.write_paddle(optimizer) if optimizer is not None else {}
        if optimizer is not None and (kept := training_state.plain_settings(optimizer)):
            values = {**values, OPTIMIZER_SETTINGS: kept}
        if target.suffix == ".npz":
            run = {"epoch": 0, "iteration": 0, "settings": {}, **values}
            flat = {f"state_dict/{key}": array for key, array in arrays.items()}
            flat |= {f"optimizer/{slot}/{key}": a for slot, found in slots.items() for key, a in found.items()}
            writers.write_npz(target, {"run": np.array(json.dumps(run)), **flat})
            return [target]
        written = [target]
        names = {entry.key: entry.parameter_name for entry in self.layouts["paddle"] if entry.parameter_name}
        flat = training_state.flat_paddle(slots, self.layouts["paddle"], str(target)) if optimizer else {}
        schedule = _schedule(values)
        if schedule:
            flat["LR_Scheduler"] = schedule
        writers.write_paddle(target, arrays, names)
        if flat:
            beside = target.with_suffix(".pdopt")
            writers.write_paddle(beside, flat, {name: name for name in flat})
            written.append(beside)
        if values:
            beside = target.with_suffix(".run.json")
            write_text(beside, json.dumps(values, indent=1, default=str) + "\n")
            written.append(beside)
        return written

    def _write_export(self, target: Path, arrays: dict[str, Any], values: Mapping[str, Any]) -> list[Path]:
        form = self.options.export or ""
        names = export.exported_keys(arrays, form, str(self.checkpoint.path))
        for number, entry in enumerate(self.ledger.entries):
            if entry.target is not None:
                self.ledger.entries[number] = export.exported_entry(entry, names, form)
        kept = {name: arrays[key] for key, name in names.items()}
        export.write_exported(target, kept, form, self.wanted, values)
        return [target]


def _schedule(values: Mapping[str, Any]) -> dict[str, Any]:
    """paddle's `LR_Scheduler` entry from torch's scheduler state; empty without one."""
    state = next((values[name] for name in ("scheduler", "lr_scheduler") if name in values), None)
    if not isinstance(state, Mapping) or "last_epoch" not in state:
        return {}
    rates = state.get("_last_lr") or [0.0]
    return {"last_epoch": int(state["last_epoch"]), "last_lr": float(rates[0])}


def _plain(value: Any) -> Any:
    """Replace arrays of one number by that number; raises ValueError for larger arrays."""
    if isinstance(value, np.ndarray):
        return value.item()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
