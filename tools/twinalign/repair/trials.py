"""Runs of a case whose sources are edited in memory alone, and what is wrong in them."""

import dataclasses
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.conversion.initial_weights import unmatched_of
from twinalign.edits.source import Edit
from twinalign.files.recordings import Recording, read_metadata
from twinalign.recorder.kept_processes import KeptProcesses
from twinalign.recorder.recording_plan import forget_port
from twinalign.recorder.run_settings import RunSettings
from twinalign.repair.unconverted import edits_of_rename
from twinalign.runs.run_result import RunResult
from twinalign.runs.run_stages import run
from twinalign.search.faults import LATER_STEP
from twinalign.sides import INITIAL
from twinalign.verdict.results import ALIGNED

_EXPLAINED_IN_TRIALS = 15.0
"""Seconds: what is wrong with an edit that is not taken need not be known."""


@dataclasses.dataclass(frozen=True)
class Attempt:
    """A run of the port with some edits, and the faults that are left, as JSON."""

    result: RunResult
    faults: list[dict[str, Any]]

    @property
    def verdict(self) -> str:
        return self.result.verdict

    @property
    def layers(self) -> set[str]:
        return {fault["paddle_layer"] for fault in self.faults}

    def brought(self, after: "Attempt") -> set[str]:
        """Layers that are wrong in another run and not in this one, though this one would have shown them.

        The inputs of later steps, and a training that no other fault explains, are looked at only where nothing else is
        wrong: what shows there alone was there before.
        """
        searched = [fault for fault in self.faults if fault["phase"] != INITIAL]
        last = max((_step(fault) for fault in searched), default=np.inf)
        trained = all(fault["phase"] == "train" for fault in searched)
        shown = [fault for fault in after.faults if _step(fault) <= last and (trained or fault["phase"] != "train")]
        return {fault["paddle_layer"] for fault in shown} - self.layers

    def concerned(self) -> tuple[str, ...]:
        """The stages that are not aligned."""
        stages = [stage for stage, comparison in self.result.stages.items() if comparison.verdict != ALIGNED]
        return (*stages, INITIAL) if self._initial_differences() else tuple(stages)

    def wrong_tensors(self) -> dict[tuple[str, str], float]:
        """(stage, name) -> how far a tensor that diverged is off in float64; infinite where that is not known."""
        found = {
            (stage, tensor.name): np.inf if tensor.fp64_rel is None else tensor.fp64_rel
            for stage, comparison in self.result.stages.items()
            for tensor in comparison.tensors
            if tensor.verdict != ALIGNED
        }
        return found | {(INITIAL, one.port_name): np.inf for one in self._initial_differences()}

    def _initial_differences(self) -> Sequence[Any]:
        initial = self.result.initial
        return initial.differences if initial is not None and initial.counts else ()


def _step(fault: Mapping[str, Any]) -> int:
    return int(fault["evidence"].get(LATER_STEP, 0))


class Trials:
    """Runs a case with edits; the reference is recorded anew only where a file that it imports was edited."""

    def __init__(self, settings: RunSettings, progress: Callable[[str, str], None], kept: KeptProcesses) -> None:
        self._settings, self._progress, self._kept = settings, progress, kept
        self._folder = settings.out / "fix"
        self._recorded: dict[str, str] | None = None
        """The sources of the recordings in the folder."""

    def run(
        self,
        sources: Mapping[str, str],
        options: Mapping[str, str] | None = None,
        stages: tuple[str, ...] = (),
        locate: bool = True,
    ) -> Attempt:
        """Run all or some stages; what stands recorded of these sources already is not recorded again.

        Raises:
            InputError: a mistake in the settings or the case.
            SideCrashError: a side dies, or the case's own code raises.
        """
        self._forget(dict(sources), options)
        settings = dataclasses.replace(
            self._settings,
            out=self._folder,
            options={**self._settings.options, **(options or {})},
            sources={**self._settings.sources, **sources},
            stages=stages or self._settings.stages,
            explain_seconds=min(self._settings.explain_seconds, _EXPLAINED_IN_TRIALS)
            if stages
            else self._settings.explain_seconds,
            locate=locate,
            fresh=False,
            sequential=True,  # as the search has it: then the same processes serve both
        )
        result = run(settings, self._progress, kept=self._kept, report=False)
        located = result.located.faults if result.located is not None else []
        if locate and result.initial is not None and result.initial.counts and result.initial.differences:
            from twinalign.search.locator import locate as search  # here: most trials need none

            settings = dataclasses.replace(settings, stages=(INITIAL,))
            located = [*located, *search(settings, self._progress, kept=self._kept).faults]
        faults = [fault.to_json() for fault in located if "accepted" not in fault.evidence]
        return Attempt(result, faults)

    def edits_of_rename(self) -> list[Edit]:
        """Edits of the case that may let the last run's conversion of weights end."""
        settings = dataclasses.replace(self._settings, out=self._folder / "places")
        return edits_of_rename(settings, self._folder / "weights", self._progress, self._kept)

    def reference(self) -> dict[str, dict[str, np.ndarray]]:
        """What the reference gave in the last run: file -> name -> array."""
        files = sorted(self._folder.glob("*_ref.npy"))
        return {file.name: dict(Recording.load(file).arrays) for file in files}

    def same_reference(self, before: Mapping[str, Mapping[str, np.ndarray]]) -> bool:
        """Whether the reference still gives what it gave: an edit of what both sides share may not change it.

        Only what both runs have recorded is compared: trials run some stages, and a tensor that had no partner is left
        out.
        """
        pairs = [
            (array, before[file][name])
            for file, arrays in self.reference().items()
            for name, array in arrays.items()
            if name in before.get(file, {})
        ]
        return bool(pairs) and all(np.array_equal(one, two, equal_nan=one.dtype.kind in "fc") for one, two in pairs)

    def remove(self) -> None:
        """Remove all that the runs have written."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._recorded = None

    def _forget(self, sources: dict[str, str], options: Mapping[str, str] | None) -> None:
        """Remove the recordings of other sources: the port's, and the reference's where it imports such a file.

        The reference's lack what has no partner in the port.
        """
        before, self._recorded = self._recorded, None if options else sources
        if before == sources and not options:
            return
        changed = {file for file in {*(before or {}), *sources} if (before or {}).get(file) != sources.get(file)}
        imported = {
            os.path.realpath(file)
            for metadata in self._folder.glob("*_ref.json")
            for file in read_metadata(metadata.with_suffix("")).get("code_sha256", {})
        }
        alone = any(unmatched_of(ledger).note for ledger in self._folder.glob("weights/*_ledger.json"))
        if before is None or options or changed & imported or alone:
            shutil.rmtree(self._folder, ignore_errors=True)
            return
        forget_port(self._folder)
