"""Excuses of a bundle: what lets a difference pass must be borne out by the arrays and by the packed source.

A reference that repeats itself inexactly, a convention that the case accepts, a float64 run that failed: each is
something that a bundle says of itself, and each lets larger differences pass. None of them replaces evidence.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from twinalign.bundle.case_source import CaseSource
from twinalign.bundle.contents import Contents
from twinalign.bundle.fabrication_in_metadata import Sign
from twinalign.bundle.layout import CASE, SUMMARY, recording_member
from twinalign.files.rank_recordings import prefix_of
from twinalign.files.recordings import PROJECTIONS_SUFFIX, Recording
from twinalign.sides import SIDES
from twinalign.verdict import Comparison
from twinalign.verdict.excuses import CONVENTIONS
from twinalign.verdict.findings import describe_difference
from twinalign.verdict.precisions import EPSILONS, epsilon_of
from twinalign.verdict.results import ALIGNED
from twinalign.verdict.stage_recordings import StageRecordings

EXCUSE = "excuse"

_MOST_ROUNDING = 4096
"""How far a tensor moves at most, in units in the last place, when its inputs move by one; as in `trajectory`."""
_MOST = 0.125
"""In half precision a few units are as much as this already; beyond it nothing of a number is left."""
_ALIKE = 0.99
"""Correlation of two tensors between which there is a convention and not another computation."""
_FEW = 8
"""So few numbers correlate by chance."""
_WHOLE = 8
"""A tensor as a whole, and not in a few elements, is at most so many times further off than rounding carries."""
_OTHERS = 64
"""And at most so many times further off than the other tensors of its stage."""
_HEAD = 256
"""Elements that stand for the whole."""


def carried(array: np.ndarray, judged: str) -> float:
    """Relative distance that rounding can reach at the end of a model that was run in precision `judged`."""
    return min(_MOST, _MOST_ROUNDING * max(EPSILONS[judged], epsilon_of(array.dtype)))


def excuse_signs(
    stage: str,
    recordings: StageRecordings,
    found: Comparison,
    judge: Callable[[StageRecordings], Comparison],
) -> Iterator[Sign]:
    """Signs of excuses without which the stage would not be aligned, and which nothing in the bundle bears out.

    `judge` gives the verdict on other recordings of the stage.
    """
    if found.verdict != ALIGNED:
        return
    yield from _acceptance_signs(stage, recordings, found)
    if stage == "train":
        return
    yield from _tolerance_signs(stage, recordings, found)
    yield from _far_run_signs(stage, recordings)
    limited = _with_limited_repeats(recordings)
    if limited is not None and judge(limited).verdict != ALIGNED:
        member = recording_member("ref", stage, recordings.judged_dtype)
        text = "it is further from the reference than rounding can move it, and only that excuses the port"
        yield Sign(EXCUSE, member, f"its repeat: {text}")


def unread_signs(contents: Contents) -> Iterator[Sign]:
    """Excuses in the description of the case that no assignment in the packed source makes."""
    description = contents.description
    claimed = {field: description.get(field, ()) for field in ("accept", "allowances")}
    trained = bool(description.get("train_mode"))
    if not any(claimed.values()) and not trained:
        return
    source = CaseSource(map(contents.archive.read, contents.manifest["source"]), (*claimed, "train_mode"))
    options = contents.case["identity"]["ref"]["options"]
    for field, texts in claimed.items():
        for text in texts:
            if not source.assigns_text(field, text) and text not in options.get(field, ""):
                yield Sign(
                    EXCUSE, CASE, f"it says that the case has {field} {text}, which no source in the bundle assigns"
                )
    if trained and not source.assigned("train_mode") and "train_mode" not in options:
        yield Sign(EXCUSE, CASE, "it says that the case has train_mode, which no source in the bundle assigns")


def missing_float64_signs(contents: Contents) -> Iterator[Sign]:
    """A model that ran in float64 in the backward stage also computed its loss in it, and the loss its outputs."""
    for stage, fuller in (("forward", "loss"), ("forward", "backward"), ("loss", "backward")):
        if not {stage, fuller} <= set(contents.stages) or contents.part_of(stage) != contents.part_of(fuller):
            continue
        for side in contents.without_float64(stage):
            if (side, "float64") in contents.keys_of(fuller):
                text = f"{stage} is said not to run in float64 on the {side} side, but {fuller} ran in it"
                yield Sign(EXCUSE, SUMMARY, text)


def _acceptance_signs(stage: str, recordings: StageRecordings, found: Comparison) -> Iterator[Sign]:
    accepted = [tensor for tensor in found.tensors if tensor.accepted]
    for tensor in accepted:
        pair = _finest(recordings, tensor.name)
        if pair is None or not _shows(tensor.accepted or "", *pair):
            text = f"{tensor.name} is accepted as {tensor.accepted}, but its arrays do not look like a convention"
            yield Sign(EXCUSE, recording_member("paddle", stage, recordings.judged_dtype), text)


def _finest(recordings: StageRecordings, name: str) -> tuple[np.ndarray, np.ndarray] | None:
    for dtype in ("float64", recordings.judged_dtype):
        ours, theirs = ((recordings.arrays(side, dtype) or {}).get(name) for side in SIDES)
        if ours is not None and theirs is not None and ours.shape == theirs.shape:
            return ours, theirs
    return None


def _shows(convention: str, reference: np.ndarray, reproduced: np.ndarray) -> bool:
    """Whether two arrays differ as under a convention, and not like any two arrays."""
    if reference.dtype.kind not in "fc":
        return False
    if convention in CONVENTIONS and reference.dtype.kind == "f":
        # The share of a batch of n differs by n / (n - 1): the port's variance is the smaller one, by half at most.
        slack = carried(reference, "float32") * np.abs(reference).max(initial=0.0)
        with np.errstate(all="ignore"):
            apart = reference - reproduced
            return bool(((apart >= -slack) & (apart <= reference / 2 + slack)).all())
    if describe_difference(reference, reproduced):
        return True
    if reference.size < _FEW or not (np.isfinite(reference).all() and np.isfinite(reproduced).all()):
        return False
    one, other = (array.ravel() - array.mean() for array in (reference, reproduced))
    size = float(np.linalg.norm(one) * np.linalg.norm(other))
    return size > 0 and abs(np.vdot(one, other)) >= _ALIKE * size


def _group(name: str) -> str:
    """Tensors of one kind are of one scale: all gradients of a step, say."""
    parts = name.split(".")
    return ".".join(parts[:2]) if parts[0].startswith("step") else ""


def _scales(arrays: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Name -> greatest magnitude of the tensor, or the typical one of its kind if that is more.

    What cancels is small, and its rounding is that of what it was added up from.
    """
    own = {}
    for name, array in arrays.items():
        if array.dtype.kind in "fc" and array.size and not name.endswith(PROJECTIONS_SUFFIX):
            magnitude = np.abs(array)
            own[name] = float(magnitude.max(initial=0.0, where=np.isfinite(magnitude)))
    of_kind: dict[str, list[float]] = {}
    for name, size in own.items():
        of_kind.setdefault(_group(name), []).append(size)
    typical = {kind: float(np.median(sizes)) for kind, sizes in of_kind.items()}
    return {name: max(size, typical[_group(name)]) for name, size in own.items()}


def _tolerance_signs(stage: str, recordings: StageRecordings, found: Comparison) -> Iterator[Sign]:
    """An absolute tolerance lets everything pass that is smaller than it is."""
    low = recordings.arrays("ref", recordings.judged_dtype) or {}
    scales: dict[str, float] | None = None
    for tensor in found.tensors:
        if tensor.basis == "tolerance" and tensor.verdict == ALIGNED and tensor.max_abs and tensor.name in low:
            scales = _scales(low) if scales is None else scales
            if tensor.max_abs > carried(low[tensor.name], recordings.judged_dtype) * scales.get(tensor.name, np.inf):
                text = f"{tensor.name} differs by more than rounding, and passes only because it is small"
                yield Sign(EXCUSE, recording_member("paddle", stage, recordings.judged_dtype), text)


def _far_run_signs(stage: str, recordings: StageRecordings) -> Iterator[Sign]:
    """The distance of a run from its float64 run, or from its repeat, is what the port may be off by."""
    if stage not in ("forward", "loss", "backward"):
        return
    judged = recordings.judged_dtype
    runs = [(side, recordings.by_key.get((side, "float64")), "its float64 run") for side in SIDES]
    for side, other, what in [*runs, ("ref", recordings.repeat, "its repeat")]:
        low = recordings.by_key.get((side, judged))
        if judged == "float64" or low is None or other is None:
            continue
        shares, typical = [], {}
        scales = _scales(low.arrays) if side == "ref" else {}
        for name, array in low.arrays.items():
            if name not in other.arrays or other.arrays[name].shape != array.shape or name.endswith(PROJECTIONS_SUFFIX):
                continue
            if array.dtype.kind not in "fc" or other.arrays[name].dtype.kind != array.dtype.kind:
                continue
            if stage == "backward" and ".step0." not in f".{name}":  # rounding grows from step to step
                continue
            shares.append(_apart(array, other.arrays[name]) / carried(array, judged))
            if scales.get(name):
                typical[name] = _typical_distance(array, other.arrays[name]) / scales[name]
        place = recording_member(side, stage, judged)
        if shares and np.median(shares) > 1:
            text = f"{what} is further from it than rounding can carry it, and would excuse any error of the port"
            yield Sign(EXCUSE, place, text)
            continue
        usual = float(np.median([*typical.values()])) if typical else 0.0
        for name, distance in typical.items():
            # A ReLU that rounding flips changes many gradients, but no output by much.
            limit = max(_WHOLE * carried(low.arrays[name], judged), _OTHERS * usual)
            if distance > (_MOST if stage == "backward" else min(_MOST, limit)):
                text = f"{name} as a whole is further from {what} than rounding can carry it, unlike the others"
                yield Sign(EXCUSE, place, text)
                break


def _typical_distance(array: np.ndarray, other: np.ndarray) -> float:
    """Median of the distances of the first elements: what rounding flips are a few, and the rest stay near."""
    with np.errstate(all="ignore"):
        apart = np.abs(array.reshape(-1)[:_HEAD] - other.reshape(-1)[:_HEAD])
        finite = apart[np.isfinite(apart)]
    return float(np.median(finite)) if finite.size else 0.0


def _apart(array: np.ndarray, other: np.ndarray) -> float:
    """Root mean square distance over the root mean square, of the finite elements."""
    with np.errstate(all="ignore"):
        apart, size = np.abs(other.astype(array.dtype) - array), np.abs(array)
        finite = np.isfinite(apart) & np.isfinite(size)
        squares = [float(np.square(part[finite].astype(np.float64)).sum()) for part in (apart, size)]
    return float(np.sqrt(squares[0] / squares[1])) if squares[1] else 0.0


def _with_limited_repeats(recordings: StageRecordings) -> StageRecordings | None:
    """The recordings with every repeat as near to the reference as rounding leaves it; None if all of them are."""
    reference, repeat, judged = (
        recordings.by_key["ref", recordings.judged_dtype],
        recordings.repeat,
        recordings.judged_dtype,
    )
    metadata = reference.metadata
    of_ranks = metadata.get("ranks") or [metadata]
    if repeat is None and not any(entry.get("repeats") for entry in of_ranks):
        return None
    scales = _scales(reference.arrays)
    changed = False

    def near(name: str, values: Any) -> Any:
        """`values` of a repeat of the tensor `name`, none further from it than rounding carries it."""
        nonlocal changed
        own = reference.arrays.get(name)
        if own is None or name not in scales or np.size(values) != own.size:
            return values
        found, apart = np.reshape(values, own.shape), carried(own, judged) * scales[name]
        with np.errstate(all="ignore"):
            far = np.abs(found - own)
            greatest = float(far.max(initial=0.0, where=np.isfinite(far)))
            if greatest > apart:
                changed = True
                found = (own + (found - own) * (apart / greatest)).astype(own.dtype)
        return found

    def entry_near(entry: Mapping[str, Any], prefix: str) -> dict[str, Any]:
        few = entry.get("repeats", {})
        return {**entry, "repeats": {n: [np.ravel(near(prefix + n, v)).tolist() for v in few[n]] for n in few}}

    if repeat is not None:
        repeat = Recording({name: near(name, array) for name, array in repeat.arrays.items()}, repeat.metadata)
    if "ranks" in metadata:
        metadata = {**metadata, "ranks": [entry_near(one, prefix_of(rank)) for rank, one in enumerate(of_ranks)]}
    else:
        metadata = entry_near(metadata, "")
    by_key = {**recordings.by_key, ("ref", judged): Recording(reference.arrays, metadata)}
    return StageRecordings(by_key, repeat, recordings.between) if changed else None
