"""The edit of the port's own code with which a component beside the model gives what the reference's gives.

Each small edit of the functions that the component runs is tried in the port itself: in its training, metric, data,
optimizer or schedule. All of these run in the port's process.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import itertools
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.case.loading import kept_modules
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
from twinalign.replay.aligned_code import Code
from twinalign.replay.fitted_schedules import other_schedules
from twinalign.replay.grafts import grafts
from twinalign.replay.guarded import LONGEST
from twinalign.replay.helper_edits import Edit
from twinalign.replay.kept_edits import keep_edit, kept_edits
from twinalign.replay.noted_functions import unnoted
from twinalign.replay.noted_values import values_in
from twinalign.replay.observed import CONSTANTS, observed
from twinalign.replay.ordered_edits import Fit, answer_of, edited, in_turn, ordered_edits, parsed_at
from twinalign.replay.parameter_groups import other_groups
from twinalign.replay.places_of_edits import Unit, found_anyhow
from twinalign.replay.running_functions import Ran, functions_of
from twinalign.replay.short_training import PortTraining
from twinalign.replay.slices import FAR, called_by, callers_of, named_parts, outermost, shared_distances, wrong_parts
from twinalign.replay.statement_edits import StatementEdit
from twinalign.replay.statement_pairs import statement_edits_by_pairs
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
_LATE = FAR
_OF_LIKELY = 0.6
"""Share of the time for edits that are likely whatever the code is, or by how it reads beside the reference's."""
_OF_OTHERS = 0.6
"""And for all others, at least."""
_SIDE = "framework"
"""Parameter of a case's methods that asks for a side."""
_NUMBER = "", "number of samples"


@dataclasses.dataclass
class Component:
    """A component of the port that can run again.

    Attributes:
        worker: of the port's process.
        run: runs it.
        wrong: runs it and returns the names of what is not as the reference's; may raise.
        names: of each thing that is wrong, as code may call it: all of them are made of what is to be found.
        of_layers: names of classes and functions that compute what is known to be right.
        first: as `wrong`, of what `run` begins with; None if that is all.
        elsewhere: as `wrong`, on what shows more than was recorded; an edit ought to make that right as well.
        likely: of its functions and the reference's, edits that are tried first.
    """

    worker: Any
    run: Callable[[], Any]
    wrong: Callable[[], Set[Any]]
    names: Sequence[Collection[str]]
    of_layers: Collection[str] = ()
    first: Callable[[], Set[Any]] | None = None
    elsewhere: Callable[[], Set[Any]] = frozenset
    likely: Callable[[Sequence[Code], Sequence[ast.AST]], Iterable[Edit]] = lambda codes, theirs: ()

    def mended(self, theirs: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """The edit with which it is right, as `fitting_edit` has it; nothing where it does not run again as it did.

        `theirs`: of the reference, the `code`, `[file, first line, last line]` of each function, and the `values`, as
        `values_of` has them.
        """
        with kept_modules():
            try:
                began = time.process_time()
                codes, ran = functions_of(self.run, "paddle"), Ran.of(self.run)
                before = self.wrong()
                if not codes or not before:
                    return {}
                before |= self.elsewhere()
                taken = time.process_time() - began
            except Exception:  # a user's code may not run once more
                return {}
            far = self._distances(codes)
            values, trees = theirs["values"], parsed_at(theirs["code"])
            named, own = values_in(self.run), self._beside_layers(codes)
            beside = {id(code) for code in own}

            def delay(code: Code) -> int:  # few faults are in the case's own functions, and in those of layers
                return 0 if id(code) in beside else _LATE

            grafted = grafts(codes, named, values["functions"], far, delay)
            files = {code.file for code in codes} | {file for file, _ in ran.lines}
            fit = functools.partial(self._fit, before, files, taken)
            first = self.first or self.wrong
            like = self.worker.backend.to_tensor_like
            unit = Unit(own, first, lambda: not first(), fit, named, like)

            def edits(far: Mapping[int, int]) -> Iterable[Edit]:
                near = sorted((one for one in grafted if id(one.old) in far), key=lambda one: far[id(one.old)])
                found = in_turn(near, ordered_edits(codes, trees, far, delays=delay, ran=ran))
                return (edit for edit in found if not _asks_for_side(edit))

            known = reversed(kept_edits(self.worker))  # which have mended another part
            pairs = statement_edits_by_pairs(codes, trees, values["functions"], far)
            began = time.process_time()
            found = _first(itertools.chain(known, self.likely(codes, trees), pairs), fit, _OF_LIKELY * seconds)
            left = max(seconds - (time.process_time() - began), _OF_OTHERS * seconds)
            return keep_edit(self.worker, found or found_anyhow(unit, values, trees, grafted, far, edits, fit, left))

    def _distances(self, codes: Sequence[Code]) -> dict[int, int]:
        """Of each part of the code from what is wrong; that of the farthest where several things are."""
        roots = [found for names in self.names if (found := list(named_parts(codes, names)))]
        return shared_distances(codes, roots or [list(wrong_parts(codes, (), outermost(codes, {}), ()))], {})

    def _is_of_case(self, code: Code) -> bool:
        case = sys.modules[type(self.worker.case).__module__]
        return code.file == Path(str(case.__file__)).name

    def _is_of_layer(self, code: Code) -> bool:
        return code.name.partition(".")[0] in self.of_layers

    def _beside_layers(self, codes: Sequence[Code]) -> list[Code]:
        """The functions that run without those of layers around them, and none of the case's own."""
        waiting = [code for code in codes if self._is_of_case(code) or not callers_of(code, codes)]
        found: list[Code] = []
        while waiting:
            code = waiting.pop()
            if all(code is not other for other in found) and not self._is_of_layer(code):
                found.append(code)
                waiting += called_by(code, codes)
        return [code for code in found if not self._is_of_case(code)]

    def _fit(self, before: Set[Any], files: Set[str], seconds: float, edit: Edit) -> Fit:
        is_own, beyond = True, set[Any]()
        try:
            with edited(edit, seconds):
                left = (self.first or self.wrong)()
            if not left:
                with edited(edit, seconds + LONGEST):  # what is right so far has an end
                    left = self.wrong()
                    # What calls the reference's own code gives what it gives.
                    is_own = bool(left) or {file for file, _ in Ran.of(self.run).lines} <= files
                    beyond = set(self.elsewhere()) if is_own and not left else beyond
        except Exception:  # an edit may not run
            return Fit.NOTHING
        if not left and is_own and beyond <= before:
            return Fit.HERE if beyond else Fit.ALL
        return Fit.NOTHING if left <= before else Fit.BROKEN


def _first(edits: Iterable[Edit], fit: Callable[[Edit], Fit], seconds: float) -> dict[str, Any]:
    """What `answer_of` has of the first edit with which all is right; `seconds`: of processor time."""
    until = time.process_time() + seconds
    in_time = itertools.takewhile(lambda edit: time.process_time() < until, edits)
    return next((answer_of(one, Fit.ALL) for one in in_time if fit(one) is Fit.ALL), {})


def _asks_for_side(edit: Edit) -> bool:
    """Whether an edit stands where a method of the case chooses between both sides."""
    if not any(one.arg == _SIDE for one in edit.code.tree.args.args):
        return False
    written = [edit.node] if isinstance(edit, StatementEdit) else [edit.old, edit.new]
    if any(getattr(one, "id", "") == _SIDE for node in written for one in ast.walk(node)):
        return True
    choices = [one for one in ast.walk(edit.code.tree) if isinstance(one, (ast.IfExp, ast.Compare))]
    asking = [one for one in choices if any(getattr(name, "id", "") == _SIDE for name in ast.walk(one))]
    return any(one is written[0] for choice in asking for one in ast.walk(choice))


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

    component = Component(worker, run, wrong, [_said(first)], _layers(worker, training.STAGE))
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

    def wrong(more: int = 0) -> Set[Any]:
        found = metric.results_of(metric.measured(worker, weights, reference, more)[0])
        known = {name: right[name] for name in found if name in right} if more < variations else right
        return set(metric.differing(known, found))

    def wrong_anywhere() -> Set[Any]:
        return wrong() or wrong(variations)

    layers = _layers(worker, metric.STAGE)
    return Component(worker, wrong_anywhere, wrong_anywhere, _last(names), layers, wrong).mended(theirs, seconds)


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
    names = _last(name for _, _, name in here())
    return Component(worker, run, here, names, elsewhere=elsewhere).mended(theirs, seconds)


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

    return Component(worker, wrong, wrong, _last(names)).mended(theirs, seconds)


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
