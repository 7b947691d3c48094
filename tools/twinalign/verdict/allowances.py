"""Float64 differences that a framework is known to make by storing a constant in float32: each by name, measured.

A framework that keeps a hyperparameter or a slope in float32 computes with a constant that is off by up to 2^-24 =
6e-8 of itself, in float64 as well. That is no bug of a port, and no wide threshold lets it pass: a caller names the
allowance, and the verdict says that it was used.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Iterable

from twinalign.errors import InputError


@dataclasses.dataclass(frozen=True)
class Allowance:
    """A float64 difference of at most `bound` relative to the tensor's RMS, twice that in the worst element."""

    id: str
    bound: float
    text: str
    pattern: str = "*"
    low_bound: float = 0.0
    """Likewise in the judged precision, where the constant is amplified there: a difference from float64 truth."""
    of_rounding: float = 0.0
    """A float64 difference of this share of the reference's own float32 rounding is allowed as well. A constant inside
    the network is amplified on its way as rounding is, and by how much only the rounding of that very tensor tells."""

    def covers(self, name: str) -> bool:
        """Whether the allowance is meant for a tensor of this name."""
        return fnmatch.fnmatchcase(name, self.pattern)


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
        # The share of the new batch is 1 minus a float32 0.9, which is off by 2.4e-7 of itself.
        Allowance(
            "paddle_batch_norm_momentum",
            2.5e-7,
            "paddle's batch norm keeps its momentum in float32",
            pattern="*running_*",
        ),
        Allowance("paddle_optimizer_scalars", 1e-7, "paddle's optimizers keep rate and coefficients in float32"),
        # 1 - beta2 of a float32 beta2 = 0.999 is off by up to 2^-24 / 0.001 of itself; torch computes it in double.
        Allowance(
            "paddle_adam_second_moment",
            1e-7,
            "paddle's Adam subtracts beta2 from 1 in float32",
            pattern="*moment2*",
            low_bound=2.0**-24 / 1e-3,
        ),
        Allowance(
            "paddle_hard_activation",
            1e-6,
            "paddle's hard activations keep slope and offset in float32",
            of_rounding=1.0,
        ),
        Allowance("paddle_label_smoothing", 1e-7, "paddle's label smoothing keeps its epsilon in float32"),
        Allowance("paddle_average_pool", 1e-7, "paddle's average pooling multiplies by a float32 reciprocal"),
    )
}
"""A float32 constant is off by up to 2^-24 = 6e-8 of itself; docs/verdict.md has what that was measured to do."""

ALWAYS = ("float32_epsilon",)
"""Allowed without being asked for: every paddle batch norm has it, and no fault is as small."""


def resolve(allowances: Iterable[Allowance | str]) -> list[Allowance]:
    """Allowances from themselves or `ID` or `ID=PATTERN`, and those that hold always, the tightest first.

    Raises:
        InputError: an id that nobody has measured.
    """
    found = []
    for item in (*ALWAYS, *allowances):
        if isinstance(item, str):
            identifier, _, pattern = item.partition("=")
            known = KNOWN_ALLOWANCES.get(identifier)
            if known is None:
                raise InputError(
                    f"allowance {identifier!r} is unknown; known are {', '.join(sorted(KNOWN_ALLOWANCES))}"
                )
            item = dataclasses.replace(known, pattern=pattern or known.pattern)
        found.append(item)
    return sorted(found, key=lambda allowance: allowance.bound)
