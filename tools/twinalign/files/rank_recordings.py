"""One recording of what several ranks recorded; names begin with `rank0.`, `rank1.`, and so on."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.errors import InputError
from twinalign.files.recordings import Recording, metadata_path

RANKED_STAGES = ("loss", "backward", "train")
"""Stages in which ranks have something to do with each other."""
_OF_ONE_ALONE = ("inputs_sha256", "repeats", "changed_by_draws")
_OF_A_RANK = (*_OF_ONE_ALONE, "seconds", "casts_to_float32", "recorded_at", "peak_memory_bytes", "draws")
"""Metadata that ranks may differ in."""


def is_ranked(stage: str, ranks: int) -> bool:
    """Whether `ranks` processes record a stage together."""
    return ranks > 1 and stage in RANKED_STAGES


def prefix_of(rank: int) -> str:
    """The prefix of the names that a rank recorded."""
    return f"rank{rank}."


@contextlib.contextmanager
def join_ranks(path: Path, ranks: int) -> Iterator[None]:
    """After the block, join the ranks' recordings beside `path` into one at `path`, and remove them."""
    try:
        yield
        _join([Recording.load(rank_path(path, rank)) for rank in range(ranks)]).save(path)
    finally:
        for rank in range(ranks):
            for file in (rank_path(path, rank), metadata_path(rank_path(path, rank))):
                file.unlink(missing_ok=True)


def _join(parts: Sequence[Recording]) -> Recording:
    arrays: dict[str, np.ndarray] = {}
    sampled: dict[str, Any] = {}
    for rank, part in enumerate(parts):
        arrays |= {prefix_of(rank) + name: array for name, array in part.arrays.items()}
        sampled |= {prefix_of(rank) + name: entry for name, entry in part.metadata.get("sampled", {}).items()}
    of_one = (*_OF_ONE_ALONE, "sampled")
    metadata = {name: value for name, value in parts[0].metadata.items() if name not in of_one}
    metadata |= {
        "ranks": [{name: part.metadata[name] for name in _OF_A_RANK if name in part.metadata} for part in parts],
        "seconds": max(part.metadata.get("seconds", 0.0) for part in parts),
        "casts_to_float32": max(part.metadata.get("casts_to_float32", 0) for part in parts),
        "peak_memory_bytes": sum(part.metadata.get("peak_memory_bytes", 0) for part in parts),
    }
    return Recording(arrays, metadata | ({"sampled": sampled} if sampled else {}))


def common_ranks(recordings: Iterable[Recording]) -> int:
    """The number of ranks that made each of these recordings.

    Raises:
        InputError: the numbers differ, or a recording has an array that belongs to no rank.
    """
    counts = set()
    for recording in recordings:
        ranks = len(recording.metadata.get("ranks", ())) or 1
        counts.add(ranks)
        known = {prefix_of(rank) for rank in range(ranks)}
        stray = [name for name in recording.arrays if ranks > 1 and _prefix_in(name) not in known]
        if stray:
            raise InputError(f"{stray[0]} belongs to no rank; {ranks} ranks recorded it")
    if len(counts) > 1:
        raise InputError(f"recorded by {' and by '.join(map(str, sorted(counts)))} ranks; record it anew")
    return counts.pop()


def split_ranks(recording: Recording) -> list[Recording]:
    """The recording of each rank, under its own names."""
    common = {name: value for name, value in recording.metadata.items() if name not in ("ranks", "sampled")}
    arrays, sampled = _by_prefix(recording.arrays), _by_prefix(recording.metadata.get("sampled", {}))
    found = []
    for rank, own in enumerate(recording.metadata["ranks"]):
        prefix = prefix_of(rank)
        metadata = {**common, "rank": rank, **own, "sampled": sampled.get(prefix, {})}
        found.append(Recording(arrays.get(prefix, {}), metadata))
    return found


def _prefix_in(name: str) -> str:
    head, point, _ = name.partition(".")
    return head + point


def _by_prefix(named: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Prefix -> values by the rest of their names; in one pass, because there may be thousands of ranks."""
    found: dict[str, dict[str, Any]] = {}
    for name, value in named.items():
        prefix = _prefix_in(name)
        found.setdefault(prefix, {})[name.removeprefix(prefix)] = value
    return found


def arrays_of_rank(arrays: Mapping[str, np.ndarray], rank: int) -> dict[str, np.ndarray]:
    """The arrays of one rank out of those of all, under its own names."""
    prefix = prefix_of(rank)
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def rank_path(path: Path, rank: int) -> Path:
    """The file of one rank, beside the file of all ranks."""
    return path.with_name(f"{path.stem}.rank{rank}{path.suffix}")
