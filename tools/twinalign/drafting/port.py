"""`twinalign port`: observe, select, rewrite, draft, write, prove, and mend what the proof finds."""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from twinalign.drafting import package
from twinalign.drafting.absent_names import ABSENT, without_torch
from twinalign.drafting.draft import draft
from twinalign.drafting.native_style import Restyled, restyle
from twinalign.drafting.observed_model import observe_model
from twinalign.drafting.pruning import pruned
from twinalign.drafting.rewriting import Change
from twinalign.errors import ExitCode, InputError, SideCrashError
from twinalign.files.recordings import write_text
from twinalign.notebook import Shown
from twinalign.processes.guardian import temporary_folder
from twinalign.processes.machine import processors
from twinalign.processes.side_process import ChildError
from twinalign.recorder.kept_processes import KeptProcesses
from twinalign.recorder.run_settings import RunSettings
from twinalign.repair.fix import Progress, fix
from twinalign.reports import write_report
from twinalign.runs.run_result import RunResult
from twinalign.runs.run_stages import run
from twinalign.runs.scaffold import InputArray
from twinalign.sides import SIDES
from twinalign.verdict.results import ALIGNED, EXIT_CODES

STYLES = ("compat", "native")
_CHANGES = "changes.txt"
_MOST_TENSORS = 5
"""That are named where no layer is at fault."""
SMALLEST_BATCH = 4
"""Batch norm over two samples gives 1 and -1 whatever they are, and gradients that are rounding alone."""


@dataclasses.dataclass(repr=False)
class PortResult(Shown):
    """A port and what is proven of it.

    Attributes:
        out: folder of the port, of its case and of the list of changes.
        verdict: of its run; None if the port does not run.
        stages: stage → verdict.
        changes: what was changed beside PaConvert's draft, as `file`, `text` and `why`.
        edits: what `fix` mended after the first run.
        left: what is left for a person, as text with file and line.
        native: what was rewritten in paddle's style, as `changes`.
        kept: what of torch's style stayed, as `changes`.
    """

    kind = "port"

    out: str
    verdict: str | None
    stages: dict[str, str] = dataclasses.field(default_factory=dict)
    changes: list[dict[str, str]] = dataclasses.field(default_factory=list)
    edits: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    left: list[str] = dataclasses.field(default_factory=list)
    native: list[dict[str, str]] = dataclasses.field(default_factory=list)
    kept: list[dict[str, str]] = dataclasses.field(default_factory=list)

    @property
    def exit_code(self) -> ExitCode:
        return EXIT_CODES[self.verdict] if self.verdict else ExitCode.SIDE_CRASHED

    def to_json(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


def port(
    reference: str,
    inputs: Sequence[InputArray],
    settings: RunSettings,
    *,
    parts: Mapping[str, str] | None = None,
    drafting_python: str | None = None,
    style: str = "compat",
    progress: Progress = lambda side, text: None,
) -> PortResult:
    """Write a paddle port of the model that `module:factory(…)` names into the folder `settings.out`, and prove it.

    Args:
        reference: what builds the torch model.
        inputs: what the model takes; smaller batches become `SMALLEST_BATCH`.
        settings: of the run that proves the port; its case is the port's own.
        parts: of `parts.KINDS` those that are to be drafted and proven too, as text.
        drafting_python: an interpreter that has PaConvert; this one by default.
        style: one of `STYLES`; the native one is made of a port that is proven.

    Raises:
        InputError: the reference cannot be built or run, PaConvert is missing, or the folder holds something else.
    """
    out = settings.out
    batches = [_for_training(array) for array in inputs]
    with contextlib.closing(KeptProcesses(True)) as kept:
        changes, left = _write(reference, batches, parts or {}, settings, drafting_python, progress, kept)
        result = proven(out, settings, progress, kept, report=style != "native")
        if style == "native" and result.verdict == ALIGNED:
            styled = _restyled(out, _proof(out, settings), progress, kept, drafting_python)
            result.native = [dataclasses.asdict(change) for change in styled.done]
            result.kept = [dataclasses.asdict(change) for change in styled.kept]
            _list(out / _CHANGES, styled)
    if result.verdict and not (out / "result" / "report.html").exists():
        write_report(out / "result", settings.language)
    result.changes = [dataclasses.asdict(change) for change in changes]
    result.left = [*left, *result.left]
    return result


def _restyled(
    out: Path, proof: RunSettings, progress: Progress, kept: KeptProcesses, drafting_python: str | None = None
) -> Restyled:
    """Rewrite a proven port in paddle's style; what is on disk afterwards is proven, or as it was before."""
    before = {path: path.read_text(encoding="utf-8") for path in (out / package.package_name(out)).rglob("*.py")}
    styled = restyle(out, proof, progress, kept, drafting_python)
    with contextlib.suppress(SideCrashError):
        if not styled.done or run(proof, progress, kept).verdict == ALIGNED:
            return styled
    for path, text in before.items():
        write_text(path, text)
    run(proof, progress, kept)
    why = "proven in the trials, but not in the port as it was written"
    return Restyled([], [dataclasses.replace(change, why=why) for change in styled.done] + styled.kept)


def proven(
    out: Path, settings: RunSettings, progress: Progress, kept: KeptProcesses | None = None, report: bool = True
) -> PortResult:
    """Run a port's case, and let `fix` mend what diverges; `kept` lends the processes.

    Without `report` none is written of a run that is to be followed by another.

    Raises InputError if the folder holds no port that twinalign made.
    """
    case = out / "case.py"
    if not (out / _CHANGES).exists() or not case.exists():
        raise InputError(f"{out}: it has no case.py beside a changes.txt, so it is no port that twinalign made")
    settings = _proof(out, settings)
    try:
        found = run(settings, progress, kept, report)
    except SideCrashError as error:
        return PortResult(str(out), None, left=[str(error)])
    if found.verdict == ALIGNED:
        return PortResult(str(out), found.verdict, _verdicts(found), left=_starts_otherwise(found))
    mended = fix(settings, progress, write=True, kept=kept)
    verdict, stages = mended.verdict, _verdicts(found)
    left = [f"{fault['paddle_layer'] or fault['reference_layer']}: {_cause(fault)}" for fault in mended.left]
    if verdict == ALIGNED:  # what is in the result's folder is to be the proof of what is on disk
        found = run(dataclasses.replace(settings, fresh=True, locate=False), progress, kept)
        verdict, stages = found.verdict, _verdicts(found)
    if verdict != ALIGNED and not left:
        left = [
            f"{stage}: {tensor.name}: {tensor.reason}"
            for stage, comparison in found.stages.items()
            for tensor in comparison.tensors
            if tensor.verdict == comparison.verdict != ALIGNED
        ][:_MOST_TENSORS]
    return PortResult(str(out), verdict, stages, edits=mended.edits, left=[*left, *_starts_otherwise(found)])


def _starts_otherwise(found: RunResult) -> list[str]:
    """The port's tensors whose first values are others than torch's, each with what differs."""
    differences = found.initial.differences if found.initial is not None else []
    return [f"{one.port_name} starts otherwise than in torch: {one.text}" for one in differences]


def _verdicts(found: RunResult) -> dict[str, str]:
    return {name: comparison.verdict for name, comparison in found.stages.items()}


def _proof(out: Path, settings: RunSettings) -> RunSettings:
    case = str(out / "case.py")
    return dataclasses.replace(settings, case=case, out=out / "result", stages=())


def _list(path: Path, styled: Restyled) -> None:
    """Add what the native style changed, and what stayed and why, to the list of changes."""
    done = [f"{change.file}: {change.text}: {change.why}" for change in styled.done]
    kept = [f"{change.file}: {change.text}: {change.why}" for change in styled.kept]
    lines = ["Rewritten in paddle's style, and proven again:", *done, "", "Left in torch's style:", *kept, ""]
    write_text(path, path.read_text(encoding="utf-8") + "\n" + "\n".join(lines))


def _cause(fault: dict[str, Any]) -> str:
    return (fault.get("explanation") or {}).get("text") or "differs; its cause is not proven"


def _for_training(array: InputArray) -> InputArray:
    batch, *rest = array.shape
    return dataclasses.replace(array, shape=(max(batch, SMALLEST_BATCH), *rest))


def _observed(
    reference: str, given: Sequence[Sequence[Any]], parts: Mapping[str, str], settings: RunSettings, kept: KeptProcesses
) -> dict[str, Any]:
    """What `observe_model` says, in a fork of the process that is to record the reference."""
    with temporary_folder() as folder:
        process = kept.start(
            "ref",
            python=settings.pythons.get("ref"),
            log=folder / "log",
            threads=max(1, processors() // len(SIDES)),
            debug=settings.debug,
            progress=lambda side, text: None,
            points=lambda side, event: None,
        )
        with contextlib.closing(process):
            try:
                return process.call(observe_model, reference=reference, inputs=given, parts=dict(parts))
            except ChildError as error:
                why = error.reason if error.reason.startswith("--") else f"--ref {reference}: {error.reason}"
                raise (SideCrashError if error.died else InputError)(why) from None


def _write(
    reference: str,
    inputs: Sequence[InputArray],
    parts: Mapping[str, str],
    settings: RunSettings,
    drafting_python: str | None,
    progress: Progress,
    kept: KeptProcesses,
) -> tuple[list[Change], list[str]]:
    """Write the port; returns what was changed beside the draft, and what is left of torch."""
    out, ref_python = settings.out, settings.pythons.get("ref")
    name = package.package_name(out)
    if out.exists() and any(out.iterdir()) and not (out / _CHANGES).exists():
        raise InputError(f"--out {out}: it exists and is no port that twinalign made; name another folder")
    progress("ref", "building and running the reference to see which of its sources it needs")
    given = [(array.name, array.shape, array.dtype, array.bound) for array in inputs]
    observed = _observed(reference, given, parts, settings, kept)
    selection = pruned(reference, observed, given, parts, ref_python, progress)
    files, changes, shims = package.in_torch(selection)
    progress("paddle", f"drafting {len(files)} files with PaConvert")
    drafts = draft(files, drafting_python)
    left = package.leftovers(drafts, {module.partition(".")[0] for module in observed["modules"]})
    for path, text in drafts.items():
        drafts[path], absent = without_torch(text, package.above(path))
        shims |= {ABSENT} if absent else set()
    if shims:
        drafts[f"{package.SHIMS}.py"] = package.shims_source(shims)
    lines = [f"{change.file}: {change.text}: {change.why}" for change in changes]
    whole = {f"{name}/{path}": text for path, text in drafts.items()}
    whole["case.py"] = package.case_source(name, reference, inputs, parts, observed)
    whole[_CHANGES] = "\n".join(["Changed beside PaConvert's draft:", *lines, "", "Left of torch:", *left, ""])
    for number, licence in enumerate(package.licences(selection)):
        whole["LICENSE" + (f".{number}" if number else "")] = licence.read_text(encoding="utf-8", errors="replace")
    package.write(out, whole)
    return changes, left
