"""The verdict on one stage from its recordings, rank by rank where several made them.

A reviewer's `twinalign verify` judges by this and runs nothing, so that this module imports nothing of a run.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from twinalign.case_allowances import allowances_for
from twinalign.errors import InputError
from twinalign.jobs import SIDES, judged_precision
from twinalign.ranks.comparing import join_comparisons, rounding_over_ranks
from twinalign.ranks.recordings import common_ranks, split_ranks
from twinalign.recording import PROJECTIONS_SUFFIX, Recording, sample_positions
from twinalign.training_verdict import compare_training
from twinalign.verdict import Described, compare_arrays
from twinalign.verdict.chunks import index_of as flat_index
from twinalign.verdict.draws import draws_of
from twinalign.verdict.results import DIVERGED, TensorVerdict

if TYPE_CHECKING:
    from twinalign.runner import Recorder
    from twinalign.verdict import Comparison


@dataclasses.dataclass
class StageRecordings:
    """The two or four recordings of one stage, by (side, dtype)."""

    by_key: dict[tuple[str, str], Recording]
    repeat: Recording | None = None
    """The reference in float32 from values moved by one unit in the last place, where its float64 is not to be had."""
    between: Callable[[], None] = lambda: None
    """Called now and then on the way through the arrays: what was read of a mapped file can be given back."""

    @classmethod
    def load(cls, recorder: Recorder, stage: str) -> StageRecordings:
        """Read what the recorder has made of a stage."""
        failed = [side for side in SIDES if (side, stage) in recorder.without_float64]
        keys = [(side, dtype) for side in SIDES for dtype in recorder.dtypes_of(stage)]
        found = {
            (side, dtype): Recording.load(recorder.recording_path(side, stage, dtype))
            for side, dtype in keys
            if dtype != "float64" or side not in failed
        }
        arbiter = found.get(("ref", "float64"))
        casts = arbiter is not None and arbiter.metadata.get("casts_to_float32")
        wanted = stage != "train" and ("ref" in failed or (casts and recorder.repeat_path(stage).exists()))
        return cls(found, Recording.load(recorder.repeat_path(stage)) if wanted else None)

    @property
    def ranks(self) -> int:
        """How many ranks made them; raises InputError where not all were made by as many, or an array is of none."""
        recordings = [*self.by_key.values(), *([self.repeat] if self.repeat else [])]
        return common_ranks(recordings)

    def of_ranks(self) -> list[StageRecordings]:
        """What each of several ranks recorded."""
        split = {key: split_ranks(recording) for key, recording in self.by_key.items()}
        repeats = split_ranks(self.repeat) if self.repeat else [None] * self.ranks
        return [
            StageRecordings({key: of_ranks[rank] for key, of_ranks in split.items()}, repeat, self.between)
            for rank, repeat in enumerate(repeats)
        ]

    def arrays(self, side: str, dtype: str) -> dict[str, np.ndarray] | None:
        """Arrays of a side in a precision, None where it was not recorded."""
        recording = self.by_key.get((side, dtype))
        return recording.arrays if recording else None

    @property
    def judged_dtype(self) -> str:
        """The precision that is judged: float32 or a half precision, unless float64 alone was asked for."""
        return judged_precision(self.by_key)

    def metadata(self, side: str) -> dict[str, Any]:
        """Metadata of a side in the judged precision."""
        return self.by_key[side, self.judged_dtype].metadata

    @property
    def casts_to_float32(self) -> int:
        """How often the reference's float64 run computes in float32."""
        arbiter = self.by_key.get(("ref", "float64"))
        return arbiter.metadata.get("casts_to_float32", 0) if arbiter else 0

    def environment(self) -> dict[str, Any]:
        """Both sides' environments."""
        return {side: self.metadata(side).get("environment", {}) for side in SIDES}

    def sampled_shapes(self) -> dict[str, tuple[list[int], list[int]]]:
        """Name -> shape on either side of the whole tensor, where both have recorded a sample of it."""
        first, second = (self.metadata(side).get("sampled", {}) for side in SIDES)
        return {name: (entry["shape"], second[name]["shape"]) for name, entry in first.items() if name in second}

    def input_differences(self) -> list[str]:
        """Steps whose inputs were not the same on both sides, which would make any verdict worthless."""
        hashes = [self.metadata(side).get("inputs_sha256", {}) for side in SIDES]
        return [step for step in hashes[0] if hashes[1].get(step, hashes[0][step]) != hashes[0][step]]


def compare_stage(stage: str, recordings: StageRecordings, description: Mapping[str, Any]) -> Comparison:
    """Judge one stage from its recordings, rank by rank where several made them.

    Raises:
        InputError: the recordings were made by different numbers of ranks.
    """
    try:
        ranks = recordings.ranks
    except InputError as error:
        raise InputError(f"stage {stage}: {error}") from None
    if ranks == 1:
        return _compare(stage, recordings, description)
    of_ranks = recordings.of_ranks()
    dtype = recordings.judged_dtype
    rounding = rounding_over_ranks([(one.arrays("ref", dtype), one.arrays("ref", "float64")) for one in of_ranks])
    return join_comparisons([_compare(stage, one, description, rounding) for one in of_ranks])


def _compare(
    stage: str,
    recordings: StageRecordings,
    description: Mapping[str, Any],
    known_rounding: Mapping[str, float] | None = None,
) -> Comparison:
    dtype = recordings.judged_dtype
    reference, reproduced = recordings.arrays("ref", dtype), recordings.arrays("paddle", dtype)
    assert reference is not None
    assert reproduced is not None
    if stage == "train":
        high, other = (recordings.arrays(side, "float64") if dtype != "float64" else None for side in SIDES)
        named = allowances_for(stage, recordings.metadata("paddle"), description)
        return compare_training(reference, reproduced, high, other, dtype, named)
    comparison = _judge(stage, recordings, description, dtype != "float64", known_rounding)
    casts = recordings.repeat and recordings.casts_to_float32
    if comparison.verdict == DIVERGED and casts:
        # What the model itself rounds to float32 is no float64 to judge by.
        comparison = _judge(stage, recordings, description, False)
        comparison.notes.append(
            f"the reference computes in float32 in {casts} places of its float64 run, so that float32 alone is judged"
        )
    for name, (shape, ported) in recordings.sampled_shapes().items():
        if shape != ported:  # samples of both are equally long, whatever they are samples of
            reason = f"shape {shape} against {ported}"
            comparison.tensors.insert(0, TensorVerdict(f"shape of {name}", DIVERGED, reason, basis="structure"))
            comparison.verdict = DIVERGED
    for step in recordings.input_differences():
        reason = "inputs(rng) gave each side other arrays: it must depend on rng alone"
        if "rank" in recordings.metadata("ref"):
            reason = "this rank has other samples on each side: share() must depend on its arguments alone"
        comparison.tensors.insert(0, TensorVerdict(f"inputs of step {step}", DIVERGED, reason, basis="structure"))
        comparison.verdict = DIVERGED
    return comparison


def _judge(
    stage: str,
    recordings: StageRecordings,
    description: Mapping[str, Any],
    with_float64: bool,
    known_rounding: Mapping[str, float] | None = None,
) -> Comparison:
    dtype = recordings.judged_dtype
    changed_by_draws, notes = draws_of(recordings.metadata("ref"), recordings.metadata("paddle"))
    high = [recordings.arrays(side, "float64") if with_float64 else None for side in SIDES]
    comparison = compare_arrays(
        recordings.arrays("ref", dtype) or {},
        recordings.arrays("paddle", dtype) or {},
        reference64=high[0],
        reproduced64=high[1],
        reference_repeat=recordings.repeat.arrays if recordings.repeat else None,
        repeats=recordings.metadata("ref").get("repeats"),
        changed_by_draws=changed_by_draws,
        accept=description.get("accept", ()),
        allowances=allowances_for(stage, recordings.metadata("paddle"), description),
        known_rounding=known_rounding,
        described=described_samples(recordings.metadata("ref")),
        between=recordings.between,
    )
    comparison.notes += notes
    return comparison


def described_samples(metadata: Mapping[str, Any]) -> dict[str, Described]:
    """What the sampled names of a recording stand for."""
    return {
        name: _describe(tuple(entry["shape"]))
        for name, entry in metadata.get("sampled", {}).items()
        if not name.endswith(PROJECTIONS_SUFFIX)
    }


def _describe(shape: tuple[int, ...]) -> Described:
    size = math.prod(shape)

    def index_of(position: int) -> tuple[int, ...]:
        return flat_index(int(sample_positions(size)[position]), shape)

    return Described(shape, index_of)
