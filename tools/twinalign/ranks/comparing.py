"""The verdict on what several ranks recorded, from the verdict on each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from twinalign.ranks.recordings import prefix_of
from twinalign.verdict.classic import Classic
from twinalign.verdict.results import DIVERGED, INCONCLUSIVE, Comparison, TensorVerdict, whole


def join_comparisons(of_ranks: Sequence[Comparison]) -> Comparison:
    """One comparison of all ranks: each tensor's name begins with its rank, and a note says which ranks diverged.

    Horizons, trained weights and outcomes of a training are those of rank 0; the tensors are those of all.
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

    Ranks compute the same function of other samples, and so round alike: a scalar whose rounding happens to be small
    on one rank is measured better by all of them.

    Args:
        of_ranks: the reference's arrays of each rank, in the judged precision and in float64.
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
        tensors = [tensor for tensor in of_ranks[rank].tensors if _decides(tensor)]
        count = f"{len(tensors)} of {len(of_ranks[rank].tensors)} tensors"
        said.append(f"rank {rank}: {count}, {tensors[0].name} first")
    right = [str(rank) for rank in range(len(of_ranks)) if rank not in wrong]
    rest = f"; aligned on rank {', '.join(right)}" if right else ""
    return [f"not aligned on {len(wrong)} of {len(of_ranks)} ranks: {'; '.join(said)}{rest}"]


def _decides(tensor: TensorVerdict) -> bool:
    return tensor.verdict in (DIVERGED, INCONCLUSIVE) and tensor.accepted is None


def _join_classic(of_ranks: Sequence[Classic]) -> Classic:
    """reprod_log's lines of all ranks, names with their rank, and its last line once."""
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
