"""Finds wrong optimizers and wrong schedules, each judged alone.

Both sides take the same steps in float64, from the reference's initial parameters and with the reference's gradients.
The optimizer is judged at the reference's learning rates, so that a wrong schedule does not count against it.
"""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.causes.optimizer.schedule import explain_schedule
from twinalign.causes.optimizer.subject import explain_steps
from twinalign.files.recordings import Recording
from twinalign.replay.mended_components import schedule_mended, steps_mended
from twinalign.replay.optimizer import (
    OTHER_SIZES,
    RATE_TOLERANCE,
    STAGE,
    differing_quantities,
    record_schedule,
    record_steps,
    values_in_steps,
    wrong_values,
)
from twinalign.search.components import ComponentContext, Mended
from twinalign.search.faults import Fault
from twinalign.sides import SIDES
from twinalign.verdict.rates_elsewhere import factor_of_rates

OPTIMIZER = "optimizer"
SCHEDULE = "schedule"
_MOST_LISTED = 200


def locate_optimizer(context: ComponentContext) -> list[Fault]:
    """Faults of the optimizer (component `optimizer`) and of scheduled values (component `schedule`)."""
    if STAGE not in context.stages:
        return []
    weights = context.weights[STAGE]
    found = {side: process.call(record_schedule, weights=weights[side]) for side, process in context.processes.items()}
    factor = _wrong_factor(found)  # which may take it out of the port's rates
    off = _off_by(found) if context.gradients else None
    wrong_group = None
    if off is not None:
        arrays, _, taken = _taken_steps(context, off)
        differing = differing_quantities(arrays["ref"], arrays["paddle"])
        if not differing:  # the port has the rest of the rate elsewhere, such as inside of its step
            return _locate_schedule(context, _with_right_rates(found), False)
        wrong_group = _factor_of_one_group(found, off, differing, taken["paddle"]["parameters"])
    if wrong_group is not None:
        factor, found = wrong_group, _with_right_rates(found)
    faults = _locate_schedule(context, found, wrong_group is None and factor == 1.0)
    return faults + (_locate_steps(context, factor) if context.gradients else [])


def _off_by(found: Mapping[str, Any]) -> float | None:
    """What the port's rates are the reference's times, in all steps that both answer for; as `factor_of_rates`."""
    theirs, ours = (found[side]["values"].get("learning_rate", []) for side in SIDES)
    steps = min(len(theirs), len(ours))
    return factor_of_rates(theirs[:steps], ours[:steps])


def _with_right_rates(found: Mapping[str, Any]) -> dict[str, Any]:
    """What was recorded, the port's with the reference's rates."""
    right = {"learning_rate": found["ref"]["values"]["learning_rate"]}
    return {**found, "paddle": {**found["paddle"], "values": {**found["paddle"]["values"], **right}}}


def _factor_of_one_group(
    found: Mapping[str, Any], off: float, differing: Mapping[str, float], parameters: Sequence[str]
) -> float | None:
    """By how much the rate of the port's first group is off where the rates of others are right; else None.

    Then the factor of this group is wrong and not the rate that all groups multiply.

    Args:
        off: of `_off_by`.
        differing: what differs after steps at rates that are off by that.
    """
    wrong = {key.split(".", 2)[2] for key in differing if ".update." in key}
    return off if found["paddle"]["factor"] != 1.0 and set(parameters) - wrong else None


def _wrong_factor(found: dict[str, Any]) -> float:
    """The factor of the port's first group, taken out of its rates, where they are right without it; else 1.

    Then the schedule is right, and the optimizer is not.
    """
    values, factor = found["paddle"]["values"], found["paddle"]["factor"]
    rates = [rate / factor if factor else rate for rate in values["learning_rate"]]
    without = {**values, "learning_rate": rates}
    if "learning_rate" not in wrong_values(found["ref"]["values"], without):
        found["paddle"] |= {"values": without, "initial": found["paddle"]["initial"] / (factor or 1.0)}
        return factor or 1.0
    return 1.0


def _locate_schedule(context: ComponentContext, found: Mapping[str, Any], is_plain: bool) -> list[Fault]:
    """`is_plain`: whether the port's values are as they were recorded."""
    weights = context.weights[STAGE]
    wrong = wrong_values(found["ref"]["values"], found["paddle"]["values"])
    scheduled = bool(found["ref"]["own"])
    faults: dict[str, Fault] = {}
    known: dict[str, str] = {}
    for name in wrong:
        evidence = schedule_evidence(name, found["ref"]["values"], found["paddle"]["values"])
        sequences = _course(*(found[side]["values"].get(name) for side in SIDES))
        explanation = None
        if sequences not in known:  # else it is one value under several names, such as the rates of several groups
            given = {"values": found["ref"]["values"], "names": [name], "weights": weights["paddle"]}
            component = SCHEDULE if scheduled else OPTIMIZER
            explanation = context.explanation(
                explain_schedule,
                mended=Mended(schedule_mended, component, given, STAGE, "optimizer") if is_plain else None,
                weights=weights["ref"],
                name=name,
                port=found["paddle"]["values"].get(name),
                initial=found["paddle"]["initial"],
            )
            known[sequences] = explanation.id if explanation else name
        key = known[sequences]
        if key in faults:  # one cause for several values
            faults[key].evidence["values"].update(evidence["values"])
        else:
            component = SCHEDULE if scheduled else OPTIMIZER
            if not scheduled:
                # What paddle's optimizer is to be given, whose groups multiply it.
                evidence["reference_optimizer"] = {"lr": found["ref"]["initial"] / (found["paddle"]["factor"] or 1.0)}
            faults[key] = Fault(component, component, "optimizer", explanation, evidence)
    return list(faults.values())


def _course(reference: Sequence[float] | None, port: Sequence[float] | None) -> str:
    """Both sides' values in the reference's own size, so that what goes up and down alike is the same."""
    size = max((abs(value) for value in reference or ()), default=0.0) or 1.0
    return str([None if side is None else [f"{value / size:.9g}" for value in side] for side in (reference, port)])


def schedule_evidence(
    name: str, reference: Mapping[str, Sequence[float]], port: Mapping[str, Sequence[float]]
) -> dict[str, Any]:
    """The first step in which a scheduled value differs, and both sides' values from there on."""
    one, other = list(reference.get(name, ())), list(port.get(name, ()))
    differing = [s for s, (a, b) in enumerate(zip(one, other, strict=False)) if abs(a - b) > RATE_TOLERANCE * abs(a)]
    first = differing[0] if differing else 0
    return {"values": {name: {"first_step": first, "reference": one[first:][:8], "port": other[first:][:8]}}}


def _taken_steps(
    context: ComponentContext, factor: float
) -> tuple[dict[str, Mapping[str, np.ndarray]], dict[str, Path], dict[str, dict[str, Any]]]:
    """What both sides recorded of their steps, the port's at a multiple of the reference's rates."""
    weights = context.weights[STAGE]
    paths = {side: context.folder / f"optimizer_{side}.npy" for side in SIDES}
    given: dict[str, Any] = {"initial": weights["ref"]["path"], "gradients": str(context.gradients)}
    taken: dict[str, dict[str, Any]] = {}
    for side in SIDES:  # the port's steps are taken at the reference's rates
        rates = [rate * factor for rate in taken["ref"]["rates"]] if taken else None
        taken[side] = context.processes[side].call(
            record_steps, weights=weights[side], path=str(paths[side]), rates=rates, **given
        )
    return {side: Recording.load(path).arrays for side, path in paths.items()}, paths, taken


def _locate_steps(context: ComponentContext, factor: float) -> list[Fault]:
    arrays, paths, taken = _taken_steps(context, factor)
    differing = differing_quantities(arrays["ref"], arrays["paddle"])
    if not differing:
        return []
    given = {"initial": context.weights[STAGE]["ref"]["path"], "gradients": str(context.gradients)}
    given |= {"reference": str(paths["ref"]), "weights": context.weights[STAGE]["paddle"]}
    given["rates"] = [rate * factor for rate in taken["ref"]["rates"]]
    other_sizes = context.folder / "optimizer_ref_other_sizes.npy"
    asked = {name: given[name] for name in ("initial", "gradients")} | {"weights": context.weights[STAGE]["ref"]}
    asked |= {"path": str(other_sizes), "rates": taken["ref"]["rates"], "sizes": OTHER_SIZES}
    explanation = context.explanation(
        explain_steps,
        mended=Mended(
            steps_mended,
            OPTIMIZER,
            {**given, "other_sizes": str(other_sizes)},
            STAGE,
            "optimizer",
            prepare=functools.partial(context.processes["ref"].call, record_steps, **asked),
            values=values_in_steps,
            values_given={name: asked[name] for name in ("initial", "gradients", "weights", "rates")},
        ),
        weights=context.weights[STAGE]["ref"],
        gradients=str(context.gradients),
        recordings=[str(paths["ref"]), str(paths["paddle"])],
        rates=taken["ref"]["rates"],
        facts=taken["paddle"]["facts"],
    )
    other_sizes.unlink(missing_ok=True)
    evidence = steps_evidence(differing, arrays["ref"], taken)
    return [Fault(OPTIMIZER, OPTIMIZER, "optimizer", explanation, evidence)]


def steps_evidence(
    differing: Mapping[str, float], reference: Mapping[str, np.ndarray], taken: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Which parameters are updated wrongly, from which step on and by how much, and both optimizers' settings."""
    split = [key.split(".", 2) for key in differing]
    parameters = list(dict.fromkeys(name for _, _, name in split))
    judged = {key.partition(".")[2] for key in reference if key.startswith("start.")}
    # Of what one side alone moves there is no relative difference.
    greatest = max(differing, key=lambda key: (np.isfinite(differing[key]), differing[key]))
    return {
        "parameters": parameters[:_MOST_LISTED],
        "parameters_wrong": len(parameters),
        "parameters_judged": len(judged),
        "quantities": sorted({quantity for _, quantity, _ in split}),
        "first_step": min(int(step) for step, _, _ in split),
        "largest_relative_difference": differing[greatest] if np.isfinite(differing[greatest]) else None,
        "largest_at": greatest,
        "not_judged": taken["paddle"]["unnamed"],
        "reference_optimizer": taken["ref"]["facts"],
        "port_optimizer": taken["paddle"]["facts"],
    }
