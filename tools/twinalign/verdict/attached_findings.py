"""What differs first between two attached trainers in the order of execution, and why."""

from collections.abc import Mapping, Sequence
from typing import Any

from twinalign.verdict.attached_causes import find_causes
from twinalign.verdict.attached_evidence import Sides, cause_of
from twinalign.verdict.attached_steps import Name, Pair, in_order
from twinalign.verdict.results import DIVERGED, Comparison, TensorVerdict, whole

_ALIKE = 1e-3
"""Relative difference of the ratios of losses that are one ratio."""


def _places(pair: Pair) -> dict[str, tuple[int, float]]:
    """Where each tensor stands in the order of execution; what the port alone has, behind what is before it there."""
    places: dict[str, tuple[int, float]] = {}
    for one, other in zip(pair.reference, pair.port, strict=True):
        places |= {f"step{one.number}.{name}": (one.number, place) for place, name in enumerate(in_order(one))}
        last = -1.0
        for name in in_order(other):
            last = places.setdefault(f"step{one.number}.{name}", (one.number, last + 1e-6))[1]
    return places


def _of_backward(first: Mapping[str, Any], tensors: Sequence[TensorVerdict]) -> list[dict[str, Any]]:
    """Gradients that differ on equal outputs and losses."""
    start = f"step{first['step']}.{first['quantity']}."
    gradients = {t.name.removeprefix(start): t.verdict == DIVERGED for t in tensors if t.name.startswith(start)}
    wrong, right = ([name for name, found in gradients.items() if found is differs] for differs in (True, False))
    text = f"gradients of {len(wrong)} parameters differ on equal outputs and losses, {wrong[0]} first"
    text += f"; those of {len(right)} parameters agree, {right[0]} first" if right else ""
    return [cause_of("backward", first["step"], first["quantity"], text, parameters=wrong)]


def _unnamed(first: Mapping[str, Any], tensors: Sequence[TensorVerdict], pair: Pair) -> list[dict[str, Any]]:
    """What differs on equal inputs where no cause with a name is proven: the model's results, or its loss."""
    if first["quantity"] in ("output", "layer"):
        text = f"{first['name']} differs on equal weights and batches: the model computes something else (layers=)"
        return [cause_of("model", first["step"], "output", text)]
    if first["quantity"] in ("first_gradient", "unclipped", "gradient"):
        return _of_backward(first, tensors)
    if first["quantity"] != "loss":
        return []
    ratios = [
        ours / theirs
        for one, other in zip(pair.reference, pair.port, strict=True)
        for theirs, ours in zip(one.losses, other.losses, strict=False)
        if theirs and one.number == first["step"]
    ]
    alike = ratios and max(ratios) - min(ratios) <= _ALIKE * abs(ratios[0]) and len(ratios) > 1
    name = first["name"]
    text = f"{name} differs on equal outputs of the model: the loss computes something else"
    if ratios and not alike:
        text = (
            f"{name} is {ratios[0]:.6g} times the reference's, on equal outputs of the model: the loss computes "
            "something else"
        )
    elif ratios:
        text = (
            f"{name} is {ratios[0]:.6g} times the reference's in every backward pass, on equal outputs of the model: "
            "the loss computes something else"
        )
    return [cause_of("loss", first["step"], "loss", text, ratios=ratios)]


def findings(comparison: Comparison, pair: Pair, noise: str) -> dict[str, Any]:
    """What `Comparison.attached` holds: verdicts by step and quantity, what differs first, and the causes.

    Args:
        comparison: all tensors with their verdicts.
        pair: the steps that they are of.
        noise: what measured rounding, in words.
    """
    by_step: dict[int, dict[str, list[TensorVerdict]]] = {}
    first: dict[str, Any] | None = None
    places = _places(pair)
    for tensor in sorted(comparison.tensors, key=lambda tensor: places.get(tensor.name, (0, 0.0))):
        head, _, rest = tensor.name.partition(".")
        number, quantity = int(head.removeprefix("step")), Name.of(rest).quantity
        by_step.setdefault(number, {}).setdefault(quantity, []).append(tensor)
        if first is None and tensor.verdict == DIVERGED and not tensor.accepted:
            first = {"step": number, "quantity": quantity, "name": tensor.name, "reason": tensor.reason}
    steps = []
    for number, quantities in by_step.items():
        rows = []
        for quantity, tensors in quantities.items():
            verdict = whole(tensors)
            wrong = [tensor for tensor in tensors if tensor.verdict == DIVERGED and not tensor.accepted]
            row = {"quantity": quantity, "verdict": verdict, "tensors": len(tensors), "diverged": len(wrong)}
            alone = quantity in ("setting", "updated", "updated_state", "input", "labels")
            is_first = first is not None and bool(wrong) and wrong[0].name == first["name"]
            row["inherits"] = (
                bool(wrong) and not is_first and not (alone and wrong[0].basis in ("float64", "exact", "tolerance"))
            )
            rows.append(row)
        steps.append({"step": number, "quantities": rows})
    numbers = pair.recordings[0].numbers, pair.recordings[1].numbers
    causes = find_causes(Sides(pair.reference, pair.port, numbers))
    if first and not any(one["step"] <= first["step"] for one in causes):
        causes = [*_unnamed(first, comparison.tensors, pair), *causes]
    return {"first": first, "causes": causes if first or causes else [], "steps": steps, "noise": noise}
