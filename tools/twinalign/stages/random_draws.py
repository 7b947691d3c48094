"""Whether a model draws random numbers while it is recorded, and what they change.

Two frameworks draw different numbers from one seed, so that what depends on them cannot be compared.
"""

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from twinalign.files.recordings import Recording
from twinalign.stages.context import StageContext

_MOST_SEEDS = 16


def initial_model(context: StageContext) -> Any:
    """The model with its initial weights, and every generator in a known state.

    numpy's and Python's global generators give both sides the same numbers; the framework's own do not.
    """
    model = context.build_model()
    np.random.seed(context.case.seed % 2**32)
    random.seed(context.case.seed)
    context.backend.set_seed(context.case.seed + context.further_seeds)
    context.random_state = context.backend.random_state()
    return model


def measure_draws(
    context: StageContext, record: Callable[[StageContext], None], forget: Callable[[], None] = lambda: None
) -> None:
    """Note in the metadata whether the recorded computation drew from the framework's generators. On the reference
    side, record it again with other seeds, to note the largest change of each array (root mean square, absolute).

    One other seed may draw the same: stochastic depth keeps or drops a whole sample, and in a small batch it often
    keeps all. So seeds are tried until something changes in every step, and then until no further array changes.
    `forget` is called before each repeat.
    """
    if context.random_state is None:
        return
    metadata = context.recording.metadata
    metadata["draws"] = context.backend.random_state() != context.random_state
    if not metadata["draws"] or context.framework != "torch":
        return
    found: dict[str, float] = {}
    for further in range(1, _MOST_SEEDS + 1):
        forget()
        other = dataclasses.replace(
            context, further_seeds=further, recording=Recording(), progress=lambda text: None, random_state=None
        )
        record(other)
        known = len(found)
        for name, array in context.recording.arrays.items():
            change = _change(array, other.recording.arrays.get(name))
            if change > 0.0:
                found[name] = max(change, found.get(name, 0.0))
        if len(found) == known and set(map(_step_of, found)) == set(map(_step_of, context.recording.arrays)):
            break
    metadata["changed_by_draws"] = found


def _step_of(name: str) -> str:
    """The optimizer step in an array's name; empty in stages without steps."""
    step = name.partition(".")[0]
    return step if step.removeprefix("step").isdecimal() and step.startswith("step") else ""


def _change(array: np.ndarray, other: np.ndarray | None) -> float:
    """Root mean square of the difference; 0 if it cannot be computed."""
    if other is None or array.shape != other.shape or array.dtype.kind not in "biufc" or not array.size:
        return 0.0
    with np.errstate(all="ignore"):
        change = float(np.sqrt(np.mean(np.abs(array.astype(np.complex128) - other) ** 2)))
    return change if np.isfinite(change) else 0.0
