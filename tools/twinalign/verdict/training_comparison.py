"""The verdict on a training: curves may depart only because of rounding, and outcomes must be equivalent."""

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.case.moved_values import FLOAT64_CHANGE, OF_FLOAT32
from twinalign.files.curve_names import (
    BATCH_RMS,
    BUFFER_NORM,
    CURVE_PREFIX,
    LEARNING_RATE,
    REPEAT_PREFIX,
    WEIGHT_NORM,
    WEIGHTS_PREFIX,
)
from twinalign.verdict.allowances import ALWAYS, KNOWN_ALLOWANCES, Allowance, resolve
from twinalign.verdict.call_order import port_in_order
from twinalign.verdict.classic import classic_verdict
from twinalign.verdict.doubted_curves import OF_SINGLE_TENSORS, doubt_norms_alone, excuse_numbers
from twinalign.verdict.horizon import Horizon, horizon
from twinalign.verdict.outcomes import SEEDS_PREFIX, as_tensor_of, judge_outcome, judge_seeds
from twinalign.verdict.results import ALIGNED, DIVERGED, INCONCLUSIVE, Comparison, TensorVerdict, whole
from twinalign.verdict.structure import lone
from twinalign.verdict.trained_weights import below, doubt_weights, judged_weights
from twinalign.verdict.trajectory import (
    FLOOR_FACTOR,
    TrajectoryVerdict,
    greatest,
    judge_trajectory,
    own_rounding_over_floor,
)
from twinalign.verdict.unseen_curves import without_unseen

Arrays = Mapping[str, np.ndarray]

SWITCHED_PREFIX = "switched."
"""Before the recording of a training that began on the other side; `switched.step` is the number of steps there."""
SWITCHED_STEP = SWITCHED_PREFIX + "step"
_PORTS_ROUNDING = "the port's own rounding is up to {times} times the reference's"
_REFERENCES_ROUNDING = "the reference's own rounding is up to {times} times what its repeat shows"
_OF_FLOAT32 = 2.0**-24 / FLOAT64_CHANGE
"""How much further a float64 training goes from weights changed by float32's rounding than from those of its repeat."""
_IN_FLOAT64 = FLOOR_FACTOR * 2.0**-53
"""Relative difference of the sizes of two batches up to which it is rounding of float64."""
_MOST_IN_BATCHES = 2.0**-22
"""Relative difference of the sizes of two batches up to which it is rounding of data that each side makes in float32.

A size averages over the batch, in which single values differ by more."""


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
        reference: curves, weights and outcomes of the reference, those of its repeat under `REPEAT_PREFIX`, and the
            results of experiments under `SEEDS_PREFIX` and `SWITCHED_PREFIX`.
        reproduced: the port's.
        reference64: the reference's first steps in float64, with a repeat.
        reproduced64: the port's.
        precision: of the first two.
        allowances: float32 constants that the case names, which change curves in float64, and the port's momenta of
            batch norm, which change running statistics in float32.

    Returns:
        The comparison; `training` holds horizons, kinds of weights, equivalence of several seeds' outcomes, and the
        training that changed framework, which counts for the verdict.
    """
    notes: list[str] = []
    allowed = [allowance for allowance in resolve(allowances) if allowance.id not in ALWAYS]
    outcomes = judge_seeds(reference, reproduced)
    low, high = (reference, reproduced), (reference64, reproduced64)
    reference, reproduced, unseen = without_unseen(without_experiments(reference), without_experiments(reproduced))
    notes += unseen
    if moved := port_in_order(reference, reproduced, CURVE_PREFIX):
        reproduced |= moved
        notes.append(
            "within a step the port calls its models in another order than the reference, on the same batches: batches "
            "are compared in the reference's order"
        )
    if reference64 is None or reproduced64 is None:
        tensors, facts = _judge(reference, reproduced, precision, "", allowances=allowed)
        doubt_norms_alone(tensors)
        times = 0.0
    else:
        exact = reference64, reproduced64
        tensors, facts, times = _judge_with_float64(reference, reproduced, exact, precision, allowed, notes)
    training: dict[str, Any] = {**facts, "outcomes": [outcome.to_json() for outcome in outcomes]}
    tensors = [as_tensor_of(outcomes, tensor) for tensor in tensors]
    switched, facts_of_switch = _judge_switched(low, high, precision, times, allowed)
    training |= facts_of_switch
    own = {name: array for name, array in reference.items() if not name.startswith(REPEAT_PREFIX)}
    return Comparison(whole([*tensors, *switched]), tensors, classic_verdict(own, reproduced), notes, training=training)


def _judge_with_float64(
    reference: Arrays,
    reproduced: Arrays,
    exact: tuple[Arrays, Arrays],
    precision: str,
    allowed: list[Allowance],
    notes: list[str],
) -> tuple[list[TensorVerdict], dict[str, list[Any]], float]:
    """What `_judge` returns of both precisions, and how many times further than rounding the precision scatters."""
    reference64, reproduced64, _ = without_unseen(*map(without_experiments, exact))
    reproduced64 |= port_in_order(reference64, reproduced64, CURVE_PREFIX) or {}
    if of_float32 := _batches_of_float32(reference64, reproduced64):
        notes.append(
            "each side rounds its batches to float32 itself, to slightly different numbers: the float64 runs may "
            "differ by what rounding to float32 explains"
        )
    judged = reference64, reproduced64, "float64", " (float64)"
    of_float64, more = _judge(*judged, allowances=allowed, of_float32=of_float32)
    wrong = {tensor.name.removesuffix(" (float64)") for tensor in of_float64 if tensor.verdict == DIVERGED}
    left64, right64 = ({n: a for n, a in side.items() if n not in wrong} for side in (reference64, reproduced64))
    times, where = _own_rounding(reference, reproduced, (left64, right64), precision)
    if times > FLOOR_FACTOR and not wrong:
        notes.append(
            f"in {precision} {where}, and the float64 runs agree: its curves may differ by that much".format(
                times=f"{times:.2g}"
            )
        )
    # What float64 shows to be wrong has no excuse, and excuses nothing that agrees there.
    judged32 = reference, reproduced, precision, "", times, allowed, _steps(reference64)
    tensors, facts = _judge(*judged32, exact=left64, wrong=wrong)
    times = 0.0 if wrong else times
    return tensors + of_float64, {name: [*facts[name], *more[name]] for name in facts}, times


def without_experiments(arrays: Arrays) -> dict[str, np.ndarray]:
    """The arrays of the training itself."""
    return {name: array for name, array in arrays.items() if not name.startswith((SEEDS_PREFIX, SWITCHED_PREFIX))}


def _steps(arrays: Arrays) -> int:
    """How many steps every curve of a recording has at least; what is recorded behind a loop is of no step."""
    curves = {n.removeprefix(CURVE_PREFIX): len(array) for n, array in arrays.items() if n.startswith(CURVE_PREFIX)}
    return min([n for name, n in curves.items() if name.startswith(LEARNING_RATE)] or curves.values(), default=0)


def _batches_of_float32(reference64: Arrays, reproduced64: Arrays) -> bool:
    """Whether the batches of the float64 runs differ from the first on, by no more than data that each side makes in
    float32 before it trains. What differs later is what a model has made: a fault moves that, too."""
    apart = [float(each.max()) for each in _sizes_apart(reference64, reproduced64) if each[0] > _IN_FLOAT64]
    return _IN_FLOAT64 < max(apart, default=0.0) <= _MOST_IN_BATCHES


def begin_rounded(reference64: Arrays, reproduced64: Arrays) -> bool:
    """The same of the first batches: later ones may hold what a model has made. How far each element may be apart is
    known where one is put in the other's place."""
    return any(_IN_FLOAT64 < each[0] <= OF_FLOAT32 for each in _sizes_apart(reference64, reproduced64))


def _sizes_apart(reference64: Arrays, reproduced64: Arrays) -> Iterator[np.ndarray]:
    """How far the sizes of batches are apart, relative to the greatest, in each curve of them."""
    for name, array in reference64.items():
        is_size = name.removeprefix(CURVE_PREFIX).startswith(BATCH_RMS)
        if is_size and len(array) and _is_like(reproduced64.get(name), array):
            yield np.abs(reproduced64[name] - array) / (greatest(array) or 1.0)


def unsettled_step(comparison: Comparison) -> int | None:
    """The last step at which a curve departs that float64 runs of as many steps would settle; None if there is none."""
    steps = [
        tensor.parted_at
        for tensor in comparison.tensors
        if tensor.verdict == INCONCLUSIVE and tensor.parted_at is not None
    ]
    return max(steps, default=None)


def _own_rounding(
    reference: Arrays, reproduced: Arrays, exact: tuple[Arrays, Arrays], precision: str
) -> tuple[float, str]:
    """Greatest ratio over curves of either side's own rounding to the floor, and a sentence with a place for it.

    A fault shows in both precisions: if the float64 runs of both sides agree, the rest is rounding. The reference's
    repeat may take the same turn as the reference, which alone says little about a gradient next to zero.

    Args:
        reference, reproduced: the curves in `precision`.
        exact: both sides' first steps in float64.
    """
    found = {_PORTS_ROUNDING: 0.0, _REFERENCES_ROUNDING: 0.0}
    for sentence, curves, in_float64 in zip(found, (reproduced, reference), exact[::-1], strict=True):
        for name, array in in_float64.items():
            repeat, own = reference.get(REPEAT_PREFIX + name), curves.get(name)
            if not name.startswith(CURVE_PREFIX) or own is None or repeat is None:
                continue
            if reference[name].shape == repeat.shape == own.shape and len(own) >= len(array):
                away = np.abs(own[: len(array)] - array)
                ratio = own_rounding_over_floor(reference[name], repeat, away, _rounding(name, precision))
                found[sentence] = max(found[sentence], ratio)
    sentence = max(found, key=lambda one: found[one])
    return found[sentence], sentence


def _judge(
    reference: Arrays,
    reproduced: Arrays,
    precision: str,
    suffix: str,
    own_times: float = 0.0,
    allowances: Sequence[Allowance] = (),
    exact_steps: int = 0,
    of_float32: bool = False,
    exact: Arrays | None = None,
    wrong: Collection[str] = (),
) -> tuple[list[TensorVerdict], dict[str, list[Any]]]:
    """Verdicts and facts of one precision; `of_float32`: whether float64 runs began with numbers rounded to float32.

    `exact`: the reference's first steps in float64, as far as both sides agree in them; `wrong`: in what they do not.
    """
    tensors, horizons = [], []
    for name, array in reference.items():
        if name.startswith((REPEAT_PREFIX, WEIGHTS_PREFIX)):
            continue
        if name not in reproduced:
            tensors.append(lone(name + suffix, array, in_reference=True))
        elif name.startswith(CURVE_PREFIX):
            repeat = reference.get(REPEAT_PREFIX + name)
            moved = array + (repeat - array) * _OF_FLOAT32 if of_float32 and _is_like(repeat, array) else repeat
            options: dict[str, Any] = {"reference_repeat": moved}
            options |= {} if name in wrong else {"own_times": own_times, "exact_steps": exact_steps}
            options["own_first"] = abs(float(array[0] - exact[name][0])) if exact and len(exact.get(name, ())) else 0.0
            options |= {"name": name + suffix, "may_jump": name.startswith(OF_SINGLE_TENSORS)}
            judge = functools.partial(judge_trajectory, array, reproduced[name], **options)
            judged, allowed = _judge_allowed(judge, name, precision, allowances, of_float32)
            found = horizon(name.removeprefix(CURVE_PREFIX), precision, array, reproduced[name], repeat)
            tensors.append(_as_tensor(judged, array, reproduced[name], repeat, suffix, found))
            if allowed is not None:
                tensors[-1].allowed = allowed.id
                tensors[-1].reason += f"; allowed: {allowed.text}"
            horizons.append(found)
        else:
            tensors.append(judge_outcome(name, reference, reproduced[name]))
    if own_times > FLOOR_FACTOR and exact is not None:
        excuse_numbers(tensors, exact)
    extra = [name for name in reproduced if name not in reference]
    tensors += [lone(name + suffix, reproduced[name], in_reference=False) for name in extra]
    kinds = judged_weights(reference, reproduced)
    for at, kind in enumerate(kinds):
        tensors.append(kind.verdict(suffix))
        if own_times > FLOOR_FACTOR and kind.wrong and tensors[-1].name not in wrong:
            doubt_weights(tensors[-1], _steps(reference), exact_steps)
            kinds[at] = dataclasses.replace(kind, wrong=tensors[-1].verdict == DIVERGED)
    facts = {
        "horizons": [found.to_json() for found in horizons if found is not None],
        "weights": [{"precision": precision, **kind.to_json()} for kind in kinds],
        "first_to_part": _first_to_part(tensors, reference, precision) if suffix or precision == "float64" else [],
    }
    return tensors, facts


def _judge_allowed(
    judge: Callable[..., TrajectoryVerdict],
    name: str,
    precision: str,
    allowances: Sequence[Allowance],
    of_float32: bool,
) -> tuple[TrajectoryVerdict, Allowance | None]:
    """The verdict of a curve, and the tightest allowance that it needs to pass."""
    rounding = _rounding(name, "float32" if of_float32 else precision)
    judged = judge(rounding=rounding)
    for allowance in allowances if judged.verdict == DIVERGED else ():
        share = allowance.bound if precision == "float64" else allowance.low_of_movement
        if share and allowance.covers(name):
            again = judge(rounding=rounding + share / FLOOR_FACTOR)
            if again.verdict != DIVERGED:
                return again, allowance
    return judged, None


def _is_like(repeat: np.ndarray | None, array: np.ndarray) -> bool:
    return repeat is not None and repeat.shape == array.shape


def _rounding(name: str, precision: str) -> float:
    """Relative rounding of one operation; for running means, that of a momentum stored in float32."""
    unit = 2.0**-53 if precision == "float64" else 2.0**-24
    if name.startswith(CURVE_PREFIX + BUFFER_NORM):
        return max(unit, KNOWN_ALLOWANCES["paddle_batch_norm_momentum"].bound / FLOOR_FACTOR)
    return unit


def _first_to_part(tensors: list[TensorVerdict], reference: Arrays, precision: str) -> list[dict[str, Any]]:
    """The parameters whose size departs first: their error reaches the others a step later."""
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
        tensor.fp64_rel = judged.max_rel  # meaningless where both sides are only rounding
    if repeat is not None and repeat.shape == reference.shape:
        floor = float(np.abs(repeat - reference).max())
        tensor.floor_max, tensor.noise_ratio = floor, float(difference.max()) / floor if floor else None
    return tensor


def _judge_switched(
    low: tuple[Arrays, Arrays],
    high: tuple[Arrays | None, Arrays | None],
    precision: str,
    own_times: float,
    allowances: Sequence[Allowance],
) -> tuple[list[TensorVerdict], dict[str, Any]]:
    """Compare the training that changed framework, if one was recorded, with the reference's own training.

    Args:
        low: both sides' recordings in `precision`, the reference's first, with the results of experiments.
        high: the same in float64.
        precision: the judged one.
        own_times: see `judge_trajectory`.
        allowances: for either precision.

    Returns:
        Verdicts on its curves and outcomes, and `switched` for `Comparison.training`.
    """
    tensors: list[TensorVerdict] = []
    begun: dict[str, Any] = {}
    for (stayed, port), dtype, times, suffix in ((low, precision, own_times, ""), (high, "float64", 0.0, " (float64)")):
        for start, arrays in (("paddle", stayed), ("ref", port)):
            if stayed is None or arrays is None or SWITCHED_STEP not in arrays:
                continue
            found, _ = _judge(without_experiments(stayed), switched_of(arrays), dtype, suffix, times, allowances)
            begun = begun or {"step": int(arrays[SWITCHED_STEP]), "start": start}
            tensors += found
    if not begun:
        return [], {}
    verdict = whole(tensors)
    wrong = [tensor for tensor in tensors if tensor.verdict == verdict != ALIGNED]
    same = "it continues like the reference without a switch"
    begun |= {"verdict": verdict, "reason": f"{wrong[0].name}: {wrong[0].reason}" if wrong else same}
    return tensors, {"switched": begun | {"tensors": [tensor.to_json() for tensor in tensors]}}


def switched_of(arrays: Arrays) -> dict[str, np.ndarray]:
    """The part of a recording that the training with a change of framework added."""
    return below({name: array for name, array in arrays.items() if name != SWITCHED_STEP}, SWITCHED_PREFIX)
