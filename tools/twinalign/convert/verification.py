"""Prove a conversion by running both models in float64 on the same input."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.convert import conversion
from twinalign.convert.fingerprints import all_agree
from twinalign.convert.inputs import guess_inputs
from twinalign.convert.plan import Plan, Side, make_plan
from twinalign.convert.process import ModelProcess
from twinalign.convert.trial import DivergedError, Run, Trial, where_they_part
from twinalign.convert.units import units_of
from twinalign.errors import InputError, SideCrashError

LIMIT = 1e-6
"""Largest relative difference in float64 that is no bug: paddle computes some coordinates and slopes in float32."""
_MOST_AT_ONCE = 3
_MAXIMUM_RUNS = 300


def verify(
    processes: Mapping[str, ModelProcess],
    source: Side,
    target: Side,
    plan: Plan,
    arrays: Mapping[str, np.ndarray],
    specifications: Sequence[str],
    settings: Mapping[str, Any],
) -> tuple[Plan, dict[str, Any]]:
    """Run both models and compare; matrices of unproven layout are settled on the way.

    Returns the plan that agrees and what was measured. Raises DivergedError where none does, InputError where the
    models cannot be run on such an input, or where nothing they return depends on the layout of some matrix.
    """
    if set(processes) != {"ref", "paddle"}:
        raise InputError("--verify runs both models: give --ref and --paddle")
    reference, paddle = (source, target) if source.framework == "torch" else (target, source)
    units = units_of("torch", reference.layers), units_of("paddle", paddle.layers)
    trial = Trial(processes["ref"], processes["paddle"], guess_inputs(units[0], specifications))
    layouts = _Layouts(trial, source, target, plan, arrays, settings)
    first = layouts.run(frozenset())
    flipped, runs = _settle(layouts, first)
    if runs is None:
        raise DivergedError(f"{_measured(first)}: {where_they_part(first, *units)}")
    _check_necessary(layouts, flipped)
    differences = relative_differences(runs)
    return layouts.plan_with(flipped), {
        "relative_difference": max(differences),
        "outputs": [list(output.shape) for output in runs[0].outputs[: len(differences)]],
        "inputs": [list(shape) for shape in trial.shapes],
        "settled_matrices": {key: layouts.usual[key] != (key in flipped) for key in plan.unproven},
    }


class _Layouts:
    """Runs both models with some of the matrices of unproven layout flipped."""

    def __init__(
        self,
        trial: Trial,
        source: Side,
        target: Side,
        plan: Plan,
        arrays: Mapping[str, np.ndarray],
        settings: Mapping[str, Any],
    ) -> None:
        self.trial, self.source, self.target = trial, source, target
        self.plan, self.arrays, self.settings = plan, arrays, settings
        moved = {move.target.key: move for move in plan.moves if move.pieces}
        self.usual = {key: moved[key].pieces[0].transposed != moved[key].transposed for key in plan.unproven}
        """Whether the conversion transposes the matrix, unless it is flipped."""
        self.made_from = {key: moved[key].pieces[0].key for key in plan.unproven}

    def plan_with(self, flipped: frozenset[str]) -> Plan:
        if not flipped:
            return self.plan
        decided = {key: usual != (key in flipped) for key, usual in self.usual.items()}
        answers = {**self.settings.get("transpose", {}), **decided}
        return make_plan(self.source, self.target, **{**self.settings, "transpose": answers})

    def run(self, flipped: frozenset[str]) -> tuple[Run, Run]:
        return _run(self.trial, self.source, self.plan_with(flipped), self.arrays)


def _settle(layouts: _Layouts, first: tuple[Run, Run]) -> tuple[frozenset[str], tuple[Run, Run] | None]:
    """The matrices to flip so that the models agree, and that run; None where no flips make them agree.

    A right flip lets the models agree further, so flips are found one by one, or a few at once where several matrices
    lie between two layers whose inputs can be compared.
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
    """How many calls of the reference are given, and how many return, what some call of paddle's is given or returns,
    and how many of the outputs agree."""
    count = sum(difference <= LIMIT for difference in relative_differences(runs))
    for what in ("inputs", "outputs"):
        for call in runs[0].calls:
            count += any(all_agree(call[what], other[what]) for other in runs[1].calls)
    return count


def _check_necessary(layouts: _Layouts, flipped: frozenset[str]) -> None:
    """Raise InputError for matrices that may as well be kept the other way round: nothing that is returned tells."""
    open_questions = [
        key
        for key, origin in layouts.made_from.items()
        if not np.array_equal(layouts.arrays[origin], layouts.arrays[origin].T)
        and _agree(layouts.run(flipped ^ frozenset([key])))
    ]
    if open_questions:
        raise InputError(
            "matrices of the model's own whose layout no output of the models depends on, so that running them does "
            f"not tell whether they are transposed: {', '.join(open_questions[:12])}. Answer with --keep PATTERN or "
            "--transpose PATTERN, or give an input that uses them (--input)"
        )


def _run(trial: Trial, source: Side, plan: Plan, arrays: Mapping[str, np.ndarray]) -> tuple[Run, Run]:
    made = dict(conversion.execute(plan, arrays))
    kept = {part.entry.key: arrays[part.entry.key] for part in source.stored if part.entry.key in arrays}
    both = (kept, made) if source.framework == "torch" else (made, kept)
    weights = [process.save(state) for process, state in zip(trial.processes, both, strict=True)]
    try:
        return trial.run([{"weights": path} for path in weights])
    except SideCrashError as error:
        raise InputError(
            f"{error}; the models were run on {' and '.join(map(str, trial.shapes))}: if they take something else, "
            "say it with --input"
        ) from None


def relative_differences(runs: tuple[Run, Run]) -> list[float]:
    """For each output that both return, the largest difference over the largest magnitude; inf where shapes differ."""
    found = []
    for mine, other in zip(runs[0].outputs, runs[1].outputs, strict=False):
        if mine.shape != other.shape or not np.array_equal(np.isfinite(mine), np.isfinite(other)):
            found.append(float("inf"))
            continue
        scale = float(np.abs(mine).max(initial=0.0))
        found.append(float(np.abs(mine - other).max(initial=0.0)) / (scale or 1.0))
    return found


def _measured(runs: tuple[Run, Run]) -> str:
    differences = relative_differences(runs)
    if not differences:
        return "one of the models returns no tensor"
    return f"in float64 the outputs differ by {max(differences):.2g} relative, {LIMIT:g} is allowed"
