"""Locate the faults of a case: in its layers, its optimizer and schedule, its data, metric and training."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from twinalign.errors import ExitCode
from twinalign.jobs import SIDES
from twinalign.locate.components import ComponentContext
from twinalign.locate.faults import Fault
from twinalign.locate.layers import LayerFaults, locate_layers
from twinalign.ranks.locating import RankSearch
from twinalign.ranks.recordings import arrays_of_rank, is_ranked
from twinalign.runner import Recorder, RunSettings
from twinalign.stages.train import CURVE_PREFIX
from twinalign.verdict.conventions import CONVENTIONS
from twinalign.verdict.results import ALIGNED, DIVERGED

# Stages whose part of the case has a model that is searched layer by layer, the most telling first.
_MODEL_STAGES = ("backward", "loss", "forward")
# Stage → the search in what is no layer, and the function that makes it.
_COMPONENTS = {
    "backward": ("optimizer", "locate_optimizer"),
    "data": ("data", "locate_data"),
    "metric": ("metric", "locate_metric"),
    "train": ("training", "locate_training"),
}

SEARCHED_STAGES = (*_MODEL_STAGES, "data", "metric", "train")
"""Stages that something can be located in."""


@dataclasses.dataclass
class LocateResult:
    """What is wrong, part by part.

    Attributes:
        case: its name.
        faults: every fault that was found, layers first.
        layers: part of the case → what is known of its layers.
    """

    case: str
    faults: list[Fault] = dataclasses.field(default_factory=list)
    layers: dict[str, LayerFaults] = dataclasses.field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """Diverged where there is a fault that is no accepted convention of the framework."""
        return DIVERGED if any("accepted" not in fault.evidence for fault in self.faults) else ALIGNED

    @property
    def exit_code(self) -> ExitCode:
        """What the command ends with."""
        return ExitCode.DIVERGED if self.verdict == DIVERGED else ExitCode.ALIGNED

    def _repr_html_(self) -> str:
        from twinalign.locate.tables import print_located
        from twinalign.notebook import as_html

        return as_html(lambda console: print_located(self, console))

    def to_json(self) -> dict[str, Any]:
        """In the form of `locate --json`."""
        return {
            "case": self.case,
            "verdict": self.verdict,
            "faults": [fault.to_json() for fault in self.faults],
            "layers": {part: found.to_json() for part, found in self.layers.items()},
        }


class Locator:
    """Searches a case whose recorder processes are running.

    Use it inside `Recorder.running`::

        with recorder.running() as weights:
            result = Locator(recorder, weights).locate()
    """

    def __init__(
        self,
        recorder: Recorder,
        weights: Mapping[str, Mapping[str, Any]],
        progress: Callable[[str, str], None] = lambda side, text: None,
    ) -> None:
        """Take a recorder inside its `running` block, and the weights by part that the block yields."""
        self._recorder, self._weights, self._progress = recorder, weights, progress
        self._folder = recorder.out / "locate"

    def locate(self, stages: Sequence[str] = (), explain: bool = True) -> LocateResult:
        """Find the faults that can show in these stages (all that the case has by default), and their causes."""
        description = self._recorder.description
        wanted = [stage for stage in description["stages"] if not stages or stage in stages]
        result = LocateResult(description["name"])
        gradients = self._folder / "gradients.npz"
        for stage in self._model_stages(wanted):
            part = description["parts"][stage]
            found = locate_layers(
                self._recorder.processes,
                stage,
                self._weights[part],
                self._folder / "values",
                gradients=gradients if stage == "backward" else None,
                rename=description["rename"].get(part, {}),
                explain=explain,
                progress=self._progress,
            )
            result.layers[part] = found
            result.faults += found.faults
        context = ComponentContext(
            folder=self._folder,
            stages=tuple(description["stages"]),
            weights={
                stage: self._weights[part] for stage, part in description["parts"].items() if part in self._weights
            },
            gradients=gradients if gradients.exists() else None,
            explain=explain,
            curves={side: self._curves(side) for side in SIDES} if "train" in wanted else {},
            searched=tuple(wanted),
            allowances=tuple(description.get("allowances", ())),
        )
        for stage in [stage for stage in wanted if stage in _COMPONENTS]:
            module, function = _COMPONENTS[stage]
            self._progress("both", module)
            search = getattr(importlib.import_module(f"twinalign.locate.{module}"), function)
            result.faults += search(self._recorder.processes, context)
        gradients.unlink(missing_ok=True)
        if any(fault.phase != "train" for fault in result.faults):
            # What is wrong elsewhere shows in a training too; only a cause of its own is one more fault.
            result.faults = _each_once(fault for fault in result.faults if fault.phase != "train" or fault.explanation)
        for fault in result.faults:
            _accept(fault, description["accept"])
        return result

    def _curves(self, side: str) -> dict[str, Any]:
        arrays = self._recorder.fresh_arrays(side, "train")
        if self._recorder.settings.ranks > 1:
            arrays = arrays_of_rank(arrays, 0)
        return {n.removeprefix(CURVE_PREFIX): array for n, array in arrays.items() if n.startswith(CURVE_PREFIX)}

    def _model_stages(self, wanted: Sequence[str]) -> list[str]:
        """One stage for each part whose model is to be searched."""
        parts = self._recorder.description["parts"]
        asked = {parts[stage] for stage in wanted if stage in _MODEL_STAGES}
        found: dict[str, str] = {}
        for stage in _MODEL_STAGES:
            if parts.get(stage) in asked and parts[stage] in self._weights:
                found.setdefault(parts[stage], stage)
        return list(found.values())


def _each_once(faults: Iterable[Fault]) -> list[Fault]:
    """Faults without those of the training whose cause is another fault's, which takes it over if it has none."""
    kept = list(faults)
    for fault in [fault for fault in kept if fault.phase == "train" and fault.explanation is not None]:
        is_same = _SHOWN_IN_TRAINING.get(fault.explanation.id if fault.explanation else "")
        same = next((other for other in kept if is_same is not None and is_same(other)), None)
        if same is not None:
            same.explanation = same.explanation or fault.explanation
            kept.remove(fault)
    return kept


def _is_schedule(fault: Fault) -> bool:
    return fault.reference_layer == "schedule"


def _is_momentum(fault: Fault) -> bool:
    return fault.explanation is not None and "batch_norm_momentum" in fault.explanation.id.split("+")


_SHOWN_IN_TRAINING: dict[str, Callable[[Fault], bool]] = {
    "training_rates": _is_schedule,
    "training_rate": _is_schedule,
    "warmup_missing": _is_schedule,
    "training_batch_norm_momentum": _is_momentum,
}
"""Causes of a wrong training, and whether a fault of another part is the same one."""


def _accept(fault: Fault, accepted: Sequence[str]) -> None:
    """Mark a fault whose causes, all of them, the case accepts as the framework's own conventions, or could accept."""
    if fault.explanation is None:
        return
    from twinalign.explain.layers import PHASES_TRIED
    from twinalign.explain.registry import hypotheses

    identifiers = [text.partition("=")[0] for text in accepted]
    names = {item.id: {item.id, item.difference} for item in hypotheses(*PHASES_TRIED.get(fault.phase, (fault.phase,)))}
    causes = fault.explanation.id.split("+")
    found = {cause: next((i for i in identifiers if i in names.get(cause, {cause})), None) for cause in causes}
    conventions = [cause for cause, identifier in found.items() if identifier is not None]
    if len(conventions) == len(causes):
        fault.evidence["accepted"] = ", ".join(dict.fromkeys(str(found[cause]) for cause in causes))
    elif conventions:
        fault.evidence["accepted_causes"] = conventions
    elif of_framework := [name for cause in causes for name in names.get(cause, {cause}) if name in CONVENTIONS]:
        fault.evidence["convention"] = of_framework[0]


def locate(
    settings: RunSettings, progress: Callable[[str, str], None] = lambda side, text: None, explain: bool = True
) -> LocateResult:
    """Start both sides, find the faults of a case and their causes.

    Raises:
        InputError: the settings, the case or its data are at fault.
        SideCrashError: the process of a side died, or the case's own code raised.
    """
    # The two sides work in turns here, so that each may have every processor.
    recorder = Recorder(dataclasses.replace(settings, sequential=settings.ranks == 1), progress)
    with recorder.running() as weights:
        stages = [stage for stage in recorder.description["stages"] if stage in (settings.stages or SEARCHED_STAGES)]
        of_ranks = None
        if any(is_ranked(stage, settings.ranks) and stage in _MODEL_STAGES for stage in stages):
            of_ranks = RankSearch(recorder, weights, progress).search(explain)
            if of_ranks is not None and of_ranks.explanation is not None:
                return LocateResult(recorder.description["name"], [of_ranks])
        result = Locator(recorder, weights, progress).locate(settings.stages, explain)
        if of_ranks is not None and not result.faults:  # right as one process, and nothing known explains the ranks
            result.faults.append(of_ranks)
        return result
