"""What is known of a wrong unit of the port on one draw of inputs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from twinalign.replay.case_run import CaseRun
from twinalign.replay.forced_call import ForcedCall
from twinalign.replay.forced_pass import Pairs
from twinalign.replay.judged_before import StandIns
from twinalign.replay.mask_forms import senses_of
from twinalign.replay.port_passes import Forcing

ROUNDING = 1e-11
"""Relative difference that rounding in a unit explains."""
_LEFT = 1e-4
"""Share of a difference that an edit may leave: constants are written in some digits."""


@dataclasses.dataclass
class Draw:
    """One draw of inputs, on which the unit runs."""

    run: CaseRun
    forcing: Forcing
    standing: StandIns
    right: dict[str, np.ndarray]
    """What the reference's forward, and its loss, return."""
    gradients: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """Those of the reference's parameters."""
    pairs: Pairs = dataclasses.field(default_factory=dict)
    wrong: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Names of what differs in the unit without an edit → relative difference."""
    whole: float = 0.0
    """Relative difference of what the port returns without an edit."""
    returned: frozenset[str] = frozenset()
    """Names of all that it returns and keeps without an edit."""
    gradient: float = math.inf
    """The same of its parameters' gradients."""
    children: frozenset[tuple[Any, ...]] = frozenset()
    """Number of the call of each layer inside, how many tensors it is given, and which of the reference's it is not."""


def allowed(before: float) -> float:
    """Relative difference that an edit may leave of one; nothing of NaN, which is an infinite one."""
    return max(ROUNDING, _LEFT * before if math.isfinite(before) else 0.0)


def children_of(unit: ForcedCall) -> frozenset[tuple[Any, ...]]:
    """What `Draw` has as `children`."""
    # What takes a mask in the port's sense is not given one in the reference's.
    return frozenset(
        (child.call.number, len(child.given), *sorted(child.lacking), *sorted(senses_of(child.layouts).items()))
        for child in unit.children
    )
