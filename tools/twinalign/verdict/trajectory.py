"""Losses and metrics over steps: growth of rounding (chaos) or a bug, and the step at which the curves depart.

Training multiplies any difference by a factor a step, rounding as well as a bug. Two things tell them apart
(docs/verdict.md, "Trajectories"): where the difference starts (at rounding or above), and whether it grows at the rate
at which rounding is seen to grow.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from twinalign.errors import InputError
from twinalign.files.curve_names import CURVE_PREFIX, EMA_DISTANCE, LEARNING_RATE, WEIGHT_NORM
from twinalign.verdict import results

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

_ROUNDING = 2.0**-24
FLOOR_FACTOR = 32.0
"""A scalar's rounding at one step is a poor measure of its size; docs/verdict.md has the calibration."""
_OWN_FACTOR = 4.0
"""Allowed ratio of rounding in later steps to that measured in the first: growth is no exact power."""
_START_FACTOR = 4096.0
"""Rounding in a deep network's loss, over the rounding of the loss itself, before any update."""
_JUMP = 100.0
"""Growth within a step that no smooth training shows."""
_ONSET_SHARE = 0.1
"""Share of the steps by which the onset of visible growth may come earlier than in the run that measures it."""
_PARTED = 1e-2
"""Relative difference from which two curves are no longer the same curve."""


@dataclasses.dataclass
class TrajectoryVerdict(results.JsonFields):
    """Whether two curves agree up to the growth of rounding."""

    name: str
    verdict: str
    kind: str
    """"identical", "rounding", "chaos", "offset" (wrong from the start), "slope" (from an update on), "jump", or
    "growth": a slope that float64 shows to be rounding, or could still show to be."""
    reason: str
    steps: int
    parted_at: int | None
    """First step over what rounding explains; for chaos the first at which the curves differ by more than 1%."""
    growth: float | None
    """Factor by which the difference grows in a step, fitted while it is small; None where it does not grow."""
    basis: str
    max_rel: float
    """Greatest |difference| over the reference's greatest magnitude."""


def judge_trajectory(
    reference: ArrayLike,
    reproduced: ArrayLike,
    *,
    reference_repeat: ArrayLike | None = None,
    own_times: float = 0.0,
    own_first: float = 0.0,
    exact_steps: int = 0,
    may_jump: bool = False,
    rounding: float = _ROUNDING,
    name: str = "loss",
) -> TrajectoryVerdict:
    """Judge a scalar recorded at every step.

    Args:
        reference: one value per step.
        reproduced: the port's.
        reference_repeat: the reference with another summation order, same steps.
        own_times: ratio of either side's own rounding to the floor (`own_rounding_over_floor`), 0 if unknown.
        own_first: the reference's own rounding in the first step, which the float64 run shows, 0 if unknown: a ratio
            near 0 dB loses most of its digits.
        exact_steps: how many of the first steps were made in float64 too and agree there, in all curves.
        may_jump: whether rounding alone can make a jump, as it does in the norm of a single tensor: a gradient near
            zero that changes its sign is a full step of AdamW.
        rounding: of one operation, relative, in the precision of `reference` and `reproduced`.
        name: for the verdict.

    Raises:
        InputError: curves that are not one-dimensional or are empty.
    """
    ours, port = (_curve(values, name) for values in (reference, reproduced))
    repeat = None if reference_repeat is None else _curve(reference_repeat, name)
    steps = len(ours)
    if steps != len(port):
        reason = f"{steps} steps against {len(port)}"
        return TrajectoryVerdict(name, results.DIVERGED, "jump", reason, steps, None, None, "structure", 0)
    if (step := _first(_nonfinite_differ(ours, port))) is not None:
        reason = f"NaN or infinite on one side only at step {step}"
        return TrajectoryVerdict(name, results.DIVERGED, "jump", reason, steps, step, None, "structure", math.inf)
    if not np.isfinite(ours).any():
        reason = "every step is NaN or infinite on both sides"
        return TrajectoryVerdict(name, results.INCONCLUSIVE, "identical", reason, steps, None, None, "structure", 0)
    # A repeat that is NaN where the reference is a number measures nothing there.
    if repeat is not None and (len(repeat) != steps or (np.isfinite(ours) & ~np.isfinite(repeat)).any()):
        repeat = None
    return _Curves(name, ours, port, repeat, own_times, own_first, exact_steps, may_jump, rounding).judge()


def _nonfinite_differ(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    same = (first == second) | (np.isnan(first) & np.isnan(second))
    return ~(np.isfinite(first) & np.isfinite(second)) & ~same


def _curve(values: ArrayLike, name: str) -> np.ndarray:
    curve = np.asarray(values, dtype=np.float64)
    curve = curve.reshape(-1) if curve.ndim == 0 or curve.size == max(curve.shape) else curve
    if curve.ndim != 1 or curve.size == 0:
        raise InputError(f"{name}: a curve has one value a step, got shape {list(curve.shape)}")
    return curve


@dataclasses.dataclass
class _Curves:
    name: str
    reference: np.ndarray
    reproduced: np.ndarray
    repeat: np.ndarray | None
    own_times: float
    own_first: float
    exact_steps: int
    may_jump: bool
    rounding: float

    def __post_init__(self) -> None:
        finite = np.isfinite(self.reference) & np.isfinite(self.reproduced)
        self._difference = np.where(finite, np.abs(self.reproduced - self.reference), 0.0)
        self._scale = greatest(self.reference[finite]) or 1.0

    def judge(self) -> TrajectoryVerdict:
        if self._difference.max() == 0:
            return self._verdict("exact", None)
        if self.repeat is None:
            return self._verdict("growth", self._first_over_growth())
        floor = _shown_by(self.reference, self.repeat, self.rounding * self._scale)
        allowed = FLOOR_FACTOR * floor
        # Before the first step nothing is amplified yet: there the port must round like the reference.
        allowed[0] = max(allowed[0], _OWN_FACTOR * self.own_first)
        allowed[1:] = np.maximum(allowed[1:], _OWN_FACTOR * self.own_times * floor[1:])
        over = _first(self._difference > allowed)
        return self._grown(over) if over is not None and self._may_be_growth(over) else self._verdict("repeat", over)

    def _may_be_growth(self, over: int) -> bool:
        """Whether a curve that departs at a step may have grown as rounding does: after an update, without a jump.

        A curve that the repeat does not move at all, such as the learning rate, has no rounding to grow. Up to where
        float64 agrees, a jump is rounding too.
        """
        assert self.repeat is not None
        moves = bool(np.nan_to_num(np.abs(self.reference - self.repeat)).any())
        smooth = self.may_jump or not self._jumps()[self.exact_steps :].any()
        return moves and smooth and self.exact_steps > 0 and over > (0 if over < self.exact_steps else 1)

    def _grown(self, over: int) -> TrajectoryVerdict:
        """One repeat is one sample of how rounding grows, and may miss what takes the port further: float64 decides."""
        found = self._verdict("repeat", None)
        found.kind, found.parted_at = "growth", over
        found.reason = f"the curves depart from step {over} on by more than the reference's repeat shows"
        if over < self.exact_steps:
            found.reason += ", and the float64 runs agree there: it is rounding that grows"
        else:
            found.verdict = results.INCONCLUSIVE
            found.reason += (
                f"; the float64 runs agree in all their {self.exact_steps} steps: with {over + 1} (float64_train_steps "
                "in the case) they would tell rounding that grows from a fault"
            )
        return found

    def _first_over_growth(self) -> int | None:
        return 0 if self._difference[0] > _START_FACTOR * _ROUNDING * self._scale else _first(self._jumps())

    def _jumps(self) -> np.ndarray:
        """The steps at which the difference becomes visible by growing a hundredfold."""
        relative = self._difference / self._scale
        envelope = np.maximum(_envelope(relative), _ROUNDING)
        found: np.ndarray = np.concatenate([[False], relative[1:] > _JUMP * envelope[:-1]]) & (relative > 1e-5)
        return found

    def _verdict(self, basis: str, over: int | None) -> TrajectoryVerdict:
        relative = self._difference / self._scale
        same, growth, most = "identical", _growth(relative), float(relative.max())
        found = TrajectoryVerdict(self.name, results.ALIGNED, same, same, len(relative), None, growth, basis, most)
        if over is not None:
            found.verdict, found.parted_at = results.DIVERGED, over
            found.kind, found.reason = self._bug(over)
        elif relative.max() > _PARTED:
            found.verdict, found.kind = results.ROUNDING, "chaos"
            found.parted_at = _first(relative > _PARTED)
            pace = f" by a factor of {found.growth:.2f} per step" if found.growth else ""
            found.reason = (
                f"rounding grows{pace} until the curves depart at step {found.parted_at}; no step adds an error"
            )
            if basis == "growth":
                found.reason += "; there were no float64 runs to prove it"
        elif relative.max() > 0:
            found.kind, found.verdict = "rounding", results.ROUNDING
            found.reason = f"the curves differ by rounding, at most {relative.max():.2g} of the greatest value"
        return found

    @property
    def _first_from(self) -> str:
        """What the first value of such a curve is made of."""
        name = self.name.removeprefix(CURVE_PREFIX)
        if name.startswith(WEIGHT_NORM):  # as the first update leaves it
            return "gradient, optimizer or schedule"
        if name.startswith(EMA_DISTANCE):  # behind the first update, too
            return "gradient, optimizer or average of weights"
        return "optimizer or schedule" if name.startswith(LEARNING_RATE) else "forward pass, loss or data"

    def _bug(self, step: int) -> tuple[str, str]:
        place = "beyond what rounding explains"
        if len(self._difference) == 1:
            return "offset", f"the value differs, {place}"
        if step == 0:
            return "offset", f"the curves differ from the first step on, {place}: {self._first_from}"
        before = float(self._difference[:step].max())
        if step == 1 or self._difference[step] <= _JUMP * max(before, 2.0**-53 * self._scale):
            return "slope", f"the curves depart from step {step} on, {place}: gradient, optimizer or schedule"
        return "jump", f"the difference jumps at step {step}, {place}: schedule, data order or state"


def own_rounding_over_floor(
    reference: ArrayLike, reference_repeat: ArrayLike, own: ArrayLike, rounding: float = _ROUNDING
) -> float:
    """Greatest ratio of a side's own rounding to the floor, from the second step on.

    One repeat of the reference may not show what happens in the port: rounding flips the sign of a gradient near zero,
    and an optimizer makes a full step of it. The state of a training errs as a whole, so the greatest ratio of any
    curve holds for all.

    Args:
        reference: one value per step, float32 run.
        reference_repeat: the same from values changed by one unit in the last place.
        own: distance of its float32 run from its float64 run, for the first steps, if both float64 runs agree.
        rounding: of one operation, relative.
    """
    curve, repeat, measured = (np.asarray(values, np.float64) for values in (reference, reference_repeat, own))
    scale = greatest(curve[np.isfinite(curve)]) or 1.0
    floor = _shown_by(curve, repeat, rounding * scale)[1 : len(measured)]
    over = measured[1 : len(floor) + 1] / floor
    return float(over[np.isfinite(over)].max(initial=0.0))


def _shown_by(reference: np.ndarray, other: np.ndarray, least: float) -> np.ndarray:
    floor = _envelope(np.nan_to_num(np.abs(reference - other))) + least
    # Growth begins at a random step (rounding flips an element), which need not be the same in two runs.
    lag = math.ceil(_ONSET_SHARE * len(floor))
    return np.concatenate([floor[lag:], np.full(lag, floor[-1])])


def greatest(values: np.ndarray) -> float:
    """Greatest magnitude; 0 if there are no values."""
    return float(np.abs(values).max(initial=0.0))


def _envelope(values: np.ndarray) -> np.ndarray:
    return np.maximum.accumulate(values)


def _first(flags: np.ndarray) -> int | None:
    return int(flags.argmax()) if flags.any() else None


def growth_of(reference: np.ndarray, other: np.ndarray) -> float | None:
    """Factor per step by which the difference of two curves grows, fitted below 1%; None if it does not grow."""
    finite = np.isfinite(reference) & np.isfinite(other)
    scale = greatest(reference[finite])
    return _growth(np.where(finite, np.abs(other - reference), 0.0) / scale) if scale else None


def _growth(relative: np.ndarray) -> float | None:
    """Factor a step by least squares on the logarithm of the envelope, while it is between rounding and 1%."""
    envelope = _envelope(relative)
    used = np.flatnonzero((envelope > 0) & (envelope < _PARTED))
    if len(used) < 4:
        return None
    slope = float(np.polyfit(used, np.log(envelope[used]), 1)[0])
    return math.exp(slope) if slope > 1e-3 else None
