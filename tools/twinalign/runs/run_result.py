"""What a run found, as data."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from twinalign.errors import ExitCode
from twinalign.notebook import Shown
from twinalign.verdict.initial_weights import InitialWeights
from twinalign.verdict.results import ALIGNED, DIVERGED, EXIT_CODES, INCONCLUSIVE, Comparison

if TYPE_CHECKING:
    from twinalign.search.locator import LocateResult


@dataclasses.dataclass(repr=False)
class RunResult(Shown):
    """The verdict of a run with its evidence, stage by stage."""

    kind = "run"

    case: str
    stages: dict[str, Comparison]
    environment: dict[str, Any]
    seconds: float
    located: LocateResult | None = None
    """What is wrong in the stages that diverged; None if no search was made."""
    precision: str = "both"
    accuracy_compatible: bool = False
    ranks: int = 1
    without_float64: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    """Stage -> side -> the error that the model raised in float64."""
    unmatched: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    """Stage that differs -> the port's tensors that have no partner in the reference, and so values of their own."""
    initial: InitialWeights | None = None
    """How both freshly built models start; None if that was not recorded."""
    not_checked: list[str] = dataclasses.field(default_factory=list)
    """Stages that were not run, and `training_mode` if the case was recorded in evaluation mode alone."""

    @property
    def verdict(self) -> str:
        """The worst verdict of the stages: diverged, inconclusive, aligned."""
        found = {comparison.verdict for comparison in self.stages.values()}
        if self.initial is not None and self.initial.counts:
            found.add(self.initial.verdict)
        return next((verdict for verdict in (DIVERGED, INCONCLUSIVE) if verdict in found), ALIGNED)

    @property
    def exit_code(self) -> ExitCode:
        return EXIT_CODES[self.verdict]

    def to_json(self) -> dict[str, Any]:
        """The content of `summary.json`."""
        return {
            "case": self.case,
            "verdict": self.verdict,
            "seconds": round(self.seconds, 1),
            "precision": self.precision,
            "accuracy_compatible": self.accuracy_compatible,
            **({"ranks": self.ranks} if self.ranks > 1 else {}),
            "not_checked": self.not_checked,
            **({"initial": self.initial.to_json()} if self.initial is not None else {}),
            "stages": {stage: self._stage_to_json(stage) for stage in self.stages},
            "environment": self.environment,
            **({"located": self.located.to_json()} if self.located is not None else {}),
        }

    def _stage_to_json(self, stage: str) -> dict[str, Any]:
        failed = self.without_float64.get(stage)
        return {**self.stages[stage].to_json(), **({"without_float64": failed} if failed else {})}
