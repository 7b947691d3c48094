"""Why the ranks of two attached trainers differ, proven by what all of them recorded; ids as in `causes.ranks`."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from twinalign.verdict.attached_evidence import alike, cause_of, fitted
from twinalign.verdict.attached_steps import Step

Ranks = Sequence[Step]
"""One side's step of one number, by rank."""
_DIFFERENT = 1e-3


def find_rank_causes(reference: Sequence[Ranks], port: Sequence[Ranks]) -> list[dict[str, Any]]:
    """Causes as `attached_causes.find_causes` has them; by step, the steps of all ranks of a side."""
    steps = list(zip(reference, port, strict=True))
    found = [next(look(steps), None) for look in (inputs, weights, gradients, buffers)]
    return [cause for cause in found if cause is not None]


Steps = Sequence[tuple[Ranks, Ranks]]


def _of_kind(step: Step, kind: str) -> dict[str, np.ndarray]:
    return {name: array for name, array in step.arrays.items() if name.startswith("call") and f".{kind}" in name}


def _all_alike(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return bool(one) and all(alike(array, other.get(name)) for name, array in one.items())


def inputs(steps: Steps) -> Iterator[dict[str, Any]]:
    """The ranks get other samples."""
    for theirs, ours in steps:
        of = [[_of_kind(step, "input") for step in ranks] for ranks in (theirs, ours)]
        if all(map(_all_alike, *of)):
            continue
        number = theirs[0].number
        if all(_all_alike(of[1][0], one) for one in of[1][1:]):
            yield cause_of("rank_inputs", number, "input", "every rank of the port has the same batches")
        places = [[s for s, other in enumerate(of[0]) if _all_alike(other, one)][:1] for one in of[1]]
        if all(places):
            said = ", ".join(f"rank {rank} has those of rank {place[0]}" for rank, place in enumerate(places))
            yield cause_of("rank_inputs", number, "input", f"the port's ranks have the batches of others: {said}")
        rows = [sorted(row for one in side for array in one.values() for row in _rows(array)) for side in of]
        if rows[0] and rows[0] == rows[1]:
            text = "the port deals the same samples out to its ranks otherwise"
            yield cause_of("rank_inputs", number, "input", text)


def _rows(array: np.ndarray) -> list[bytes]:
    return [row.tobytes() for row in np.ascontiguousarray(array)] if array.ndim else [array.tobytes()]


def weights(steps: Steps) -> Iterator[dict[str, Any]]:
    """The ranks start from different weights."""
    theirs, ours = ([step.named("weights") for step in ranks] for ranks in steps[0])
    if all(_all_alike(theirs[0], one) for one in theirs[1:]) and not all(_all_alike(ours[0], one) for one in ours[1:]):
        text = "the port's ranks start from different weights, the reference's from equal ones"
        yield cause_of("rank_weights", steps[0][0][0].number, "weights", text)


def gradients(steps: Steps) -> Iterator[dict[str, Any]]:
    """Gradients are not averaged over the ranks."""
    for theirs, ours in steps:
        kind = "unclipped" if theirs[0].named("unclipped") else "gradient"
        wanted, found = theirs[0].named(kind), [step.named(kind) for step in ours]
        if not wanted or any(set(wanted) - set(one) for one in found) or all(_all_alike(wanted, one) for one in found):
            continue
        mean = {name: np.asarray(np.mean([one[name] for one in found], axis=0, dtype=np.float64)) for name in wanted}
        apart = not all(_all_alike(found[0], one) for one in found[1:])
        for factor, said in ((1.0, "each rank's own"), (len(ours), "summed"), (1 / len(ours), "divided once more")):
            of_factor = {name: array * factor for name, array in wanted.items()}
            if apart == (factor == 1.0) and _nearly_all_alike(of_factor, mean):
                text = f"the port's gradients are not averaged over the ranks, but {said}"
                yield cause_of("rank_gradient_average", theirs[0].number, kind, text, factor=factor)


def _nearly_all_alike(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    """Of gradients, some vanish and are rounding alone."""
    return sum(alike(array, other[name], _DIFFERENT) for name, array in one.items()) > 0.75 * len(one)


def buffers(steps: Steps) -> Iterator[dict[str, Any]]:
    """One side's ranks take rank 0's buffers before each step, the other's keep their own."""
    for before, now in itertools.pairwise(steps):
        for taker, keeper, whose in ((0, 1, "reference"), (1, 0, "port")):
            for rank in range(1, len(now[0])):
                kept, taken = (now[side][rank].named("buffer") for side in (keeper, taker))
                old, of_first = before[keeper][rank].named("buffer"), before[taker][0].named("buffer")
                for name in (name for name in kept if name in taken and not alike(kept[name], taken[name], _DIFFERENT)):
                    if name in old and name in of_first:
                        share = fitted([old[name] - of_first[name]], kept[name] - taken[name])
                        if share is not None and 0 < share[0] <= 1:
                            text = (
                                f"the {whose}'s ranks begin each step with rank 0's buffers, the other side's keep "
                                f"their own (broadcast_buffers of DistributedDataParallel): {name}"
                            )
                            yield cause_of("rank_buffers", now[0][0].number, "buffer", text)
