"""The verdict on a training: curves that may part only as rounding makes them part, and outcomes of equal worth."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from twinalign.stages.train import CURVE_PREFIX, OUTCOME_PREFIX, REPEAT_PREFIX, WEIGHTS_PREFIX
from twinalign.stages.watching import BUFFER_NORM, LEARNING_RATE, WEIGHT_NORM
from twinalign.verdict import KNOWN_ALLOWANCES, classic_verdict, judge_trajectory
from twinalign.verdict.allowances import ALWAYS, Allowance, resolve
from twinalign.verdict.equivalence import Equivalence, judge_equivalence
from twinalign.verdict.horizon import Horizon, horizon
from twinalign.verdict.results import ALIGNED, DIVERGED, INCONCLUSIVE, Comparison, TensorVerdict, whole
from twinalign.verdict.structure import lone
from twinalign.verdict.trained_weights import KindOfWeights, compare_weights
from twinalign.verdict.trajectory import FLOOR_FACTOR, own_rounding_over_floor

if TYPE_CHECKING:
    from twinalign.verdict import TrajectoryVerdict

Arrays = Mapping[str, np.ndarray]

SEEDS_PREFIX = "seeds."
"""Before `outcome.NAME`: the outcomes of all seeds, `[K]`; `seeds.margin` is what their means may differ by."""
MARGIN = SEEDS_PREFIX + "margin"
SWITCHED_PREFIX = "switched."
"""Before what a training that began on the other side has recorded; `switched.step` is after how many steps it came."""
SWITCHED_STEP = SWITCHED_PREFIX + "step"
_ONE_REPEAT = 12.7
"""Student's t at 95% with one degree of freedom: how little a single repeat says about the spread of outcomes."""


def compare_training(
    reference: Arrays,
    reproduced: Arrays,
    reference64: Arrays | None,
    reproduced64: Arrays | None,
    precision: str = "float32",
    allowances: Iterable[Allowance | str] = (),
) -> Comparison:
    """Judge the recordings of the train stage.

    Args:
        reference: Curves, weights and outcomes of the reference, those of its repeat under `REPEAT_PREFIX`, and what
            experiments have added under `SEEDS_PREFIX` and `SWITCHED_PREFIX`.
        reproduced: The port's.
        reference64: The reference's first steps in float64, with a repeat.
        reproduced64: The port's.
        precision: Of the first two.
        allowances: What float32 constants leave of the curves in float64, by what the case names.

    Returns:
        The comparison, with horizons, kinds of weights, equivalence of several seeds' outcomes and the training that
        changed framework in `training`. The last decides with the others.
    """
    notes: list[str] = []
    allowed = [allowance for allowance in resolve(allowances) if allowance.id not in ALWAYS]
    outcomes = judge_seeds(reference, reproduced)
    low, high = (reference, reproduced), (reference64, reproduced64)
    reference, reproduced = without_experiments(reference), without_experiments(reproduced)
    times = 0.0
    if reference64 is None or reproduced64 is None:
        tensors, facts = _judge(reference, reproduced, precision, "")
        _doubt_norms_alone(tensors)
    else:
        reference64, reproduced64 = without_experiments(reference64), without_experiments(reproduced64)
        of_float64, more = _judge(reference64, reproduced64, "float64", " (float64)", allowances=allowed)
        agree = all(tensor.verdict != DIVERGED for tensor in of_float64)
        times = _own_rounding(reference, reproduced, reproduced64, precision) if agree else 0.0
        if times > FLOOR_FACTOR:
            notes.append(
                f"in {precision} the port is up to {times:.2g} times as far from its own float64 run, which agrees "
                "with the reference's, as the last bit takes the reference from itself: its curves are judged by that"
            )
        tensors, facts = _judge(reference, reproduced, precision, "", times)
        tensors += of_float64
        facts = {name: [*facts[name], *more[name]] for name in facts}
    training: dict[str, Any] = {**facts, "outcomes": [outcome.to_json() for outcome in outcomes]}
    tensors = [as_tensor_of(outcomes, tensor) for tensor in tensors]
    switched = judge_switched(low, high, precision, times, allowed)
    decide = [*tensors, *(switched.tensors if switched is not None else ())]
    if switched is not None:
        training["switched"] = switched.to_json()
    own = {name: array for name, array in reference.items() if not name.startswith(REPEAT_PREFIX)}
    return Comparison(whole(decide), tensors, classic_verdict(own, reproduced), notes, training=training)


def without_experiments(arrays: Arrays) -> dict[str, np.ndarray]:
    """What one training has recorded, without what others have added."""
    return {name: array for name, array in arrays.items() if not name.startswith((SEEDS_PREFIX, SWITCHED_PREFIX))}


def _doubt_norms_alone(tensors: list[TensorVerdict]) -> None:
    """Where norms of single tensors part, and nothing else does, no float64 run tells a fault from a tipped gradient.

    A gradient next to zero changes its sign by rounding, and an optimizer makes a full step of it: one repeat of the
    reference need not meet that in the tensor in which the port does.
    """
    wrong = [tensor for tensor in tensors if tensor.verdict == DIVERGED]
    if all(tensor.name.startswith((CURVE_PREFIX + WEIGHT_NORM, CURVE_PREFIX + BUFFER_NORM)) for tensor in wrong):
        for tensor in wrong:
            tensor.verdict = INCONCLUSIVE
            tensor.reason += (
                "; a gradient next to zero that rounding tips over does this as well, and no other curve parts: set "
                "float64_train_steps in the case, which tells the two apart"
            )


def _own_rounding(reference: Arrays, reproduced: Arrays, reproduced64: Arrays, precision: str) -> float:
    """How many times the floor the port's own rounding takes it from its float64 run, in whichever curve shows it most.

    A fault is in both precisions: where the float64 runs of both sides agree, the rest is rounding.
    """
    found = [0.0]
    for name, array in reproduced64.items():
        repeat, own = reference.get(REPEAT_PREFIX + name), reproduced.get(name)
        if not name.startswith(CURVE_PREFIX) or own is None or repeat is None:
            continue
        if reference[name].shape == repeat.shape == own.shape and len(own) >= len(array):
            away = np.abs(own[: len(array)] - array)
            found.append(own_rounding_over_floor(reference[name], repeat, away, _rounding(name, precision)))
    return max(found)


def _judge(
    reference: Arrays,
    reproduced: Arrays,
    precision: str,
    suffix: str,
    own_times: float = 0.0,
    allowances: Sequence[Allowance] = (),
) -> tuple[list[TensorVerdict], dict[str, list[Any]]]:
    tensors, horizons = [], []
    for name, array in reference.items():
        if name.startswith((REPEAT_PREFIX, WEIGHTS_PREFIX)):
            continue
        if name not in reproduced:
            tensors.append(lone(name + suffix, array, in_reference=True))
        elif name.startswith(CURVE_PREFIX):
            repeat = reference.get(REPEAT_PREFIX + name)
            judge = functools.partial(
                judge_trajectory,
                array,
                reproduced[name],
                reference_repeat=repeat,
                own_times=own_times,
                name=name + suffix,
            )
            judged, allowed = _judge_allowed(judge, name, _rounding(name, precision), allowances)
            found = horizon(name.removeprefix(CURVE_PREFIX), precision, array, reproduced[name], repeat)
            tensors.append(_as_tensor(judged, array, reproduced[name], repeat, suffix, found))
            if allowed is not None:
                tensors[-1].allowed = allowed.id
                tensors[-1].reason += f"; allowed: {allowed.text}"
            horizons.append(found)
        else:
            tensors.append(_judge_outcome(name, reference, reproduced[name]))
    extra = [name for name in reproduced if name not in reference]
    tensors += [lone(name + suffix, reproduced[name], in_reference=False) for name in extra]
    kinds = _weights(reference, reproduced)
    tensors += [_named(kind.verdict(), suffix) for kind in kinds]
    facts = {
        "horizons": [found.to_json() for found in horizons if found is not None],
        "weights": [{"precision": precision, **kind.to_json()} for kind in kinds],
        "first_to_part": _first_to_part(tensors, reference, precision) if suffix or precision == "float64" else [],
    }
    return tensors, facts


def _judge_allowed(
    judge: Callable[..., TrajectoryVerdict], name: str, rounding: float, allowances: Sequence[Allowance]
) -> tuple[TrajectoryVerdict, Allowance | None]:
    """The verdict of a curve, and the tightest allowance under which it does not diverge where it needs one."""
    judged = judge(rounding=rounding)
    for allowance in allowances if judged.verdict == DIVERGED else ():
        again = judge(rounding=max(rounding, allowance.bound / FLOOR_FACTOR))
        if allowance.covers(name) and again.verdict != DIVERGED:
            return again, allowance
    return judged, None


def _rounding(name: str, precision: str) -> float:
    """What one operation leaves, relative; of running means what a momentum stored in float32 leaves."""
    unit = 2.0**-53 if precision == "float64" else 2.0**-24
    if name.startswith(CURVE_PREFIX + BUFFER_NORM):
        return max(unit, KNOWN_ALLOWANCES["paddle_batch_norm_momentum"].bound / FLOOR_FACTOR)
    return unit


def _named(tensor: TensorVerdict, suffix: str) -> TensorVerdict:
    tensor.name += suffix
    return tensor


def _weights(reference: Arrays, reproduced: Arrays) -> list[KindOfWeights]:
    ours, theirs, moved = (
        {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
        for arrays, prefix in (
            (reference, WEIGHTS_PREFIX),
            (reproduced, WEIGHTS_PREFIX),
            (reference, REPEAT_PREFIX + WEIGHTS_PREFIX),
        )
    )
    return compare_weights(ours, theirs, moved, rates=reference.get(CURVE_PREFIX + LEARNING_RATE))


def _first_to_part(tensors: list[TensorVerdict], reference: Arrays, precision: str) -> list[dict[str, Any]]:
    """The parameters whose size is wrong first: what is wrong with them alone reaches the others a step later."""
    prefix = CURVE_PREFIX + WEIGHT_NORM
    parted = {t.name.removesuffix(" (float64)"): t.parted_at for t in tensors if t.verdict == DIVERGED}
    steps = {name.removeprefix(prefix): at for name, at in parted.items() if name.startswith(prefix) and at is not None}
    if not steps:
        return []
    first = min(steps.values())
    judged = sum(name.startswith(prefix) for name in reference)
    names = [name for name, step in steps.items() if step == first]
    return [{"precision": precision, "step": first, "parameters": names, "judged": judged}]


def _as_tensor(
    judged: TrajectoryVerdict,
    reference: np.ndarray,
    reproduced: np.ndarray,
    repeat: np.ndarray | None,
    suffix: str,
    found: Horizon | None,
) -> TensorVerdict:
    tensor = TensorVerdict(judged.name, judged.verdict, judged.reason, shape=reference.shape, dtype="float64")
    tensor.basis, tensor.parted_at = judged.basis, judged.parted_at
    if found is not None and judged.max_rel > 0:
        tensor.reason += f" ({found.sentence()})"
    if reference.shape != reproduced.shape:
        return tensor
    difference = np.abs(reproduced - reference)
    worst = int(np.nanargmax(difference)) if np.isfinite(difference).any() else 0
    tensor.worst_index, tensor.max_abs = (worst,), float(difference[worst])
    tensor.mean_abs, tensor.max_rel = float(difference.mean()), judged.max_rel
    tensor.reference_value, tensor.reproduced_value = float(reference[worst]), float(reproduced[worst])
    own = None if found is None else found.reference
    if suffix and not (own is not None and own[-1] < len(reference)):
        tensor.fp64_rel = judged.max_rel  # of what is nothing but rounding on either side it would say nothing
    if repeat is not None and repeat.shape == reference.shape:
        floor = float(np.abs(repeat - reference).max())
        tensor.floor_max, tensor.noise_ratio = floor, float(difference.max()) / floor if floor else None
    return tensor


def _judge_outcome(name: str, reference: Arrays, reproduced: np.ndarray) -> TensorVerdict:
    """An outcome in percent of `N` samples may differ by what resampling those samples would change.

    Two proportions of N samples differ by less than two standard errors, 2 sqrt(2 p (1 - p) / N), in 19 of 20 pairs;
    or by as much as the reference differs from its repeat, where that is more.
    """
    ours, theirs = float(reference[name][0]), float(reproduced[0])
    samples = float(reference[name][1])
    share = min(max((ours + theirs) / 200, 0.5 / samples), 1 - 0.5 / samples)
    margin = 200 * math.sqrt(2 * share * (1 - share) / samples)
    repeat = reference.get(REPEAT_PREFIX + name)
    spread = 0.0 if repeat is None else abs(float(repeat[0]) - ours)
    margin = max(margin, spread)
    distance = abs(ours - theirs)
    text = f"{ours:.2f}% against {theirs:.2f}%, {'within' if distance <= margin else 'outside of'} {margin:.2f} points"
    reason = f"{text} (two standard errors of {samples:.0f} samples, or what a change of the last bit does)"
    verdict = ALIGNED if distance <= margin else DIVERGED
    if margin < distance <= _ONE_REPEAT * spread:
        verdict = INCONCLUSIVE
        reason += f"; the reference itself moves by {spread:.2f} points: train for longer, or with several seeds"
    tensor = TensorVerdict(name, verdict, reason, shape=(), dtype="float64", basis="repeat")
    tensor.max_abs = tensor.mean_abs = abs(ours - theirs)
    tensor.reference_value, tensor.reproduced_value = ours, theirs
    return tensor


@dataclasses.dataclass(frozen=True)
class Switched:
    """A training that began on one side and went on on the other, compared with the reference's that stayed.

    Attributes:
        step: after which it changed.
        start: the side that it began on.
        tensors: verdicts on its curves and outcomes, those in float64 as well where it was trained there.
    """

    step: int
    start: str
    tensors: list[TensorVerdict]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        verdict = whole(self.tensors)
        wrong = [t for t in self.tensors if t.verdict == verdict] if verdict != ALIGNED else []
        return {
            "step": self.step,
            "start": self.start,
            "verdict": verdict,
            "reason": f"{wrong[0].name}: {wrong[0].reason}" if wrong else "it goes on as the reference that stayed",
            "tensors": [tensor.to_json() for tensor in self.tensors],
        }


def judge_switched(
    low: tuple[Arrays, Arrays],
    high: tuple[Arrays | None, Arrays | None],
    precision: str,
    own_times: float,
    allowances: Sequence[Allowance] = (),
) -> Switched | None:
    """Judge the training that changed framework on the way, where a side has recorded the end of one.

    Args:
        low: both sides' recordings in the judged precision, the reference's first, with what was added to them.
        high: likewise in float64.
        precision: of the first two.
        own_times: as `judge_trajectory` takes it.
        allowances: as `compare_training` takes them; for float64.
    """
    found = None
    for (stayed, port), dtype, times, suffix in ((low, precision, own_times, ""), (high, "float64", 0.0, " (float64)")):
        for start, arrays in (("paddle", stayed), ("ref", port)):
            if stayed is None or arrays is None or SWITCHED_STEP not in arrays:
                continue
            allowed = allowances if dtype == "float64" else ()
            tensors, _ = _judge(without_experiments(stayed), switched_of(arrays), dtype, suffix, times, allowed)
            found = found or Switched(int(arrays[SWITCHED_STEP]), start, [])
            found.tensors.extend(tensors)
    return found


def switched_of(arrays: Arrays) -> dict[str, np.ndarray]:
    """What the training that changed framework on the way has recorded, from the recording it is added to."""
    return {
        name.removeprefix(SWITCHED_PREFIX): array
        for name, array in arrays.items()
        if name.startswith(SWITCHED_PREFIX) and name != SWITCHED_STEP
    }


def judge_seeds(reference: Arrays, reproduced: Arrays) -> list[Equivalence]:
    """Judge the outcomes of several seeds, where both recordings have them."""
    prefix = SEEDS_PREFIX + OUTCOME_PREFIX
    return [
        judge_equivalence(
            name.removeprefix(SEEDS_PREFIX), array.tolist(), reproduced[name].tolist(), float(reference[MARGIN])
        )
        for name, array in reference.items()
        if name.startswith(prefix) and name in reproduced
    ]


def as_tensor_of(found: list[Equivalence], tensor: TensorVerdict) -> TensorVerdict:
    """What several seeds say of an outcome in place of what one says; other tensors as they are."""
    outcome = next((outcome for outcome in found if outcome.name == tensor.name), None)
    if outcome is None:
        return tensor
    judged = TensorVerdict(tensor.name, outcome.verdict, outcome.reason, shape=(), dtype="float64", basis="seeds")
    judged.reference_value, judged.reproduced_value = (
        float(np.mean(values)) for values in (outcome.reference, outcome.port)
    )
    judged.max_abs = judged.mean_abs = abs(outcome.mean)
    return judged
