"""Why the steps of trainers with several models differ: which a step calls, reaches by gradients and updates."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from twinalign.verdict.attached_evidence import Sides, alike, cause_of, norm
from twinalign.verdict.attached_steps import Step

_VANISHES = 1e-5
"""Of the norm of all gradients: a smaller one may be rounding of a sum that cancels, which the other side has as 0."""


def optimizers_order(sides: Sides) -> Iterator[dict[str, Any]]:
    """The optimizers step in another order, or another number of times."""
    for reference, port in sides.steps():
        if reference.settings and port.settings and not set(reference.settings) & set(port.settings):
            text = (
                f"update {reference.number} of the training is of {_shown(port.settings)} in the port, of "
                f"{_shown(reference.settings)} in the reference: the optimizers step in another order or number"
            )
            yield cause_of("optimizers_order", reference.number, "updated", text)


def _shown(settings: dict[str, Any]) -> str:
    models = list(dict.fromkeys(name.rpartition(":")[0] for name in settings))
    return ", ".join(filter(None, models)) or f"{next(iter(settings))} and {len(settings) - 1} more"


def calls(sides: Sides) -> Iterator[dict[str, Any]]:
    """A step calls a model another number of times."""
    for reference, port in sides.steps():
        counts = [Counter(call["model"] for call in step.calls) for step in (reference, port)]
        same_passes = len(reference.losses) == len(
            port.losses
        )  # another number of micro-batches has a cause of its own
        wrong = [model for model in {**counts[0], **counts[1]} if counts[0][model] != counts[1][model]]
        if wrong and same_passes:
            theirs, ours = (count[wrong[0]] for count in counts)
            text = f"a step makes {ours} calls in the port, {theirs} in the reference"
            text = (
                f"a step makes {ours} calls of {wrong[0]} in the port, {theirs} in the reference" if wrong[0] else text
            )
            yield cause_of("model_calls", reference.number, "output", text)


def arguments(sides: Sides) -> Iterator[dict[str, Any]]:
    """A model is not given an argument that the other side's is, and returns something else."""
    for reference, port in sides.steps():
        for call in range(len(reference.calls)):
            given, ours = (step.call_values(call, "input") for step in (reference, port))
            returned = [step.call_values(call, "output") for step in (reference, port)]
            shared = set(given) & set(ours)
            apart = any(not alike(array, returned[1].get(name)) for name, array in returned[0].items())
            if not shared or not apart or not all(alike(given[name], ours[name]) for name in shared):
                continue
            for there, here, whose in ((given, ours, "port"), (ours, given, "reference")):
                missing = ", ".join(name for name in there if name not in here)
                if missing:
                    text = f"call {call}: the {whose}'s model is not given {missing}, and its output differs"
                    yield cause_of("missing_argument", reference.number, "input", text)


def detached(sides: Sides) -> Iterator[dict[str, Any]]:
    """A backward reaches parameters that the other side's does not: an output is not detached."""
    for reference, port in sides.steps():
        reached = [_reached(step) for step in (reference, port)]
        if not reached[0] or not reached[1] or reference.number != sides.reference[0].number:
            return  # later, gradients may be left from other steps
        for more, less, id, whose in ((1, 0, "not_detached", "port"), (0, 1, "detached", "reference")):
            extra = [name for name in reached[more] if name not in reached[less]]
            known = [name for name in extra if name not in reference.settings and name not in port.settings]
            if known:
                text = (
                    f"the {whose}'s backward also gives gradients to {len(known)} parameters that this step does not "
                    f"update, {known[0]} first: what the loss is computed from is not detached there"
                )
                yield cause_of(id, reference.number, "first_gradient", text, parameters=known)
        gradients = reference.named("first_gradient")
        counts = [name for name in reached[0] if norm({name: gradients[name]}) > _VANISHES * norm(gradients)]
        cut = [name for name in counts if name in port.settings and name not in reached[1]]
        if cut:
            text = (
                f"the port's backward gives no gradient to {len(cut)} parameters that it should train, {cut[0]} first: "
                "what they return is detached or not used"
            )
            yield cause_of("no_gradient", reference.number, "first_gradient", text, parameters=cut)


def _reached(step: Step) -> list[str]:
    """Parameters with a gradient; one that is zero may be no more than cleared."""
    return [name for name, array in step.named("first_gradient").items() if np.any(array)]
