"""Mends a port: edits of its source are tried in the processes of both sides, and kept where a re-run proves them.

Nothing on disk changes while edits are tried: the processes of both sides import the edited text in place of the file
(`recorder.served_sources`).
"""

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.edits.source import Edit, applied, overlap, read_source
from twinalign.errors import ExitCode, InputError, SideCrashError
from twinalign.files.recordings import Recording, write_text
from twinalign.notebook import Shown
from twinalign.recorder.kept_processes import KeptProcesses
from twinalign.recorder.run_settings import RunSettings
from twinalign.repair.initial_faults import initial_faults
from twinalign.repair.patch import patch_of
from twinalign.runs.run_result import RunResult
from twinalign.runs.run_stages import run
from twinalign.sides import INITIAL
from twinalign.verdict.results import ALIGNED, EXIT_CODES

Progress = Callable[[str, str], None]
FURTHER_SEED = 7919
"""What is added to the seed for the second draw of inputs; large, so that no case has that seed of its own."""
_MOST_ROUNDS = 24
_EXPLAINED_IN_TRIALS = 15.0
"""Seconds: what is wrong with an edit that is not taken need not be known."""


@dataclasses.dataclass(repr=False)
class FixResult(Shown):
    """What was mended and what is left.

    Attributes:
        verdict: of the port with the patch.
        edits: those that are proven, as `Edit.to_json` with `cause` and `layer`.
        found: the faults of the port as it is, as JSON.
        left: those that are left.
        patch: the unified diff, empty if there is nothing to change.
        written: the files that were changed.
        notes: what the reader should know of the proof.
    """

    kind = "fix"

    case: str
    verdict: str
    edits: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    found: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    left: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    patch: str = ""
    written: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    patch_file: str | None = None
    texts: dict[str, str] = dataclasses.field(default_factory=dict)
    """Real path -> text with the edits; not in the JSON."""

    @property
    def exit_code(self) -> ExitCode:
        return EXIT_CODES[self.verdict]

    def to_json(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "texts"}


def fix(
    settings: RunSettings,
    progress: Progress = lambda side, text: None,
    write: bool = False,
    kept: KeptProcesses | None = None,
) -> FixResult:
    """Find the faults of a port, and the edits of its source that a re-run proves; write them as `OUT/fix.patch`.

    Args:
        settings: their `sources` stand for the files on disk from the start.
        write: whether the files are changed as well.
        kept: lends the processes.

    Raises:
        InputError: a mistake in the settings or the case, or a file that changed meanwhile.
        SideCrashError: a side dies without any edit.
    """
    with contextlib.nullcontext(kept) if kept is not None else contextlib.closing(KeptProcesses(True)) as processes:
        return _Repair(settings, progress, processes).fix(write)


@dataclasses.dataclass(frozen=True)
class _Attempt:
    """A run of the port with some edits, and the faults that are left, as JSON."""

    result: RunResult
    faults: list[dict[str, Any]]

    @property
    def verdict(self) -> str:
        return self.result.verdict

    @property
    def layers(self) -> set[str]:
        return {fault["paddle_layer"] for fault in self.faults}

    def concerned(self) -> tuple[str, ...]:
        """The stages that are not aligned."""
        stages = [stage for stage, comparison in self.result.stages.items() if comparison.verdict != ALIGNED]
        initial = self.result.initial
        return (*stages, INITIAL) if initial is not None and initial.counts and initial.differences else tuple(stages)

    def wrong_tensors(self) -> dict[tuple[str, str], float]:
        """(stage, name) -> how far a tensor that diverged is off in float64."""
        return {
            (stage, tensor.name): np.inf if tensor.fp64_rel is None else tensor.fp64_rel
            for stage, comparison in self.result.stages.items()
            for tensor in comparison.tensors
            if tensor.verdict != ALIGNED
        }


@dataclasses.dataclass(frozen=True)
class _Proposal:
    """An edit and the fault that it is for: its layer in the port, phase, and cause."""

    key: tuple[str, str, str]
    edit: Edit
    cause: str


class _Repair:
    def __init__(self, settings: RunSettings, progress: Progress, kept: KeptProcesses) -> None:
        self._settings, self._progress, self._kept = settings, progress, kept
        self._folder = settings.out / "fix"
        self._disk: dict[str, str] = dict(settings.sources)
        self._sources: dict[str, str] = {}
        self._accepted: list[_Proposal] = []
        self._tried: set[tuple[tuple[str, str, str], Edit]] = set()
        self._concerned: tuple[str, ...] = ()
        """The stages that trials run."""
        self._failed: _Attempt | None = None
        """What the last trial gave if it ran and its edits were not taken."""

    def fix(self, write: bool) -> FixResult:
        (self._settings.out / "fix.patch").unlink(missing_ok=True)
        try:
            return self._fix(write)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _fix(self, write: bool) -> FixResult:
        first = present = self._run({})
        reference = self._reference()
        self._concerned = first.concerned()
        for _ in range(_MOST_ROUNDS):
            chosen = self._chosen(present)
            if present.verdict == ALIGNED or not chosen:
                break
            present = self._tried_together(present, chosen, reference)
        result = FixResult(first.result.case, present.verdict, found=first.faults, left=present.faults)
        if self._accepted and not self._holds_on_second_draw(present, result, reference):
            result.verdict, result.left, self._accepted, self._sources = first.verdict, first.faults, [], {}
        result.edits = [{**one.edit.to_json(), "layer": one.key[0], "cause": one.cause} for one in self._accepted]
        result.texts = dict(self._sources)
        result.patch = patch_of(self._disk, self._sources, result.edits)
        if result.patch:
            path = self._settings.out / "fix.patch"
            write_text(path, result.patch)
            result.patch_file = str(path)
        if write:
            result.written = self._write()
        return result

    def _chosen(self, present: _Attempt) -> list[_Proposal]:
        """The likeliest edit of each fault that was not tried, without those that touch the same text."""
        chosen: list[_Proposal] = []
        for fault in present.faults:
            edits = [one for one in _proposals(fault) if (one.key, one.edit) not in self._tried]
            if edits and not any(overlap(edits[0].edit, other.edit) for other in chosen):
                chosen.append(edits[0])
        return chosen

    def _tried_together(self, present: _Attempt, chosen: Sequence[_Proposal], reference: Any) -> _Attempt:
        """The run with those edits that mend their faults: all at once, else those that helped, else one by one."""
        after = self._trial(present, chosen, reference)
        if after is None and self._failed is not None:
            helped = [one for one in chosen if _is_gone(one.key, present.faults, self._failed.faults)]
            after = self._trial(present, helped, reference) if 0 < len(helped) < len(chosen) else None
        if after is not None:
            return after
        places = {one.edit for one in chosen}
        for edit in sorted(places, key=lambda one: (one.file, one.span), reverse=True) if len(places) > 1 else ():
            alone = [one for one in chosen if one.edit == edit]
            found = self._trial(present, alone, reference)
            present = present if found is None else found
        return present

    def _trial(self, present: _Attempt, chosen: Sequence[_Proposal], reference: Any) -> _Attempt | None:
        """The run with these edits if they mend their faults, bring no other and leave the reference as it is."""
        edits = [one.edit for one in chosen]
        if len({one.edit for one in chosen}) == 1:
            self._tried |= {(one.key, one.edit) for one in chosen}
        for edit in edits:
            if edit.file not in self._disk:
                self._disk[edit.file] = read_source(edit.file)
        self._failed = None
        before = dict(self._sources)
        texts = {**self._disk, **before}
        self._progress("both", f"trying {len(set(edits))} edit{'s' * (len(set(edits)) > 1)}")
        try:
            changed = {
                file: applied(texts[file], [edit for edit in edits if edit.file == file])
                for file in {edit.file for edit in edits}
            }
            self._sources = {**before, **changed}
            after = self._tested(present, chosen)
        except (InputError, SideCrashError, ValueError):
            self._sources = before
            return None
        gone = after is not None and all(_is_gone(one.key, present.faults, after.faults) for one in chosen)
        if after is not None and gone and not after.layers - present.layers and self._same_reference(reference):
            self._accepted += chosen
            return after
        self._sources, self._failed = before, after
        return None

    def _tested(self, present: _Attempt, chosen: Sequence[_Proposal]) -> _Attempt | None:
        """The stages concerned with the edits; None where the one fault is seen to be there still, without a search."""
        if len(present.faults) > 1 or any("+" in one.key[2] for one in chosen):
            return self._run(self._sources, stages=self._concerned)
        after = self._run(self._sources, stages=self._concerned, locate=False)
        if after.verdict == ALIGNED:
            return after
        before, now = present.wrong_tensors(), after.wrong_tensors()
        nearer = now.keys() < before.keys() or all(now[name] < before.get(name, 0.0) / 2 for name in now)
        return self._run(self._sources, stages=self._concerned, fresh=False) if nearer else None

    def _holds_on_second_draw(self, present: _Attempt, result: FixResult, reference: Any) -> bool:
        """Whether the patched port is as right on other inputs; notes what the second draw proves."""
        seed = str(int(self._settings.options.get("seed", 0)) + FURTHER_SEED)
        self._progress("both", "the patched port on a second draw of inputs")
        try:
            other = self._run(self._sources, {"seed": seed})
        except (InputError, SideCrashError) as error:
            result.notes.append(f"the second draw of inputs does not run, so nothing is proven: {error}")
            return False
        if self._same_reference(reference):
            result.notes.append("the case's inputs and weights do not depend on its seed: proven on one draw of inputs")
        if other.verdict == present.verdict and not other.layers - present.layers:
            return True
        result.notes.append("the edits do not hold on a second draw of inputs, so none is taken")
        return False

    def _run(
        self,
        sources: Mapping[str, str],
        options: Mapping[str, str] | None = None,
        stages: tuple[str, ...] = (),
        locate: bool = True,
        fresh: bool = True,
    ) -> _Attempt:
        if fresh:
            shutil.rmtree(self._folder, ignore_errors=True)
        told = {**self._settings.options, **(options or {})}
        settings = dataclasses.replace(
            self._settings,
            out=self._folder,
            options=told,
            sources={**self._settings.sources, **sources},
            stages=stages or self._settings.stages,
            explain_seconds=min(self._settings.explain_seconds, _EXPLAINED_IN_TRIALS)
            if stages
            else self._settings.explain_seconds,
            locate=locate,
            fresh=fresh,
            sequential=True,  # as the search has it: then the same processes serve both
        )
        result = run(settings, self._progress, kept=self._kept)
        located = result.located.faults if result.located is not None else []
        faults = [fault.to_json() for fault in located if "accepted" not in fault.evidence]
        if locate and result.initial is not None and result.initial.counts and result.initial.differences:
            settings = dataclasses.replace(settings, out=self._folder / "places")
            faults += initial_faults(result.initial, settings, self._progress, self._kept)
        return _Attempt(result, faults)

    def _reference(self) -> dict[str, dict[str, np.ndarray]]:
        files = sorted(self._folder.glob("*_ref.npy"))
        return {file.name: dict(Recording.load(file).arrays) for file in files}

    def _same_reference(self, before: Mapping[str, Mapping[str, np.ndarray]]) -> bool:
        """Whether the reference still gives what it gave: an edit of what both sides share may not change it.

        Only what both runs have recorded is compared: trials run some stages, and a tensor that had no partner is left
        out.
        """
        pairs = [
            (array, before[file][name])
            for file, arrays in self._reference().items()
            for name, array in arrays.items()
            if name in before.get(file, {})
        ]
        return bool(pairs) and all(np.array_equal(one, two, equal_nan=one.dtype.kind in "fc") for one, two in pairs)

    def _write(self) -> list[str]:
        for file, text in self._disk.items():
            if file in self._sources and read_source(file) != text:
                raise InputError(f"{file}: changed while the edits were proven; run twinalign fix again")
        parts = {file: Path(f"{file}.twinalign-part") for file in self._sources}
        try:
            for file, part in parts.items():
                with part.open("w", encoding="utf-8", newline="") as written:
                    written.write(self._sources[file])
                part.chmod(os.stat(file).st_mode)
            for file, part in parts.items():
                part.replace(file)
        except OSError as error:
            raise InputError(f"{error.filename}: cannot be written ({error.strerror}); see fix.patch") from error
        finally:
            for part in parts.values():
                part.unlink(missing_ok=True)
        return list(parts)


def _key(fault: Mapping[str, Any]) -> tuple[str, str, str]:
    return fault["paddle_layer"], fault["phase"], (fault["explanation"] or {"id": ""})["id"]


def _is_gone(
    key: tuple[str, str, str], before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> bool:
    """Whether of a fault nothing is left, or fewer causes of several; the same cause with another value is not less."""
    others = {_key(fault) for fault in before} - {key}
    left = [_key(fault) for fault in after if _key(fault)[:2] == key[:2] and _key(fault) not in others]
    return all(one[2] and set(one[2].split("+")) < set(key[2].split("+")) for one in left)


def _proposals(fault: Mapping[str, Any]) -> Iterator[_Proposal]:
    for found in filter(None, [fault["edit"], *fault["further_edits"], *fault["reference_edits"]]):
        edit = Edit(found["file"], tuple(found["span"]), found["before"], found["after"])
        known = fault["explanation"]
        cause = f"{known['text']} [{known['id']}]" if known else "as the reference's source has it"
        yield _Proposal(_key(fault), edit, cause)
