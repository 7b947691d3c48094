"""Prove a conversion by running both models in float64 on the same input."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.conversion import convert_arrays
from twinalign.conversion.fingerprints import all_agree
from twinalign.conversion.layers_to_match import matchables_of
from twinalign.conversion.plan import Plan, make_plan
from twinalign.conversion.remote_model import BothModels, RemoteModel, Run, relative_differences
from twinalign.conversion.side_layout import Side
from twinalign.conversion.trial_inputs import guess_inputs
from twinalign.conversion.where_models_differ import where_they_part
from twinalign.errors import DivergedError, InputError, SideCrashError

LIMIT = 1e-6
"""Largest relative difference in float64 that is no bug: paddle computes some coordinates and slopes in float32."""
_MOST_AT_ONCE = 3
_MAXIMUM_RUNS = 300


def verify(
    models: Mapping[str, RemoteModel],
    source: Side,
    target: Side,
    plan: Plan,
    arrays: Mapping[str, np.ndarray],
    specifications: Sequence[str],
    settings: Mapping[str, Any],
) -> tuple[Plan, dict[str, Any]]:
    """Run both models and compare their outputs; on the way, decide the layout of unproven matrices.

    Returns the plan that agrees and the measurements. Raises DivergedError if no plan agrees, and InputError if the
    models cannot run on such an input or their outputs do not depend on the layout of some matrix.
    """
    if set(models) != {"ref", "paddle"}:
        raise InputError("--verify runs both models: give --ref and --paddle")
    reference, paddle = (source, target) if source.framework == "torch" else (target, source)
    matchables = matchables_of("torch", reference.layers), matchables_of("paddle", paddle.layers)
    trial = BothModels(models["ref"], models["paddle"], guess_inputs(matchables[0], specifications))
    layouts = _Layouts(trial, source, target, plan, arrays, settings)
    first = layouts.run(frozenset())
    flipped, runs = _settle(layouts, first)
    if runs is None:
        raise DivergedError(f"{_measured(first)}: {where_they_part(first, *matchables)}")
    _check_necessary(layouts, flipped)
    differences = relative_differences(runs)
    return layouts.plan_with(flipped), {
        "relative_difference": max(differences),
        "outputs": [list(output.shape) for output in runs[0].outputs[: len(differences)]],
        "inputs": [list(shape) for shape in trial.shapes],
        "settled_matrices": {key: layouts.usual[key] != (key in flipped) for key in plan.unproven},
    }


@dataclasses.dataclass
class _Layouts:
    trial: BothModels
    source: Side
    target: Side
    plan: Plan
    arrays: Mapping[str, np.ndarray]
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        moved = {move.target.key: move for move in self.plan.moves if move.pieces}
        self.usual = {key: moved[key].pieces[0].transposed != moved[key].transposed for key in self.plan.unproven}
        """Whether the conversion transposes the matrix, unless it is flipped."""
        self.made_from = {key: moved[key].pieces[0].key for key in self.plan.unproven}

    def plan_with(self, flipped: frozenset[str]) -> Plan:
        if not flipped:
            return self.plan
        decided = {key: usual != (key in flipped) for key, usual in self.usual.items()}
        answers = {**self.settings.get("transpose", {}), **decided}
        return make_plan(self.source, self.target, **{**self.settings, "transpose": answers})

    def run(self, flipped: frozenset[str]) -> tuple[Run, Run]:
        return _run(self.trial, self.source, self.plan_with(flipped), self.arrays)


def _settle(layouts: _Layouts, first: tuple[Run, Run]) -> tuple[frozenset[str], tuple[Run, Run] | None]:
    """The matrices to flip so that the models agree, and that run; None if no flips make them agree.

    A correct flip lets the models agree further, so flips are found one at a time, or a few together if several
    matrices lie between two layers whose inputs can be compared.
    """
    flipped: frozenset[str] = frozenset()
    runs, best, tries = first, _agreements(first), 0
    while not _agree(runs):
        sizes = range(1, _MOST_AT_ONCE + 1)
        for keys in itertools.chain.from_iterable(itertools.combinations(layouts.usual, size) for size in sizes):
            if tries == _MAXIMUM_RUNS:
                return flipped, None
            tries += 1
            tried = layouts.run(flipped ^ frozenset(keys))
            if (score := _agreements(tried)) > best:
                flipped, runs, best = flipped ^ frozenset(keys), tried, score
                break
        else:
            return flipped, None
    return flipped, runs


def _agree(runs: tuple[Run, Run]) -> bool:
    differences = relative_differences(runs)
    return bool(differences) and max(differences) <= LIMIT


def _agreements(runs: tuple[Run, Run]) -> int:
    """Number of reference calls whose inputs (and whose outputs) some paddle call shares, plus the number of outputs
    that agree.
    """
    count = sum(difference <= LIMIT for difference in relative_differences(runs))
    for what in ("inputs", "outputs"):
        for call in runs[0].calls:
            count += any(all_agree(call[what], other[what]) for other in runs[1].calls)
    return count


def _check_necessary(layouts: _Layouts, flipped: frozenset[str]) -> None:
    """Raise InputError for matrices that could also be kept the other way round, as far as the outputs show."""
    open_questions = [
        key
        for key, origin in layouts.made_from.items()
        if not np.array_equal(layouts.arrays[origin], layouts.arrays[origin].T)
        and _agree(layouts.run(flipped ^ frozenset([key])))
    ]
    if open_questions:
        raise InputError(
            "the models' outputs do not depend on these matrices of the model's own, so running the models does not "
            f"show whether they are transposed: {', '.join(open_questions[:12])}. Answer with --keep PATTERN or "
            "--transpose PATTERN, or give an input that uses them (--input)"
        )


def _run(trial: BothModels, source: Side, plan: Plan, arrays: Mapping[str, np.ndarray]) -> tuple[Run, Run]:
    made = dict(convert_arrays.execute(plan, arrays))
    kept = {part.entry.key: arrays[part.entry.key] for part in source.stored if part.entry.key in arrays}
    both = (kept, made) if source.framework == "torch" else (made, kept)
    weights = [model.save(state) for model, state in zip(trial.models, both, strict=True)]
    try:
        return trial.run([{"weights": str(path)} for path in weights])
    except SideCrashError as error:
        raise InputError(
            f"{error}; the models were run on {' and '.join(map(str, trial.shapes))}: if they take something else, "
            "give it with --input"
        ) from None


def _measured(runs: tuple[Run, Run]) -> str:
    differences = relative_differences(runs)
    if not differences:
        return "one of the models returns no tensor"
    return f"in float64 the outputs differ by {max(differences):.2g} relative, {LIMIT:g} is allowed"
