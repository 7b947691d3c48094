"""What `Case.observe` returns on two draws of the case's inputs, on one side."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.case.calling import named_values
from twinalign.case.definition import Case
from twinalign.files.recordings import save_npz
from twinalign.replay.case_run import CaseRun
from twinalign.replay.noted_functions import noted
from twinalign.replay.training import MOVED

STAGE = "forward"
DRAWS = (0, 1)
CONSTANTS = 1e-6
"""Relative: what constants that a framework holds in float32 may make."""
_CHANGE = 1e-10


@noted
def record_observed(worker: Any, weights: Mapping[str, Any], path: str, repeat: bool = False) -> dict[str, Any]:
    """Write what the case observes in float64, as `DRAW.NAME`, to an `.npz` file.

    Args:
        weights: as for `Worker.build_model`.
        repeat: once more from weights changed by a part in 10^10, as `moved.DRAW.NAME`.

    Returns:
        `observes`: whether the case has an `observe` of its own; else nothing is written.
    """
    if type(worker.fresh_case(STAGE)).observe is Case.observe:
        return {"observes": False}
    arrays = observed(worker, weights)
    if repeat:
        arrays |= {MOVED + name: array for name, array in observed(worker, weights, _CHANGE).items()}
    save_npz(Path(path), arrays)
    return {"observes": True}


def observed(
    worker: Any, weights: Mapping[str, Any], change: float = 0.0, draws: tuple[int, ...] = DRAWS
) -> dict[str, np.ndarray]:
    """The floating-point values that the case observes, by draw and name; `change`: relative, of the weights."""
    found: dict[str, np.ndarray] = {}
    for draw in draws:
        run = CaseRun.of(worker, STAGE, weights, draw)
        backend = run.backend
        if change:
            state = {n: a * (1 + change) if a.dtype.kind == "f" else a for n, a in backend.state_items(run.model)}
            backend.load_state_arrays(run.model, state)
        try:
            with backend.default_dtype(run.dtype), backend.no_grad():
                returned = run.case.observe(run.model, run.inputs(), run.framework)
        except Exception:  # a case need not observe inputs of other steps
            if draw == draws[0]:
                raise
            break
        for name, leaf in named_values(returned, backend.is_tensor, "output", {}):
            array = backend.to_array(leaf) if backend.is_tensor(leaf) else np.asarray(leaf)
            if array.dtype.kind == "f":
                found[f"{draw}.{name.removeprefix('output.')}"] = array
    return found
