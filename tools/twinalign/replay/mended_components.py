"""The edit of the port's own code with which a component beside the model gives what the reference's gives.

Each small edit of the functions that the component runs is tried in the port itself: in its training, metric, data,
optimizer or schedule. All of these run in the port's process.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.files.curve_names import (
    BUFFER_NORM,
    EMA_DISTANCE,
    GRADIENT_NORM,
    LEARNING_RATE,
    TRAINED_NORM,
    WEIGHT_NORM,
)
from twinalign.files.recordings import Recording
from twinalign.replay import data_pipeline, metric, optimizer, training
from twinalign.replay.edits_of_component import Component
from twinalign.replay.fitted_schedules import other_schedules
from twinalign.replay.noted_functions import unnoted
from twinalign.replay.observed import CONSTANTS, observed
from twinalign.replay.parameter_groups import other_groups
from twinalign.replay.short_training import PortTraining
from twinalign.stages.training_plan import TrainingPlan
from twinalign.verdict.array_difference import distance, root_mean_square

_OF_AVERAGES = ("set_value", "copy_", "assign", "set_state_dict", "lerp_")
_MADE_BY = {
    LEARNING_RATE: ("learning_rate", "lr", "set_lr", "get_lr", "lr_lambda"),
    GRADIENT_NORM: ("backward", "grad", "set_value", "clip_grad_norm_", "grad_clip"),
    WEIGHT_NORM: ("step", "minimize", "parameters", "weight_decay"),
    BUFFER_NORM: ("momentum", "_momentum"),
    EMA_DISTANCE: _OF_AVERAGES,
    TRAINED_NORM: _OF_AVERAGES,
}
"""Curve of a training → names under which code says what it shows; what follows from others comes behind them."""
_NUMBER = "", "number of samples"


def training_mended(
    worker: Any,
    weights: Mapping[str, Any],
    reference: str,
    allowances: Sequence[str],
    plan: Mapping[str, Any],
    first: Mapping[str, int],
    longer: str,
    theirs: Mapping[str, Any],
    seconds: float,
) -> dict[str, Any]:
    """Search the edit with which the port trains as the reference does.

    Args:
        worker, weights, plan: as for `record_curves`.
        reference: its file of that.
        allowances: those that the case names.
        first: curves that are wrong → first such step.
        longer: a file with more steps, or an empty text.
        theirs, seconds: as for `Component.mended`.
    """
    run = functools.partial(training.train, worker, weights, plan=TrainingPlan(**plan))
    runs = [PortTraining(run, file, allowances, first) for file in (reference, longer) if file]

    def wrong() -> Set[Any]:
        found: Set[Any] = set()
        for one in runs:
            found = found or one.wrong()
        return found

    # As long as the reference's was, whose values at its end are known.
    as_long = functools.partial(run, most=training.steps_of(runs[-1].right))
    component = Component(worker, as_long, wrong, [_said(first)], _layers(worker, training.STAGE))
    component.right = runs[0].right.keys() - first.keys()
    if any(name.startswith(WEIGHT_NORM) for name in first if first[name] == min(first.values())):
        component.likely = other_groups
    if LEARNING_RATE in first and (rates := runs[0].right.get(LEARNING_RATE)) is not None:

        def trained(used: Callable[[], None]) -> None:
            with worker.backend.watching_steps(lambda optimizer: used(), lambda optimizer: None):
                run()

        component.likely = functools.partial(other_schedules, trained, rates)
    return component.mended(theirs, seconds)


def _said(first: Mapping[str, int]) -> set[str]:
    """As code may call what is wrong first: the curves of the training's own, and the first of the others."""
    begin = min(first.values(), default=0)
    names = {name for name, step in first.items() if step == begin}
    kinds = [kind for kind in _MADE_BY if any(name.startswith(kind) for name in names)]
    return names | {name for kind in kinds[:1] for name in _MADE_BY[kind]}


def _layers(worker: Any, stage: str) -> set[str]:
    """Names of the classes of the model's layers."""
    model = worker.construct(worker.fresh_case(stage))
    return {type(layer).__name__ for _, layer in worker.backend.named_layers(model)}


def metric_mended(
    worker: Any,
    weights: Mapping[str, Any],
    reference: str,
    variations: int,
    names: Collection[str],
    theirs: Mapping[str, Any],
    seconds: float,
) -> dict[str, Any]:
    """Search the edit with which the port measures what the reference measures.

    `reference`: its file of `record_metric`, with the numbers of so many `variations`; others as there.
    """
    with np.load(reference, allow_pickle=False) as stored:
        right = metric.results_of(stored)

    # What cannot be given all that the reference's model returned would be evaluated twice each time.
    given = reference if metric.measured(worker, weights, reference, 0)[1] else None

    def wrong(more: int = 0) -> Set[Any]:
        found = metric.results_of(metric.measured(worker, weights, given, more)[0])
        known = {name: right[name] for name in found if name in right} if more < variations else right
        return set(metric.differing(known, found))

    def wrong_anywhere() -> Set[Any]:
        return wrong() or wrong(variations)

    component = Component(worker, wrong_anywhere, wrong_anywhere, _last(names), _layers(worker, metric.STAGE), wrong)
    component.right = right.keys() - {*names}
    return component.mended(theirs, seconds)


def _last(names: Iterable[str]) -> list[set[str]]:
    return [{name.rpartition(".")[2]} for name in dict.fromkeys(names)]


def data_mended(
    worker: Any, split: str, references: Mapping[str, Sequence[Any]], theirs: Mapping[str, Any], seconds: float
) -> dict[str, Any]:
    """Search the edit with which the port reads the reference's samples of a split, and of others if one does.

    `references`: split → a file of `record_samples`, and how many of its samples count.
    """
    rights = {name: data_pipeline.read_items(*of_split) for name, of_split in references.items()}

    def items(name: str) -> list[Mapping[str, Any]]:
        worker.backend.set_seed(worker.case.seed)
        case = worker.fresh_case(data_pipeline.STAGE)
        return list(data_pipeline.items_of(worker, case, name, references[name][1]))

    def wrong(name: str) -> Set[Any]:
        right, found = rights[name], items(name)
        pairs = enumerate(zip(right, found, strict=False))
        apart = {
            (name, n, key) for n, (one, other) in pairs for key in one.keys() | other.keys() if _differ(one, other, key)
        }
        return apart | ({(name, *_NUMBER)} if len(found) != len(right) else set())

    def elsewhere() -> Set[Any]:
        return {one for name in references if name != split for one in wrong(name)}

    run, here = functools.partial(items, split), functools.partial(wrong, split)
    apart = {name for _, _, name in here()}
    right = {key for item in rights[split] for key in item} - apart
    return Component(worker, run, here, _last(apart), elsewhere=elsewhere, right=right).mended(theirs, seconds)


def _differ(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray], name: str) -> bool:
    return name not in one or name not in other or not data_pipeline.same(one[name], other[name])


def observed_mended(
    worker: Any,
    weights: Mapping[str, Any],
    reference: str,
    names: Collection[str],
    theirs: Mapping[str, Any],
    seconds: float,
) -> dict[str, Any]:
    """Search the edit with which the case observes of the port what it does of the reference: of `record_observed`."""
    right, moved = training.read_curves(reference)
    constants = {name: CONSTANTS * root_mean_square(value) for name, value in right.items()}
    floors = {name: max(floor, constants[name]) for name, floor in training.floors_of(right, moved).items()}

    def wrong() -> Set[Any]:
        found = observed(worker, weights)
        return {name for name, value in right.items() if not distance(found.get(name), value) <= floors[name]}

    others = right.keys() - {*names}
    return Component(worker, wrong, wrong, _last(names), right=others).mended(theirs, seconds)


def schedule_mended(
    worker: Any,
    weights: Mapping[str, Any],
    values: Mapping[str, Sequence[float]],
    names: Collection[str],
    theirs: Mapping[str, Any],
    seconds: float,
) -> dict[str, Any]:
    """Search the edit with which the port's schedule gives these `values`, as `record_schedule` has them."""
    record = functools.partial(unnoted(optimizer.record_schedule), worker, weights)

    def wrong() -> Set[Any]:
        return set(optimizer.wrong_values(values, record()["values"]))

    component = Component(worker, wrong, wrong, [{*_MADE_BY[LEARNING_RATE], *names}])
    component.likely = functools.partial(other_schedules, record, np.asarray(values[LEARNING_RATE]))
    return component.mended(theirs, seconds)


def steps_mended(
    worker: Any,
    weights: Mapping[str, Any],
    initial: str,
    gradients: str,
    reference: str,
    other_sizes: str,
    rates: list[float],
    theirs: Mapping[str, Any],
    seconds: float,
) -> dict[str, Any]:
    """Search the edit with which the port's optimizer makes the reference's steps; arguments as of `record_steps`.

    `reference`, `other_sizes`: its files of the steps, and of those on gradients of `OTHER_SIZES`.
    """
    given = {"weights": weights, "initial": initial, "gradients": gradients, "rates": rates}

    def wrong(right: Mapping[str, Any], sizes: Sequence[float]) -> Set[Any]:
        found: Set[str] = set()

        def is_enough(arrays: Mapping[str, Any], step: int) -> bool:
            nonlocal found
            found = optimizer.differing_quantities(optimizer.until(right, step), arrays).keys()
            return bool(found)

        unnoted(optimizer.record_steps)(worker, **given, sizes=sizes, is_enough=is_enough)
        return {(key.partition(".")[2], *sizes) for key in found}

    pairs = ((reference, ()), (other_sizes, optimizer.OTHER_SIZES))
    here, elsewhere = (functools.partial(wrong, Recording.load(Path(file)).arrays, sizes) for file, sizes in pairs)
    made_by = [{*_MADE_BY[WEIGHT_NORM], *_MADE_BY[GRADIENT_NORM]}]
    of_schedule = optimizer.of_schedule_alone(worker, weights)
    component = Component(worker, here, here, made_by, of_schedule, elsewhere=elsewhere, likely=other_groups)
    return component.mended(theirs, seconds)
