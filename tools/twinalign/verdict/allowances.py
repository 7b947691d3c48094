"""Known float64 differences between frameworks from constants stored in float32: each has a name and was measured.

A framework that stores a hyperparameter or a slope in float32 computes with a constant that is off by up to 2^-24 =
6e-8 of itself, in float64 too. That is not a bug of the port, and no wide threshold hides it: a caller names the
allowance, and the verdict says that it was used.
"""

import fnmatch
import math
from collections.abc import Iterable
from typing import NamedTuple

from twinalign.errors import InputError
from twinalign.verdict.noise import Distance, Noise


class Allowance(NamedTuple):
    """A float64 difference of at most `bound` relative to the tensor's RMS, twice that in the worst element."""

    id: str
    bound: float
    text: str
    pattern: str = "*"
    low_bound: float = 0.0
    """The same in the judged precision, if the constant is amplified there: a difference from float64 truth."""
    of_rounding: float = 0.0
    """A float64 difference of this share of the reference's own float32 rounding is allowed as well. A constant inside
    the network is amplified on its way as rounding is, and by how much only the rounding of that very tensor tells."""

    low_of_movement: float = 0.0
    """In the judged precision, the share of a tensor's way: of a parameter, `stepN.parameter.NAME`, since the first
    step, of a buffer since it was zero."""
    low_of_rounding: float = 0.0
    """In the judged precision, a tensor of at most one dimension longer than 1 may be off by so many times the
    reference's own rounding: its elements are sums over all that a batch has for a channel, or over the batch."""
    low_of_deviation: float = 0.0
    """In the judged precision, the share of the deviation of what a running mean is taken of: a mean that cancels has
    the roundings of what it adds."""
    of_greatest: float = 0.0
    """In every precision, the share of the greatest value of all tensors of the same quantity, `step0.gradient` say:
    an absolute difference, which is allowed where the port has values at all."""
    of_update: bool = False
    """Whether `low_bound` and `low_of_movement` follow from the update of the tensor itself, through no other layer:
    they then hold without float64 runs that agree."""

    def limit(self, group: Noise, shrunk: float = 1.0) -> tuple[float, float]:
        """How far apart it lets two float64 runs be: RMS and worst element; `shrunk` of float32's rounding is known."""
        truth, rounding = group.truth, group.reference
        rms = max(self.bound * truth.rms, self.of_rounding * rounding.rms / shrunk)
        return rms, 2 * max(self.bound * truth.greatest, self.of_rounding * rounding.greatest / shrunk)

    def covers(self, name: str) -> bool:
        return fnmatch.fnmatchcase(name, self.pattern)

    def low_limits(
        self, group: Noise, moved: Distance, deviation: Distance, dimensions: int
    ) -> list[tuple[float, float]]:
        """How far from the truth it lets a tensor be in float32 or less: pairs of RMS and worst element.

        `group` are the judged elements, `moved` is how far training has changed the tensor, `deviation` is that of what
        a running mean is taken of, and `dimensions` counts its dimensions longer than 1: a scale of shape [3, 1, 1] or
        a depthwise kernel of shape [256, 1, 1, 1] has one.
        """
        sums = self.low_of_rounding if dimensions <= 1 else 0.0
        measures = (
            (self.low_bound, group.truth),
            (self.low_of_movement, moved),
            (self.low_of_deviation, deviation),
            (sums, group.reference),
        )
        return [(share * measure.rms, share * measure.greatest) for share, measure in measures if share]


LONG_SUM = 1 << 20
"""Terms of one sum in a training step: sixteen pictures of 256 by 256 positions. Added one after the other, n like
terms leave the roundings of n partial sums, sqrt(n / 3) of the last one's; added pairwise, about one."""

KNOWN_ALLOWANCES = {
    allowance.id: allowance
    for allowance in (
        Allowance("float32_epsilon", 1e-10, "a normalisation keeps its epsilon in float32"),
        Allowance(
            "paddle_batch_norm_epsilon", 1e-7, "paddle's batch norm keeps its epsilon in float32", of_rounding=0.25
        ),
        # Measured: 1.1e-7 at a variance of 1. It is the same for every element of a channel, and in a network as it was
        # initialised for every layer, so that it does not average out as rounding does but adds up.
        Allowance(
            "paddle_batch_norm_scale",
            0.0,
            "paddle's batch norm rounds one over the deviation to float32, for a whole channel alike",
            low_bound=2.0**-23,
        ),
        # The share of the new batch is 1 minus a float32 momentum: of 0.9 it is off by 2.4e-7 of itself, of others by
        # what `momentum_error` gives. The running statistics are off by as much of every change that they make.
        Allowance(
            "paddle_batch_norm_momentum",
            2.5e-7,
            "paddle's batch norm keeps its momentum in float32",
            pattern="*running_*",
            low_of_movement=2.5e-7,
            of_update=True,
        ),
        # Measured: 0.16 of a unit roundoff of the deviation where torch, which adds in double, has 0.02.
        Allowance(
            "paddle_batch_norm_mean",
            0.0,
            "paddle's batch norm adds a channel's values in float32",
            pattern="*running_mean",
            low_of_deviation=2.0**-23,
        ),
        Allowance("paddle_optimizer_scalars", 1e-7, "paddle's optimizers keep rate and coefficients in float32"),
        # 1 - beta2 of a float32 beta2 = 0.999 is off by up to 2^-25 / 0.001 of itself; torch computes it in double.
        Allowance(
            "paddle_adam_second_moment",
            0.0,
            "paddle's Adam subtracts beta2 from 1 in float32",
            pattern="*moment2*",
            low_bound=2.0**-24 / 1e-3,
            of_update=True,
        ),
        # The powers of beta2 that 1 is reduced by are taken by one multiplication in float32 a step, each off by up to
        # 2^-25: of 1 - beta2^t, about t * 0.001, the sum of t such errors is 2^-25 / 0.001, and the step has its root.
        Allowance(
            "paddle_adam_bias_correction",
            0.0,
            "paddle's Adam takes the powers of beta2 in float32",
            pattern="*.parameter.*",
            low_of_movement=2.0**-26 / 1e-3,
            of_update=True,
        ),
        Allowance(
            "paddle_long_sums",
            0.0,
            "paddle's CPU kernels add what belongs to one channel, or to the batch, one after the other",
            pattern="*[!)]",  # what ends so are projections of a sample, one-dimensional whatever they stand for
            low_of_rounding=math.sqrt(LONG_SUM / 3),
        ),
        Allowance(
            "paddle_hard_activation",
            1e-6,
            "paddle's hard activations keep slope and offset in float32",
            of_rounding=1.0,
        ),
        # Two constants, each off by up to 2^-24 of itself; what several layers leave adds up on the way through them.
        Allowance(
            "paddle_activation_constant",
            2.0**-23,
            "paddle's SELU, and alpha and bounds of its ELU, CELU, softshrink and hardtanh, are kept in float32",
            of_rounding=0.25,
        ),
        # Of the gradient; `_clipping` in `case_allowances` divides it by the limit, which the norm exceeds.
        Allowance(
            "paddle_clipping_by_norm",
            1e-6,
            "torch adds 1e-6 to the norm by which it clips gradients, paddle's optimizers do not",
            low_of_movement=1e-6,
        ),
        # exp(-64) is 2^-92.3; scores multiplied by 400 made 2^20 times as much of it. This is a 256th of what float64
        # rounds of the greatest gradient.
        Allowance(
            "paddle_softmax_floor",
            0.0,
            "paddle's softmax on the CPU gives no weight below exp(-64) of the largest",
            of_greatest=2.0**-60,
        ),
        Allowance("paddle_label_smoothing", 1e-7, "paddle's label smoothing keeps its epsilon in float32"),
        # Its gradient is off by up to 2^-24 of itself; what a step of training then amplifies, it amplifies of rounding
        # as well.
        Allowance(
            "paddle_average_pool",
            1e-7,
            "paddle's average pooling multiplies by a float32 reciprocal",
            of_rounding=0.25,
        ),
    )
}
"""A float32 constant is off by up to 2^-24 = 6e-8 of itself; docs/verdict.md has what that was measured to do."""

ALWAYS = ("float32_epsilon",)
"""Allowed without being asked for: every paddle batch norm has it, and no fault is as small."""


def resolve(allowances: Iterable[Allowance | str]) -> list[Allowance]:
    """Allowances from `Allowance`, `ID` or `ID=PATTERN`, and those that always hold, the tightest first.

    Raises:
        InputError: an unknown id.
    """
    found = []
    for item in (*ALWAYS, *allowances):
        if isinstance(item, str):
            identifier, _, pattern = item.partition("=")
            known = KNOWN_ALLOWANCES.get(identifier)
            if known is None:
                listed = ", ".join(sorted(KNOWN_ALLOWANCES))
                raise InputError(f"allowance {identifier!r} is unknown; known are {listed}")
            item = known._replace(pattern=pattern or known.pattern)
        found.append(item)
    return sorted(found, key=lambda allowance: allowance.bound)
