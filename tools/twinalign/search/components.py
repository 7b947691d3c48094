"""What the searches in optimizer, schedule, input pipeline, metric and training need to know of the case."""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.causes.registry import Explanation
from twinalign.processes.side_process import ChildError, SideProcess
from twinalign.replay.budget import SECONDS_OF_ONE, set_budget_of_next
from twinalign.replay.construction_places import reference_code
from twinalign.replay.noted_expressions import kept_values
from twinalign.replay.noted_functions import port_functions
from twinalign.replay.port_code import set_port_code
from twinalign.search.edits_of_port import lacks_edit, seconds_for, with_edit


class NotSearchedError(Exception):
    """A component cannot be searched, and why."""


_SECONDS_IF_WRONG_BEFORE = 6.0
"""For the cause in what reads a part that is known to be wrong: most often it is nothing but that part's fault."""


@dataclasses.dataclass(frozen=True)
class Mended:
    """How the port's own code is searched for the edit that mends a component.

    Attributes:
        function: one of `replay.mended_components`.
        component: the path under which its code is known.
        given: what the function takes.
        stage: of the case.
        phase: of the causes that a line of the port is among.
        prepare: records what the function reads beyond what is there.
        values: returns the values in the reference's code, as `values_of` does; it takes a `path`, and what is
            `values_given`.
    """

    function: Callable[..., dict[str, Any]]
    component: str
    given: Mapping[str, Any]
    stage: str = "forward"
    phase: str = "forward"
    prepare: Callable[[], Any] = lambda: None
    values: Callable[..., dict[str, Any]] = kept_values
    values_given: Mapping[str, Any] = dataclasses.field(default_factory=dict)


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
        ends_apart: whether what the run's whole trainings have made differs (`search.training.ends_apart`).
        steps: curves of the reference's first steps that the run has recorded in float64; empty without a run.
        steps_in_float64: how many steps the case trains in float64; 0 where it does not say.
        searched: the stages that are searched.
        is_wrong_before: whether a layer or the data are known to be wrong, which metric and training show as well.
        data_is_wrong: whether the data are, which an evaluation as a whole reads.
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
    data_is_wrong: bool = False
    layer_is_wrong: bool = False
    curves: Mapping[str, Mapping[str, np.ndarray]] = dataclasses.field(default_factory=dict)
    ends_apart: bool = False
    steps: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    steps_in_float64: int = 0
    searched: tuple[str, ...] = ()
    allowances: tuple[str, ...] = ()
    stopped: list[str] = dataclasses.field(default_factory=list)

    def functions_of_port(self) -> dict[str, Any]:
        """The port's own functions that have run in its last recording."""
        return self.processes["paddle"].call(port_functions) if self.explain else {}

    def follows(self, record: Callable[..., dict[str, Any]], is_right: Callable[[Path], bool], **given: Any) -> bool:
        """Whether what the port records is right with the edits that have mended its other parts.

        Args:
            record: a function in its process that records it with them, in a file at `path`; it returns nothing where
                there are none.
            is_right: judges that file.
            given: what else `record` takes.
        """
        path = self.folder / "mended.npz"
        try:
            ran = self.explain and self.processes["paddle"].call(record, path=str(path), **given)
            return bool(ran) and is_right(path)
        except ChildError as error:  # two edits may not run together
            if error.died and not self.processes["paddle"].revive():
                raise
            return False
        finally:
            path.unlink(missing_ok=True)

    def explanation(
        self,
        function: Callable[..., dict[str, Any]],
        functions: Mapping[str, Any] | None = None,
        mended: Mended | None = None,
        **given: Any,
    ) -> Explanation | None:
        """The cause that a function in the reference's process proves; None if it proves none or none is wanted.

        Args:
            function: takes what is `given`.
            functions: what `functions_of_port` gave, if something else was recorded since.
            mended: how the port's own code is searched where that leaves open which line is wrong.
        """
        if not self.explain:
            return None
        self.processes["ref"].call(set_port_code, **(functions or self.functions_of_port()))
        seconds = _SECONDS_IF_WRONG_BEFORE if self.is_wrong_before else math.inf
        self.processes["ref"].call(set_budget_of_next, seconds=seconds)
        begun = time.monotonic()
        answer = self.processes["ref"].call(function, **given)
        if answer.get("stopped"):
            self.stopped.append(answer["stopped"])
        known = Explanation(**answer["explanation"]) if answer["explanation"] else None
        left = answer.get("left", math.inf)
        if mended is None or left <= 0.0 or not lacks_edit(known):
            return known
        unused = SECONDS_OF_ONE - (time.monotonic() - begun) if known is None and not self.is_wrong_before else 0.0
        return self.with_edit(known, mended, min(max(seconds_for(known), unused), left))

    def with_edit(self, known: Explanation | None, mended: Mended, seconds: float) -> Explanation | None:
        """The cause with the edit of the port's code that mends the component, if one is found in the time."""
        mended.prepare()
        paths = [mended.component]
        code = self.processes["ref"].call(reference_code, stage=mended.stage, paths=paths)[mended.component]
        path = str(self.folder / "values_in_code.npy")
        values = self.processes["ref"].call(mended.values, path=path, **mended.values_given)
        lines = known.evidence.get("lines_of_port", []) if known is not None else []
        theirs = {"code": code, "values": values, "lines": [list(one) for one in lines]}
        try:
            found = self.processes["paddle"].call(mended.function, theirs=theirs, seconds=seconds, **mended.given)
        except ChildError as error:  # a user's code may not run once more
            if error.died and not self.processes["paddle"].revive():
                raise
            self.stopped.append(f"edits of the port were not all tried: {error}")
            return known
        return with_edit(known, found, mended.phase, "{} ({})") if found else known
