"""Finds a wrong training loop: both sides take its first steps in float64, from the same weights."""

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.causes.registry import Explanation
from twinalign.causes.training.subject import explain_training
from twinalign.files.curve_names import (
    BATCH_RMS,
    BATCH_SIZE,
    CURVE_PREFIX,
    GRADIENT_NORM,
    LEARNING_RATE,
    OUTCOME_PREFIX,
    REPEAT_PREFIX,
    WEIGHTS_PREFIX,
)
from twinalign.processes.side_process import ChildError
from twinalign.replay.mended_components import training_mended
from twinalign.replay.training import (
    MORE_STEPS,
    STAGE,
    STEPS,
    floors_of,
    read_curves,
    record_curves,
    record_mended_curves,
    steps_of,
    wrong_curves,
)
from twinalign.search.components import ComponentContext, Mended, NotSearchedError
from twinalign.search.data import locate_data
from twinalign.search.faults import Fault
from twinalign.search.training_swaps import try_swaps
from twinalign.sides import SIDES
from twinalign.verdict.array_difference import distance, root_mean_square
from twinalign.verdict.training_comparison import begin_rounded

TRAINING = "train"
_FLOAT32_ONLY = (
    "train does not run in float64, in which its first steps are searched; give its batches the dtype of the model"
)
_FAR = 1e-2
"""Relative: no rounding makes two trainings differ by as much in their first tens of steps."""
_SMALL = 0.01
"""Of a curve's greatest value: what is smaller tells nothing relative to itself."""
_BEHIND = 3
"""At least so many steps are searched from one that departs on, or half as many as go before it."""
_MOST_STEPS, _MOST_SECONDS = 60, 3.0
"""So many steps are searched at most, or as many as take a side so much processor time."""
_WHOLE = 0
"""As many steps as the case makes."""
_OF_REPEAT, _SAME = 8.0, 1e-4
"""What a training makes differs by more than so many times what its repeat shows, and so much of its size."""


def locate_training(context: ComponentContext) -> list[Fault]:
    """The fault of the training loop (component `train`), if there is one.

    Raises:
        NotSearchedError: the reference does not train as it did when the run recorded it, or not in float64.
    """
    if STAGE not in context.weights:
        return []
    paths = {side: context.folder / f"curves_{side}.npz" for side in SIDES}
    try:
        clips, facts, seconds = _recorded(context, paths, STEPS)
    except ChildError as error:
        if error.died or context.steps_in_float64:
            raise
        if not _shown_within(context.curves):
            return []
        raise NotSearchedError(f"{_FLOAT32_ONLY}: {error}") from None
    steps = max(_shown_within(context.curves), context.steps_in_float64)
    most = max(_MOST_STEPS, int(_MOST_SECONDS / seconds) if seconds else 0)
    if steps > STEPS and not wrong_curves(paths, context.allowances):
        _recorded(context, paths, min(steps, most), late=True)
    if context.ends_apart and _made(context.curves) <= most and not wrong_curves(paths, context.allowances):
        _recorded(context, paths, _WHOLE, late=True)
    if other := "" if clips else _not_as_recorded(context.steps, paths["ref"]):  # else the formula differs by intent
        raise NotSearchedError(other)
    wrong, functions = wrong_curves(paths, context.allowances), context.functions_of_port()
    plan: dict[str, Any] = {}
    if wrong and begin_rounded(*(read_curves(paths[side])[0] for side in SIDES)):
        plan = {"rounded": str(context.folder / "batches.npz")}
        _train_on_same_batches(context, paths, clips, plan)
        wrong = wrong_curves(paths, context.allowances)
    faults: list[Fault] = []
    if not (wrong and _follows(context, paths, plan)):
        faults = _data_faults(context, wrong) if wrong else []
        if not faults and (wrong or _batches_kept(context)):
            faults = [_fault(context, wrong, paths, plan, {"facts": facts, "functions": functions}, clips)]
    for path in (*paths.values(), *map(Path, plan.values())):
        path.unlink(missing_ok=True)
    return faults


def _recorded(
    context: ComponentContext, paths: Mapping[str, Path], most: int, late: bool = False
) -> tuple[bool, dict[str, Any], float]:
    """Record so many steps of both sides.

    Returns:
        whether the port clips; the facts of its optimizer, if any; processor time of a step on the slower side.
    """
    clips, seconds = False, 0.0
    facts: dict[str, Any] = {}
    for side in reversed(SIDES):
        given: dict[str, Any] = {"repeat": True, "as_paddle_clips": clips} if side == "ref" else {}
        given |= {"weights": context.weights[STAGE][side], "path": str(paths[side]), "most": most, "late": late}
        answer = context.processes[side].call(record_curves, **given)
        clips, facts = clips or answer["clips"], facts or answer["facts"]
        seconds = max(seconds, answer["seconds"])
    return clips, facts, seconds


def _follows(context: ComponentContext, paths: Mapping[str, Path], plan: Mapping[str, str]) -> bool:
    """Whether the port trains as the reference does with the edits that have mended its other parts."""
    steps = steps_of(read_curves(paths["ref"])[0])

    def is_right(path: Path) -> bool:
        return not wrong_curves({**paths, "paddle": path}, context.allowances)

    given: dict[str, Any] = {"weights": context.weights[STAGE]["paddle"], "most": steps, "late": True, "plan": plan}
    return context.follows(record_mended_curves, is_right, **given)


def curves_in(recording: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The curves in the recording of a training, by their names."""
    return {n.removeprefix(CURVE_PREFIX): array for n, array in recording.items() if n.startswith(CURVE_PREFIX)}


def ends_apart(reference: Mapping[str, np.ndarray], port: Mapping[str, np.ndarray]) -> bool:
    """Whether what two whole trainings have made differs, by their recordings: weights, outcomes, what is told once.

    The reference's repeat tells how far rounding takes them.
    """
    for name in reference.keys() & port.keys():
        theirs, ours = reference[name], port[name]
        once = name.startswith(CURVE_PREFIX) and len(theirs) == 1
        if once or name.startswith((WEIGHTS_PREFIX, OUTCOME_PREFIX)):
            own = distance(reference.get(REPEAT_PREFIX + name, theirs), theirs)
            if not distance(ours, theirs) <= _OF_REPEAT * own + _SAME * root_mean_square(theirs):
                return True
    return False


def _made(curves: Mapping[str, Mapping[str, np.ndarray]]) -> int:
    """How many steps the run's trainings have made."""
    return max((len(curve) for of_side in curves.values() for curve in of_side.values()), default=0)


def _shown_within(curves: Mapping[str, Mapping[str, np.ndarray]]) -> int:
    """How many steps show what departs by far in the run's trainings, the rate if that does; 0 if nothing does.

    What happens after some epochs shows in no first steps. A rate that falls in another step is shown once both agree.
    """
    theirs, ours = (curves.get(side, {}) for side in SIDES)
    found: dict[str, np.ndarray] = {}
    for name in theirs.keys() & ours.keys():
        steps = min(len(theirs[name]), len(ours[name]))
        one, other = theirs[name][:steps], ours[name][:steps]
        size = np.maximum(np.abs(one), _SMALL * np.abs(one).max(initial=0.0))  # a loss that is zero is all rounding
        apart = np.flatnonzero(np.abs(one - other) > _FAR * size)
        if len(apart):
            found[name] = apart
    if not found:
        return 0
    first, last = found.get(LEARNING_RATE, min(found.values(), key=lambda steps: steps[0]))[[0, -1]]
    return max(int(first) + max(_BEHIND, int(first) // 2), int(last) + 2 if LEARNING_RATE in found else 0)


def _not_as_recorded(recorded: Mapping[str, np.ndarray], path: Path) -> str:
    """How the curves in a file of `record_curves` differ from those recorded before, by more than rounding.

    What a training measures at its end is another value after fewer steps.
    """
    here, moved = read_curves(path)
    floors = floors_of(here, moved)
    steps, as_long = (max(map(len, curves.values()), default=0) for curves in (here, recorded))
    for name in [name for name in here if name in recorded]:
        both = min(len(here[name]), len(recorded[name]))
        if len(here[name]) < steps != as_long:
            both = min(both, len(here[name]) - 1)
        apart = np.flatnonzero(~(np.abs(here[name][:both] - recorded[name][:both]) <= floors.get(name, 0.0)))
        if len(apart):
            values = (f"{curves[name][apart[0]]:.6g}" for curves in (here, recorded))
            return (
                f"the reference trains otherwise than when it was recorded: {name} is {next(values)} in step "
                f"{apart[0]}, and was {next(values)}; let train depend on the case's seed and its arguments alone"
            )
    return ""


def _train_on_same_batches(
    context: ComponentContext, paths: Mapping[str, Path], clips: bool, plan: Mapping[str, str]
) -> None:
    """Record both sides' curves once more, the port's with the reference's batches where rounding parts them."""
    steps = {"most": steps_of(read_curves(paths["ref"])[0]), "late": True}
    for side, of_side in zip(SIDES, ({"keep": plan["rounded"], "keep_state": False}, plan), strict=True):
        given: dict[str, Any] = steps | ({"repeat": True, "as_paddle_clips": clips} if side == "ref" else {})
        given |= {"weights": context.weights[STAGE][side], "path": str(paths[side]), "plan": of_side}
        context.processes[side].call(record_curves, **given)


def _data_faults(context: ComponentContext, wrong: Mapping[str, Any]) -> list[Fault]:
    """Faults of the input pipeline, if the batches differ and the case has a data stage that is not searched anyway."""
    if BATCH_RMS not in wrong or "data" in context.searched or "data" not in context.stages or _batches_kept(context):
        return []
    return locate_data(context)


def _fault(
    context: ComponentContext,
    wrong: Mapping[str, Any],
    paths: Mapping[str, Path],
    plan: Mapping[str, str],
    of_port: Mapping[str, Any],
    clips: bool,
) -> Fault:
    weights = context.weights[STAGE]
    evidence: dict[str, Any] = {"values": dict(wrong)}
    explanation = _batches_kept(context) if context.explain else None
    if explanation is None and not (context.layer_is_wrong and _begins_before_the_optimizer(wrong)):
        given = {"reference": str(paths["ref"]), "port": str(paths["paddle"]), **of_port}
        longer = context.folder / "longer_ref.npz"
        mended = None if context.is_wrong_before else _mended(context, wrong, paths["ref"], plan, longer, clips)
        explanation = context.explanation(explain_training, weights=weights["ref"], mended=mended, **given)
        longer.unlink(missing_ok=True)
    if explanation is None and not context.is_wrong_before:
        try:
            swaps = try_swaps(context.processes, weights, context.folder)
        except ChildError as error:  # one side's batches may not fit the other side's training
            if error.died:
                raise
            swaps = None
        evidence |= {"swaps": swaps} if swaps is not None else {}
    return Fault(TRAINING, TRAINING, "train", explanation, evidence)


def _mended(
    context: ComponentContext,
    wrong: Mapping[str, Any],
    reference: Path,
    plan: Mapping[str, str],
    longer: Path,
    clips: bool,
) -> Mended:
    """How the port is searched for the edit with which it trains as the reference does.

    `longer` is where a longer training of the reference's is recorded, if its batches are its own, and there is one.
    """
    asked = {"weights": context.weights[STAGE]["ref"], "path": str(longer), "most": MORE_STEPS}
    recorded = functools.partial(
        context.processes["ref"].call, record_curves, repeat=True, as_paddle_clips=clips, **asked
    )
    as_it_is = bool(plan) or steps_of(read_curves(reference)[0]) == _WHOLE
    given = {
        "weights": context.weights[STAGE]["paddle"],
        "reference": str(reference),
        "longer": "" if as_it_is else str(longer),
        "allowances": context.allowances,
        "plan": plan,
        "first": _first_steps(wrong, reference),
    }
    found = Mended(training_mended, TRAINING, given, STAGE, "train")
    return found if as_it_is else dataclasses.replace(found, prepare=recorded)


def _first_steps(wrong: Mapping[str, Any], reference: Path) -> dict[str, int]:
    """The step from which each curve is wrong; what a training measures at its end is wrong behind all of them."""
    lengths = {name: len(curve) for name, curve in read_curves(reference)[0].items()}
    steps = max(lengths.values(), default=0)
    return {name: steps if lengths.get(name) == 1 else found["first_step"] for name, found in wrong.items()}


def _begins_before_the_optimizer(wrong: Mapping[str, Any]) -> bool:
    """Whether the first step already has another gradient, on the same batch: what a wrong layer makes.

    No cause in the loop or the optimizer then gives the port's curves, each of which has the layer's fault in it.
    """
    begins = {name.partition(".")[0] for name, found in wrong.items() if found["first_step"] == 0}
    return BATCH_RMS not in wrong and any(name.startswith(GRADIENT_NORM) for name in begins)


def _batches_kept(context: ComponentContext) -> Explanation | None:
    """The cause, if one side alone trains on the last, smaller batch of an epoch: the recorded batch sizes show it."""
    theirs, ours = (context.curves.get(side, {}).get(BATCH_SIZE) for side in SIDES)
    if ours is None or theirs is None or not len(ours) or not len(theirs):
        return None
    full = max(ours.max(), theirs.max())
    smaller = {"ref": np.flatnonzero(theirs < full), "paddle": np.flatnonzero(ours < full)}
    if bool(len(smaller["ref"])) == bool(len(smaller["paddle"])) or ours.max() != theirs.max():
        return None
    side = "paddle" if len(smaller["paddle"]) else "ref"
    which, other = ("the port", "the reference") if side == "paddle" else ("the reference", "the port")
    steps, kept = smaller[side], ours if side == "paddle" else theirs
    text = (
        f"{which} trains on the last batch of an epoch, which {other} drops: {kept[steps[0]]:.0f} samples "
        f"instead of {full:.0f} at step {steps[0]}, so each of its epochs has one step more"
    )
    evidence = {"steps": steps[:20].tolist(), "batches": {"ref": len(theirs), "paddle": len(ours)}}
    return Explanation("drop_last", text, evidence=evidence)
