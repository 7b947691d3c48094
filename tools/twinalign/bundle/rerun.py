"""`twinalign verify --replay`: runs the packed case again here. Only this module executes code from a bundle."""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.bundle.contents import Contents
from twinalign.bundle.layout import REPEAT, SOURCE
from twinalign.errors import InputError, SideCrashError
from twinalign.files.text import shown
from twinalign.processes import guardian
from twinalign.recorder.recorder import Recorder, RunSettings
from twinalign.runs.run_result import RunResult
from twinalign.runs.run_stages import run
from twinalign.sides import SIDES
from twinalign.stages import STAGE_BY_NAME
from twinalign.verdict.compare import compare_same_side
from twinalign.verdict.results import ALIGNED, DIVERGED, INCONCLUSIVE
from twinalign.verdict.stage_recordings import StageRecordings


def run_case_again(
    contents: Contents,
    *,
    pythons: Mapping[str, str | None] | None = None,
    options: Mapping[str, str] | None = None,
    progress: Callable[[str, str], None] = lambda side, text: None,
) -> dict[str, Any]:
    """Run the packed case in this environment and compare its recordings with the packed ones.

    The code is unpacked into a temporary folder, where `run` runs it with the rights of the caller; the digests of the
    bundle must have been checked. `pythons` are each side's interpreter, this one by default, and `options` those
    options of the case that differ here (`data`, say).

    Returns:
        `verdict` (of the packed recordings against the replayed ones), `run` (the verdict of the run here), and
        `stages`: stage -> side -> verdict, whether bit-equal, and the worst tensor's reason.

    Raises:
        InputError: the case cannot run here.
        SideCrashError: a framework's process died.
    """
    folder = guardian.new_folder("twinalign-replay-")
    with contextlib.ExitStack() as cleaning:
        cleaning.callback(guardian.release, folder)
        cleaning.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            result, stages = _replayed(contents, folder, pythons or {}, options or {}, progress)
        except SideCrashError as error:
            cleaning.pop_all()  # the folder stays: the traceback is in it
            guardian.release(folder)
            what = "a bundle holds only the case's Python source; give its data with --data"
            raise SideCrashError(f"{error}; {what}") from error
    verdicts = {entry["verdict"] for stage in stages.values() for entry in stage.values()}
    whole = next((verdict for verdict in (DIVERGED, INCONCLUSIVE) if verdict in verdicts), ALIGNED)
    return {"verdict": whole, "run": result.verdict, "stages": stages}


def _replayed(
    contents: Contents,
    folder: Path,
    pythons: Mapping[str, str | None],
    options: Mapping[str, str],
    progress: Callable[[str, str], None],
) -> tuple[RunResult, dict[str, dict[str, dict[str, Any]]]]:
    """Unpack into `folder`, run there, and compare stage by stage and side by side."""
    for name in contents.manifest["source"]:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(contents.archive.read(name))
    identity = contents.case["identity"]["ref"]
    source = folder / SOURCE.rstrip("/")
    precisions = {dtype for _, _, dtype in contents.metadata} - {REPEAT}
    known = contents.summary.get("precision", "both" if len(precisions) > 1 else precisions.pop())
    settings = RunSettings(
        case=_case_here(contents, identity["case"], source),
        out=folder / "result",
        stages=tuple(contents.stages),
        device=identity["device"],
        precision=known,
        accuracy_compatible=contents.summary.get("accuracy_compatible", False),
        ranks=contents.summary.get("ranks", 1),
        pythons=pythons,
        options={**identity["options"], **options},
    )
    with _inside(source, _roots(source, contents)):
        result = run(settings, progress)
        recorder = Recorder(settings)
        recorder.description = contents.description
        stages = {stage: _agreement(stage, contents, recorder) for stage in contents.stages}
    return result, stages


def _case_here(contents: Contents, reference: str, source: Path) -> str:
    """The case's reference, which names its unpacked file if it names a file at all."""
    path, colon, name = reference.partition(":")
    if not path.endswith(".py"):
        return reference
    member = next((key for key, original in contents.manifest["source"].items() if original == path), None)
    if member is None:
        raise InputError(f"{contents.archive.label}: the case's file {shown(path)} is not in it; it cannot be replayed")
    return f"{source / member.removeprefix(SOURCE)}{colon}{name}"


def _roots(source: Path, contents: Contents) -> list[str]:
    """Folders from which the unpacked modules are imported: the ones that hold their topmost packages."""
    found = {str(source): None}
    for name in sorted(contents.manifest["source"]):
        folder = (source.parent / name).parent
        while (folder / "__init__.py").exists() and folder != source:
            folder = folder.parent
        found[str(folder)] = None
    return list(found)


@contextlib.contextmanager
def _inside(folder: Path, roots: list[str]) -> Iterator[None]:
    # A recorder process looks for modules in its parent's working folder first, then on PYTHONPATH.
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([*roots, *([before] if before else [])])
    try:
        with contextlib.chdir(folder):
            yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _agreement(stage: str, contents: Contents, recorder: Recorder) -> dict[str, dict[str, Any]]:
    packed, here = contents.recordings(stage), StageRecordings.load(recorder, stage)
    found = {}
    for side in SIDES:
        weights = {recordings.metadata(side).get("weights_sha256") for recordings in (packed, here)}
        if STAGE_BY_NAME[stage].needs_model and len(weights) > 1:
            reason = "the initial weights made here differ, so the numbers cannot be compared"
            found[side] = {"verdict": INCONCLUSIVE, "bit_equal": False, "reason": reason}
        else:
            found[side] = _side_agreement_of_ranks(stage, side, packed, here, contents)
    return found


def _side_agreement_of_ranks(
    stage: str, side: str, packed: StageRecordings, here: StageRecordings, contents: Contents
) -> dict[str, Any]:
    """How one side agrees; with several ranks, how the worst of them agrees."""
    ranks = packed.ranks
    if ranks != here.ranks:
        reason = f"recorded by {ranks} ranks, replayed by {here.ranks}"
        return {"verdict": INCONCLUSIVE, "bit_equal": False, "reason": reason}
    if ranks == 1:
        return _side_agreement(stage, side, packed, here, contents)
    order = (DIVERGED, INCONCLUSIVE, ALIGNED)
    pairs = zip(packed.of_ranks(), here.of_ranks(), strict=True)
    found = [_side_agreement(stage, side, one, other, contents) for one, other in pairs]
    return min(found, key=lambda entry: (order.index(entry["verdict"]), entry["bit_equal"]))


def _side_agreement(
    stage: str, side: str, packed: StageRecordings, here: StageRecordings, contents: Contents
) -> dict[str, Any]:
    """Compare a side's packed recordings with the replayed ones, by the rules for two sides."""
    low = packed.judged_dtype
    arrays = [recordings.arrays(side, low) or {} for recordings in (packed, here)]
    equal = arrays[0].keys() == arrays[1].keys() and all(
        np.array_equal(array, arrays[1][name], equal_nan=array.dtype.kind in "fc") for name, array in arrays[0].items()
    )
    if equal:
        return {"verdict": ALIGNED, "bit_equal": True, "reason": "bit-equal"}
    comparison = compare_same_side(stage, side, packed, here, contents.description)
    worst = next((tensor for tensor in comparison.tensors if tensor.verdict == comparison.verdict), None)
    reason = f"{worst.name}: {worst.reason}" if worst else f"{len(comparison.tensors)} tensors equal up to rounding"
    return {"verdict": comparison.verdict, "bit_equal": False, "reason": reason}
