"""Optimizers, loss scalers and schedules in a form that both frameworks' states are read into and written from.

torch numbers the parameters in the order in which its optimizer got them; paddle uses global names, which count the
layers of a process. The neutral form uses the keys of the state dict.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.backends.state_layout import StateEntry
from twinalign.errors import InputError

# Neutral slot → (torch's name, paddle's name).
SLOTS = {
    "moment1": ("exp_avg", "moment1"),
    "moment2": ("exp_avg_sq", "moment2"),
    "moment2_max": ("max_exp_avg_sq", "moment2_max"),
    "mu": ("mu", "mu"),
    "velocity": ("momentum_buffer", "velocity"),
}
_KINDS = (("moment1", "adamw"), ("mu", "lars"), ("velocity", "sgd"))
_POWERS = ("beta1_pow_acc", "beta2_pow_acc")


@dataclasses.dataclass
class OptimizerState:
    """One optimizer's state by keys of the state dict, arrays laid out as in the model of its side."""

    kind: str
    """`adamw` (Adam too), `lars` or `sgd` (with momentum)."""
    slots: dict[str, dict[str, np.ndarray]]
    """Neutral slot → key → array."""
    steps: dict[str, int]
    """Key → steps made, for the optimizers that count them."""
    settings: dict[str, Any]
    """Hyper-parameters, as torch calls them."""


def parameter_keys(layout: Sequence[StateEntry]) -> list[str]:
    """Keys of the parameters in the order of `model.parameters()`: each tensor once, buffers left out."""
    statistics = ("_mean", "_variance")
    return [
        entry.key
        for entry in layout
        if entry.role == "parameter" and entry.tied_to is None and entry.persistent and entry.name not in statistics
    ]


def _kind(slots: Mapping[str, Any], path: str) -> str:
    found = next((kind for slot, kind in _KINDS if slots.get(slot)), None)
    if found is None:
        raise InputError(f"{path}: its optimizer is not AdamW, LARS or momentum SGD; leave it out with --weights-only")
    return found


def read_torch(state: Mapping[str, Any], layout: Sequence[StateEntry], path: str) -> OptimizerState:
    """Read torch's `optimizer.state_dict()`; raises InputError if its parameters are not the model's."""
    groups = state.get("param_groups")
    if not isinstance(groups, (list, tuple)) or not groups:
        raise InputError(f"{path}: its optimizer has no param_groups; leave it out with --weights-only")
    numbers = [number for group in groups for number in group["params"]]
    shapes = {entry.key: entry.shape for entry in layout}
    names = [name for group in groups for name in group.get("param_names", ())]
    keys = [name.removeprefix("module.") for name in names] if len(names) == len(numbers) else parameter_keys(layout)
    if len(keys) != len(numbers):
        raise InputError(
            f"{path}: its optimizer holds {len(numbers)} parameters and the model has {len(keys)}; "
            "leave it out with --weights-only"
        )
    key_of = dict(zip(numbers, keys, strict=True))
    neutral = {torch: slot for slot, (torch, _) in SLOTS.items()}
    slots: dict[str, dict[str, np.ndarray]] = {}
    steps: dict[str, int] = {}
    for number, values in state.get("state", {}).items():
        key = key_of.get(number)
        if key is None:
            raise InputError(
                f"{path}: its optimizer has state for parameter {number!r}, which is not in any of its groups"
            )
        for name, value in values.items():
            if name == "step":
                steps[key] = int(np.asarray(value).reshape(-1)[0])
            elif name in neutral and isinstance(value, np.ndarray):
                if tuple(value.shape) != shapes.get(key):
                    raise InputError(
                        f"{path}: its optimizer's {name} of parameter {number} has shape {list(value.shape)}, "
                        f"{key!r} has {list(shapes.get(key, ()))}: the parameters were given in another order; "
                        "leave it out with --weights-only"
                    )
                slots.setdefault(neutral[name], {})[key] = value
    if not slots:  # a fresh optimizer: its groups tell what it is
        kind = "lars" if "trust_coefficient" in groups[0] else "adamw" if "betas" in groups[0] else "sgd"
    else:
        kind = _kind(slots, path)
    settings = {name: value for name, value in groups[0].items() if name not in ("params", "param_names")}
    return OptimizerState(kind, slots, steps, settings)


def read_paddle(
    state: Mapping[str, Any], layout: Sequence[StateEntry], settings: Mapping[str, Any], path: str
) -> OptimizerState:
    """Read paddle's `optimizer.state_dict()` (flat, by parameter name), or moco_paddle's, nested by slot and key."""
    if any(isinstance(value, Mapping) and name in (*SLOTS, *_POWERS) for name, value in state.items()):
        by_slot = {name: dict(values) for name, values in state.items() if isinstance(values, Mapping)}
    else:
        by_slot = _by_key(state, layout, path)
    shapes = {entry.key: entry.shape for entry in layout}
    for slot, values in by_slot.items():
        for key, value in values.items():
            if key not in shapes or (slot in SLOTS and tuple(value.shape) != shapes[key]):
                raise InputError(
                    f"{path}: its optimizer's {slot} of {key!r} does not belong to a parameter of the model; "
                    "leave it out with --weights-only"
                )
    slots = {slot: by_slot[slot] for slot in SLOTS if slot in by_slot}
    betas = settings.get("betas", (0.9, 0.999))
    powers = [by_slot.get(name, {}) for name in _POWERS]
    steps = {key: steps_from_powers([power[key] for power in powers], betas) for key in powers[0]}
    kind = _kind(slots, path) if slots else str(settings.get("optimizer", "sgd"))
    return OptimizerState(kind, slots, steps, dict(settings))


def _by_key(state: Mapping[str, Any], layout: Sequence[StateEntry], path: str) -> dict[str, dict[str, np.ndarray]]:
    """Sort `linear_0.w_0_moment1_0` by slot and key, using the longest parameter name that fits."""
    names = {entry.parameter_name: entry.key for entry in layout if entry.parameter_name and entry.tied_to is None}
    found: dict[str, dict[str, np.ndarray]] = {}
    for name, value in state.items():
        if not isinstance(value, np.ndarray):
            continue
        owner = max((known for known in names if name.startswith(f"{known}_")), key=len, default=None)
        slot = name.removeprefix(f"{owner}_").rsplit("_", 1)[0] if owner else None
        if owner is None or slot not in (*SLOTS, *_POWERS):
            raise InputError(
                f"{path}: {name!r} belongs to no parameter of the model that --paddle builds in a new process; "
                "leave the optimizer out with --weights-only"
            )
        found.setdefault(slot, {})[names[owner]] = value
    return found


def steps_from_powers(powers: Sequence[np.ndarray], betas: Sequence[float]) -> int:
    """Number of steps, from paddle's accumulated powers of the betas (one ahead, in the parameter's precision).

    The first power underflows float32 after some 800 steps; from there on the second is used.
    """
    for power, beta in zip(powers, betas, strict=True):
        value = float(power.reshape(-1)[0])
        if value > 1e-30:
            return max(round(math.log(value) / math.log(float(power.dtype.type(beta)))) - 1, 0)
    # Both have underflown: the bias corrections are one to the last bit, whatever the count.
    return 100_000


def write_torch(state: OptimizerState, layout: Sequence[StateEntry], path: str) -> dict[str, Any]:
    """torch's `optimizer.state_dict()` with all parameters in one group; raises InputError for missing settings."""
    keys = parameter_keys(layout)
    slots = {SLOTS[slot][0]: values for slot, values in state.slots.items()}
    entries: dict[int, dict[str, Any]] = {}
    for number, key in enumerate(keys):
        found: dict[str, Any] = {name: values[key] for name, values in slots.items() if key in values}
        if found and key in state.steps:
            found = {"step": np.array(state.steps[key], np.float32), **found}
        if found:
            entries[number] = found
    group = {**_torch_group(state, path), "params": list(range(len(keys)))}
    return {"state": entries, "param_groups": [group]}


def _torch_group(state: OptimizerState, path: str) -> dict[str, Any]:
    given = state.settings
    needed = {"adamw": ("weight_decay",), "lars": ("weight_decay", "momentum"), "sgd": ("weight_decay", "momentum")}
    lacking = [name for name in needed[state.kind] if name not in given]
    if lacking:
        raise InputError(
            f"{path}: paddle stores no settings with an optimizer's state; give {' and '.join(lacking)} with "
            "--setting NAME=VALUE, or leave the optimizer out with --weights-only"
        )
    rate = float(given.get("lr", 0.0))
    common = {"lr": rate, "weight_decay": given["weight_decay"]}
    if state.kind == "lars":
        return {**common, "momentum": given["momentum"], "trust_coefficient": given.get("trust_coefficient", 0.001)}
    switches = {"maximize": False, "foreach": None, "differentiable": False, "fused": None}
    if state.kind == "sgd":
        return {**common, "momentum": given["momentum"], "dampening": 0, "nesterov": False, **switches}
    return {
        **common,
        "betas": tuple(given.get("betas", (0.9, 0.999))),
        "eps": given.get("eps", 1e-8),
        "amsgrad": "moment2_max" in state.slots,
        "capturable": False,
        "decoupled_weight_decay": given.get("decoupled_weight_decay", True),
        **switches,
    }


def plain_settings(state: OptimizerState) -> dict[str, Any]:
    """The numeric settings with which an optimizer of either framework is made."""
    names = ("lr", "weight_decay", "betas", "eps", "momentum", "trust_coefficient")
    kept = {name: np.asarray(state.settings[name]).tolist() for name in names if state.settings.get(name) is not None}
    return {name: value for name, value in kept.items() if not isinstance(value, str)}


def write_paddle(state: OptimizerState) -> dict[str, dict[str, np.ndarray]]:
    """Slot → key → array under paddle's slot names, including the powers of the betas."""
    found = {SLOTS[slot][1]: dict(values) for slot, values in state.slots.items()}
    if state.kind == "adamw":
        for name, beta in zip(_POWERS, state.settings.get("betas", (0.9, 0.999)), strict=True):
            found[name] = {
                key: _power(beta, steps, state.slots["moment1"][key].dtype) for key, steps in state.steps.items()
            }
    return found


def _power(beta: float, steps: int, dtype: np.dtype) -> np.ndarray:
    """A beta's power as paddle's kernel accumulates it, one step ahead, in the parameter's precision."""
    kept = dtype if dtype.name == "float64" else np.dtype(np.float32)
    return np.multiply.accumulate(np.full(steps + 1, beta, kept))[-1:].copy()


def flat_paddle(slots: Mapping[str, Mapping[str, Any]], layout: Sequence[StateEntry], path: str) -> dict[str, Any]:
    """paddle's `optimizer.state_dict()`, by parameter name; raises InputError if no model gave the names."""
    names = {entry.key: entry.parameter_name for entry in layout}
    if any(names.get(key) is None for values in slots.values() for key in values):
        raise InputError(f"{path}: a .pdopt uses paddle's parameter names, which only the model knows: give --paddle")
    return {f"{names[key]}_{slot}_0": value for slot, values in slots.items() for key, value in values.items()}


def scaler_to_paddle(state: Mapping[str, Any]) -> dict[str, Any]:
    """torch's `GradScaler.state_dict()` as paddle's; a disabled one is empty in both."""
    if not state:
        return {}
    return {
        "scale": float(state["scale"]),
        "incr_ratio": state["growth_factor"],
        "decr_ratio": state["backoff_factor"],
        "incr_every_n_steps": state["growth_interval"],
        "decr_every_n_nan_or_inf": 1,
        "incr_count": state["_growth_tracker"],
        "decr_count": 0,
        "use_dynamic_loss_scaling": True,
    }


def scaler_to_torch(state: Mapping[str, Any]) -> dict[str, Any]:
    """paddle's `GradScaler.state_dict()` as torch's."""
    if not state:
        return {}
    return {
        "scale": float(np.asarray(state["scale"]).reshape(-1)[0]),
        "growth_factor": float(state["incr_ratio"]),
        "backoff_factor": float(state["decr_ratio"]),
        "growth_interval": int(state["incr_every_n_steps"]),
        "_growth_tracker": int(state["incr_count"]),
    }
