"""The training's part of locating, on one side: its first steps in float64."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.locate.components import distance, root_mean_square
from twinalign.recording import save_npz
from twinalign.stages.naming import CanonicalNames
from twinalign.stages.train import CURVE_PREFIX
from twinalign.stages.watching import BUFFER_NORM, TrainingPlan, run_training
from twinalign.verdict import KNOWN_ALLOWANCES
from twinalign.verdict.allowances import ALWAYS, resolve

STAGE = "train"
STEPS = 6
"""Enough for what happens every second step, few enough for rounding not to have grown."""
MOVED = "moved."
"""Before the names of the reference's curves from weights moved a little."""
_CHANGE = 1e-10
_FLOAT32 = 2.0**-24
_ROUNDING = 1e-12
_SHOWN = 6
_FLOOR_FACTOR = 16.0
"""The port may part by this many times what the reference parts from weights and a rate that are moved a little."""
Curves = dict[str, np.ndarray]
Around = Callable[[Any], contextlib.AbstractContextManager[Any]]
"""Given the model, returns what is entered while it trains."""


def read_curves(path: str | Path) -> tuple[Curves, Curves]:
    """The curves of a file of `record_curves`, and those from weights moved a little."""
    with np.load(path, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored}
    return (
        {name: curve for name, curve in arrays.items() if not name.startswith(MOVED)},
        {name.removeprefix(MOVED): curve for name, curve in arrays.items() if name.startswith(MOVED)},
    )


def floors_of(reference: Mapping[str, np.ndarray], moved: Mapping[str, np.ndarray]) -> dict[str, float]:
    """What rounding and constants kept in float32 may leave of each curve (docs/verdict.md)."""
    return {
        name: _FLOOR_FACTOR * distance(curve, moved[name]) + _constants(name) * root_mean_square(curve)
        for name, curve in reference.items()
        if name in moved
    }


def wrong_curves(paths: Mapping[str, Path], allowances: Iterable[str] = ()) -> dict[str, Any]:
    """The curves that differ by more than rounding: from which step on, and both sides' values from there.

    Args:
        paths: side → file of `record_curves`, the reference's with its repeat.
        allowances: those that the case names.
    """
    reference, moved = read_curves(paths["ref"])
    port, _ = read_curves(paths["paddle"])
    floors = floors_of(reference, moved)
    named = [allowance for allowance in resolve(allowances) if allowance.id not in ALWAYS]
    found: dict[str, Any] = {}
    for name in {**reference, **port}:
        ours, theirs = port.get(name, np.zeros(0)), reference.get(name, np.zeros(0))
        bounds = [a.bound for a in named if a.covers(CURVE_PREFIX + name)]
        floor = max(floors.get(name, 0.0), max(bounds, default=0.0) * root_mean_square(theirs))
        if name in reference and distance(theirs, ours) <= floor:
            continue
        both = min(len(ours), len(theirs))
        apart = np.flatnonzero(~(np.abs(ours[:both] - theirs[:both]) <= floor))
        first = int(apart[0]) if len(apart) else both
        found[name] = {
            "first_step": first,
            "reference": theirs[first : first + _SHOWN].tolist(),
            "port": ours[first : first + _SHOWN].tolist(),
        }
    return found


def _constants(name: str) -> float:
    """What rounding leaves of a value, and of running means a momentum that is stored in float32."""
    return KNOWN_ALLOWANCES["paddle_batch_norm_momentum"].bound if name.startswith(BUFFER_NORM) else _ROUNDING


def record_curves(
    worker: Any,
    weights: Mapping[str, Any],
    path: str,
    repeat: bool = False,
    plan: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write the curves of the first steps of `Case.train` in float64.

    Args:
        worker: the recorder that calls.
        weights: what `Worker.build_model` takes.
        path: the `.npz` file to write: name → one value a step.
        repeat: whether to train once more, in torch, from weights moved by a part in 10^10 and at a rate that is off by
            as much as its rounding to float32: `moved.NAME`. That is what constants kept in float32 may do.
        plan: fields of a `TrainingPlan`.

    Returns:
        `steps`: how many were taken; 0 where the case trains in float32 alone.
    """
    arrays = train(worker, weights, plan=TrainingPlan(**(plan or {})))
    if repeat:
        from twinalign.backends.torch_training import stepping

        rounded = stepping(lambda number: 1, 1.0 + _FLOAT32)
        arrays |= {MOVED + name: curve for name, curve in train(worker, weights, _CHANGE, rounded).items()}
    save_npz(Path(path), arrays)
    return {"steps": max((len(curve) for curve in arrays.values()), default=0)}


def train(
    worker: Any,
    weights: Mapping[str, Any],
    change: float = 0.0,
    begin: Around | None = None,
    plan: TrainingPlan | None = None,
    on_step: Callable[[int, Mapping[str, float]], None] = lambda step, values: None,
) -> dict[str, np.ndarray]:
    """Curves of the first steps, by name; none where the case has no training in float64.

    Args:
        worker: the recorder that calls.
        weights: what `Worker.build_model` takes.
        change: what the weights are moved by, as a share of themselves.
        begin: given the model, returns what to enter while it trains.
        plan: what is swapped in, and what is kept.
        on_step: as of `run_training`.
    """
    case, backend = worker.fresh_case(STAGE), worker.backend
    steps = min(STEPS, case.float64_train_steps)
    if steps == 0:
        return {}
    backend.set_seed(case.seed)
    with backend.default_dtype("float64"):
        model = worker.build_model(case, STAGE, "float64", weights)
        if change:
            arrays = {n: a * (1 + change) if a.dtype.kind == "f" else a for n, a in backend.state_items(model)}
            backend.load_state_arrays(model, arrays)
        outermost = begin is not None and getattr(begin, "outermost", False)
        with begin(model) if begin is not None and not outermost else contextlib.nullcontext():
            return run_training(
                case,
                worker.framework,
                backend,
                model,
                CanonicalNames.of(weights),
                steps,
                plan,
                on_step,
                around=begin if begin is not None and outermost else contextlib.nullcontext,
            ).points
