"""Curves that one side alone has because of how its optimizer or model is written: they are no difference of trainings.

Hooks record them beside those of the case. An optimizer that derives from no class of its framework makes steps that no
hook sees; what it does shows in the case's own curves and in the trained weights, which are compared as ever.
"""

from collections.abc import Collection, Mapping
from typing import Any

from twinalign.files.curve_names import (
    BUFFER_NORM,
    CURVE_PREFIX,
    EMA_DISTANCE,
    GRADIENT_NORM,
    LEARNING_RATE,
    WEIGHT_NORM,
)

_OF_STEPS = (GRADIENT_NORM, LEARNING_RATE, WEIGHT_NORM, BUFFER_NORM, EMA_DISTANCE)


def unseen_curves(reference: Collection[str], port: Collection[str]) -> tuple[set[str], list[str]]:
    """Names of the curves that hooks saw on one side alone, and sentences that say why.

    Args:
        reference, port: names of each side's curves, without a prefix.
    """
    unseen: set[str] = set()
    notes = []
    for side, of, own, other in (("port", "paddle", port, reference), ("reference", "torch", reference, port)):
        lone = {name for name in other if name.startswith(_OF_STEPS) and name not in own}
        if lone and not any(name.startswith(WEIGHT_NORM) for name in own):
            unseen |= lone
            notes.append(
                f"no step of the {side}'s optimizer was seen, which derives from no class of {of}: {len(lone)} curves "
                "of gradients and weights are recorded on one side alone, and the trained weights are compared"
            )
        elif averages := {name for name in lone if name.startswith(EMA_DISTANCE)}:
            unseen |= averages
            notes.append(f"the {side} has no part that looks like an average of trained weights, as the other side has")
    return unseen, notes


def without_unseen(
    reference: Mapping[str, Any], port: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Both sides' recordings without the curves that hooks saw on one side alone, and why."""
    named = [{n.removeprefix(CURVE_PREFIX) for n in one if n.startswith(CURVE_PREFIX)} for one in (reference, port)]
    unseen, notes = unseen_curves(*named)
    left_out = {CURVE_PREFIX + name for name in unseen}
    one, other = ({n: array for n, array in side.items() if n not in left_out} for side in (reference, port))
    return one, other, notes
