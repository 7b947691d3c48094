"""The verdict on what several ranks recorded, from the verdict on each."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

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
