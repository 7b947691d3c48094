"""Records the first steps of a training in float64, on one side."""

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.conversion.canonical_names import CanonicalNames
from twinalign.files.curve_names import (
    BATCH_RMS,
    BATCH_SIZE,
    BUFFER_NORM,
    CURVE_PREFIX,
    EMA_DISTANCE,
    GRADIENT_NORM,
    LEARNING_RATE,
    TRAINED_NORM,
    WEIGHT_NORM,
)
from twinalign.files.recordings import save_npz
from twinalign.patching import Around
from twinalign.replay.kept_edits import recorded_mended
from twinalign.replay.noted_functions import noted
from twinalign.stages.training_plan import TrainingPlan, keep_data
from twinalign.stages.watching import norms_of, run_training
from twinalign.verdict import KNOWN_ALLOWANCES
from twinalign.verdict.allowances import ALWAYS, resolve
from twinalign.verdict.array_difference import distance, root_mean_square
from twinalign.verdict.call_order import port_in_order
from twinalign.verdict.rates_elsewhere import are_rates, factor_of_rates
from twinalign.verdict.unseen_curves import unseen_curves

STAGE = "train"
STEPS = 6
"""Enough to show what happens every second step, and few enough for rounding to stay small."""
MORE_STEPS = 3 * STEPS
"""Show whether an edit with which the first steps are right only makes the training do nothing."""
MOVED = "moved."
"""Prefix of the reference's curves from slightly changed weights."""
_CHANGE = 1e-10
_FLOAT32 = 2.0**-24
_SAME = 1e-6
"""Relative difference of a gradient's norm that float32 constants may make."""
_ROUNDING = 1e-12
_SAME_RATE, _SAME_MULTIPLE = 1e-9, 1e-6
_OF_ROUNDING = 1e-3
_SHOWN = 6
_FLOOR_FACTOR = 16.0
"""The port may differ by this many times the effect of slightly changed weights and learning rate on the reference."""
_CLIPPING = "clips as paddle"
OF_HOOKS = (WEIGHT_NORM, BUFFER_NORM, EMA_DISTANCE, BATCH_RMS)
"""Names of curves that no loop records under the same name."""
Curves = dict[str, np.ndarray]


def read_curves(path: str | Path) -> tuple[Curves, Curves]:
    """The curves in a file of `record_curves`, and those from slightly changed weights."""
    with np.load(path, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored}
    return (
        {name: curve for name, curve in arrays.items() if not name.startswith(MOVED)},
        {name.removeprefix(MOVED): curve for name, curve in arrays.items() if name.startswith(MOVED)},
    )


def floors_of(reference: Mapping[str, np.ndarray], moved: Mapping[str, np.ndarray]) -> dict[str, float]:
    """How far each curve may differ because of rounding and constants kept in float32 (docs/verdict.md).

    A curve that so slight a change moves by a thousandth consists of rounding, like the norm of a bias whose gradient
    is zero in exact arithmetic; another order of sums gives it any value of its size.
    """
    floors = {}
    for name in reference.keys() & moved.keys():
        change, size = distance(reference[name], moved[name]), root_mean_square(reference[name])
        own = max(size, root_mean_square(moved[name])) if change > _OF_ROUNDING * size else change
        floors[name] = _FLOOR_FACTOR * own + _constants(name) * size
    return floors


def steps_of(curves: Curves) -> int:
    """How many steps its loop has made: several optimizers make more, and models may be called more often.

    0 stands for as many as the case makes: what its loop makes at its end is among these curves.
    """
    if any(name.startswith(TRAINED_NORM) for name in curves):
        return 0
    own = [len(points) for name, points in curves.items() if not name.startswith((*OF_HOOKS, BATCH_SIZE))]
    return max(own or map(len, curves.values()), default=0)


def first_apart(reference: Curves, port: Curves, floors: Mapping[str, float], name: str) -> float:
    """The first step in which a norm of weights or a gradient's differs, infinity where none does.

    Norms of weights are recorded after the steps of every optimizer, gradients before those of its own; what comes back
    counts all steps.
    """
    ours, theirs = port.get(name), reference.get(name)
    if ours is None or theirs is None or ours.shape != theirs.shape:
        return np.inf
    # Gradients differ clearly, or follow from weights that do, whose floor tells.
    floor = _SAME * np.abs(theirs) if name == GRADIENT_NORM else floors.get(name, 0.0)
    steps = np.flatnonzero(np.abs(ours - theirs) > floor)
    if not len(steps):
        return np.inf
    whole = max((len(curve) for key, curve in reference.items() if key.startswith(WEIGHT_NORM)), default=len(theirs))
    return float(steps[0]) * whole / len(theirs) if name == GRADIENT_NORM else float(steps[0]) + whole - len(theirs)


def clearly_apart(reference: Curves, port: Curves, floors: Mapping[str, float], step: float, name: str) -> float:
    """How many times its floor a curve differs in a step.

    The norm of a weight hardly changes with the size of an update that is nearly at right angles to it.
    """
    return float(
        abs(port[name][int(step)] - reference[name][int(step)]) / max(floors.get(name, 0.0), np.finfo(float).tiny)
    )


def multiples(reference: Curves, port: Curves, names: Iterable[str]) -> list[tuple[str, float]]:
    """Those curves of the port that are a multiple of the reference's, and the factor; any single value is one."""
    found = []
    for name in names:
        theirs, ours = reference.get(name), port[name]
        if theirs is not None and theirs.shape == ours.shape and np.unique(theirs).size > 1:
            factor = float(ours @ theirs / (theirs @ theirs))
            allowed = _SAME_MULTIPLE * root_mean_square(ours)  # the proof then decides
            if factor and distance(factor * theirs, ours) <= allowed < distance(theirs, ours):
                found.append((name, factor))
    return found


def with_rates(reference: np.ndarray, port: np.ndarray) -> Callable[[Curves], Curves]:
    """Replace the recorded rates: the reference's loop reports the rates that it sets, not those that it steps at."""
    return lambda curves: {
        name: port[: len(points)] if np.array_equal(points, reference[: len(points)]) else points
        for name, points in curves.items()
    }


def told_as(port: Curves, rates: Mapping[str, Sequence[float]], curves: Curves) -> Curves:
    """Curves with the port's learning rate, if this is one of the `rates` that parameters have stepped at.

    What is recorded is that of an optimizer's first parameter, which need not come first in the other framework.
    """
    steps, ours = len(curves.get(LEARNING_RATE, ())), port.get(LEARNING_RATE, np.zeros(0))
    if not 0 < steps <= len(ours):
        return curves
    known = (rate[:steps] for rate in rates.values() if len(rate) >= steps)
    stepped = any(np.allclose(rate, ours[:steps], rtol=_SAME_RATE, atol=0.0) for rate in known)
    return {**curves, LEARNING_RATE: ours[:steps]} if stepped else curves


def moves_less(reference: Curves, port: Curves) -> bool:
    """Whether in some step fewer weights move in the port than in the reference; True where too few steps tell."""
    moved = []
    for curves in (reference, port):
        norms = [curve for name, curve in curves.items() if name.startswith(WEIGHT_NORM)]
        steps = min(map(len, norms), default=0)
        moved.append(
            np.sum([norm[1:steps] != norm[: steps - 1] for norm in norms], axis=0) if steps > 1 else np.zeros(0)
        )
    known = min(map(len, moved))
    return known < 3 or bool((moved[1][:known] < moved[0][:known]).any())


def wrong_curves(paths: Mapping[str, Path], allowances: Iterable[str] = ()) -> dict[str, Any]:
    """The curves that differ by more than rounding, with the first such step and both sides' values from there on.

    Args:
        paths: side → file of `record_curves`; the reference's with `repeat`.
        allowances: those that the case names.
    """
    return wrong_among(*read_curves(paths["ref"]), read_curves(paths["paddle"])[0], allowances)


def wrong_among(reference: Curves, moved: Curves, port: Curves, allowances: Iterable[str] = ()) -> dict[str, Any]:
    """The same of curves; `moved`: the reference's from slightly changed weights."""
    port = port | (port_in_order(reference, port) or {})
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
    unseen, _ = unseen_curves(reference, port)
    return {} if found.keys() <= unseen or _keeps_rates_elsewhere(found, reference, port) else found


def _keeps_rates_elsewhere(wrong: Collection[str], reference: Curves, port: Curves) -> bool:
    """Whether nothing but the rates differs, by one factor, while the weights are the same."""
    is_seen = any(name.startswith(WEIGHT_NORM) for name in reference)
    both = ((side.get(name, np.zeros(0)) for side in (reference, port)) for name in wrong)
    return is_seen and are_rates(wrong) and all(factor_of_rates(*rates) is not None for rates in both)


def _constants(name: str) -> float:
    """Relative error of rounding; for running statistics that of a momentum stored in float32."""
    return KNOWN_ALLOWANCES["paddle_batch_norm_momentum"].bound if name.startswith(BUFFER_NORM) else _ROUNDING


@noted
def record_curves(
    worker: Any,
    weights: Mapping[str, Any],
    path: str,
    repeat: bool = False,
    plan: Mapping[str, Any] | None = None,
    as_paddle_clips: bool = False,
    most: int = STEPS,
    late: bool = False,
) -> dict[str, Any]:
    """Write the curves of the first steps of `Case.train` in float64.

    Args:
        weights: as for `Worker.build_model`.
        path: the `.npz` file to write: name → one value for each step.
        repeat: train again, in torch, from weights changed by a part in 10^10 and at a learning rate changed by its
            rounding to float32, as `moved.NAME`: constants kept in float32 have such effects.
        plan: fields of a `TrainingPlan`; with `repeat`, of batches only those are kept that no weights have made.
        as_paddle_clips: in torch, from now on, without what it adds to a norm by which it clips.
        most: so many steps at most, 0 for as many as the case makes; no more than the case wants in float64, unless it
            is known to depart `late`.

    Returns:
        `steps`: how many were taken; `seconds`: processor time of one, 0 if not known;
        `clips`: whether paddle's optimizers clip; `facts`: class and settings of the first optimizer that made a step.
    """
    worker.kept[_CLIPPING] = as_paddle_clips
    most = most if late else min(most, worker.fresh_case(STAGE).float64_train_steps or most)
    facts: list[dict[str, Any]] = []
    noting = worker.backend.watching_steps(
        lambda one: facts.append(worker.backend.optimizer_facts(one)), lambda one: None
    )
    ends = list[float]()
    with worker.kernels_noted() as kernels, noting:
        given = TrainingPlan(**(plan or {}))
        arrays = train(
            worker, weights, plan=given, on_step=lambda step, values: ends.append(time.process_time()), most=most
        )
        clips = "clip_by_norm" in kernels
    if repeat:
        from twinalign.backends.torch.reference_only.changed_training import stepping

        rounded = stepping(lambda number: 1, 1.0 + _FLOAT32)
        kept = (plan or {}).get("keep", "")
        keeping = TrainingPlan(keep=f"{kept}.moved.npz" if kept else "", keep_state=False)
        moved = train(worker, weights, _CHANGE, rounded, plan=keeping, most=most)
        arrays |= {MOVED + name: curve for name, curve in moved.items()}
        if kept:
            keep_data(Path(kept), Path(keeping.keep))
    save_npz(Path(path), arrays)
    return {
        "steps": max((len(curve) for curve in arrays.values()), default=0),
        "seconds": float(np.median(np.diff(ends))) if len(ends) > 1 else 0.0,
        "clips": clips,
        "facts": facts[0] if facts else {},
    }


def record_mended_curves(worker: Any, **given: Any) -> dict[str, Any]:
    """`record_curves` of the port with the edits that have mended its other parts; nothing where there are none."""
    return recorded_mended(worker, record_curves, **given)


def _clipping(worker: Any) -> contextlib.AbstractContextManager[None]:
    if not worker.kept.get(_CLIPPING):
        return contextlib.nullcontext()
    from twinalign.backends.torch.reference_only.changed_training import clipping_as_paddle

    return clipping_as_paddle()


def train(
    worker: Any,
    weights: Mapping[str, Any],
    change: float = 0.0,
    begin: Around | None = None,
    plan: TrainingPlan | None = None,
    on_step: Callable[[int, Mapping[str, float]], None] = lambda step, values: None,
    at_once: Callable[[Mapping[str, Sequence[float]]], None] = lambda curves: None,
    most: int = STEPS,
) -> dict[str, np.ndarray]:
    """Curves of the first steps, by name, in float64 whether the run records some in it or not.

    Args:
        weights: as for `Worker.build_model`.
        change: relative change of the weights.
        begin: takes the model and returns a context to enter while it trains.
        plan, on_step, at_once: as for `run_training`.
        most: so many steps at most; 0 for a whole training, whose parameters' norms are added.
    """
    case, backend = worker.fresh_case(STAGE), worker.backend
    backend.set_seed(case.seed)
    with backend.default_dtype("float64"), _clipping(worker):
        model = worker.build_model(case, STAGE, "float64", weights)
        if change:
            arrays = {n: a * (1 + change) if a.dtype.kind == "f" else a for n, a in backend.state_items(model)}
            backend.load_state_arrays(model, arrays)
        begin = begin or contextlib.nullcontext
        outermost = getattr(begin, "outermost", False)
        with contextlib.nullcontext() if outermost else begin(model):
            names = CanonicalNames.of(weights)
            curves = run_training(
                case,
                worker.framework,
                backend,
                model,
                names,
                most or None,
                plan,
                on_step,
                around=begin if outermost else contextlib.nullcontext,
                at_once=at_once,
            ).points
    at_end = {} if most else norms_of(backend, names, backend.named_parameters(model))
    return curves | {TRAINED_NORM + name: np.array([norm]) for name, norm in at_end.items()}
