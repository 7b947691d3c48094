"""`twinalign verify`: a reviewer's check of a bundle, with numpy alone and no trust."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import datetime
import gc
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from twinalign.bundle.archive import Archive, PageRelease
from twinalign.bundle.arithmetic import fault_of_sample, signs_in_arrays
from twinalign.bundle.claims import Mismatch, check_log, check_stage
from twinalign.bundle.contents import Contents, check_digests
from twinalign.bundle.layout import MANIFEST, log_member, shown
from twinalign.bundle.signs import Sign, is_of_another_version, notes_in_metadata, signs_in_metadata
from twinalign.errors import ExitCode, InputError
from twinalign.recording import Recording
from twinalign.stage_verdict import StageRecordings, compare_stage
from twinalign.verdict import Comparison
from twinalign.verdict.results import ALIGNED, DIVERGED, INCONCLUSIVE

CONFIRMED = "confirmed"
REFUTED = "refuted"
SUSPECT = "suspect"

_MESSAGE_LIMIT = 1000
_EXIT_CODES = {CONFIRMED: ExitCode.ALIGNED, INCONCLUSIVE: ExitCode.INCONCLUSIVE}


@dataclasses.dataclass
class StageCheck:
    """One stage: what was claimed, what its arrays give."""

    claimed: str
    found: str
    tensors: int
    accepted: list[str]
    """Tensors that do not decide because the case accepts their convention, with its id."""
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return dataclasses.asdict(self)


@dataclasses.dataclass
class Verification:
    """What a reviewer learns of a bundle."""

    file: str
    size: int
    manifest_sha256: str
    """It stands for the whole: the manifest has the digest of every member, and nothing else can be in the file."""
    case: str
    environment: dict[str, Any]
    missing_stages: list[str]
    stages: dict[str, StageCheck] = dataclasses.field(default_factory=dict)
    mismatches: list[Mismatch] = dataclasses.field(default_factory=list)
    signs: list[Sign] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    replay: dict[str, Any] | None = None

    @property
    def recomputed(self) -> str:
        """The gravest verdict that the arrays give."""
        found = {stage.found for stage in self.stages.values()}
        return next((verdict for verdict in (DIVERGED, INCONCLUSIVE) if verdict in found), ALIGNED)

    @property
    def verdict(self) -> str:
        """`refuted` (claims that the arrays do not bear out), `suspect` (signs of fabrication), `diverged`,
        `inconclusive` or `confirmed`; the first that holds."""
        replayed = self.replay["verdict"] if self.replay else ALIGNED
        if self.mismatches:
            return REFUTED
        if self.signs:
            return SUSPECT
        found = {self.recomputed, replayed}
        return next((verdict for verdict in (DIVERGED, INCONCLUSIVE) if verdict in found), CONFIRMED)

    @property
    def exit_code(self) -> ExitCode:
        """What the command ends with."""
        return _EXIT_CODES.get(self.verdict, ExitCode.DIVERGED)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "verdict": self.verdict,
            "recomputed": self.recomputed,
            "file": self.file,
            "size": self.size,
            "manifest_sha256": self.manifest_sha256,
            "case": self.case,
            "missing_stages": self.missing_stages,
            "stages": {name: stage.to_json() for name, stage in self.stages.items()},
            "mismatches": [mismatch.to_json() for mismatch in self.mismatches],
            "signs": [sign.to_json() for sign in self.signs],
            "notes": self.notes,
            "environment": self.environment,
            "replay": self.replay,
        }


def verify_bundle(
    path: str | os.PathLike[str],
    *,
    replay: Callable[[Contents], dict[str, Any]] | None = None,
    progress: Callable[[str], None] = lambda text: None,
    now: datetime.datetime | None = None,
) -> Verification:
    """Check a bundle: its form and manifest, every verdict from its arrays, every claim, every sign of fabrication.

    Nothing out of the bundle is executed, unless `replay` is given. The file is read in place and its pages are given
    back, so that memory does not grow with it.

    Args:
        path: A file of `pack_run`.
        replay: Runs the packed case again; see `twinalign.bundle.replay`.
        progress: Told what is being done.
        now: The reviewer's time, UTC; the clock's by default.

    Raises:
        InputError: the file is no bundle, is damaged, or is made to harm.
    """
    now = now or datetime.datetime.now(datetime.UTC)
    try:
        with _without_collector():
            return _verified(path, replay, progress, now)
    except InputError as error:
        # What a bundle says can stand in a message of any module; none of it may steer the reader's terminal.
        raise InputError(shown(str(error), _MESSAGE_LIMIT)) from error


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Without Python's search for cyclic garbage: a bundle makes millions of objects and no cycles among them, and the
    search takes as long as a sixth of all the rest."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _verified(
    path: str | os.PathLike[str],
    replay: Callable[[Contents], dict[str, Any]] | None,
    progress: Callable[[str], None],
    now: datetime.datetime,
) -> Verification:
    with Archive(path) as archive, PageRelease(archive), concurrent.futures.ThreadPoolExecutor(1) as pool:
        contents = Contents.of(archive)
        hashing = pool.submit(_hash, contents)
        with _damage_first(hashing):
            result = _checked(contents, now, progress)
        result.manifest_sha256 = hashing.result()
        if replay is not None:
            progress("running the packed case again")
            result.replay = replay(contents)
    return result


def _hash(contents: Contents) -> str:
    check_digests(contents.archive, contents.manifest)
    return contents.archive.digest(MANIFEST)[1]


@contextlib.contextmanager
def _damage_first(hashing: concurrent.futures.Future[str]) -> Iterator[None]:
    """Where both the content is odd and the file is damaged, the damage is what the reviewer must hear of."""
    try:
        yield
    except InputError:
        hashing.result()
        raise


def _checked(contents: Contents, now: datetime.datetime, progress: Callable[[str], None]) -> Verification:
    summary = contents.summary
    result = Verification(
        file=contents.archive.label,
        size=contents.archive.size,
        manifest_sha256="",
        case=summary["case"],
        environment=summary["environment"],
        missing_stages=contents.manifest["missing_stages"],
    )
    result.signs += signs_in_metadata(contents, now)
    result.notes += notes_in_metadata(contents, now)
    for stage in contents.stages:
        progress(f"judging {stage}")
        recordings = contents.recordings(stage)
        comparison = _judged(stage, recordings, contents)
        signs, notes = signs_in_arrays(stage, recordings, contents.layers_of(stage))
        claim = summary["stages"][stage]
        result.mismatches += check_stage(stage, claim, comparison, words=not is_of_another_version(contents))
        result.mismatches += check_log(stage, contents.text(log_member(stage)), comparison)
        result.signs += signs
        result.notes += notes
        for side, reason in contents.without_float64(stage).items():
            result.notes.append(f"{stage}: no float64 on the {side} side, so that less is proven ({shown(reason)})")
        result.stages[stage] = StageCheck(
            claim["verdict"],
            comparison.verdict,
            len(comparison.tensors),
            [f"{tensor.name} ({tensor.accepted})" for tensor in comparison.tensors if tensor.accepted],
            comparison.notes,
        )
    if result.recomputed != summary["verdict"]:
        result.mismatches.append(Mismatch("", "the whole run", "verdict", summary["verdict"], result.recomputed))
    return result


def _judged(stage: str, recordings: StageRecordings, contents: Contents) -> Comparison:
    """`judging.compare_stage`, as `twinalign run` calls it, on recordings that a stranger made."""
    label = f"{contents.archive.label}: stage {stage}"
    whole = StageRecordings(
        {key: Recording(r.arrays, _without_false_samples(r)) for key, r in recordings.by_key.items()},
        recordings.repeat,
        recordings.between,
    )
    try:
        with np.errstate(all="ignore"):
            return compare_stage(stage, whole, contents.description)
    except InputError as error:
        raise InputError(f"{label}: {error}") from None
    except (ArithmeticError, LookupError, TypeError, ValueError, MemoryError, RecursionError) as error:
        raise InputError(f"{label}: its recordings cannot be compared ({type(error).__name__}); refused") from error


def _without_false_samples(recording: Recording) -> dict[str, Any]:
    sampled = recording.metadata.get("sampled", {})
    sound = {name: entry for name, entry in sampled.items() if fault_of_sample(recording, name, entry) is None}
    return {**recording.metadata, "sampled": sound}
