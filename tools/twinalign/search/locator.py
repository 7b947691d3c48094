"""Locates the faults of a case: in layers, optimizer, schedule, input pipeline, metric and training."""

import contextlib
import dataclasses
import functools
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.errors import ExitCode
from twinalign.files.rank_recordings import arrays_of_rank, is_ranked
from twinalign.files.recordings import save_npz
from twinalign.notebook import Shown
from twinalign.processes.side_process import ChildError
from twinalign.recorder.kept_processes import KeptProcesses
from twinalign.recorder.recorder import Recorder, RunSettings
from twinalign.replay.budget import set_budget
from twinalign.replay.case_run import build_in_float64, use_inputs_of_step
from twinalign.replay.construction_places import port_places, reference_code
from twinalign.replay.kept_edits import forget_edits
from twinalign.replay.later_steps import port_later_weights, reference_later_weights
from twinalign.replay.proven_before import forget_proven
from twinalign.search.accepted import accept, is_accepted
from twinalign.search.components import ComponentContext, NotSearchedError
from twinalign.search.data import locate_data
from twinalign.search.faults import LATER_STEP, Fault, each_once, in_one_line, some_are_rounded, telling
from twinalign.search.layer_faults import LayerFaults
from twinalign.search.layers import locate_layers
from twinalign.search.metric import locate_metric
from twinalign.search.moved_between import note_moves
from twinalign.search.observed import locate_observed
from twinalign.search.optimizer import locate_optimizer
from twinalign.search.ranks import RankSearch
from twinalign.search.ties import TieSearch
from twinalign.search.training import curves_in, ends_apart, locate_training
from twinalign.sides import FOUND, INITIAL, SIDES
from twinalign.verdict.results import ALIGNED, DIVERGED, EXIT_CODES, INCONCLUSIVE

# Stages whose model is searched layer by layer, the most informative first.
_MODEL_STAGES = ("backward", "loss", "forward")
# Stage → the component that it tests besides the model, and the function that searches it.
_COMPONENTS = {
    "backward": ("optimizer", locate_optimizer),
    "data": ("data", locate_data),
    "metric": ("metric", locate_metric),
    "forward": ("observe", locate_observed),
    "train": ("training", locate_training),
}


SEARCHED_STAGES = (*_MODEL_STAGES, "data", "metric", "train")
"""Stages in which faults can be located."""


@dataclasses.dataclass(repr=False)
class LocateResult(Shown):
    """The faults of a case.

    Attributes:
        faults: every fault that was found, layers first.
        layers: part of the case → its layers, wrong ones and others.
        not_searched: part of the case, or a component → why it could not be searched.
        crashes: those of them whose own code raised → its `side`, the `place` in the code, and `other_shape`, a
            sentence about the first layer of the port that returned another shape, if there is one.
    """

    kind = "locate"

    case: str
    faults: list[Fault] = dataclasses.field(default_factory=list)
    layers: dict[str, LayerFaults] = dataclasses.field(default_factory=dict)
    not_searched: dict[str, str] = dataclasses.field(default_factory=dict)
    crashes: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)

    @property
    def counted(self) -> list[Fault]:
        """The faults that the case does not accept."""
        return [fault for fault in self.faults if not is_accepted(fault)]

    @property
    def verdict(self) -> str:
        """Diverged if there is a fault that the case does not accept; inconclusive if there is none, but a gap."""
        if self.counted:
            return DIVERGED
        return INCONCLUSIVE if self.not_searched else ALIGNED

    @property
    def exit_code(self) -> ExitCode:
        return EXIT_CODES[self.verdict]

    def add(self, faults: Iterable[Fault], accepted: Sequence[str]) -> None:
        """Add faults, marked where the case has accepted their causes."""
        for fault in faults:
            accept(fault, accepted)
            self.faults.append(fault)

    def to_json(self) -> dict[str, Any]:
        return {
            "case": self.case,
            "verdict": self.verdict,
            "faults": [fault.to_json() for fault in self.faults],
            "layers": {part: found.to_json() for part, found in self.layers.items()},
            "not_searched": self.not_searched,
            **({"crashes": self.crashes} if self.crashes else {}),
        }


class Locator:
    """Searches a case whose recorder processes are running::

    with recorder.running() as weights:
        result = Locator(recorder, weights).locate()
    """

    def __init__(
        self,
        recorder: Recorder,
        weights: Mapping[str, Mapping[str, Any]],
        progress: Callable[[str, str], None] = lambda side, text: None,
        gradients: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """`gradients`: what the optimizers step on, by the reference's names; None: those of the layers' search."""
        self._recorder, self._weights, self._progress = recorder, weights, progress
        self._folder, self._gradients = recorder.out / "locate", gradients

    def locate(self, stages: Sequence[str] = (), explain: bool = True) -> LocateResult:
        """Find the faults that show in these stages (by default all of the case), and their causes."""
        description = self._recorder.description
        if explain:
            self._recorder.processes["ref"].call(set_budget, seconds=self._recorder.settings.explain_seconds)
            self._recorder.processes["ref"].call(forget_proven)
            self._recorder.processes["paddle"].call(forget_edits)
        wanted = [stage for stage in description["stages"] if not stages or stage in stages]
        result = LocateResult(description["name"])
        gradients = self._folder / "gradients.npz"
        trained = self._weights.get(description["parts"].get("backward", "")) if "backward" in wanted else None
        ties = TieSearch(self._recorder.processes, trained, self._folder, explain)
        for stage in self._model_stages(wanted):
            # A search that was asked for some stages judges what these show.
            backward = not stages or stage == "backward"
            self._search_layers(result, stage, explain, backward, gradients if stage == "backward" else None)
        if self._gradients is not None:
            save_npz(gradients, self._gradients)
        self._search_components(result, wanted, explain, gradients if gradients.exists() else None)
        gradients.unlink(missing_ok=True)
        layers = result.layers.get(description["parts"].get("backward", ""))
        left_out = layers.left_out if layers is not None else None
        result.faults = [*ties.faults(result.counted, left_out), *result.faults]
        unexplained = all(fault.phase == "train" and fault.explanation is None for fault in result.counted)
        if "backward" in self._model_stages(wanted) and unexplained and not result.not_searched:
            self._search_later_steps(result, explain)
        result.faults = telling(result.faults, result.counted)
        note_moves(result.faults)
        if explain and result.faults:
            from twinalign.edits.suggestions import suggestion  # here: LibCST takes long to import

            self._propose_edits(result)
            result.faults = each_once(result.faults)  # whose functions are known now
            for fault in result.faults:
                fault.suggestion = "" if is_accepted(fault) else suggestion(fault.to_json())
        return result

    def _search_components(
        self, result: LocateResult, wanted: Sequence[str], explain: bool, gradients: Path | None
    ) -> None:
        """Add the wrong components of these stages; `gradients`: the reference's of the first step."""
        description = self._recorder.description
        parts = description["parts"]
        trained = {side: self._trained(side) if "train" in wanted else {} for side in SIDES}
        exact = self._trained("ref", "float64") if "train" in wanted and self._recorder.settings.ranks == 1 else {}
        context = ComponentContext(
            processes=self._recorder.processes,
            folder=self._folder,
            stages=tuple(description["stages"]),
            weights={stage: self._weights[part] for stage, part in parts.items() if part in self._weights},
            gradients=gradients,
            explain=explain,
            layer_is_wrong=_is_wrong_in_training(result.layers.get(parts.get("train", ""))),
            curves={side: curves_in(arrays) for side, arrays in trained.items()},
            ends_apart=ends_apart(trained["ref"], trained["paddle"]),
            steps=curves_in(exact),
            steps_in_float64=description["float64_train_steps"],
            searched=tuple(wanted),
            allowances=tuple(description.get("allowances", ())),
        )
        for component, search in [_COMPONENTS[stage] for stage in wanted if stage in _COMPONENTS]:
            self._progress("both", component)
            with self._noting(result, component):
                phases = {fault.phase for fault in result.counted}
                of_stage = dataclasses.replace(
                    context, is_wrong_before=bool(phases - {"optimizer"}), data_is_wrong="data" in phases, stopped=[]
                )
                faults = search(of_stage)
                result.add(faults, description["accept"])
                for fault in telling(result.counted, result.counted, new=faults):
                    if of_stage.stopped and fault.explanation is None:
                        fault.note(*of_stage.stopped)
                    self._progress(FOUND, in_one_line(fault))

    def _search_layers(
        self,
        result: LocateResult,
        stage: str,
        explain: bool,
        backward: bool,
        gradients: Path | None = None,
        weights: Mapping[str, Any] | None = None,
    ) -> None:
        """Add the wrong layers of the model that a stage uses; `weights`: of a later step, None for the first ones."""
        description = self._recorder.description
        part = description["parts"][stage]
        with self._noting(result, part):
            search = functools.partial(
                locate_layers,
                self._recorder.processes,
                stage,
                weights or self._weights[part],
                self._folder / "values",
                backward=backward,
                gradients=gradients,
                rename=description["rename"].get(part, {}),
                accept=description["accept"],
                explain=explain,
                progress=self._progress,
            )
            found = search(unless_rounded=True)
            if some_are_rounded(found.faults):
                # Both sides may hold constants that their constructors have rounded to float32, each in its own way.
                found = self._with_exact_constants(search) or search()
            if part not in result.layers or found.faults:
                result.layers[part] = found
            result.add(found.faults, description["accept"])

    def _with_exact_constants(self, search: Callable[[], LayerFaults]) -> LayerFaults | None:
        """The search with models that are built in float64; None where one of them is not."""
        self._progress("both", "with models built in float64")
        try:
            self._build_in_float64(True)
            return search()
        except ChildError as error:  # a constructor may insist on float32
            if error.died:
                raise
            return None
        finally:
            self._build_in_float64(False)

    def _build_in_float64(self, wanted: bool) -> None:
        for side in SIDES:
            self._recorder.processes[side].call(build_in_float64, wanted=wanted)

    def _search_later_steps(self, result: LocateResult, explain: bool) -> None:
        """Search the layers on inputs and weights of later steps: the first step may not show a fault.

        Target networks and moving averages begin equal to what they follow: a training alone may show that one stands
        in the other's place.
        """
        known, steps, step = len(result.counted), self._use_inputs_of(0), 1
        if steps < 2:
            return
        weights = self._weights[self._recorder.description["parts"]["backward"]]
        folder = self._folder / "weights"
        given = {"weights": weights["ref"], "folder": str(folder)}
        moved = self._recorder.processes["ref"].call(reference_later_weights, **given)["steps"]
        while len(result.counted) == known and step < steps:
            self._use_inputs_of(step)
            self._progress("both", f"the inputs of step {step}")
            later = self._weights_of_step(weights, folder, step) if step <= moved else weights
            before = len(result.faults)  # what a step before has brought is accepted, and has its note
            gradients = self._folder / "later_gradients.npz"
            self._search_layers(result, "backward", explain, True, gradients, later)
            if len(result.counted) == known and gradients.exists():  # a clip may bind for the first time
                self._search_components(result, ["backward"], explain, gradients)
            gradients.unlink(missing_ok=True)
            for fault in result.faults[before:]:
                fault.evidence[LATER_STEP] = step
                fault.note(f"shows on the inputs of step {step}, and not on those of the steps before")
            step += 1
        self._use_inputs_of(0)
        shutil.rmtree(folder, ignore_errors=True)

    def _weights_of_step(self, weights: Mapping[str, Any], folder: Path, step: int) -> dict[str, Any]:
        """What both sides are given of the reference's weights before a step; as for `Worker.build_model`."""
        paths = {side: str(folder / f"{step}_{side}.npz") for side in SIDES}
        given = {"weights": weights["paddle"], "reference": paths["ref"], "path": paths["paddle"]}
        self._recorder.processes["paddle"].call(port_later_weights, **given)
        return {side: {**weights[side], "path": paths[side]} for side in SIDES}

    def _use_inputs_of(self, step: int) -> int:
        """Let both sides search on the inputs of a step; returns the number of steps."""
        steps = [self._recorder.processes[side].call(use_inputs_of_step, step=step)["steps"] for side in SIDES]
        return int(min(steps))

    def _propose_edits(self, result: LocateResult) -> None:
        """Put the edits that may mend them into the faults.

        What follows from a proven cause is shown to people; what only stands in the reference's source is for `fix`.
        """
        from twinalign.edits.proposals import Proposals, functions_of

        wrong = result.counted
        pairs = [pair for found in result.layers.values() for pair in found.matching.pairs]
        layers = {theirs.path: ours.path for theirs, ours in pairs}
        asked = [fault.to_json() for fault in wrong]
        described = self._recorder.description["stages"]
        stages = self._model_stages(described) or described[:1]  # without a fault in a model any stage will do
        for stage in stages if asked else ():
            try:
                port = list(dict.fromkeys(fault.paddle_layer for fault in wrong))
                given = {"stage": stage, "paths": port, "functions": functions_of(asked)}
                places = self._recorder.processes["paddle"].call(port_places, **given)
                theirs = list(dict.fromkeys(fault.reference_layer for fault in wrong))
                code = self._recorder.processes["ref"].call(reference_code, stage=stage, paths=theirs)
                proposals = Proposals(places, code, self._recorder.settings.sources, layers, asked)
                found = [
                    [
                        [{**one.to_json(), **proposals.judged(one, fault)} for one in edits(fault)]
                        for edits in (proposals.for_fault, proposals.of_case, proposals.from_reference)
                    ]
                    for fault in asked
                ]
            except (ChildError, SyntaxError, OSError, ValueError):  # the faults stand without a proposal
                continue
            for fault, (proven, of_case, others) in zip(wrong, found, strict=True):
                fault.evidence.setdefault("source", proposals.source_of(fault.to_json()))
                if calls := proposals.calling(fault.to_json()):
                    fault.evidence.setdefault("calls_of_port", calls)
                if proven and fault.edit is None:
                    fault.edit, fault.further_edits = proven[0], proven[1:]
                fault.case_edits = fault.case_edits or of_case
                fault.reference_edits = fault.reference_edits or others

    @contextlib.contextmanager
    def _noting(self, result: LocateResult, part: str) -> Iterator[None]:
        """Go on without this part if the search in it fails; a process that cannot begin again ends the search."""
        try:
            yield
        except NotSearchedError as error:
            result.not_searched[part] = str(error)
        except ChildError as error:
            processes = self._recorder.processes.values()
            if error.died and not all(process.alive or process.revive() for process in processes):
                raise
            result.not_searched[part] = str(error)
            if error.place and not error.own:
                crash = {"side": error.side, "place": error.place, "other_shape": error.other_shape}
                result.crashes[part] = {name: text for name, text in crash.items() if text}

    def _trained(self, side: str, dtype: str = "") -> dict[str, Any]:
        arrays = self._recorder.fresh_arrays(side, "train", dtype)
        return arrays_of_rank(arrays, 0) if self._recorder.settings.ranks > 1 else arrays

    def _model_stages(self, wanted: Sequence[str]) -> list[str]:
        """One stage for each part of the case whose model is to be searched."""
        parts = self._recorder.description["parts"]
        found: dict[str, str] = {}
        for stage in _MODEL_STAGES:
            if stage in wanted and parts[stage] in self._weights:
                found.setdefault(parts[stage], stage)
        return list(found.values())


def _is_wrong_in_training(layers: LayerFaults | None) -> bool:
    """Whether one of these layers computes something else in training."""
    wrong = [fault for fault in (layers.faults if layers is not None else ()) if fault.phase != "state"]
    return any(not name.startswith("eval.") for fault in wrong for name in fault.evidence["values"])


def locate(
    settings: RunSettings,
    progress: Callable[[str, str], None] = lambda side, text: None,
    explain: bool = True,
    kept: KeptProcesses | None = None,
) -> LocateResult:
    """Start both sides, or borrow them from `kept`, and find the faults of a case with their causes.

    Raises:
        InputError: the settings, the case or its data are invalid.
        SideCrashError: the process of a side died, or the case's own code raised.
    """
    # The two sides work in turns here, so each may use every processor.
    recorder = Recorder(dataclasses.replace(settings, sequential=settings.ranks == 1), progress, kept)
    with recorder.running() as weights:
        stages = [stage for stage in recorder.description["stages"] if stage in (settings.stages or SEARCHED_STAGES)]
        of_ranks = None
        if any(is_ranked(stage, settings.ranks) and stage in _MODEL_STAGES for stage in stages):
            of_ranks = RankSearch(recorder, weights, progress).search(explain)
            if of_ranks is not None and of_ranks.explanation is not None:
                return LocateResult(recorder.description["name"], [of_ranks])
        result = Locator(recorder, weights, progress).locate(settings.stages, explain)
        if INITIAL in settings.stages or (not settings.stages and recorder.description[INITIAL]):
            from twinalign.search.initial import locate_initial  # here: LibCST takes long to import

            result.add(locate_initial(recorder, weights, explain), recorder.description["accept"])
        # One process alone is right, and no known cause explains the ranks.
        if of_ranks is not None and not result.faults:
            result.faults.append(of_ranks)
        return result
