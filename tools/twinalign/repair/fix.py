"""Mends a port: edits of its source are tried in the processes of both sides, and kept where a re-run proves them.

Nothing on disk changes while edits are tried: the processes of both sides import the edited text in place of the file
(`recorder.served_sources`).
"""

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
from twinalign.repair.patch import patch_of
from twinalign.runs.run_result import RunResult
from twinalign.runs.run_stages import run
from twinalign.verdict.results import ALIGNED, EXIT_CODES

Progress = Callable[[str, str], None]
FURTHER_SEED = 7919
"""What is added to the seed for the second draw of inputs; large, so that no case has that seed of its own."""
_MOST_ROUNDS = 12


@dataclasses.dataclass(repr=False)
class FixResult(Shown):
    """What was mended and what is left.

    Attributes:
        verdict: of the port with the patch.
        edits: those that are proven, as `Edit.to_json` with `cause` and `layer`.
        left: faults that are left, as JSON.
        patch: the unified diff, empty if there is nothing to change.
        written: the files that were changed.
        notes: what the reader should know of the proof.
    """

    kind = "fix"

    case: str
    verdict: str
    edits: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    left: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    patch: str = ""
    written: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    patch_file: str | None = None

    @property
    def exit_code(self) -> ExitCode:
        return EXIT_CODES[self.verdict]

    def to_json(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


def fix(settings: RunSettings, progress: Progress = lambda side, text: None, write: bool = False) -> FixResult:
    """Find the faults of a port, and the edits of its source that a re-run proves; write them as `OUT/fix.patch`.

    Args:
        write: whether the files are changed as well.

    Raises:
        InputError: a mistake in the settings or the case, or a file that changed meanwhile.
        SideCrashError: a side dies without any edit.
    """
    return _Repair(settings, progress).fix(write)


@dataclasses.dataclass(frozen=True)
class _Proposal:
    """An edit and the fault that it is for: its layer in the port, phase, and cause."""

    key: tuple[str, str, str]
    edit: Edit
    cause: str


class _Repair:
    def __init__(self, settings: RunSettings, progress: Progress) -> None:
        self._settings, self._progress = settings, progress
        self._folder = settings.out / "fix"
        self._kept = KeptProcesses()
        self._disk: dict[str, str] = {}
        self._sources: dict[str, str] = {}
        self._accepted: list[_Proposal] = []
        self._tried: set[tuple[tuple[str, str, str], Edit]] = set()
        self._failed: RunResult | None = None
        """What the last trial gave if it ran and its edits were not taken."""

    def fix(self, write: bool) -> FixResult:
        (self._settings.out / "fix.patch").unlink(missing_ok=True)
        try:
            return self._fix(write)
        finally:
            self._kept.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _fix(self, write: bool) -> FixResult:
        first = present = self._run({})
        reference = self._reference()
        for _ in range(_MOST_ROUNDS):
            chosen = self._chosen(present)
            if present.verdict == ALIGNED or not chosen:
                break
            present = self._tried_together(present, chosen, reference)
        result = FixResult(first.case, present.verdict, left=_faults(present))
        if self._accepted and not self._holds_on_second_draw(present, result, reference):
            result.verdict, result.left, self._accepted, self._sources = first.verdict, _faults(first), [], {}
        result.edits = [{**one.edit.to_json(), "layer": one.key[0], "cause": one.cause} for one in self._accepted]
        result.patch = patch_of(self._disk, self._sources, result.edits)
        if result.patch:
            path = self._settings.out / "fix.patch"
            write_text(path, result.patch)
            result.patch_file = str(path)
        if write:
            result.written = self._write()
        return result

    def _chosen(self, present: RunResult) -> list[_Proposal]:
        """The likeliest edit of each fault that was not tried, without those that touch the same text."""
        chosen: list[_Proposal] = []
        for fault in _faults(present):
            edits = [one for one in _proposals(fault) if (one.key, one.edit) not in self._tried]
            if edits and not any(overlap(edits[0].edit, other.edit) for other in chosen):
                chosen.append(edits[0])
        return chosen

    def _tried_together(self, present: RunResult, chosen: Sequence[_Proposal], reference: Any) -> RunResult:
        """The run with those edits that mend their faults: all at once, else those that helped, else one by one."""
        after = self._trial(present, chosen, reference)
        if after is None and self._failed is not None:
            helped = [one for one in chosen if _is_gone(one.key, _faults(present), _faults(self._failed))]
            after = self._trial(present, helped, reference) if 0 < len(helped) < len(chosen) else None
        if after is not None:
            return after
        places = {one.edit for one in chosen}
        for edit in sorted(places, key=lambda one: (one.file, one.span), reverse=True) if len(places) > 1 else ():
            alone = [one for one in chosen if one.edit == edit]
            found = self._trial(present, alone, reference)
            present = present if found is None else found
        return present

    def _trial(self, present: RunResult, chosen: Sequence[_Proposal], reference: Any) -> RunResult | None:
        """The run with these edits if they mend their faults, bring no other and leave the reference as it is."""
        edits = [one.edit for one in chosen]
        if len({one.edit for one in chosen}) == 1:
            self._tried |= {(one.key, one.edit) for one in chosen}
        for edit in edits:
            self._disk.setdefault(edit.file, read_source(edit.file))
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
            after = self._run(self._sources)
        except (InputError, SideCrashError, ValueError):
            self._sources = before
            return None
        gone = all(_is_gone(one.key, _faults(present), _faults(after)) for one in chosen)
        if gone and not _layers(after) - _layers(present) and self._same_reference(reference):
            self._accepted += chosen
            return after
        self._sources, self._failed = before, after
        return None

    def _holds_on_second_draw(self, present: RunResult, result: FixResult, reference: Any) -> bool:
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
        if other.verdict == present.verdict and not _layers(other) - _layers(present):
            return True
        result.notes.append("the edits do not hold on a second draw of inputs, so none is taken")
        return False

    def _run(self, sources: Mapping[str, str], options: Mapping[str, str] | None = None) -> RunResult:
        shutil.rmtree(self._folder, ignore_errors=True)
        told = {**self._settings.options, **(options or {})}
        settings = dataclasses.replace(
            self._settings, out=self._folder, options=told, sources=sources, locate=True, fresh=True
        )
        return run(settings, self._progress, kept=self._kept)

    def _reference(self) -> dict[str, dict[str, np.ndarray]]:
        files = sorted(self._folder.glob("*_ref.npy"))
        return {file.name: dict(Recording.load(file).arrays) for file in files}

    def _same_reference(self, before: Mapping[str, Mapping[str, np.ndarray]]) -> bool:
        """Whether the reference still gives what it gave: an edit of what both sides share may not change it."""
        now = self._reference()
        return now.keys() == before.keys() and all(
            now[file].keys() == before[file].keys()
            and all(np.array_equal(a, before[file][name], equal_nan=a.dtype.kind in "fc") for name, a in of.items())
            for file, of in now.items()
        )

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


def _faults(result: RunResult) -> list[dict[str, Any]]:
    located = result.located.faults if result.located is not None else []
    return [fault.to_json() for fault in located if "accepted" not in fault.evidence]


def _key(fault: Mapping[str, Any]) -> tuple[str, str, str]:
    return fault["paddle_layer"], fault["phase"], (fault["explanation"] or {"id": ""})["id"]


def _is_gone(
    key: tuple[str, str, str], before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> bool:
    """Whether of a fault nothing is left, or fewer causes of several; the same cause with another value is not less."""
    others = {_key(fault) for fault in before} - {key}
    left = [_key(fault) for fault in after if _key(fault)[:2] == key[:2] and _key(fault) not in others]
    return all(one[2] and set(one[2].split("+")) < set(key[2].split("+")) for one in left)


def _layers(result: RunResult) -> set[str]:
    return {fault["paddle_layer"] for fault in _faults(result)}


def _proposals(fault: Mapping[str, Any]) -> Iterator[_Proposal]:
    for found in filter(None, [fault["edit"], *fault["further_edits"], *fault["reference_edits"]]):
        edit = Edit(found["file"], tuple(found["span"]), found["before"], found["after"])
        known = fault["explanation"]
        cause = f"{known['text']} [{known['id']}]" if known else "as the reference's source has it"
        yield _Proposal(_key(fault), edit, cause)
