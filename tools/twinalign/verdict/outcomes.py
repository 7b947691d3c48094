"""The verdict on what a training ends with: the accuracy of one, or the outcomes of several seeds."""

import math
from collections.abc import Mapping

import numpy as np

from twinalign.files.curve_names import OUTCOME_PREFIX, REPEAT_PREFIX
from twinalign.verdict.equivalence import Equivalence, judge_equivalence
from twinalign.verdict.results import ALIGNED, DIVERGED, INCONCLUSIVE, TensorVerdict

Arrays = Mapping[str, np.ndarray]

SEEDS_PREFIX = "seeds."
"""Before `outcome.NAME`: the outcomes of all seeds, `[K]`; `seeds.margin` is the allowed difference of their means."""
MARGIN = SEEDS_PREFIX + "margin"
_ONE_REPEAT = 12.7
"""Student's t at 95% with one degree of freedom: a single repeat says little about the spread of outcomes."""


def judge_outcome(name: str, reference: Arrays, reproduced: np.ndarray) -> TensorVerdict:
    """An outcome in percent of `N` samples may differ by as much as another sample of that size would change it.

    Two proportions of N samples differ by less than two standard errors, 2 sqrt(2 p (1 - p) / N), in 19 of 20 pairs;
    or by as much as the reference differs from its repeat, if that is more.
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
    reason = f"{text} (two standard errors of {samples:.0f} samples, or a change in the last bit)"
    verdict = ALIGNED if distance <= margin else DIVERGED
    if margin < distance <= _ONE_REPEAT * spread:
        verdict = INCONCLUSIVE
        reason += f"; the reference itself varies by {spread:.2f} points: train for longer, or with several seeds"
    tensor = TensorVerdict(name, verdict, reason, shape=(), dtype="float64", basis="repeat")
    tensor.max_abs = tensor.mean_abs = abs(ours - theirs)
    tensor.reference_value, tensor.reproduced_value = ours, theirs
    return tensor


def judge_seeds(reference: Arrays, reproduced: Arrays) -> list[Equivalence]:
    """Judge the outcomes of several seeds, if both recordings have them."""
    prefix = SEEDS_PREFIX + OUTCOME_PREFIX
    return [
        judge_equivalence(
            name.removeprefix(SEEDS_PREFIX), array.tolist(), reproduced[name].tolist(), float(reference[MARGIN])
        )
        for name, array in reference.items()
        if name.startswith(prefix) and name in reproduced
    ]


def as_tensor_of(found: list[Equivalence], tensor: TensorVerdict) -> TensorVerdict:
    """The verdict of several seeds on an outcome, if there is one; other tensors unchanged."""
    outcome = next((outcome for outcome in found if outcome.name == tensor.name), None)
    if outcome is None:
        return tensor
    judged = TensorVerdict(tensor.name, outcome.verdict, outcome.reason, shape=(), dtype="float64", basis="seeds")
    judged.reference_value, judged.reproduced_value = (
        float(np.mean(values)) for values in (outcome.reference, outcome.port)
    )
    judged.max_abs = judged.mean_abs = abs(outcome.mean)
    return judged
