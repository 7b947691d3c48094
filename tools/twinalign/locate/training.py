"""Is the training loop wrong? Its first steps are taken in float64 on both sides, from the same weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twinalign.locate.components import ComponentContext, explanation_of
from twinalign.locate.data import locate_data
from twinalign.locate.faults import Explanation, Fault
from twinalign.locate.training_curves import STAGE, wrong_curves
from twinalign.locate.training_swaps import try_swaps
from twinalign.stages.watching import BATCH_RMS, BATCH_SIZE

if TYPE_CHECKING:
    from twinalign.recorder.process import RecorderProcess

TRAINING = "train"


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
    wrong = wrong_curves(paths, context.allowances)
    faults: list[Fault] = []
    if wrong or _batches_kept(context):
        faults = _data_faults(processes, context, wrong) or [_fault(processes, context, wrong, paths)]
    for path in paths.values():
        path.unlink(missing_ok=True)
    return faults


def _data_faults(
    processes: Mapping[str, RecorderProcess], context: ComponentContext, wrong: Mapping[str, Any]
) -> list[Fault]:
    """What is wrong with the input pipeline, where the batches differ and the case can be asked for its steps."""
    if BATCH_RMS not in wrong or "data" in context.searched or "data" not in context.stages or _batches_kept(context):
        return []
    return locate_data(processes, context)


def _fault(
    processes: Mapping[str, RecorderProcess],
    context: ComponentContext,
    wrong: Mapping[str, Any],
    paths: Mapping[str, Path],
) -> Fault:
    """What is wrong with the training, with the part that a swap names and the cause that can be proven."""
    weights = context.weights[STAGE]
    evidence: dict[str, Any] = {"values": dict(wrong)}
    if context.explain:
        explanation = _batches_kept(context) or explanation_of(
            processes["ref"],
            "twinalign.explain.training:explain_training",
            weights=weights["ref"],
            reference=str(paths["ref"]),
            port=str(paths["paddle"]),
        )
    else:
        explanation = None
    if explanation is None and (swaps := try_swaps(processes, weights, context.folder)) is not None:
        evidence["swaps"] = swaps
    return Fault(TRAINING, TRAINING, "train", explanation, evidence)


def _batches_kept(context: ComponentContext) -> Explanation | None:
    """Whether one side keeps the last, smaller batch of an epoch, as the batches of the whole training show.

    Nothing is inferred here: the sizes of all batches have been seen on both sides.
    """
    sizes = {side: context.curves.get(side, {}).get(BATCH_SIZE) for side in ("ref", "paddle")}
    ours, theirs = sizes["paddle"], sizes["ref"]
    if ours is None or theirs is None or not len(ours) or not len(theirs):
        return None
    full = max(ours.max(), theirs.max())
    smaller = {side: np.flatnonzero(found < full) for side, found in sizes.items() if found is not None}
    if bool(len(smaller["ref"])) == bool(len(smaller["paddle"])) or ours.max() != theirs.max():
        return None
    side = "paddle" if len(smaller["paddle"]) else "ref"
    which, other = ("the port", "the reference") if side == "paddle" else ("the reference", "the port")
    steps = smaller[side]
    kept = sizes[side]
    assert kept is not None
    text = (
        f"{which} trains on the last batch of an epoch, which {other} drops: {kept[steps[0]]:.0f} samples for "
        f"{full:.0f} at step {steps[0]}, so that an epoch has one step more"
    )
    evidence = {"steps": steps[:20].tolist(), "batches": {"ref": len(theirs), "paddle": len(ours)}}
    return Explanation("drop_last", text, evidence=evidence)
