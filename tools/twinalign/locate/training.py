"""Is the training loop wrong? Its first steps are taken in float64 on both sides, from the same weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twinalign.locate.components import ComponentContext, distance, explanation_of
from twinalign.locate.faults import Fault
from twinalign.locate.training_curves import STAGE, floors_of, read_curves

if TYPE_CHECKING:
    from twinalign.recorder.process import RecorderProcess

TRAINING = "train"
_SHOWN = 6


def locate_training(processes: Mapping[str, RecorderProcess], context: ComponentContext) -> list[Fault]:
    """The fault of the training loop (component `train`), if there is one.

    Args:
        processes: both recorder processes, started.
        context: with the weights of the train stage.
    """
    if STAGE not in context.weights:
        return []
    weights = context.weights[STAGE]
    paths = {side: context.folder / f"curves_{side}.npz" for side in processes}
    for side in ("ref", "paddle"):
        answer = processes[side].request(
            "call",
            function="twinalign.locate.training_curves:record_curves",
            weights=weights[side],
            path=str(paths[side]),
            repeat=side == "ref",
        )
        if not answer["steps"]:
            return []
    wrong = _wrong(paths)
    faults = []
    if wrong:
        explanation = None
        if context.explain:
            explanation = explanation_of(
                processes["ref"],
                "twinalign.explain.training:explain_training",
                weights=weights["ref"],
                reference=str(paths["ref"]),
                port=str(paths["paddle"]),
            )
        faults.append(Fault(TRAINING, TRAINING, "train", explanation, {"values": wrong}))
    for path in paths.values():
        path.unlink(missing_ok=True)
    return faults


def _wrong(paths: Mapping[str, Path]) -> dict[str, Any]:
    """The curves that differ by more than rounding: from which step on, and both sides' values from there."""
    reference, moved = read_curves(paths["ref"])
    port, _ = read_curves(paths["paddle"])
    floors = floors_of(reference, moved)
    found: dict[str, Any] = {}
    for name in {**reference, **port}:
        ours, theirs = port.get(name, np.zeros(0)), reference.get(name, np.zeros(0))
        floor = floors.get(name, 0.0)
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
    return found
