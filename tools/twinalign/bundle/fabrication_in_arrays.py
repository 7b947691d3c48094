"""Signs of fabrication in the arrays: two frameworks, and two precisions, round differently.

Measured by benchmarks/bit_equality.py: a bare matrix product with a ReLU is bit-equal in torch and paddle on one
machine, in both precisions. Normalisations, exponentials and everything computed from them are not: even one layer
leaves at most 95 of 100 elements equal. So these signs need a model with such a layer, and one with weights or
statistics: an activation without weights may be part of a model and never be called.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from twinalign.bundle.fabrication_in_metadata import CONTRADICTION, IMPOSSIBLE_TIME, Sign
from twinalign.bundle.layout import recording_member
from twinalign.files.rank_recordings import prefix_of
from twinalign.files.recordings import PROJECTION_COUNT, PROJECTIONS_SUFFIX, SAMPLE_SIZE, sample_positions
from twinalign.sides import SIDES
from twinalign.stages import STAGE_BY_NAME
from twinalign.verdict.precisions import epsilon_of
from twinalign.verdict.stage_recordings import StageRecordings

BIT_EQUAL = "bit_equal"
CAST_FLOAT64 = "cast_float64"

ROUNDED = 256
"""So many elements with a rounding error must be equal before this means anything: 0.95^256 is 2e-6."""
_HEAD = 64
_TOGETHER = 256
"""Tensors whose pages stay in memory at a time: a system reads far more of a mapped file than the bytes asked for."""
_SECONDS_A_TENSOR = 3e-6
"""A framework takes longer than this to hand over even an empty tensor."""
_BYTES_A_SECOND = 2e11
"""Faster than any thread copies, and every recorded number was copied once."""
_MOST_ROUNDING = 4096
"""How far a loss moves at most, in units in the last place, when its inputs move by one; as in `verdict.trajectory`."""
_STEP_OF_SECONDS = 5e-4
"""Metadata give seconds to three decimals."""
# Elementwise updates of equal numbers are equal, so tensors with these names may be equal in honest recordings.
_ELEMENTWISE = re.compile(
    r"^(rank\d+\.)?(step\d+\.(parameter|buffer|moment|velocity|learning_rate)|buffer\.)|\bmoment|\bvelocity"
)
_ROUNDS_APART = re.compile(r"Norm|MultiheadAttention|MultiHeadAttention|Transformer|LSTM|GRU|RNN")
_STATISTICS = re.compile(r"\bbuffer\..*running_(mean|var)$")
"""Only a batch norm in training mode records these, whatever its class is called."""
_APART = 0.05
"""At least this share of a tensor's elements differs after such a layer; in an altered copy it is less."""


@dataclasses.dataclass
class _Equality:
    """Tensors that are equal in every element, and whether others honestly differ."""

    equal: dict[str, int] = dataclasses.field(default_factory=dict)
    """Name -> number of elements with a rounding error."""
    apart: bool = False
    """Whether at least one tensor differs as two frameworks' results do, so that the equal ones may be honest."""

    @property
    def rounded(self) -> int:
        return sum(self.equal.values())


def signs_in_arrays(stage: str, recordings: StageRecordings, layers: Iterable[str]) -> tuple[list[Sign], list[str]]:
    """Signs of fabrication in the arrays of one stage, and notes on oddities that have honest explanations.

    `layers` are the full names of the layer classes, and of their bases, in either side's model.
    """
    signs = [*_dtype_signs(stage, recordings), *_sample_signs(stage, recordings), *_haste_signs(stage, recordings)]
    notes = [*_repeat_notes(stage, recordings), *_nan_notes(stage, recordings)]
    if not STAGE_BY_NAME[stage].needs_model or stage == "train":
        return signs, notes
    signs += _missing_precision_signs(stage, recordings)
    rounds_apart = any(_ROUNDS_APART.search(name.rpartition(".")[2]) for name in layers)
    if not rounds_apart and not any(map(_STATISTICS.search, recordings.arrays("ref", recordings.judged_dtype) or {})):
        return signs, notes
    for dtype in ("float32", "float64"):
        equality = _equality(recordings, dtype)
        if equality is None:
            continue
        place = recording_member("paddle", stage, dtype)
        if not equality.apart and equality.rounded >= ROUNDED:  # a forger may have altered a few elements of a copy
            text = (
                f"bit-equal to the reference in {equality.rounded} elements with a rounding error, "
                "but the two frameworks round such a model differently"
            )
            signs.append(Sign(BIT_EQUAL, place, text))
            continue
        for name, count in equality.equal.items():
            if count < ROUNDED:
                continue
            text = f"{name} is bit-equal to the reference in all {count} elements with a rounding error"
            if ".gradient." in name:
                signs.append(Sign(BIT_EQUAL, place, f"{text}, unlike the other gradients"))
            else:
                notes.append(f"{stage} {dtype}: {text} (possible before the first normalisation or exponential)")
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


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays of one shape are equal; unequal ones mostly differ in the first element already."""
    first, second = (one.item(0), other.item(0)) if one.size else (0, 0)
    if first != second and not (first != first and second != second):
        return False
    heads = one.reshape(-1)[:_HEAD], other.reshape(-1)[:_HEAD]
    return np.array_equal(*heads, equal_nan=True) and np.array_equal(one, other, equal_nan=True)


def _share_that_differs(one: np.ndarray, other: np.ndarray) -> float:
    """Share of unequal elements in two arrays; that of the first ones if it is large enough."""
    for part in (slice(0, _HEAD), slice(None)):
        differ = one.reshape(-1)[part] != other.reshape(-1)[part]
        if differ.mean() > _APART:
            break
    return float(differ.mean())


def _exact(array: np.ndarray) -> bool:
    """Whether all numbers are multiples of 0.5: counts and their shares have no rounding error."""
    first = float(array.item(0)) * 2 if array.size else 0.0
    if math.isfinite(first) and not first.is_integer():
        return False
    with np.errstate(all="ignore"):  # the first elements almost always decide
        parts = (part.astype(np.float64) * 2 for part in (array.reshape(-1)[:_HEAD], array))
        return all((doubled == np.rint(doubled)).all() for doubled in parts)


def _rounded_elements(array: np.ndarray, low: np.ndarray | None, high: np.ndarray | None) -> int:
    """Number of elements with a rounding error; without a float64 run, of those that are not whole numbers."""
    with np.errstate(all="ignore"):
        if low is None or high is None or low.shape != high.shape or high.dtype.itemsize <= low.dtype.itemsize:
            return int(np.count_nonzero((array != np.rint(array)) & np.isfinite(array)))
        return int(np.count_nonzero((low != high.astype(low.dtype)) & np.isfinite(high)))


def _cast_signs(stage: str, recordings: StageRecordings) -> Iterator[Sign]:
    """Float64 runs whose numbers all fit into float32; of honest float64 numbers 2^-29 do."""
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
            yield Sign(CAST_FLOAT64, place, "every tensor is the float32 recording cast to float64, not computed in it")


def _rounding_signs(stage: str, recordings: StageRecordings) -> Iterator[Sign]:
    """Float32 runs that are a float64 run rounded: computing in float32 rounds more than once."""
    arrays = {(side, dtype): recordings.arrays(side, dtype) for side in SIDES for dtype in ("float32", "float64")}
    if any(found is None for found in arrays.values()):
        return
    for side, other in (SIDES, SIDES[::-1]):
        low, others = arrays[side, "float32"] or {}, arrays[other, "float32"] or {}
        elements = sum(array.size for array in low.values())
        for whose in SIDES:
            high = arrays[whose, "float64"] or {}
            rounded = computed = 0
            for name in _computed(low, recordings.between):
                one, truth, foreign = low[name], high.get(name), others.get(name)
                if truth is None or foreign is None or not one.shape == truth.shape == foreign.shape:
                    continue
                if one.dtype != np.float32 or truth.dtype != np.float64:
                    continue
                if _is_rounded(one, truth):
                    rounded += _rounded_elements(foreign, foreign, truth)
                elif not _exact(one):
                    computed += one.size
                    if 10 * computed > elements:  # too few are left
                        break
            if rounded >= max(ROUNDED, 9 * computed):
                text = f"{rounded} elements are {whose}'s float64 recording rounded once, not computed in float32"
                yield Sign(CAST_FLOAT64, recording_member(side, stage, "float32"), text)


def _is_rounded(low: np.ndarray, high: np.ndarray) -> bool:
    """Whether all of `low` is `high` rounded; tries the first elements before the rest."""
    with np.errstate(all="ignore"):
        return all(
            np.array_equal(low.reshape(-1)[part], high.reshape(-1)[part].astype(low.dtype), equal_nan=True)
            for part in (slice(0, _HEAD), slice(None))
        )


def _cast_elements(low: np.ndarray, high: np.ndarray) -> int:
    """Number of elements that are not whole, if all of `high` is `low` cast; 0 otherwise."""
    same = low.shape == high.shape and _equal(low, high)
    return int(np.count_nonzero(low != np.rint(low))) if same else 0


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
            text = f"its metadata says {dtype}, but its arrays are {', '.join(sorted(floats))}"
            yield Sign(CONTRADICTION, recording_member(side, stage, dtype), text)


def _repeat_notes(stage: str, recordings: StageRecordings) -> Iterator[str]:
    """Repeats of the reference that differ much from it: they raise the error that the port is allowed.

    This is a note and not a sign, since honest repeats differ as much where terms cancel.
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
                    yield f"{what} differ from it more than rounding moves most losses, and allow a larger error"


def _missing_precision_signs(stage: str, recordings: StageRecordings) -> Iterator[Sign]:
    """A side records the same tensors in each precision; without float64 a tensor is only compared by tolerances."""
    for side in SIDES:
        low, high = (recordings.arrays(side, dtype) for dtype in (recordings.judged_dtype, "float64"))
        if low is None or high is None or low.keys() == high.keys():
            continue
        name = next(name for name in (*low, *high) if name not in low or name not in high)
        text = f"{name} and {len(low.keys() ^ high.keys()) - 1} more are in one precision but not in the other"
        yield Sign(CONTRADICTION, recording_member(side, stage, "float64"), text)


def _nan_notes(stage: str, recordings: StageRecordings) -> Iterator[str]:
    for name, array in (recordings.arrays("ref", recordings.judged_dtype) or {}).items():
        if array.dtype.kind != "f":
            continue
        with np.errstate(all="ignore"):
            count = int(np.count_nonzero(np.isnan(array))) if np.isnan(array.sum()) else 0
        if count:
            yield f"{stage}: {count} of {array.size} elements of {name} are NaN in the reference, which proves nothing"


def _sample_signs(stage: str, recordings: StageRecordings) -> Iterator[Sign]:
    for (side, dtype), recording in recordings.by_key.items():
        sampled = recording.metadata.get("sampled", {}).items()
        fault = next(filter(None, (fault_of_sample(recording, name, entry) for name, entry in sampled)), None)
        if fault:
            yield Sign(CONTRADICTION, recording_member(side, stage, dtype), fault)


def fault_of_sample(recording: Any, name: str, entry: Mapping[str, Any]) -> str | None:
    """Why the description of a sampled tensor cannot be true, or None."""
    size = math.prod(entry["shape"])
    array, projections = recording.arrays.get(name), recording.arrays.get(name + PROJECTIONS_SUFFIX)
    if array is None or projections is None or projections.shape != (PROJECTION_COUNT,):
        return f"{name} is said to be a sample, but it or its projections are missing"
    if not SAMPLE_SIZE < size < 2**62 or array.shape != sample_positions(size).shape:
        return f"{name} is said to be a sample of {size} elements, but has {array.size}"
    return None
