"""`twinalign port --style native`: a proven port in paddle's own terms, each rewrite of it proven again."""

import contextlib
import dataclasses
import functools
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence, Set
from pathlib import Path

from twinalign.case.definition import stages_of
from twinalign.case.loading import load_case
from twinalign.drafting import native_rules, package, rules
from twinalign.drafting.draft import formatted
from twinalign.drafting.native_rewriting import Rewrite, Rewritten, rewritten
from twinalign.drafting.rewriting import Change
from twinalign.errors import InputError, SideCrashError
from twinalign.files.recordings import write_text
from twinalign.recorder.kept_processes import KeptProcesses
from twinalign.recorder.recording_plan import forget_port
from twinalign.recorder.run_settings import RunSettings
from twinalign.runs.run_stages import run
from twinalign.sides import INITIAL
from twinalign.verdict.results import ALIGNED

MOST_PROOFS = 24
_SHIMS = f"{package.SHIMS}.py"
_CLASS = re.compile(r"'(\w+)' object|(\w+)(?:\.__init__)?\(\)|of a (\w+) starts")
_NOT_TRIED = f"not tried: {MOST_PROOFS} proofs were spent on others"


@dataclasses.dataclass
class Restyled:
    """What was rewritten, and what stayed and why."""

    done: list[Change]
    kept: list[Change]


def restyle(
    out: Path,
    settings: RunSettings,
    progress: Callable[[str, str], None],
    kept: KeptProcesses,
    drafting_python: str | None = None,
) -> Restyled:
    """Rewrite the proven port in the folder `out`: the rewrites that its case, run with `settings`, proves.

    All are tried first, then halves of those that fail. Nothing on disk changes before. `kept` lends the processes; the
    reference is not recorded again. A trial leaves out what another of its stages covers; a whole proof is to follow.
    What is written is formatted.
    """
    restyling = _Restyling(out, settings, progress, kept)
    every = rewritten(restyling.files).done
    with restyling.trials():
        taken, failed = proven_ones(every, restyling.fault)
    found = rewritten(restyling.files, taken)
    if taken:
        found.files = formatted(found.files, drafting_python)
        restyling.write(found)
    return Restyled([Change(one.file, one.text, one.why) for one in found.done], _kept(found, failed))


def proven_ones(
    every: Sequence[Rewrite], fault_of: Callable[[list[Rewrite]], str | None]
) -> tuple[list[Rewrite], dict[Rewrite, str]]:
    """The rewrites that hold together, and of the others why not; `fault_of` says what is wrong with a choice.

    A choice that fails is tried in two parts: those that build the class that the fault is about and the others, or
    else two halves. No choice is tried twice.
    """
    taken: list[Rewrite] = []
    failed: dict[Rewrite, str] = {}
    known: dict[frozenset[Rewrite], str | None] = {}
    waiting = [list(every)] if every else []
    while waiting and len(known) < MOST_PROOFS:
        group = waiting.pop(0)
        chosen = frozenset([*taken, *group])
        if chosen not in known:
            known[chosen] = fault_of([*taken, *group])
        fault = known[chosen]
        if fault is None:
            taken += group
        elif len(group) == 1:
            failed[group[0]] = fault
        else:
            named = {name for found in _CLASS.findall(fault) for name in found}
            about = [one for one in group if named & set(re.findall(r"\w+", one.text.partition("→")[2]))]
            about = about if 0 < len(about) < len(group) else group[len(group) // 2 :]
            waiting += [[one for one in group if one not in about], about]
    failed.update({one: _NOT_TRIED for group in waiting for one in group})
    return taken, failed


class _Restyling:
    def __init__(
        self, out: Path, settings: RunSettings, progress: Callable[[str, str], None], kept: KeptProcesses
    ) -> None:
        self._root = out / package.package_name(out)
        self._settings, self._progress, self._kept = settings, progress, kept
        self._folder = settings.out / "native"
        self._stages = _tried(stages_of(load_case(settings.case)))
        paths = [path for path in sorted(self._root.rglob("*.py")) if path != self._root / _SHIMS]
        self.files = {path.relative_to(self._root).as_posix(): path.read_text(encoding="utf-8") for path in paths}

    @contextlib.contextmanager
    def trials(self) -> Iterator[None]:
        """Keep a folder for trials, which holds the reference's recordings, inside the block."""
        shutil.copytree(self._settings.out, self._folder, ignore=shutil.ignore_patterns(self._folder.name))
        try:
            yield
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _sources(self, found: Rewritten) -> dict[str, str]:
        changed = {path: text for path, text in found.files.items() if text != self.files[path]}
        if (self._root / _SHIMS).exists():
            changed[_SHIMS] = package.shims_source({shim for _, shim in found.shims})
        return changed

    def fault(self, wanted: list[Rewrite]) -> str | None:
        """What is wrong with the port after these rewrites; None if it is as proven as it was."""
        self._progress("both", f"proving {len(wanted)} rewrite{'s' * (len(wanted) > 1)} in paddle's style")
        changed = self._sources(rewritten(self.files, wanted))
        sources = {os.path.realpath(self._root / path): text for path, text in changed.items()}
        try:
            stages, initial = self._judged(sources, (*self._stages, INITIAL))
        except (InputError, SideCrashError) as error:
            return str(error).partition(" (traceback in ")[0].splitlines()[0]
        for stage, verdict in stages.items():
            if verdict != ALIGNED:
                return f"{stage}: {verdict}"
        worse = sorted(initial.keys() - self._starting_otherwise) if initial else []
        return f"{worse[0]} of a {initial[worse[0]]} starts otherwise than torch's" if worse else None

    @functools.cached_property
    def _starting_otherwise(self) -> Set[str]:
        """Parameters that start otherwise before any rewrite, as the proof has them."""
        summary = json.loads((self._settings.out / "summary.json").read_text(encoding="utf-8"))
        return {one["name"] for one in summary["initial"]["differences"]}

    def _judged(self, sources: dict[str, str], stages: tuple[str, ...]) -> tuple[dict[str, str], dict[str, str]]:
        """Verdicts of the stages, and the parameters that start otherwise, each with its layer's class."""
        forget_port(self._folder)  # it was made from other sources
        settings = dataclasses.replace(self._settings, out=self._folder, sources=sources, stages=stages, locate=False)
        found = run(settings, self._progress, self._kept, report=False)
        differences = found.initial.differences if found.initial is not None else []
        return {name: one.verdict for name, one in found.stages.items()}, {one.name: one.layer for one in differences}

    def write(self, found: Rewritten) -> None:
        for path, text in self._sources(found).items():
            write_text(self._root / path, text)
        if not found.shims:
            (self._root / _SHIMS).unlink(missing_ok=True)


def _tried(stages: Sequence[str]) -> tuple[str, ...]:
    """The stages of a trial: the backward stage runs what the forward and the loss stage do."""
    covered = ("forward", "loss") if "backward" in stages else ()
    return tuple(stage for stage in stages if stage not in covered)


def _kept(found: Rewritten, failed: dict[Rewrite, str]) -> list[Change]:
    """What is left of torch's terms: rewrites that are not proven, and shims with the reason why they are needed."""
    kept = [Change(one.file, one.text, why) for one, why in failed.items()]
    reasons = {rule.replacement: rule.why for rule in (*rules.SHIMS, *rules.METHODS)}
    refused = {(one.file, one.text.removeprefix("shims.").partition("(")[0].partition(" ")[0]) for one in failed}
    for file, shim in found.shims:
        if shim not in reasons or (file, shim) in refused:
            continue
        spelled = "its arguments or its class are used in a way that paddle's has not"
        kept.append(Change(file, f"shims.{shim}", spelled if shim in native_rules.CALLS else reasons[shim]))
    return kept
