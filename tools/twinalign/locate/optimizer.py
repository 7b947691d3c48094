"""Is the optimizer wrong, or its schedule? Each is judged alone, and every wrong value is looked for a cause.

Both sides take the same steps from the reference's initial parameters on the reference's gradients, in float64; the
optimizer is judged at the reference's learning rates, so that a wrong schedule is not counted against it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from twinalign.explain.optimizer import floors_of
from twinalign.locate.components import ComponentContext, distance, explanation_of, root_mean_square
from twinalign.locate.faults import Fault
from twinalign.locate.optimizer_steps import STAGE, quantities
from twinalign.recording import Recording

if TYPE_CHECKING:
    from twinalign.recorder.process import RecorderProcess

OPTIMIZER = "optimizer"
SCHEDULE = "schedule"
_RATE_TOLERANCE = 1e-6
"""Of the greatest value: what float32 arithmetic may leave of a rate, which schedulers compute in as they please."""
_STEPS = "twinalign.locate.optimizer_steps"
_MOST_LISTED = 200


def locate_optimizer(processes: Mapping[str, RecorderProcess], context: ComponentContext) -> list[Fault]:
    """Faults of the optimizer (component `optimizer`) and of what is scheduled (component `schedule`).

    Args:
        processes: both recorder processes, started.
        context: with the weights of the backward stage and the reference's gradients.
    """
    if STAGE not in context.stages:
        return []
    faults = _locate_schedule(processes, context)
    return faults + (_locate_steps(processes, context) if context.gradients else [])


def _locate_schedule(processes: Mapping[str, RecorderProcess], context: ComponentContext) -> list[Fault]:
    weights = context.weights[STAGE]
    given = {side: {"function": f"{_STEPS}:record_schedule", "weights": weights[side]} for side in processes}
    found = {side: process.request("call", **given[side]) for side, process in processes.items()}
    wrong = wrong_values(found["ref"]["values"], found["paddle"]["values"])
    scheduled = bool(found["ref"]["own"])
    faults: dict[str, Fault] = {}
    for name in wrong:
        explanation = None
        if context.explain:
            explanation = explanation_of(
                processes["ref"],
                "twinalign.explain.optimizer_schedule:explain_schedule",
                weights=weights["ref"],
                name=name,
                port=found["paddle"]["values"].get(name),
                initial=found["paddle"]["initial"],
            )
        key = explanation.id if explanation else name
        evidence = schedule_evidence(name, found["ref"]["values"], found["paddle"]["values"])
        if key in faults:  # one cause for several values
            faults[key].evidence["values"].update(evidence["values"])
        else:
            component = SCHEDULE if scheduled else OPTIMIZER
            faults[key] = Fault(component, component, "optimizer", explanation, evidence)
    return list(faults.values())


def wrong_values(reference: Mapping[str, Sequence[float]], port: Mapping[str, Sequence[float]]) -> list[str]:
    """Names of the values that the schedules set or return differently in a step that both answer for."""
    wrong = [name for name in {**reference, **port} if name not in reference or name not in port]
    for name in reference.keys() & port.keys():
        one, other = (np.asarray(values[: _both(reference, port, name)]) for values in (reference[name], port[name]))
        if not np.allclose(one, other, rtol=_RATE_TOLERANCE, atol=_RATE_TOLERANCE * np.abs(one).max(initial=0.0)):
            wrong.append(name)
    return sorted(wrong, key=lambda name: (name != "learning_rate", name))


def schedule_evidence(
    name: str, reference: Mapping[str, Sequence[float]], port: Mapping[str, Sequence[float]]
) -> dict[str, Any]:
    """The first step in which a scheduled value differs, and both sides' values in the first steps."""
    one, other = list(reference.get(name, ())), list(port.get(name, ()))
    differing = [s for s, (a, b) in enumerate(zip(one, other, strict=False)) if abs(a - b) > _RATE_TOLERANCE * abs(a)]
    first = differing[0] if differing else 0
    return {"values": {name: {"first_step": first, "reference": one[:8], "port": other[:8]}}}


def _both(reference: Mapping[str, Sequence[float]], port: Mapping[str, Sequence[float]], name: str) -> int:
    return min(len(reference[name]), len(port[name]))


def _locate_steps(processes: Mapping[str, RecorderProcess], context: ComponentContext) -> list[Fault]:
    weights = context.weights[STAGE]
    paths = {side: context.folder / f"optimizer_{side}.npy" for side in processes}
    given: dict[str, Any] = {"initial": weights["ref"]["path"], "gradients": str(context.gradients)}
    taken: dict[str, dict[str, Any]] = {}
    for side in ("ref", "paddle"):  # the port's steps are taken at the reference's rates
        rates = taken["ref"]["rates"] if taken else None
        taken[side] = processes[side].request(
            "call",
            function=f"{_STEPS}:record_steps",
            weights=weights[side],
            path=str(paths[side]),
            rates=rates,
            **given,
        )
    arrays = {side: Recording.load(path).arrays for side, path in paths.items()}
    differing = differing_quantities(arrays["ref"], arrays["paddle"])
    if not differing:
        return []
    explanation = None
    if context.explain:
        explanation = explanation_of(
            processes["ref"],
            "twinalign.explain.optimizer:explain_steps",
            weights=weights["ref"],
            gradients=str(context.gradients),
            recordings=[str(paths["ref"]), str(paths["paddle"])],
            rates=taken["ref"]["rates"],
            facts=taken["paddle"]["facts"],
        )
    evidence = steps_evidence(differing, arrays["ref"], taken)
    return [Fault(OPTIMIZER, OPTIMIZER, "optimizer", explanation, evidence)]


def differing_quantities(reference: Mapping[str, np.ndarray], port: Mapping[str, np.ndarray]) -> dict[str, float]:
    """`STEP.QUANTITY.PARAMETER` → difference relative to the reference's own, of what differs beyond rounding.

    State that only one side keeps counts where the other keeps it for other parameters: a framework need not keep
    the state of an optimizer that does not use it.
    """
    compared, other = quantities(reference), quantities(port)
    kept = {key.split(".", 2)[1] for key in other}
    floors = floors_of(compared, reference)
    found = {}
    for key, array in compared.items():
        if key not in other and key.split(".", 2)[1] not in kept:
            continue
        difference = distance(array, other.get(key))
        if difference > floors[key]:
            found[key] = difference / (root_mean_square(array) or 1.0)
    return found


def steps_evidence(
    differing: Mapping[str, float], reference: Mapping[str, np.ndarray], taken: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Which parameters move wrongly, from which step on, by how much, and which optimizers they are."""
    split = [key.split(".", 2) for key in differing]
    parameters = list(dict.fromkeys(name for _, _, name in split))
    judged = {key.partition(".")[2] for key in reference if key.startswith("start.")}
    greatest = max(differing, key=lambda key: differing[key])
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
