"""The verdict on the recordings of several ranks, from the verdict on each."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from twinalign.files.rank_recordings import prefix_of
from twinalign.verdict.results import DIVERGED, INCONCLUSIVE, Classic, Comparison, whole


def join_comparisons(of_ranks: Sequence[Comparison]) -> Comparison:
    """One comparison of all ranks: tensor names begin with their rank, and a note says which ranks diverged.

    Horizons, trained weights and outcomes of a training are those of rank 0.
    """
    tensors = [
        dataclasses.replace(tensor, name=prefix_of(rank) + tensor.name)
        for rank, comparison in enumerate(of_ranks)
        for tensor in comparison.tensors
    ]
    notes = list(dict.fromkeys(note for comparison in of_ranks for note in comparison.notes))
    classic = _join_classic([comparison.classic for comparison in of_ranks])
    return Comparison(whole(tensors), tensors, classic, _which_ranks(of_ranks) + notes, training=of_ranks[0].training)


def rounding_over_ranks(
    of_ranks: Sequence[tuple[Mapping[str, np.ndarray] | None, Mapping[str, np.ndarray] | None]],
) -> dict[str, float]:
    """Name -> relative rounding of the reference, root mean square over the ranks.

    Ranks apply the same function to different samples, so they round alike: all ranks together measure a scalar's
    rounding better than one. `of_ranks` has each rank's arrays in the judged precision and in float64.
    """
    found: dict[str, list[float]] = {}
    for low, high in of_ranks:
        for name, truth in (high or {}).items():
            array = (low or {}).get(name)
            if array is None or array.shape != truth.shape or truth.dtype.kind != "f" or not truth.size:
                continue
            with np.errstate(all="ignore"):
                scale = float(np.sqrt(np.mean(np.square(truth))))
                apart = float(np.sqrt(np.mean(np.square(array.astype(np.float64) - truth))))
            if scale > 0 and np.isfinite(apart / scale):
                found.setdefault(name, []).append(apart / scale)
    return {name: float(np.sqrt(np.mean(np.square(shares)))) for name, shares in found.items()}


def _which_ranks(of_ranks: Sequence[Comparison]) -> list[str]:
    wrong = [rank for rank, comparison in enumerate(of_ranks) if comparison.verdict in (DIVERGED, INCONCLUSIVE)]
    if not wrong:
        return []
    said = []
    for rank in wrong:
        judged = of_ranks[rank].tensors
        tensors = [t for t in judged if t.verdict in (DIVERGED, INCONCLUSIVE) and t.accepted is None]
        said.append(f"rank {rank}: {len(tensors)} of {len(judged)} tensors, {tensors[0].name} first")
    right = [str(rank) for rank in range(len(of_ranks)) if rank not in wrong]
    rest = f"; aligned on rank {', '.join(right)}" if right else ""
    return [f"not aligned on {len(wrong)} of {len(of_ranks)} ranks: {'; '.join(said)}{rest}"]


def _join_classic(of_ranks: Sequence[Classic]) -> Classic:
    """reprod_log's lines of all ranks with the rank before each name, and its last line once."""
    lines = [
        line if line.startswith("\t") else prefix_of(rank) + line
        for rank, classic in enumerate(of_ranks)
        for line in classic.lines[:-1]
    ]
    passed = all(classic.passed for classic in of_ranks)
    error = next((classic.error for classic in of_ranks if classic.error), None)
    quirks = [prefix_of(rank) + quirk for rank, classic in enumerate(of_ranks) for quirk in classic.quirks]
    lines.append("diff check passed" if passed else "diff check failed")
    return Classic(passed, of_ranks[0].threshold, lines, error, quirks)
