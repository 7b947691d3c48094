"""Finds what is wrong in code that `Case.observe` alone reaches, such as a recurrent mode or a decoding function.

The search through the layers follows `Case.forward`. Where it finds nothing wrong, what the case observes runs as a
whole on both sides, and a fault is told if lines of the port are proven to be its cause.
"""

from typing import Any

import numpy as np

from twinalign.causes.observed import explain_observed
from twinalign.replay.mended_components import observed_mended
from twinalign.replay.observed import CONSTANTS, STAGE, record_observed
from twinalign.replay.training import floors_of, read_curves
from twinalign.search.components import ComponentContext, Mended
from twinalign.search.faults import Fault
from twinalign.sides import SIDES
from twinalign.verdict.array_difference import difference, distance, root_mean_square


def locate_observed(context: ComponentContext) -> list[Fault]:
    """The fault of what the case observes (it stands for the model's own code), if its cause is proven."""
    if context.is_wrong_before or STAGE not in context.weights:
        return []
    weights = context.weights[STAGE]
    paths = {side: context.folder / f"observed_{side}.npz" for side in SIDES}
    for side in SIDES:
        given: dict[str, Any] = {"repeat": True} if side == "ref" else {}
        answer = context.processes[side].call(record_observed, weights=weights[side], path=str(paths[side]), **given)
        if not answer["observes"]:
            return []
    wrong = _differing(*(read_curves(path) for path in paths.values()))
    explanation = None
    if wrong:
        given = {"reference": str(paths["ref"]), "port": str(paths["paddle"]), "weights": weights["ref"]}
        names = sorted({name.partition(".")[2] for name in wrong})
        mended = Mended(
            observed_mended, "", {"reference": str(paths["ref"]), "weights": weights["paddle"], "names": names}
        )
        explanation = context.explanation(explain_observed, mended=mended, **given)
    for path in paths.values():
        path.unlink(missing_ok=True)
    where = f"{', '.join(dict.fromkeys(name.partition('.')[2] for name in wrong))}, which observe returns"
    evidence = {"values": wrong, "where": where}
    return [Fault("", "", "forward", explanation, evidence)] if explanation is not None else []


def _differing(reference: Any, port: Any) -> dict[str, Any]:
    """`DRAW.NAME` → how far it differs, of what differs by more than rounding; arrays of other shapes are left out."""
    (theirs, moved), (ours, _) = reference, port
    floors, found = floors_of(theirs, moved), {}
    for name in [name for name in theirs if name in ours and ours[name].shape == theirs[name].shape]:
        if distance(theirs[name], ours[name]) > max(floors[name], CONSTANTS * root_mean_square(theirs[name])):
            greatest = float(np.abs(theirs[name] - ours[name]).max(initial=0.0))
            found[name] = {"relative": difference(ours[name], theirs[name]).relative, "max_abs": greatest, "text": ""}
    return found
