"""Divergences that do not decide: the frameworks' accepted conventions, random draws, and rounding at kinks."""

import dataclasses
import fnmatch
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.errors import InputError
from twinalign.files.recordings import PROJECTIONS_SUFFIX, sample_positions
from twinalign.verdict.array_difference import distance, is_rounded_sample, root_mean_square
from twinalign.verdict.noise import TensorNoise
from twinalign.verdict.results import ALIGNED, DIVERGED, INCONCLUSIVE, ROUNDING, Comparison, TensorVerdict, whole

# Id -> patterns of the names that the convention touches (docs/differences; verified by shared checks of that id).
CONVENTIONS: dict[str, tuple[str, ...]] = {"bn_running_var_biased": ("*running_var", "*_variance")}

DRAWS = "draws"
MOST = 1000.0
"""Differences up to this many times the change by other draws are inconclusive: for a single number, one draw in a
thousand changes this much less than another."""

TOUCHED_FACTOR = 4.0
"""An element is touched if its error in one run is this many times the greatest in the other run."""
TOUCHED_SHARE = 2.0**-6
"""And if it is at least this share of the least error that diverged, each divided by its tensor's RMS."""
SMALLEST_FILTER = 16
"""With fewer elements a filter a tensor is taken as a whole: the greatest error of so few is often small by chance."""
FEWEST_TOUCHED = 8
"""A kink changes the gradient of a whole filter and of the layers before it; fewer elements are another fault."""
CONCENTRATED = 0.25
"""Near the kink at most this share of a tensor is touched: coarse arithmetic touches all of it."""


def accept_conventions(tensors: Iterable[TensorVerdict], accept: Iterable[str] | Mapping[str, str]) -> None:
    """Mark the diverged tensors that an accepted id covers; raises InputError for an unknown id without a pattern."""
    pairs = accept if isinstance(accept, Mapping) else dict(text.partition("=")[::2] for text in accept)
    patterns = {identifier: _patterns_of(identifier, pattern) for identifier, pattern in pairs.items()}
    for tensor in tensors:
        if tensor.verdict not in (DIVERGED, INCONCLUSIVE):
            continue
        for identifier, covered in patterns.items():
            if any(fnmatch.fnmatchcase(tensor.name, pattern) for pattern in covered):
                tensor.accepted = identifier
                tensor.reason += f"; accepted as {identifier}"
                break


def accepted_as(name: str, accept: Iterable[str]) -> str | None:
    """Id of the accepted convention that covers a tensor, None if none does; `accept` has `ID` or `ID=PATTERN`."""
    for identifier, _, pattern in (text.partition("=") for text in accept):
        for covered in (pattern,) if pattern else CONVENTIONS.get(identifier, ()):
            if name and fnmatch.fnmatchcase(name, covered):
                return identifier
    return None


def excuse_rounded_samples(
    comparison: Comparison, reference: Mapping[str, np.ndarray], port: Mapping[str, np.ndarray]
) -> None:
    """Data have no float64 run: what fixed tolerances leave open may be the rounding of a resampling."""
    for tensor in comparison.tensors:
        one, other = reference.get(tensor.name), port.get(tensor.name)
        if tensor.verdict != DIVERGED or one is None or other is None:
            continue
        if {one.dtype.name, other.dtype.name} == {"float32"} and is_rounded_sample(one, other):
            tensor.verdict = ROUNDING
            tensor.reason = (
                f"the difference is {distance(one, other) / root_mean_square(one):.1g} of the values: a resampling in "
                "float32 rounds its positions as well"
            )
    comparison.verdict = whole(comparison.tensors)


def _patterns_of(identifier: str, pattern: str) -> tuple[str, ...]:
    if pattern:
        return (pattern,)
    if identifier not in CONVENTIONS:
        raise InputError(
            f"accept {identifier!r}: known conventions are {', '.join(sorted(CONVENTIONS))}; "
            f"for another, say which names it covers: {identifier}=PATTERN"
        )
    return CONVENTIONS[identifier]


def draws_of(reference: Mapping[str, Any], reproduced: Mapping[str, Any]) -> tuple[dict[str, float], list[str]]:
    """What random draws change, by tensor name, and notes, from both sides' metadata; nothing if the port draws none.

    A second recording of the reference with another seed shows how much; docs/verdict.md, "Random draws".
    """
    changes = {str(name): float(change) for name, change in (reference.get("changed_by_draws") or {}).items()}
    if changes and reproduced.get("draws") is False:
        return {}, ["the reference draws random numbers here (dropout in training mode?), and the port draws none"]
    return changes, []


def set_aside_draws(tensors: Iterable[TensorVerdict], changes: Mapping[str, float]) -> None:
    """Make numeric divergences of at most `MOST` times the change by other draws (RMS, absolute) inconclusive."""
    for tensor in tensors:
        change = changes.get(tensor.name, 0.0)
        if tensor.verdict != DIVERGED or tensor.basis == "structure" or tensor.rms_abs is None:
            continue
        if 0.0 < tensor.rms_abs <= MOST * change:
            tensor.verdict, tensor.basis = INCONCLUSIVE, DRAWS
            tensor.reason = (
                f"drawn at random: another seed changes the reference itself by {change:.2g} (RMS), and the port "
                f"differs by {tensor.rms_abs:.2g}"
            )


@dataclasses.dataclass
class Pending:
    """A tensor with a measured floor; decided once the recording's typical rounding is known."""

    tensor: TensorVerdict
    noise: TensorNoise
    arrays: tuple[np.ndarray, ...]
    has_arbiter: bool
    basis: str
    low: float
    high: float
    over_floor: bool = False
    """Whether only its distance from the float64 truth speaks against it."""


def advice(basis: str) -> str:
    """What the user can do about a tensor that cannot be decided without float64 runs of both sides."""
    if basis == "repeat":  # the reference has no float64 run, or computes in float32 there
        return "let both models run in the dtype of their inputs, without casts to float32, or try another seed"
    return "record the port in float64 too"


def excuse_kinks(pending: Sequence[Pending]) -> None:
    """Withdraw divergences in float32 if all of the following hold; docs/verdict.md, "Kinks", says why.

    They begin at or after the first gradient (a ReLU or maximum is continuous forward); some gradient has none; every
    float64 comparison of what is computed until then passes; at least `FEWEST_TOUCHED` elements jump, in either run;
    and in at least one of the tensors that diverged, or whose projections did, at most a share of `CONCENTRATED`.
    """
    pending, is_whole = _before_float64_fails(sorted(pending, key=lambda item: _order_of(item.tensor.name)))
    first = next((at for at, item in enumerate(pending) if "grad" in item.tensor.name.lower()), len(pending))
    over = [item for item in pending if item.over_floor]
    later = pending[first:]
    if not over or any(item.over_floor for item in pending[:first]) or len(over) == len(later):
        return
    jump = min(_over_rms(item.noise.ordinary.reproduced.greatest, item) for item in over)
    touched = {id(item): _touched(item, TOUCHED_SHARE * jump) for item in later}
    if sum(map(sum, touched.values())) < FEWEST_TOUCHED:
        return
    # Each projection is a sum over all elements: what a few of them do is seen in the tensor itself.
    names = {item.tensor.name.removesuffix(PROJECTIONS_SUFFIX) for item in over} | {item.tensor.name for item in over}
    shown = [item for item in later if item.tensor.name in names]
    if not any(0 < touched[id(item)][0] <= CONCENTRATED * item.noise.ordinary.count for item in shown):
        return
    for item in over:
        tensor = item.tensor
        distance = f"the error is {tensor.noise_ratio:.2g} times the reference's own rounding"
        if item.has_arbiter:
            tensor.verdict = ALIGNED
            tensor.reason = (
                f"the float64 runs agree here and {'everywhere' if is_whole else 'in what is computed until then'} "
                f"({tensor.fp64_rel or 0.0:.2g} relative); {distance}, "
                "as when rounding flips a few elements (a ReLU input near zero, a maximum, a cancellation)"
            )
        else:
            tensor.verdict = INCONCLUSIVE
            tensor.reason = f"{distance}: rounding at a ReLU or maximum, or a bug; {advice(item.basis)} to tell"


def _order_of(name: str) -> tuple[int, bool]:
    """In each step loss and gradients are computed before what the optimizer makes of them, whatever its rate."""
    step, _, rest = name.partition(".")
    number = step.removeprefix("step")
    return (int(number), not rest.startswith(("loss", "gradient"))) if number.isdecimal() else (-1, False)


def _before_float64_fails(ordered: Sequence[Pending]) -> tuple[Sequence[Pending], bool]:
    """What is computed before the quantity of which a float64 comparison fails first, and whether that is all."""
    failed = (item for item in ordered if (item.tensor.fp64_ratio or 0.0) > 1.0 and not item.tensor.allowed)
    if (first := next(failed, None)) is None:
        return ordered, True
    order = _order_of(first.tensor.name)
    return [item for item in ordered if _order_of(item.tensor.name) < order], False


def _over_rms(error: float, item: Pending) -> float:
    rms = item.noise.ordinary.truth.rms
    return error / rms if rms else math.inf


def _touched(item: Pending, least: float) -> tuple[int, int]:
    """How many elements of the port, and of the reference, a kink has moved.

    Those whose error is at least a share of `least` of the tensor's RMS, and more than `TOUCHED_FACTOR` times the
    greatest of the other run in the same filter. Both runs are asked, because a kink in one hides those in the other.
    """
    first, second, truth = (np.asarray(array, np.float64).reshape(-1) for array in item.arrays[:3])
    starts = _starts_of_filters(item)
    sizes = np.diff(starts, append=truth.size)
    half_a_unit = item.low / 2 * np.sqrt(np.add.reduceat(truth**2, starts) / sizes)
    ours, theirs = np.abs(second - truth), np.abs(first - truth)
    greatest = np.maximum.reduceat(theirs, starts)
    if item.basis == "repeat":  # `truth` is the reference itself
        greatest += item.noise.ordinary.reference.greatest
    pairs = ((ours, greatest), (theirs, np.maximum.reduceat(ours, starts)))
    least *= item.noise.ordinary.truth.rms
    port, reference = (
        int(
            np.count_nonzero((error >= least) & (error > TOUCHED_FACTOR * np.maximum(other, half_a_unit).repeat(sizes)))
        )
        for error, other in pairs
    )
    return port, reference


def _starts_of_filters(item: Pending) -> np.ndarray:
    """First flat positions of the slices along the first axis, which of most weights is the output's."""
    size, shape = item.arrays[0].size, item.tensor.shape or ()
    if len(shape) < 2 or size < SMALLEST_FILTER * shape[0]:
        return np.zeros(1, np.intp)
    positions = np.arange(size) if size == math.prod(shape) else sample_positions(math.prod(shape))
    filters = positions // math.prod(shape[1:])
    return np.concatenate([[0], np.flatnonzero(np.diff(filters)) + 1])
