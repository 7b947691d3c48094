"""What causes of a difference between attached trainers are proven with."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.verdict.array_difference import distance, root_mean_square
from twinalign.verdict.attached_steps import Step

_CLOSE = 1e-4
"""Relative difference below which two recorded numbers of float32 trainers count as the same."""

Numbers = Sequence[Mapping[str, Any]]
Recomputed = Callable[..., float | None]


@dataclasses.dataclass
class Sides:
    """What causes are looked for in."""

    reference: Sequence[Step]
    port: Sequence[Step]
    numbers: tuple[Numbers, Numbers]
    recomputed: Recomputed
    moved_since: Callable[[Step, Step], list[str]]

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
