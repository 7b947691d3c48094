"""Mends a port: edits of its source are tried in the processes of both sides, and kept where a re-run proves them.

Nothing on disk changes while edits are tried: the processes of both sides import the edited text in place of the file
(`recorder.served_sources`).
"""

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.edits.source import Edit, applied, overlap, read_source
from twinalign.errors import ExitCode, InputError, SideCrashError
from twinalign.files.recordings import write_text
from twinalign.notebook import Shown
from twinalign.recorder.kept_processes import KeptProcesses
from twinalign.recorder.run_settings import RunSettings
from twinalign.repair.candidates import Candidates, FaultKey, Proposal, key_of
from twinalign.repair.patch import patch_of
from twinalign.repair.trials import Attempt, Trials
from twinalign.replay.fewest import fewest
from twinalign.verdict.results import ALIGNED, EXIT_CODES

Progress = Callable[[str, str], None]
FURTHER_SEED = 7919
"""What is added to the seed for the second draw of inputs; large, so that no case has that seed of its own."""
_TIMES_OF_SEARCH, _SECONDS_OF_FURTHER_FAULT, _LEAST_SECONDS = 3.0, 30.0, 60.0
"""How long edits are tried: so many times what the first run with its search took, and more for each further fault."""


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


class _Repair:
    def __init__(self, settings: RunSettings, progress: Progress, kept: KeptProcesses) -> None:
        self._settings, self._progress = settings, progress
        self._trials = Trials(settings, progress, kept)
        self._candidates = Candidates()
        self._disk: dict[str, str] = dict(settings.sources)
        self._sources: dict[str, str] = {}
        self._accepted: list[Proposal] = []
        self._concerned: tuple[str, ...] = ()
        """The stages that trials run."""
        self._reference: dict[str, dict[str, np.ndarray]] = {}
        """What the reference gives."""

    def fix(self, write: bool) -> FixResult:
        (self._settings.out / "fix.patch").unlink(missing_ok=True)
        try:
            return self._fix(write)
        finally:
            self._trials.remove()

    def _fix(self, write: bool) -> FixResult:
        started = time.monotonic()
        first = present = self._first_run()
        seconds = max(_LEAST_SECONDS, _TIMES_OF_SEARCH * (time.monotonic() - started))
        until = started + seconds + _SECONDS_OF_FURTHER_FAULT * (len(first.faults) - 1)
        self._reference = self._trials.reference()
        self._concerned = first.concerned()
        chosen = self._chosen(present)
        while present.verdict != ALIGNED and chosen and time.monotonic() < until:
            present = self._tried_together(present, chosen)
            chosen = self._chosen(present)
        result = FixResult(first.result.case, present.verdict, found=first.faults, left=present.faults)
        if present.verdict != ALIGNED and chosen:
            result.notes.append(f"not all edits that may help were tried in {time.monotonic() - started:.0f} s")
        if self._accepted and not self._holds_on_second_draw(present, result):
            result.verdict, result.left, self._accepted, self._sources = first.verdict, first.faults, [], {}
        result.edits = [
            {**edit.to_json(), "layer": one.key[0], "cause": one.cause} for one in self._accepted for edit in one.edits
        ]
        result.texts = dict(self._sources)
        result.patch = patch_of(self._disk, self._sources, result.edits)
        if result.patch:
            path = self._settings.out / "fix.patch"
            write_text(path, result.patch)
            result.patch_file = str(path)
        if write:
            result.written = self._write()
        return result

    def _first_run(self) -> Attempt:
        """The port as it is; where its weights cannot be converted, with the first edit of the case that lets them be.

        Raises:
            InputError, SideCrashError: as `Trials.run`, where no edit of the case helps.
        """
        try:
            return self._trials.run({})
        except InputError as error:
            for edit in self._trials.edits_of_rename():
                proposal = Proposal(("", "conversion", ""), (edit,), str(error))
                with contextlib.suppress(InputError, SideCrashError):
                    self._sources = self._with({}, [proposal])
                    found = self._trials.run(self._sources)
                    self._accepted = [proposal]
                    return found
            raise

    def _chosen(self, present: Attempt) -> list[Proposal]:
        """What is to be tried next of each fault, without what touches the same text."""
        chosen: list[Proposal] = []
        for proposal in filter(None, map(self._candidates.next_for, present.faults)):
            others = [edit for other in chosen for edit in other.edits]
            if not any(overlap(edit, other) for edit in proposal.edits for other in others):
                chosen.append(proposal)
        return chosen

    def _tried_together(self, present: Attempt, chosen: Sequence[Proposal]) -> Attempt:
        """The run with those proposals that mend their faults: all at once, else those that helped, else one by one."""
        after, taken = self._trial(present, chosen)
        if not taken and after is not None:
            helped = [one for one in chosen if _is_gone(one.key, present.faults, after.faults)]
            after, taken = self._trial(present, helped) if 0 < len(helped) < len(chosen) else (None, False)
        if taken and after is not None:
            return after
        places = dict.fromkeys(one.edits for one in chosen)
        for edits in sorted(places, key=_place, reverse=True) if len(places) > 1 else ():
            found, taken = self._trial(present, [one for one in chosen if one.edits == edits])
            present = found if taken and found is not None else present
        return present

    def _trial(self, present: Attempt, chosen: Sequence[Proposal]) -> tuple[Attempt | None, bool]:
        """The run with these edits, and whether they are taken.

        They are if they mend their faults, bring no other and leave the reference as it is. There is no run where one
        of the sides stops, or where the one fault is seen to be there still without a search.
        """
        if len({one.edits for one in chosen}) == 1:
            for one in chosen:
                self._candidates.note_tried(one)
        before = self._sources
        number = len({edit for one in chosen for edit in one.edits})
        self._progress("both", f"trying {number} edit{'s' * (number > 1)}")
        try:
            self._sources = self._with(before, chosen)
            after = self._tested(present, chosen)
            gone = after is not None and all(_is_gone(one.key, present.faults, after.faults) for one in chosen)
            if after is not None and gone and not present.brought(after) and self._is_same_reference():
                kept, after = self._with_fewest(before, after, chosen)
                self._accepted += kept
                return after, True
        except (InputError, SideCrashError, ValueError):
            self._note_effects(chosen, None)
            after = None
        self._sources = before
        return after, False

    def _with(self, sources: Mapping[str, str], chosen: Sequence[Proposal]) -> dict[str, str]:
        """The sources with edits; raises ValueError where one does not fit the text."""
        edits = [edit for one in chosen for edit in one.edits]
        files = dict.fromkeys(edit.file for edit in edits)
        for file in files:
            if file not in self._disk:
                self._disk[file] = read_source(file)
        texts = {**self._disk, **sources}
        return {**sources, **{file: applied(texts[file], [one for one in edits if one.file == file]) for file in files}}

    def _tested(self, present: Attempt, chosen: Sequence[Proposal]) -> Attempt | None:
        """The stages concerned with the edits; None where the one fault is seen to be there still, without a search."""
        after = self._trials.run(self._sources, stages=self._concerned, locate=False)
        before, now = present.wrong_tensors(), after.wrong_tensors()
        is_same = now == before and bool(np.isfinite(list(now.values())).all())
        self._note_effects(chosen, np.inf if is_same else float(sum(map(np.log1p, now.values()))))
        if after.verdict == ALIGNED:
            return after
        one_cause = len(present.faults) == 1 and not any("+" in one.key[2] for one in chosen)
        nearer = now.keys() < before.keys() or all(now[name] < before.get(name, 0.0) / 2 for name in now)
        if is_same or (one_cause and not nearer):
            return None
        return self._trials.run(self._sources, stages=self._concerned)

    def _note_effects(self, chosen: Sequence[Proposal], left: float | None) -> None:
        for one in chosen if len({one.edits for one in chosen}) == 1 else ():
            self._candidates.note_effect(one, left)

    def _with_fewest(
        self, before: Mapping[str, str], after: Attempt, chosen: Sequence[Proposal]
    ) -> tuple[list[Proposal], Attempt]:
        """The proposals without the edits that no cause asks for and that are not needed, and the run with them."""
        sure = [one for one in chosen if one.all_needed]
        edits = list(dict.fromkeys(edit for one in chosen if one not in sure for edit in one.edits))
        if len(edits) + len(sure) < 2 or not edits:
            return list(chosen), after
        wrong = after.wrong_tensors()

        def only(kept: Sequence[Edit]) -> list[Proposal]:
            left = [dataclasses.replace(one, edits=tuple(edit for edit in one.edits if edit in kept)) for one in chosen]
            return [*sure, *(one for one in left if one.edits and not one.all_needed)]

        def holds(kept: Sequence[Edit]) -> bool:
            try:
                run = self._trials.run(self._with(before, only(kept)), stages=self._concerned, locate=False)
            except (InputError, SideCrashError, ValueError):
                return False
            left = run.wrong_tensors()
            return left.keys() <= wrong.keys() and all(left[name] <= wrong[name] for name in left)

        kept = only([] if sure and holds([]) else fewest(edits, holds))
        self._sources = self._with(before, kept)
        return kept, self._trials.run(self._sources, stages=self._concerned, locate=after.verdict != ALIGNED)

    def _holds_on_second_draw(self, present: Attempt, result: FixResult) -> bool:
        """Whether the patched port is as right on other inputs; notes what the second draw proves."""
        seed = str(int(self._settings.options.get("seed", 0)) + FURTHER_SEED)
        self._progress("both", "the patched port on a second draw of inputs")
        try:
            other = self._trials.run(self._sources, {"seed": seed})
        except (InputError, SideCrashError) as error:
            result.notes.append(f"the second draw of inputs does not run, so nothing is proven: {error}")
            return False
        if self._is_same_reference():
            result.notes.append("the case's inputs and weights do not depend on its seed: proven on one draw of inputs")
        if other.verdict == present.verdict and not present.brought(other):
            return True
        result.notes.append("the edits do not hold on a second draw of inputs, so none is taken")
        return False

    def _is_same_reference(self) -> bool:
        return self._trials.same_reference(self._reference)

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


def _is_gone(key: FaultKey, before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> bool:
    """Whether of a fault nothing is left, or fewer causes of several; the same cause with another value is not less."""
    others = {key_of(fault) for fault in before} - {key}
    left = [key_of(fault) for fault in after if key_of(fault)[:2] == key[:2] and key_of(fault) not in others]
    return all(one[2] and set(one[2].split("+")) < set(key[2].split("+")) for one in left)


def _place(edits: Sequence[Edit]) -> tuple[str, tuple[int, ...]]:
    return edits[0].file, edits[0].span
