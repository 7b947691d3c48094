"""The verdict on a training: curves that may part only as rounding makes them part, and outcomes of equal worth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from twinalign.stages.train import CURVE_PREFIX, REPEAT_PREFIX
from twinalign.verdict import classic_verdict, judge_trajectory
from twinalign.verdict.results import ALIGNED, DIVERGED, INCONCLUSIVE, Comparison, TensorVerdict, whole
from twinalign.verdict.structure import lone

if TYPE_CHECKING:
    from twinalign.verdict import TrajectoryVerdict

Arrays = Mapping[str, np.ndarray]

_ONE_REPEAT = 12.7
"""Student's t at 95% with one degree of freedom: how little a single repeat says about the spread of outcomes."""


def compare_training(
    reference: Arrays, reproduced: Arrays, reference64: Arrays | None, reproduced64: Arrays | None
) -> Comparison:
    """Judge the recordings of the train stage.

    Args:
        reference: Curves and outcomes of the reference, and those of its repeat under `REPEAT_PREFIX`.
        reproduced: The port's.
        reference64: The reference's first steps in float64, with a repeat.
        reproduced64: The port's.
    """
    tensors = _judge(reference, reproduced, "")
    if reference64 is not None and reproduced64 is not None:
        tensors += _judge(reference64, reproduced64, " (float64)")
    own = {name: array for name, array in reference.items() if not name.startswith(REPEAT_PREFIX)}
    return Comparison(whole(tensors), tensors, classic_verdict(own, reproduced))


def _judge(reference: Arrays, reproduced: Arrays, suffix: str) -> list[TensorVerdict]:
    found = []
    for name, array in reference.items():
        if name.startswith(REPEAT_PREFIX):
            continue
        if name not in reproduced:
            found.append(lone(name + suffix, array, in_reference=True))
        elif name.startswith(CURVE_PREFIX):
            repeat = reference.get(REPEAT_PREFIX + name)
            rounding = 2.0**-53 if suffix else 2.0**-24
            judged = judge_trajectory(
                array, reproduced[name], reference_repeat=repeat, rounding=rounding, name=name + suffix
            )
            found.append(_as_tensor(judged, array, reproduced[name], repeat, suffix))
        else:
            found.append(_judge_outcome(name, reference, reproduced[name]))
    extra = [name for name in reproduced if name not in reference]
    return found + [lone(name + suffix, reproduced[name], in_reference=False) for name in extra]


def _as_tensor(
    judged: TrajectoryVerdict, reference: np.ndarray, reproduced: np.ndarray, repeat: np.ndarray | None, suffix: str
) -> TensorVerdict:
    tensor = TensorVerdict(judged.name, judged.verdict, judged.reason, shape=reference.shape, dtype="float64")
    tensor.basis = judged.basis
    if reference.shape != reproduced.shape:
        return tensor
    difference = np.abs(reproduced - reference)
    worst = int(np.nanargmax(difference)) if np.isfinite(difference).any() else 0
    tensor.worst_index, tensor.max_abs = (worst,), float(difference[worst])
    tensor.mean_abs, tensor.max_rel = float(difference.mean()), judged.max_rel
    tensor.reference_value, tensor.reproduced_value = float(reference[worst]), float(reproduced[worst])
    if suffix:
        tensor.fp64_rel = judged.max_rel
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
