"""The edit of the port's own code with which its model starts from the reference's values, or draws them as it does."""

from __future__ import annotations

from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.case.moved_values import rounding_of_table
from twinalign.files.recordings import Recording, sample
from twinalign.replay.edits_of_component import Component
from twinalign.replay.rebuilt_code import editing_port
from twinalign.sides import INITIAL
from twinalign.stages.context import StageContext
from twinalign.stages.initial import record_initial, state_in_reference
from twinalign.verdict.initial_weights import compare_initial
from twinalign.verdict.stage_recordings import StageRecordings

_GIVING = frozenset(
    ("set_value", "copy_", "assign", "fill_", "normal_", "uniform_", "weight_attr", "bias_attr", "default_initializer")
)
"""Names under which code gives a parameter its first values."""
_DTYPE = "float32"


def initial_mended(
    worker: Any,
    weights: Mapping[str, Any],
    reference: str,
    names: Mapping[str, str],
    theirs: Mapping[str, Any],
    seconds: float,
) -> dict[str, Any]:
    """Search the edit with which some tensors of the port start as the reference's do.

    Args:
        worker, weights: as for `Worker.record`.
        reference: its file of `record_initial`.
        names: of these tensors in the reference → in the port.
        theirs, seconds: as for `Component.mended`.
    """
    right = Recording.load(Path(reference))
    fixed = {name: array[0] for name in names if (array := right.arrays[f"draws/{name}"]).ndim and _is_fixed(array)}

    def build() -> Any:
        return worker.construct(worker.fresh_case(INITIAL))

    def context() -> StageContext:
        made: StageContext = worker.context(worker.fresh_case(INITIAL), INITIAL, _DTYPE, weights)
        made.construct = lambda further_seeds: worker.construct(made.case, further_seeds)
        return made

    def differing() -> set[str]:
        ours = context()
        record_initial(ours)
        both = StageRecordings({("ref", _DTYPE): right, ("paddle", _DTYPE): ours.recording})
        lost = {name for name in right.arrays if name.startswith("draws/") and name not in ours.recording.arrays}
        return {one.name for one in compare_initial(both).differences} | {name.partition("/")[2] for name in lost}

    def wrong_at_once() -> Set[Any]:
        """Of the tensors that no seed changes; one model tells."""
        ours = {name: sample(values) for name, values in state_in_reference(context(), build()) if name in fixed}
        return {name for name, theirs in fixed.items() if name not in ours or _differ(ours[name], theirs)}

    def wrong() -> Set[Any]:
        return differing().intersection(names)

    def elsewhere() -> Set[Any]:
        return differing() - known

    made_by = _GIVING.union(name.rpartition(".")[2] for pair in names.items() for name in pair)
    first = wrong_at_once if len(fixed) == len(names) else None
    with editing_port():
        try:
            known = differing()
        except Exception:  # a user's code may not run once more
            return {}
    return Component(worker, build, wrong, [made_by], first=first, elsewhere=elsewhere).mended(theirs, seconds)


def _is_fixed(draws: np.ndarray) -> bool:
    return bool((draws == draws[0]).all())


def _differ(ours: np.ndarray, theirs: np.ndarray) -> bool:
    return ours.shape != theirs.shape or bool((np.abs(ours - theirs) > rounding_of_table(theirs, theirs.shape)).any())
