"""Prove a conversion by running both models in float64 on the same input."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.convert import conversion
from twinalign.convert.inputs import guess_inputs
from twinalign.convert.plan import Plan, Side, make_plan
from twinalign.convert.process import ModelProcess
from twinalign.convert.trial import DivergedError, Run, Trial, where_they_part
from twinalign.convert.units import units_of
from twinalign.errors import InputError, SideCrashError

LIMIT = 1e-6
"""Largest relative difference in float64 that is no bug: paddle computes some coordinates and slopes in float32."""
_MAXIMUM_FLIPS = 5


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
    models cannot be run on such an input.
    """
    if set(processes) != {"ref", "paddle"}:
        raise InputError("--verify runs both models: give --ref and --paddle")
    reference, paddle = (source, target) if source.framework == "torch" else (target, source)
    units = units_of("torch", reference.layers), units_of("paddle", paddle.layers)
    trial = Trial(processes["ref"], processes["paddle"], guess_inputs(units[0], specifications))
    first: tuple[Run, Run] | None = None
    flips = plan.unproven[:_MAXIMUM_FLIPS]
    usual = {move.target.key: move.pieces[0].transposed != move.transposed for move in plan.moves if move.pieces}
    for decided in itertools.product((False, True), repeat=len(flips)):
        transpose = {key: usual[key] != flipped for key, flipped in zip(flips, decided, strict=True)}
        answers = {**settings.get("transpose", {}), **transpose}
        tried = make_plan(source, target, **{**settings, "transpose": answers}) if any(decided) else plan
        runs = _run(trial, source, tried, arrays)
        first = first or runs
        differences = relative_differences(runs)
        if differences and max(differences) <= LIMIT:
            return tried, {
                "relative_difference": max(differences),
                "outputs": [list(output.shape) for output in runs[0].outputs[: len(differences)]],
                "inputs": [list(shape) for shape in trial.shapes],
                "settled_matrices": transpose,
            }
    assert first is not None
    raise DivergedError(f"{_measured(first)}: {where_they_part(first, *units)}")


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
