"""How much rounding scatters tensors of few numbers, measured on the reference; see docs/verdict.md, "Few numbers"."""

from collections.abc import Callable
from typing import Any

import numpy as np

from twinalign.case.calling import named_values
from twinalign.case.moved_values import moved_at_random
from twinalign.stages.context import StageContext

REPEATS = 4
"""How often the reference computes them once more, each time from values moved by one unit in the last place."""
UNCHANGED = 2
"""After so many repeats in which nothing moves no other is made."""
FEW = 16
"""Elements below which one run says too little of what rounding does: errors cancel in a number by luck."""


def repeat_few_numbers(context: StageContext, again: Callable[[int], Any], single: str = "") -> None:
    """Put into the metadata what the reference gives again, in the precision that is judged, for what has few elements.

    Numbers that are counted, such as an accuracy, do not move: where the first repeats change nothing, no other is
    made.

    Args:
        again: what the stage recorded, computed again with the draw of that number.
        single: the name of a tensor that is all there is.
    """
    recorded = context.recording.arrays
    few = {name for name, array in recorded.items() if array.size < FEW and array.dtype.kind == "f"}
    if not few or context.framework != "torch" or context.dtype == "float64" or context.repeat:
        return
    repeats, moved = list[dict[str, np.ndarray]](), False
    for draw in range(REPEATS):
        values = again(draw)
        prefix = single if context.backend.is_tensor(values) else ""
        leaves = named_values(values, context.backend.is_tensor, prefix, {})
        repeats.append({name: context.as_array(leaf) for name, leaf in leaves if name in few})
        moved = moved or not all(np.array_equal(v, recorded[n], equal_nan=True) for n, v in repeats[-1].items())
        if len(repeats) == UNCHANGED and not moved and context.ranks == 1:  # ranks only go on together
            break
    context.recording.metadata["repeats"] = {
        name: [found[name].ravel().tolist() for found in repeats]
        for name in sorted(few)
        if all(name in found and np.isfinite(found[name]).all() for found in repeats)
    }


def move_weights(context: StageContext, model: Any, draw: int) -> None:
    """Change each weight up or down by one unit in the last place."""
    state = moved_at_random(dict(context.backend.state_items(model)), draw)
    context.backend.load_state_arrays(model, state)
