"""What the searches in optimizer, schedule, input pipeline, metric and training need to know of the case."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.causes.registry import Explanation
from twinalign.processes.side_process import SideProcess
from twinalign.replay.noted_functions import port_functions
from twinalign.replay.port_code import set_port_code


class NotSearchedError(Exception):
    """A component cannot be searched, and why."""


@dataclasses.dataclass(frozen=True)
class ComponentContext:
    """A running case, as the searches outside the model see it.

    Attributes:
        processes: the running recorder processes of both sides.
        folder: where recordings and pictures of the search are kept.
        stages: those that the case has.
        weights: stage → side → initial weights, as `Worker.build_model` takes them.
        gradients: `.npz` file of the reference's gradients in the first step, by reference name; None without a loss.
        curves: side → curves that the run has recorded of the whole training; empty without a run.
        steps: curves of the reference's first steps that the run has recorded in float64; empty without a run.
        searched: the stages that are searched.
        is_wrong_before: whether a layer or the data are known to be wrong, which metric and training show as well.
        layer_is_wrong: whether a layer gives the training wrong values or gradients.
        allowances: those that the case names.
        stopped: what was not tried for want of time, in words; the searches add to it.
    """

    processes: Mapping[str, SideProcess]
    folder: Path
    stages: tuple[str, ...]
    weights: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    gradients: Path | None = None
    explain: bool = True
    is_wrong_before: bool = False
    layer_is_wrong: bool = False
    curves: Mapping[str, Mapping[str, np.ndarray]] = dataclasses.field(default_factory=dict)
    steps: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    searched: tuple[str, ...] = ()
    allowances: tuple[str, ...] = ()
    stopped: list[str] = dataclasses.field(default_factory=list)

    def functions_of_port(self) -> dict[str, Any]:
        """The port's own functions that have run in its last recording."""
        return self.processes["paddle"].call(port_functions) if self.explain else {}

    def explanation(
        self, function: Callable[..., dict[str, Any]], functions: Mapping[str, Any] | None = None, **given: Any
    ) -> Explanation | None:
        """The cause that a function in the reference's process proves; None if it proves none or none is wanted.

        `functions`: what `functions_of_port` gave, if something else was recorded since.
        """
        if not self.explain:
            return None
        self.processes["ref"].call(set_port_code, **(functions or self.functions_of_port()))
        answer = self.processes["ref"].call(function, **given)
        if answer.get("stopped"):
            self.stopped.append(answer["stopped"])
        return Explanation(**answer["explanation"]) if answer["explanation"] else None
