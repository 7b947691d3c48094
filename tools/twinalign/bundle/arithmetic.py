"""Signs of fabrication in the arrays: two frameworks, and two precisions, do not round alike.

What must round differently was measured: a bare matrix product with a ReLU is bit-equal in torch and paddle on one
machine, in both precisions. Normalisations, exponentials and what is made of them are not: even one layer leaves at
most 95 of 100 elements equal (benchmarks/bit_equality.py). So these signs ask for a model that has a layer of weights
or statistics of which this is so: an activation without weights may stand in a model and not be called.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from twinalign.bundle.layout import REPEAT, recording_member
from twinalign.bundle.signs import CONTRADICTION, IMPOSSIBLE_TIME, Sign
from twinalign.jobs import SIDES
from twinalign.ranks.recordings import prefix_of
from twinalign.recording import PROJECTION_COUNT, PROJECTIONS_SUFFIX, SAMPLE_SIZE, sample_positions
from twinalign.stage_verdict import StageRecordings
from twinalign.stages import STAGE_BY_NAME
from twinalign.verdict.judgement import epsilon_of

BIT_EQUAL = "bit_equal"
CAST_FLOAT64 = "cast_float64"

ROUNDED = 256
"""Elements that must carry rounding before their equality means anything: 0.95^256 is 2e-6."""
_HEAD = 64
_TOGETHER = 256
"""Tensors whose pages stay in memory; of a mapped file a system reads far more than the number that is asked for."""
_SECONDS_A_TENSOR = 3e-6
"""A framework takes longer than this to hand over even an empty tensor."""
_BYTES_A_SECOND = 2e11
"""More than any one thread copies, and every recorded number has been copied once."""
_MOST_ROUNDING = 4096
"""Roundings by which inputs moved in their last place move a loss at most, as in `verdict.trajectory`."""
_STEP_OF_SECONDS = 5e-4
"""Metadata give seconds in thousandths."""
# Elementwise updates of equal numbers are equal; what these names hold can be so in honest recordings.
_ELEMENTWISE = re.compile(
    r"^(rank\d+\.)?(step\d+\.(parameter|buffer|moment|velocity|learning_rate)|buffer\.)|\bmoment|\bvelocity"
)
_ROUNDS_APART = re.compile(r"Norm|MultiheadAttention|MultiHeadAttention|Transformer|LSTM|GRU|RNN")
_APART = 0.05
"""Share of a tensor's elements that differ behind such a layer, at least; less is what an alteration leaves."""
_NO_ROUNDING = 0.5
"""Relative distance of a repeat, in half of the tensors, that no unit in the last place leads to."""


@dataclasses.dataclass
class _Equality:
    """Tensors that are equal in every element, and the size of those that are not."""

    equal: dict[str, int] = dataclasses.field(default_factory=dict)
    """Name -> elements that carry rounding."""
    apart: bool = False
    """Whether one at least differs as what two frameworks computed does, and what is equal may honestly be so."""

    @property
    def rounded(self) -> int:
        return sum(self.equal.values())

    @property
    def of_all(self) -> bool:
        """Whether next to nothing differs: a few elements could be altered to hide that the rest is a copy."""
        return not self.apart and self.rounded >= ROUNDED


def signs_in_arrays(stage: str, recordings: StageRecordings, layers: Iterable[str]) -> tuple[list[Sign], list[str]]:
    """Signs in the arrays of one stage, and notes: what is odd and has honest explanations.

    Args:
        stage: Its name.
        recordings: Of it.
        layers: Full names of the classes, and their bases, of the layers of either side's model.
    """
    signs = [*_dtype_signs(stage, recordings), *_sample_signs(stage, recordings), *_haste_signs(stage, recordings)]
    notes = [*_repeat_notes(stage, recordings), *_missing_notes(stage, recordings)]
    if not STAGE_BY_NAME[stage].needs_model or stage == "train":
        return signs, notes
    signs += [*_partner_signs(stage, recordings), *_far_repeat_signs(stage, recordings)]
    if not any(_ROUNDS_APART.search(name.rpartition(".")[2]) for name in layers):
        return signs, notes
    for dtype in ("float32", "float64"):
        equality = _equality(recordings, dtype)
        if equality is None:
            continue
        place = recording_member("paddle", stage, dtype)
        if equality.of_all:
            text = (
                f"bit-equal to the reference in {equality.rounded} elements that carry rounding, "
                "and the two frameworks round differently in such a model"
            )
            signs.append(Sign(BIT_EQUAL, place, text))
            continue
        for name, count in equality.equal.items():
            if count < ROUNDED:
                continue
            text = f"{name} is bit-equal to the reference in all {count} elements that carry rounding"
            if ".gradient." in name:
                signs.append(Sign(BIT_EQUAL, place, f"{text}, unlike its neighbours"))
            else:
                notes.append(f"{stage} {dtype}: {text} (possible for what no normalisation or exponential precedes)")
    return [*signs, *_cast_signs(stage, recordings), *_rounding_signs(stage, recordings)], notes


def _computed(arrays: Mapping[str, np.ndarray], between: Callable[[], None]) -> Iterator[str]:
    for count, (name, array) in enumerate(arrays.items()):
        if count % _TOGETHER == 0:
            between()
        if array.dtype.kind == "f" and not _is_elementwise(name) and not name.endswith(PROJECTIONS_SUFFIX):
            yield name


@functools.lru_cache(maxsize=1 << 14)  # a stage has four recordings of the same names
def _is_elementwise(name: str) -> bool:
    return _ELEMENTWISE.search(name) is not None


def _equality(recordings: StageRecordings, dtype: str) -> _Equality | None:
    reference, reproduced = recordings.arrays("ref", dtype), recordings.arrays("paddle", dtype)
    if reference is None or reproduced is None:
        return None
    low, high = (recordings.arrays("ref", precision) or {} for precision in ("float32", "float64"))
    found = _Equality()
    for name in _computed(reference, recordings.between):
        one, other = reference[name], reproduced.get(name)
        if other is None or one.shape != other.shape or one.dtype != other.dtype:
            continue
        if not _equal(one, other):
            found.apart = found.apart or _share_that_differs(one, other) > _APART
            continue
        found.equal[name] = _rounded_elements(one, low.get(name), high.get(name))
    return found


def _differ_at_once(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether the first numbers of two arrays of one shape differ, as nearly all that are not equal do."""
    if not one.size:
        return False
    first, second = one.item(0), other.item(0)
    return bool(first != second and not (first != first and second != second))


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    if _differ_at_once(one, other):
        return False
    if not np.array_equal(one.reshape(-1)[:_HEAD], other.reshape(-1)[:_HEAD], equal_nan=True):
        return False
    return np.array_equal(one, other, equal_nan=True)


def _share_that_differs(one: np.ndarray, other: np.ndarray) -> float:
    """Of the elements of two arrays that are not equal; the first ones tell it where nearly all differ."""
    for part in (slice(0, _HEAD), slice(None)):
        differ = one.reshape(-1)[part] != other.reshape(-1)[part]
        if differ.mean() > _APART:
            break
    return float(differ.mean())


def _exact(array: np.ndarray) -> bool:
    """Whether all numbers are whole, or halves of them: counts and their shares carry no rounding."""
    first = float(array.item(0)) * 2 if array.size else 0.0
    if math.isfinite(first) and not first.is_integer():
        return False
    with np.errstate(all="ignore"):
        for part in (array.reshape(-1)[:_HEAD], array):  # nearly all that is no count shows it at once
            doubled = part.astype(np.float64) * 2
            if not (doubled == np.rint(doubled)).all():
                return False
    return True


def _rounded_elements(array: np.ndarray, low: np.ndarray | None, high: np.ndarray | None) -> int:
    """Elements that hold a rounding error; where no float64 run tells, those that are no whole numbers."""
    if low is not None and high is not None and low.shape == high.shape and high.dtype.itemsize > low.dtype.itemsize:
        with np.errstate(all="ignore"):
            return int(np.count_nonzero((low != high.astype(low.dtype)) & np.isfinite(high)))
    with np.errstate(all="ignore"):
        return int(np.count_nonzero((array != np.rint(array)) & np.isfinite(array)))


def _cast_signs(stage: str, recordings: StageRecordings) -> Iterator[Sign]:
    """Float64 runs that hold what float32 can hold: 2^-29 of honest numbers are such."""
    casts: dict[str, dict[str, int]] = {}
    others: dict[str, int] = {}
    for side in SIDES:
        low, high = recordings.arrays(side, "float32"), recordings.arrays(side, "float64")
        if low is None or high is None:
            return
        casts[side], others[side] = {}, 0
        for name in _computed(low, recordings.between):
            if name not in high or low[name].dtype != np.float32 or high[name].dtype != np.float64:
                continue
            count = _cast_elements(low[name], high[name])
            if count:
                casts[side][name] = count
            else:
                others[side] += not _exact(high[name])
    for side in SIDES:
        other = SIDES[1 - SIDES.index(side)]
        place = recording_member(side, stage, "float64")
        alone = {name: count for name, count in casts[side].items() if name not in casts[other] and count >= _HEAD}
        if alone:
            name, count = next(iter(alone.items()))
            more = f" (and {len(alone) - 1} more)" if len(alone) > 1 else ""
            text = f"{name}{more} is the float32 recording cast to float64 in all {count} elements, not computed in it"
            yield Sign(CAST_FLOAT64, place, text)
        elif not others[side] and sum(casts[side].values()) >= ROUNDED:
            text = "every tensor is the float32 recording cast to float64, not computed in it"
            yield Sign(CAST_FLOAT64, place, text)


def _rounding_signs(stage: str, recordings: StageRecordings) -> Iterator[Sign]:
    """Float32 runs that are a float64 one rounded: nothing that computes in float32 rounds once alone."""
    arrays = {(side, dtype): recordings.arrays(side, dtype) for side in SIDES for dtype in ("float32", "float64")}
    if any(found is None for found in arrays.values()):
        return
    for side, other in (SIDES, SIDES[::-1]):
        low, beside = arrays[side, "float32"] or {}, arrays[other, "float32"] or {}
        elements = sum(array.size for array in low.values())
        for whose in SIDES:
            high = arrays[whose, "float64"] or {}
            rounded = computed = 0
            for name in _computed(low, recordings.between):
                one, truth, foreign = low[name], high.get(name), beside.get(name)
                if truth is None or foreign is None or not one.shape == truth.shape == foreign.shape:
                    continue
                if one.dtype != np.float32 or truth.dtype != np.float64:
                    continue
                if _is_rounded(one, truth):
                    rounded += _rounded_elements(foreign, foreign, truth)
                elif not _exact(one):
                    computed += one.size
                    if 10 * computed > elements:  # what is left is too little
                        break
            if rounded >= max(ROUNDED, 9 * computed):
                text = f"{rounded} elements are {whose}'s float64 recording rounded once, not computed in float32"
                yield Sign(CAST_FLOAT64, recording_member(side, stage, "float32"), text)


def _is_rounded(low: np.ndarray, high: np.ndarray) -> bool:
    """Whether all of `low` is `high` rounded; the first numbers tell it where it is not."""
    with np.errstate(all="ignore"):
        return all(
            np.array_equal(low.reshape(-1)[part], high.reshape(-1)[part].astype(low.dtype), equal_nan=True)
            for part in (slice(0, _HEAD), slice(None))
        )


def _cast_elements(low: np.ndarray, high: np.ndarray) -> int:
    """Elements that are no whole numbers, where all of `high` is `low` cast; 0 where not."""
    if low.shape != high.shape or _differ_at_once(low, high):
        return 0
    if not np.array_equal(low.reshape(-1)[:_HEAD], high.reshape(-1)[:_HEAD], equal_nan=True):
        return 0
    if not np.array_equal(low, high, equal_nan=True):
        return 0
    return int(np.count_nonzero(low != np.rint(low)))


def _haste_signs(stage: str, recordings: StageRecordings) -> Iterator[Sign]:
    for (side, dtype), recording in recordings.by_key.items():
        copied = sum(array.nbytes for array in recording.arrays.values())
        least = len(recording.arrays) * _SECONDS_A_TENSOR + copied / _BYTES_A_SECOND
        if recording.metadata["seconds"] + _STEP_OF_SECONDS < least:
            text = f"{len(recording.arrays)} tensors recorded in {recording.metadata['seconds']:g} seconds"
            yield Sign(IMPOSSIBLE_TIME, recording_member(side, stage, dtype), text)


def _dtype_signs(stage: str, recordings: StageRecordings) -> Iterator[Sign]:
    if stage not in ("forward", "loss"):
        return
    for (side, dtype), recording in recordings.by_key.items():
        floats = {array.dtype.name for array in recording.arrays.values() if array.dtype.kind == "f"}
        if floats and dtype not in floats and not (dtype != "float64" and "float64" not in floats):
            text = f"its metadata says {dtype}, and its arrays are {', '.join(sorted(floats))}"
            yield Sign(CONTRADICTION, recording_member(side, stage, dtype), text)


def _repeat_notes(stage: str, recordings: StageRecordings) -> Iterator[str]:
    """Repeats of the reference far from it: they raise the floor that the port is judged by.

    No sign: what is left of terms that cancel moves far honestly.
    """
    for (side, dtype), recording in recordings.by_key.items():
        of_ranks = recording.metadata.get("ranks") or [recording.metadata]
        for rank, metadata in enumerate(of_ranks):
            prefix = prefix_of(rank) if "ranks" in recording.metadata else ""
            for name, repeats in metadata.get("repeats", {}).items():
                array = recording.arrays.get(prefix + name)
                if array is None or array.dtype.kind != "f":
                    continue
                limit = min(0.5, _MOST_ROUNDING * epsilon_of(array.dtype)) * float(np.abs(array).max(initial=0.0))
                honest = side == "ref" and all(
                    len(values) == array.size and np.abs(np.array(values) - array.reshape(-1)).max(initial=0.0) <= limit
                    for values in repeats
                )
                if not honest:
                    what = f"{stage} {dtype}: the {side} side's repeats of {prefix}{name}"
                    yield f"{what} are further from it than rounding takes most losses, and widen what {dtype} may do"


def _partner_signs(stage: str, recordings: StageRecordings) -> Iterator[Sign]:
    """A side records the same tensors in each precision; what float64 lacks would be judged by tolerances alone."""
    for side in SIDES:
        low, high = (recordings.arrays(side, dtype) for dtype in (recordings.judged_dtype, "float64"))
        if low is None or high is None or low.keys() == high.keys():
            continue
        name = next(name for name in (*low, *high) if name not in low or name not in high)
        text = f"{name} and {len(low.keys() ^ high.keys()) - 1} more are in one precision and not in the other"
        yield Sign(CONTRADICTION, recording_member(side, stage, "float64"), text)


def _far_repeat_signs(stage: str, recordings: StageRecordings) -> Iterator[Sign]:
    """The floor under a port that has no float64 to be judged by is what rounding moved, and nothing more."""
    if recordings.repeat is None:
        return
    reference = recordings.arrays("ref", recordings.judged_dtype) or {}
    shares = []
    for name, array in recordings.repeat.arrays.items():
        own = reference.get(name)
        if own is not None and own.shape == array.shape and own.dtype.kind == "f" and array.dtype.kind == "f":
            with np.errstate(all="ignore"):
                size, apart = (float(np.abs(part).max(initial=0.0)) for part in (own, array - own))
            shares.append(apart / size if size else 0.0)
    if shares and not np.median(shares) <= _NO_ROUNDING:
        text = "it is as far from the reference as no rounding takes it, and excuses whatever the port does"
        yield Sign(CONTRADICTION, recording_member("ref", stage, REPEAT), text)


def _missing_notes(stage: str, recordings: StageRecordings) -> Iterator[str]:
    """What is no number on both sides is compared with nothing."""
    for name, array in (recordings.arrays("ref", recordings.judged_dtype) or {}).items():
        if array.dtype.kind != "f":
            continue
        with np.errstate(all="ignore"):
            count = int(np.count_nonzero(np.isnan(array))) if np.isnan(array.sum()) else 0
        if count:
            yield f"{stage}: {count} of {array.size} elements of {name} are NaN in the reference, which proves nothing"


def _sample_signs(stage: str, recordings: StageRecordings) -> Iterator[Sign]:
    for (side, dtype), recording in recordings.by_key.items():
        fault = next(
            (
                f
                for name, entry in recording.metadata.get("sampled", {}).items()
                if (f := fault_of_sample(recording, name, entry))
            ),
            None,
        )
        if fault:
            yield Sign(CONTRADICTION, recording_member(side, stage, dtype), fault)


def fault_of_sample(recording: Any, name: str, entry: Mapping[str, Any]) -> str | None:
    """Why what is said of a sampled tensor cannot be so, or None."""
    size = 1
    for extent in entry["shape"]:
        size *= extent
    array, projections = recording.arrays.get(name), recording.arrays.get(name + PROJECTIONS_SUFFIX)
    if array is None or projections is None or projections.shape != (PROJECTION_COUNT,):
        return f"{name} is said to be a sample, and it or its projections are missing"
    if not SAMPLE_SIZE < size < 2**62 or array.shape != sample_positions(size).shape:
        return f"{name} is said to be a sample of {size} elements, and has {array.size}"
    return None
