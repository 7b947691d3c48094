"""What is known of a wrong unit of the port on one draw of inputs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from twinalign.replay.case_run import CaseRun
from twinalign.replay.forced_pass import Pairs
from twinalign.replay.judged_before import StandIns
from twinalign.replay.port_passes import Forcing


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
    gradient: float = math.inf
    """The same of its parameters' gradients."""
    children: frozenset[tuple[Any, ...]] = frozenset()
    """Number of the call of each layer inside, how many tensors it is given, and which of the reference's it is not."""
