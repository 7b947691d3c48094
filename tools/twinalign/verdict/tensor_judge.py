"""The decision on a tensor; docs/verdict.md derives every constant here and lists what it was calibrated on."""

import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from twinalign.files.recordings import PROJECTIONS_SUFFIX, real_view
from twinalign.verdict import results
from twinalign.verdict.allowances import Allowance
from twinalign.verdict.exact_zeros import (
    allow_floored,
    greatest_by_quantity,
    inherited_zeros,
    quantity_of,
    rounding_by_quantity,
    taken_over,
    zeros_of_gradients,
)
from twinalign.verdict.excuses import DRAWS, Pending, excuse_kinks
from twinalign.verdict.inherited_rounding import excuse_inherited
from twinalign.verdict.jumps import excuse_jumps
from twinalign.verdict.noise import Distance, Noise, Recordings, TensorNoise, gather, gather_all
from twinalign.verdict.precisions import EPSILONS, epsilon_of, is_finer, measures_rounding
from twinalign.verdict.reasons import float64_reason, missed_allowance, over_reason, passing_reason
from twinalign.verdict.results import TensorVerdict
from twinalign.verdict.statistics import Statistics, measure
from twinalign.verdict.tolerances import by_own_size, by_tolerance

RMS_FACTOR = 8.0
"""How much worse than the reference's own rounding the reproduction's may be, in RMS."""
WORST_FACTOR = 16.0
"""The same for the worst element, whose distribution is wider."""
ZERO_FACTOR = 64.0
"""The same for values that are zero in exact arithmetic: few of them, and they are only rounding."""
ARBITER_MARGIN = 1024.0
"""How far over the expected float64 rounding two float64 runs may differ: 2^-29 times this is 2^-19 of the floor."""
PRIOR_WEIGHT = 16.0
"""Weight, in elements, of the recording's typical relative rounding against a tensor's own."""

_STEP = r"(step(?P<step>\d{1,6}))?(?P<rest>\.?(?P<kind>parameter|buffer)\..+)"
_NOTES = {
    "given tolerances": "were judged by the given tolerances and nothing else",
    "tolerance": "were judged by tolerances: there was no float64 recording and no repeat to measure rounding with",
    "noise floor": "have no float64 run of the reproduction that decides: the reference's rounding alone does",
    "repeat": "have no float64 run: rounding was measured by repeating the reference",
    DRAWS: "depend on random numbers (dropout in training mode?), which each framework draws for itself, and cannot be "
    "compared; set the rates to 0 in both models, or train_mode = False",
}
"""What the reader must know, by the basis of a verdict."""


class _Ratios(NamedTuple):
    """Distances divided by what is allowed: at most 1 passes."""

    rms: float
    worst: float
    arbiter: float
    noise_rms: float
    noise_worst: float

    @property
    def criterion(self) -> str:
        """What is over its limit, in words."""
        if math.isinf(max(self.rms, self.worst)):
            return "where the reference has exactly zero in both precisions"
        rms, worst = (noise / ratio if ratio else 0.0 for noise, ratio in zip(self[3:], self[:2], strict=True))
        over = [f"{rms:.3g} in RMS"] * (self.rms > 1) + [f"{worst:.3g} in the worst element"] * (self.worst > 1)
        return f"at most {' and '.join(over)} is rounding"


_NOTHING = _Ratios(0.0, 0.0, 0.0, 0.0, 0.0)


class Measured(NamedTuple):
    """A tensor to judge."""

    tensor: TensorVerdict
    """Filled with the statistics; receives verdict, reason and basis."""
    found: Statistics
    """Of `reference` and `reproduced`."""
    reference: np.ndarray
    """In the judged precision."""
    reproduced: np.ndarray
    """Of the same shape and dtype."""


class _Unpended(NamedTuple):
    """A tensor whose floor is to be measured."""

    tensor: TensorVerdict
    recordings: Recordings
    basis: str
    low: float
    high: float
    rounding: Distance | None = None
    """The reference's, where its repeat measures it."""


class Judge:
    """Judges tensors, some at a time in the order of the recording; call `finish` after the last."""

    def __init__(
        self,
        reference64: Mapping[str, np.ndarray],
        reproduced64: Mapping[str, np.ndarray],
        repeat: Mapping[str, np.ndarray],
        allowances: Sequence[Allowance],
        known_rounding: Mapping[str, float] | None = None,
        repeats: Mapping[str, Sequence[Sequence[float]]] | None = None,
    ) -> None:
        self._known_rounding = known_rounding or {}
        self._reference64, self._reproduced64, self._repeat = reference64, reproduced64, repeat
        self._repeats = repeats or {}
        self._allowances = allowances
        self._pending: list[Pending] = []
        self._beside_zeros: dict[str, Distance] = {}
        self._of_elements: dict[str, Distance] = {}
        self._greatest: dict[str, float] = {}
        self._reference: dict[str, np.ndarray] = {}

    def judge(self, tensors: Sequence[Measured], *, explicit: bool) -> None:
        """Decide the tensors that can be decided alone, or by the user's `explicit` tolerances; keep the rest."""
        self._reference |= {measured.tensor.name: measured.reference for measured in tensors}
        waiting = [item for measured in tensors if (item := self._judge(measured, explicit)) is not None]
        for item, noise in zip(waiting, gather_all([item.recordings for item in waiting]), strict=True):
            if item.rounding is not None:
                noise.ordinary.reference = item.rounding
            else:
                self._add_repeats(item.tensor.name, noise, item.recordings)
            arrays = tuple(array for array in item.recordings if array is not None)
            self._pending.append(Pending(item.tensor, noise, arrays, len(arrays) == 4, item.basis, item.low, item.high))

    def _judge(self, measured: Measured, explicit: bool) -> _Unpended | None:
        """Decide, or return what must be measured first."""
        tensor, found, reference, reproduced = measured
        if reference.size == 0:
            _set(tensor, results.ALIGNED, "structure", "empty on both sides")
        elif found.nonfinite_differ:
            count = found.nonfinite_differ
            text = f"{count} element{'s are' if count > 1 else ' is'} NaN or infinite on one side only"
            _set(tensor, results.DIVERGED, "structure", f"{text}, first at {list(tensor.worst_index or ())}")
        elif found.finite == 0:
            _set(tensor, results.INCONCLUSIVE, "structure", "every element is NaN or infinite on both sides")
        elif explicit:
            by_tolerance(tensor, "the given tolerances", "given tolerances")
        elif reference.dtype.kind in "iub":
            self._exactly(tensor, found, "values" if reference.dtype.kind == "b" else "integers")
        elif tensor.name in self._reference64 and measures_rounding(self._reference64[tensor.name], reference):
            return self._by_float64(tensor, reference, reproduced)
        elif (item := self._by_repeat(tensor, reference, reproduced)) is not None:
            return item
        elif found.max_abs == 0:
            _set(tensor, results.ALIGNED, "exact", "identical")
        else:
            by_own_size(*measured)
            if tensor.verdict == results.DIVERGED and reference.dtype.kind == "f":
                self._by_update(tensor, reference, reproduced)
        return None

    def _by_update(self, tensor: TensorVerdict, reference: np.ndarray, reproduced: np.ndarray) -> None:
        """Withdraw a divergence by tolerances that is known of the update of the tensor itself."""
        low, noise = epsilon_of(reference.dtype), gather(reference, reproduced, reference, None)
        item = Pending(tensor, noise, (reference, reproduced), False, "tolerance", low, low)
        if self._allow_low(item):
            tensor.verdict = results.ALIGNED
            tensor.reason += f"; allowed as {tensor.allowed}"

    def _exactly(self, tensor: TensorVerdict, found: Statistics, what: str) -> None:
        if found.max_abs == 0:
            _set(tensor, results.ALIGNED, "exact", "identical")
        else:
            reason = f"{found.mismatched} of {found.size} {what} differ"
            reason += f", by up to {found.max_abs:g}" if what == "integers" else ""
            _set(tensor, results.DIVERGED, "exact", reason)

    def _by_repeat(self, tensor: TensorVerdict, reference: np.ndarray, reproduced: np.ndarray) -> _Unpended | None:
        repeat = self._repeat.get(tensor.name)
        if repeat is None or repeat.shape != reference.shape or repeat.dtype != reference.dtype:
            return None
        distance = measure(reference, repeat, 0.0, 0.0, everything=False)
        if distance.max_abs == 0 or distance.nonfinite_differ:
            return None  # an identical repeat measures nothing
        rounding = Distance(distance.sum_squares, distance.max_abs, distance.finite)
        low = epsilon_of(reference.dtype)
        return _Unpended(tensor, (reference, reproduced, reference, None), "repeat", low, low, rounding)

    def _by_float64(self, tensor: TensorVerdict, reference: np.ndarray, reproduced: np.ndarray) -> _Unpended | None:
        high, other = self._reference64[tensor.name], self._reproduced64.get(tensor.name)
        if other is not None and not is_finer(other, reference):
            other = None
        if other is not None and other.shape != high.shape:
            text = f"the float64 runs have shapes {list(high.shape)} and {list(other.shape)}"
            _set(tensor, results.DIVERGED, "structure", text)
            return None
        if reference.dtype.kind == "c":
            reference, reproduced, high = (real_view(array) for array in (reference, reproduced, high))
            other = None if other is None else real_view(other)
        low = max(epsilon_of(reference.dtype), EPSILONS["float32"])
        basis = "noise floor" if other is None else "float64"
        return _Unpended(tensor, (reference, reproduced, high, other), basis, low, epsilon_of(high.dtype))

    def _add_repeats(self, name: str, noise: TensorNoise, recordings: Recordings) -> None:
        """For tensors of few numbers, add the errors of the reference's repeats to the floor."""
        reference, _, high, _ = recordings
        if name not in self._repeats or noise.ordinary.count != high.size or high.dtype.kind != "f":
            return  # zeros and non-finite values are judged differently
        for values in self._repeats[name]:
            # One that gives the same number says nothing new.
            if len(values) == high.size and not np.array_equal(values, reference.ravel()):
                noise.ordinary.reference.add(np.asarray(values, np.float64) - high.ravel())

    def finish(self) -> None:
        """Decide every tensor with a measured floor."""
        prior = self._typical_rounding()
        zeros = zeros_of_gradients(self._pending)
        self._beside_zeros, self._greatest = rounding_by_quantity(self._pending), greatest_by_quantity(self._pending)
        self._of_elements = {i.tensor.name + PROJECTIONS_SUFFIX: i.noise.ordinary.reference for i in self._pending}
        for item in self._pending:
            if (inherited := inherited_zeros(item, zeros)) is not None:
                reference32, reproduced32, reference64, *rest = item.arrays
                item.noise = gather(reference32, reproduced32, reference64, rest[0] if rest else None, inherited)
            known = max(prior, self._known_rounding.get(item.tensor.name, 0.0))
            self._decide(item, known)
            if item.tensor.verdict == results.DIVERGED and (taken := taken_over(item, self._pending)) is not None:
                self._decide_without(item, known, *taken)

    def _decide_without(self, item: Pending, prior: float, shift: np.ndarray, bias: str) -> None:
        """Decide anew, without what the port's float64 run takes over of a bias that rounding has moved."""
        before = dict(vars(item.tensor))
        reference32, reproduced32, reference64, reproduced64 = item.arrays
        item.noise = gather(reference32, reproduced32, reference64, reproduced64 - shift)
        self._decide(item, prior)
        if item.tensor.verdict == results.DIVERGED:
            vars(item.tensor).update(before)
        else:
            item.tensor.reason += f"; without what rounding makes of {bias}, whose gradient is zero in exact arithmetic"

    def excuse(self) -> None:
        """Withdraw divergences that allowed parameters, kinks or jumps explain, once the conventions are known."""
        pending = [item for item in self._pending if item.tensor.accepted is None]
        excuse_inherited(pending, RMS_FACTOR, WORST_FACTOR)
        excuse_kinks(pending)
        excuse_jumps(pending, self._repeat)

    def _typical_rounding(self) -> float:
        """Median over tensors of the reference's relative rounding; 0 if nothing was measured."""
        shares = [
            item.noise.ordinary.reference.rms / item.noise.ordinary.truth.rms
            for item in self._pending
            if item.noise.ordinary.truth.rms > 0 and item.noise.ordinary.reference.rms > 0
        ]
        return float(np.median(shares)) if shares else 0.0

    def _decide(self, item: Pending, prior: float) -> None:
        tensor, noise = item.tensor, item.noise
        if item.has_arbiter and noise.ordinary.truth.greatest == 0 == noise.ordinary.reference.greatest:
            # The reference cancels without a rounding; what the port's leaves is measured by that of like tensors.
            beside = self._beside_zeros.get(quantity_of(tensor.name))
            ordinary = _judge_group(item, noise.ordinary, 0.0, ZERO_FACTOR, ZERO_FACTOR, beside=beside)
        else:
            elements = self._of_elements.get(tensor.name)  # thousands of them tell more of rounding than 8 projections
            ordinary = _judge_group(item, noise.ordinary, prior, RMS_FACTOR, WORST_FACTOR, beside=elements)
        # A value that is zero by cancellation rounds like its neighbours.
        zero = _judge_group(item, noise.zero, 0.0, ZERO_FACTOR, ZERO_FACTOR, beside=noise.ordinary.reference)
        # Of a gradient that the reference has as exactly zero, an optimizer keeps exactly zero: nothing is blown up.
        kept = noise.blown.truth.greatest == 0 == noise.blown.reference.greatest
        beside = noise.ordinary.reference if kept else None
        blown = _judge_group(item, noise.blown, 0.0, ZERO_FACTOR, ZERO_FACTOR, blown=True, beside=beside)
        tensor.structural_zeros = noise.zero.count + noise.blown.count
        tensor.floor_rms, tensor.floor_max = noise.ordinary.reference.rms, noise.ordinary.reference.greatest
        groups = (ordinary, zero, blown)
        shown = max(groups, key=lambda ratios: max(ratios.rms, ratios.worst))
        tensor.noise_ratio, tensor.noise_ratio_worst = shown.noise_rms, shown.noise_worst
        if item.has_arbiter:
            truth, high = noise.ordinary.truth.rms, noise.ordinary.high
            tensor.fp64_rel = high.rms / truth if truth else (0.0 if high.rms == 0 else None)
            tensor.fp64_max_abs = max(high.greatest, noise.zero.high.greatest, noise.blown.high.greatest)
            tensor.fp64_ratio = max(ordinary.arbiter, zero.arbiter, blown.arbiter)
        tensor.basis = item.basis
        if noise.nonfinite_differ:
            text = f"{noise.nonfinite_differ} elements are NaN or infinite in one float64 run only"
            _set(tensor, results.DIVERGED, "structure", text)
        elif max(shown.rms, shown.worst, tensor.fp64_ratio or 0.0) > 1.0 and allow_floored(
            item, self._allowances, self._greatest.get(quantity_of(tensor.name), 0.0)
        ):
            tensor.verdict = results.ALIGNED
        elif item.has_arbiter and (tensor.fp64_ratio or 0.0) > 1.0 and not self._allow(tensor, noise):
            missed = missed_allowance(tensor.name, self._allowances, noise.ordinary)
            tensor.verdict, tensor.reason = results.DIVERGED, float64_reason(tensor) + missed
        elif max(shown.rms, shown.worst) > 1.0 and not self._allow_low(item):
            item.over_floor = True
            too_few = (tensor.size or 0) < PRIOR_WEIGHT and not item.has_arbiter
            tensor.verdict = results.INCONCLUSIVE if too_few else results.DIVERGED
            tensor.reason = over_reason(item, too_few, shown.criterion)
        else:
            tensor.verdict, tensor.reason = results.ALIGNED, passing_reason(item)

    def _allow(self, tensor: TensorVerdict, noise: TensorNoise) -> bool:
        group = noise.ordinary
        for allowance in self._allowances:
            rms, worst = allowance.limit(group)
            if group.high.rms <= rms and group.high.greatest <= worst and allowance.covers(tensor.name):
                tensor.allowed = allowance.id
                return True
        return False

    def _allow_low(self, item: Pending) -> bool:
        """Whether a constant in the judged precision explains the distance, beside what rounding does.

        Without float64 runs of both sides that agree, only by what follows from the update of the tensor itself; where
        float64 is judged, by what is allowed there.
        """
        group, dimensions = item.noise.ordinary, sum(length > 1 for length in item.tensor.shape or ())
        rms = group.reproduced.rms - RMS_FACTOR * group.reference.rms
        worst = group.reproduced.greatest - WORST_FACTOR * group.reference.greatest
        moved, deviation = self._movement(item), self._deviation(item)
        for allowance in sorted(self._allowances, key=lambda allowance: allowance.low_of_rounding):  # the widest last
            if item.low <= EPSILONS["float64"]:
                limits = [allowance.limit(group, item.low / EPSILONS["float32"])]
            elif item.has_arbiter or allowance.of_update:
                limits = allowance.low_limits(group, moved, deviation, dimensions)
            else:
                limits = []
            fits = any(rms <= most and worst <= greatest for most, greatest in limits)
            if fits and allowance.covers(item.tensor.name):
                item.tensor.allowed = allowance.id
                return True
        return False

    def _movement(self, item: Pending) -> Distance:
        """How far training has changed a tensor, step by step, in the reference's run that stands for the truth."""
        moved = Distance()
        if (match := re.fullmatch(_STEP, item.tensor.name)) is None:
            return moved
        known = self._reference64 if item.tensor.name in self._reference64 else self._reference
        names = [f"step{at}{match['rest']}" for at in range(int(match["step"] or 0))] + [item.tensor.name]
        states = [np.asarray(known[name], np.float64).ravel() for name in names if name in known]
        if len({state.size for state in states}) != 1 or len(states) != len(names):
            return moved
        ways = [np.abs(behind - before) for before, behind in itertools.pairwise(states)]
        if match["kind"] == "buffer":
            ways.append(np.abs(states[0]))
        if ways:
            moved.add(np.sum(ways, axis=0))
        return moved

    def _deviation(self, item: Pending) -> Distance:
        """Of what a running mean is taken of, by the running variance beside it in the reference's float64 run."""
        found, name = Distance(), item.tensor.name
        variance = self._reference64.get(name.replace("running_mean", "running_var"))
        if variance is not None and name.endswith("running_mean"):
            found.add(np.sqrt(np.abs(np.asarray(variance, np.float64).ravel())))
        return found

    def notes(self, tensors: Sequence[TensorVerdict]) -> list[str]:
        """What the reader must know about how the tensors were judged."""
        counts = Counter(tensor.basis for tensor in tensors)
        return [f"{counts[basis]} of {len(tensors)} tensors {text}" for basis, text in _NOTES.items() if counts[basis]]


def _set(tensor: TensorVerdict, verdict: str, basis: str, reason: str) -> None:
    tensor.verdict, tensor.basis, tensor.reason = verdict, basis, reason


def _judge_group(
    item: Pending,
    noise: Noise,
    prior: float,
    rms_factor: float,
    worst_factor: float,
    *,
    blown: bool = False,
    beside: Distance | None = None,
) -> _Ratios:
    """Ratios of one group of elements; see docs/verdict.md, "The noise floor"."""
    count = noise.count
    if count == 0:
        return _NOTHING
    scale, own, reproduced = noise.truth.rms, noise.reference.rms, noise.reproduced
    pooled = math.sqrt((count * own**2 + PRIOR_WEIGHT * (prior * scale) ** 2) / (count + PRIOR_WEIGHT))
    floor = max(own, pooled, item.low / 2 * scale, beside.rms if beside is not None else 0.0)
    # The greatest of n normal errors is expected at sqrt(2 ln 2n) standard deviations.
    floor_worst = max(noise.reference.greatest, floor * math.sqrt(2 * math.log(2 * count)), item.low / 2 * scale)
    noise_rms, noise_worst = _over(reproduced.rms, floor), _over(reproduced.greatest, floor_worst)
    arbiter = 0.0
    if item.has_arbiter:
        shrink = rms_factor if blown else ARBITER_MARGIN * item.high / item.low
        allowed = shrink * max(floor, noise.own.rms)
        allowed_worst = shrink * max(floor_worst, noise.own.greatest)
        arbiter = max(_over(noise.high.rms, allowed), _over(noise.high.greatest, allowed_worst))
    return _Ratios(noise_rms / rms_factor, noise_worst / worst_factor, arbiter, noise_rms, noise_worst)


def _over(value: float, allowed: float) -> float:
    return 0.0 if value == 0 else value / allowed if allowed else math.inf
