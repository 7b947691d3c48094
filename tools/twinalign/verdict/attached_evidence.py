"""What causes of a difference between attached trainers are proven with."""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.verdict.array_difference import distance, root_mean_square
from twinalign.verdict.attached_steps import Name, Step
from twinalign.verdict.optimizer_formula import left_over, updated
from twinalign.verdict.precisions import epsilon_of

_CLOSE = 1e-4
"""Relative difference below which two recorded numbers of float32 trainers count as the same."""

Numbers = Sequence[Mapping[str, Any]]


@dataclasses.dataclass
class Sides:
    """What causes are looked for in."""

    reference: Sequence[Step]
    port: Sequence[Step]
    numbers: tuple[Numbers, Numbers]

    def steps(self) -> Iterator[tuple[Step, Step]]:
        return zip(self.reference, self.port, strict=True)

    def following(self) -> Iterator[tuple[tuple[Step, Step], tuple[Step, Step]]]:
        """Each recorded step with the recorded one right before it."""
        pairs = list(self.steps())
        return ((then, now) for then, now in itertools.pairwise(pairs) if then[0].number + 1 == now[0].number)


def cause_of(id: str, step: int, quantity: str, text: str, **evidence: Any) -> dict[str, Any]:
    """A cause as JSON."""
    return {"id": id, "step": step, "quantity": quantity, "text": text, "evidence": evidence}


def same(one: float, other: float, tolerance: float = _CLOSE) -> bool:
    """Whether two numbers are the same up to rounding."""
    return math.isclose(one, other, rel_tol=tolerance, abs_tol=1e-30)


def alike(one: np.ndarray | None, other: np.ndarray | None, tolerance: float = _CLOSE) -> bool:
    """Whether two arrays of one shape are the same up to rounding, by their root mean square."""
    return one is not None and other is not None and distance(one, other) <= tolerance * root_mean_square(one) + 1e-30


def norm(arrays: Mapping[str, np.ndarray]) -> float:
    """Euclidean norm of all arrays together."""
    return math.sqrt(sum(float(np.sum(np.square(array.astype(np.float64)))) for array in arrays.values()))


def fitted(terms: Sequence[np.ndarray], wanted: np.ndarray, left: float = 1e-2) -> np.ndarray | None:
    """The factors with which the terms add up to an array; None where they leave more than a share of it."""
    columns = np.stack([term.astype(np.float64).reshape(-1) for term in terms], 1)
    target = wanted.astype(np.float64).reshape(-1)
    if len(target) <= len(terms):
        return None
    factors = np.linalg.lstsq(columns, target, rcond=None)[0]
    apart = np.linalg.norm(columns @ factors - target)
    return factors if apart <= left * np.linalg.norm(target) else None


def moved_since(then: Step, now: Step) -> list[str]:
    """Parameters that something moved after the end of a step and before the next one's update."""
    after = then.named("updated")
    return [
        name for name, array in now.named("weights").items() if name in after and not np.array_equal(array, after[name])
    ]


def recomputed(side: Step, settings_of: Step, name: Name, **changed: Any) -> float | None:
    """How far a side's update is from the formula's, over rounding; None where something is missing.

    `settings_of`: the step whose settings the formula takes, with those `changed`.
    """
    parameter = name.rest
    weights, gradient = side.arrays.get(f"weights.{parameter}"), side.arrays.get(f"gradient.{parameter}")
    settings = settings_of.settings.get(parameter)
    label = "updated" if name.quantity == "updated" else name.state
    found = side.arrays.get(f"updated.{parameter}" if label == "updated" else f"updated_state.{label}.{parameter}")
    if weights is None or gradient is None or settings is None or found is None or f"master.{parameter}" in side.arrays:
        return None
    states = {key: side.named("state", key).get(parameter) for key in ("moment1", "moment2", "velocity")}
    state = {key: array for key, array in states.items() if array is not None}
    made = updated(weights, gradient, state, {**settings, **changed}, int(side.facts.get("steps_made", 0)))
    if made is None or label not in made:
        return None
    before = weights if label == "updated" else state.get(label, np.zeros(weights.shape))
    kind = side.dtype(f"updated.{parameter}") if label == "updated" else str(found.dtype)
    epsilon = 2.0**-7 if kind == "bfloat16" else epsilon_of(np.dtype(kind))
    return left_over(made[label], found, before, epsilon)
