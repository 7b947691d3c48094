"""The recordings of one stage by both sides, in every precision and by every rank."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from twinalign.files.rank_recordings import common_ranks, split_ranks
from twinalign.files.recordings import PROJECTIONS_SUFFIX, Recording, read_metadata, sample_positions
from twinalign.sides import SIDES
from twinalign.verdict.array_difference import distance, root_mean_square
from twinalign.verdict.cache_pieces import index_of as flat_index
from twinalign.verdict.results import Described
from twinalign.verdict.tolerances import tolerances_of

if TYPE_CHECKING:
    from twinalign.recorder.recorder import Recorder


@dataclasses.dataclass
class StageRecordings:
    """The two or four recordings of one stage, by (side, dtype)."""

    by_key: dict[tuple[str, str], Recording]
    repeat: Recording | None = None
    """The reference from values changed by last bits, if float64 is not available or float32 alone diverges."""
    between: Callable[[], None] = lambda: None
    """Called from time to time between arrays, so that memory of mapped files can be released."""

    @classmethod
    def load(cls, recorder: Recorder, stage: str) -> StageRecordings:
        """Read the recordings of a stage."""
        failed = [side for side in SIDES if (side, stage) in recorder.without_float64]
        keys = [(side, dtype) for side in SIDES for dtype in recorder.dtypes_of(stage)]
        found = {
            (side, dtype): Recording.load(recorder.recording_path(side, stage, dtype))
            for side, dtype in keys
            if dtype != "float64" or side not in failed
        }
        path, judged = recorder.repeat_path(stage), recorder.dtypes_of(stage)[0]
        is_used = stage != "train" and read_metadata(path).get("dtype") == judged  # or one is left of another run
        return cls(found, Recording.load(path) if is_used else None)

    @property
    def ranks(self) -> int:
        """Number of ranks; raises InputError if recordings differ in it, or an array belongs to none."""
        recordings = [*self.by_key.values(), *([self.repeat] if self.repeat else [])]
        return common_ranks(recordings)

    def of_ranks(self) -> list[StageRecordings]:
        split = {key: split_ranks(recording) for key, recording in self.by_key.items()}
        repeats = split_ranks(self.repeat) if self.repeat else [None] * self.ranks
        return [
            StageRecordings({key: of_ranks[rank] for key, of_ranks in split.items()}, repeat, self.between)
            for rank, repeat in enumerate(repeats)
        ]

    def arrays(self, side: str, dtype: str) -> dict[str, np.ndarray] | None:
        """Arrays of a side in a precision, by the reference's names; None if not recorded."""
        recording = self.by_key.get((side, dtype))
        names = self.paired_by_order() if side == "paddle" else {}
        if recording is None or not names:
            return recording.arrays if recording else None
        return {names.get(name, name): array for name, array in recording.arrays.items()}

    def paired_by_order(self) -> dict[str, str]:
        """The port's name of an output -> the reference's, if the model's outputs have no name in common.

        A library's model returns a dictionary, its port a tuple, say: then the order says what belongs together.
        """
        if self.metadata("ref").get("stage") != "forward":
            return {}
        first, second = (
            [name for name in self.by_key[side, self.judged_dtype].arrays if not name.startswith("buffer.")]
            for side in SIDES
        )
        return {} if set(first) & set(second) else dict(zip(second, first, strict=False))

    @property
    def judged_dtype(self) -> str:
        from twinalign.recorder.recording_plan import judged_precision  # two bare files are compared without it

        return judged_precision(self.by_key)

    def metadata(self, side: str) -> dict[str, Any]:
        """Metadata of a side in the judged precision."""
        return self.by_key[side, self.judged_dtype].metadata

    @property
    def casts_to_float32(self) -> int:
        """How often the reference's float64 run computes in float32."""
        arbiter = self.by_key.get(("ref", "float64"))
        return arbiter.metadata.get("casts_to_float32", 0) if arbiter else 0

    def batches_rounded_by(self) -> float:
        """Greatest relative difference of what entered the sides' models in float64, if rounding to float32 makes it.

        0 where it is the same on both sides, or differs by more than the stage of data passes, whose mean, say, each
        framework may compute in float32.
        """
        theirs, ours = (self.metadata_of(side, "float64").get("entered", []) for side in SIDES)
        if [len(values) for values in theirs] != [len(values) for values in ours]:
            return 0.0
        pairs = ((np.array(first), np.array(second)) for first, second in zip(theirs, ours, strict=True))
        apart = max((distance(first, second) / (root_mean_square(first) or 1.0) for first, second in pairs), default=0)
        return apart if apart <= max(tolerances_of(np.dtype("float32"))) else 0.0

    def metadata_of(self, side: str, dtype: str) -> dict[str, Any]:
        """Metadata of a side in a precision; empty if there is no such recording."""
        recording = self.by_key.get((side, dtype))
        return recording.metadata if recording else {}

    def environment(self) -> dict[str, Any]:
        return {side: self.metadata(side).get("environment", {}) for side in SIDES}

    def sampled_shapes(self) -> dict[str, tuple[list[int], list[int]]]:
        """Name -> shapes of the whole tensor on both sides, if both recorded a sample of it."""
        first, second = (self.metadata(side).get("sampled", {}) for side in SIDES)
        return {name: (entry["shape"], second[name]["shape"]) for name, entry in first.items() if name in second}


def different_inputs(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Steps for which the metadata of two recordings have different hashes of the inputs: no verdict is worth much."""
    hashes = [metadata.get("inputs_sha256", {}) for metadata in (first, second)]
    return [step for step in hashes[0] if hashes[1].get(step, hashes[0][step]) != hashes[0][step]]


def described_samples(metadata: Mapping[str, Any]) -> dict[str, Described]:
    """Name -> description of each sampled tensor in a recording."""
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
