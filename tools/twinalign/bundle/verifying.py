"""`twinalign verify`: a reviewer's check of a bundle; it needs numpy alone and trusts nothing in the bundle."""

import concurrent.futures
import contextlib
import dataclasses
import datetime
import functools
import gc
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from twinalign.bundle.archive import Archive, releasing_pages
from twinalign.bundle.claims import Mismatch, check_initial, check_log, check_stage
from twinalign.bundle.consistency import signs_between_texts, signs_in_names
from twinalign.bundle.contents import Contents, check_digests
from twinalign.bundle.excuses import excuse_signs, missing_float64_signs, unread_signs
from twinalign.bundle.fabrication_in_arrays import fault_of_sample, signs_in_arrays
from twinalign.bundle.fabrication_in_metadata import Sign, is_of_another_version, notes_in_metadata, signs_in_metadata
from twinalign.bundle.fabrication_in_steps import Kept, signs_between_stages, signs_in_steps
from twinalign.bundle.layout import MANIFEST, log_member
from twinalign.errors import ExitCode, InputError
from twinalign.files.recordings import Recording
from twinalign.files.text import shown
from twinalign.notebook import Shown
from twinalign.sides import INITIAL
from twinalign.verdict import Comparison
from twinalign.verdict.compare import compare_stage
from twinalign.verdict.initial_weights import InitialWeights, compare_initial
from twinalign.verdict.results import ALIGNED, DIVERGED, INCONCLUSIVE
from twinalign.verdict.stage_recordings import StageRecordings

CONFIRMED = "confirmed"
REFUTED = "refuted"
SUSPECT = "suspect"

_MESSAGE_LIMIT = 1000
_EXIT_CODES = {
    CONFIRMED: ExitCode.ALIGNED,
    SUSPECT: ExitCode.INCONCLUSIVE,
    INCONCLUSIVE: ExitCode.INCONCLUSIVE,
}


@dataclasses.dataclass
class StageCheck:
    """What was claimed about one stage, and what its arrays give."""

    claimed: str
    found: str
    tensors: int
    accepted: list[str]
    """Tensors left out of the verdict because the case accepts their convention, with the convention's id."""
    notes: list[str]


@dataclasses.dataclass(repr=False)
class Verification(Shown):
    """What a reviewer learns about a bundle."""

    kind = "verify"

    file: str
    size: int
    manifest_sha256: str
    """Identifies the whole file: the manifest has the digest of every member, and nothing else can be in the file."""
    case: str
    missing_stages: list[str]
    stages: dict[str, StageCheck] = dataclasses.field(default_factory=dict)
    mismatches: list[Mismatch] = dataclasses.field(default_factory=list)
    signs: list[Sign] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    environment: dict[str, Any] = dataclasses.field(default_factory=dict)
    replay: dict[str, Any] | None = None
    initial: dict[str, Any] | None = None
    """Of the initial weights the verdict claimed and found, the number of tensors, and whether they count."""

    @property
    def recomputed(self) -> str:
        """The worst verdict that the arrays give."""
        found = {stage.found for stage in self.stages.values()}
        if self.initial is not None and self.initial["counts"]:
            found.add(self.initial["found"])
        return next((verdict for verdict in (DIVERGED, INCONCLUSIVE) if verdict in found), ALIGNED)

    @property
    def verdict(self) -> str:
        """`refuted` (the arrays contradict a claim), `suspect` (signs of fabrication), `diverged`, `inconclusive` or
        `confirmed`; the first that holds."""
        if self.mismatches or self.signs:
            return REFUTED if self.mismatches else SUSPECT
        found = {self.recomputed, self.replay["verdict"] if self.replay else ALIGNED}
        return next((verdict for verdict in (DIVERGED, INCONCLUSIVE) if verdict in found), CONFIRMED)

    @property
    def exit_code(self) -> ExitCode:
        return _EXIT_CODES.get(self.verdict, ExitCode.DIVERGED)

    def to_json(self) -> dict[str, Any]:
        return {"verdict": self.verdict, "recomputed": self.recomputed, **dataclasses.asdict(self)}


def verify_bundle(
    path: str | os.PathLike[str],
    *,
    replay: Callable[[Contents], dict[str, Any]] | None = None,
    progress: Callable[[str], None] = lambda text: None,
    now: datetime.datetime | None = None,
) -> Verification:
    """Check a bundle: its form and manifest, every verdict and claim against its arrays, every sign of fabrication.

    No code from the bundle is executed unless `replay` is given. The file is mapped and its pages are released, so that
    memory does not grow with its size. `replay` runs the packed case again (see `twinalign.bundle.rerun`); `now` is the
    reviewer's time, UTC, by default the clock's.

    Raises:
        InputError: the file is not a bundle, is damaged, or is malicious.
    """
    try:
        with _without_collector():
            return _verified(path, replay, progress, now or datetime.datetime.now(datetime.UTC))
    except InputError as error:
        # Any module's message may quote the bundle, which must not be able to send control characters to a terminal.
        raise InputError(shown(str(error), _MESSAGE_LIMIT)) from error


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    # A bundle makes millions of objects and no cycles; searching them for cycles would take a sixth more time.
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
    with Archive(path) as archive, releasing_pages(archive), concurrent.futures.ThreadPoolExecutor(1) as pool:
        contents = Contents.of(archive)
        hashing = pool.submit(_hash, contents)
        try:
            result = _checked(contents, now, progress)
        except InputError:
            hashing.result()  # if the content is odd and the file is damaged too, the reviewer must hear of the damage
            raise
        result.manifest_sha256 = hashing.result()
        if replay is not None:
            progress("running the packed case again")
            result.replay = replay(contents)
    return result


def _hash(contents: Contents) -> str:
    check_digests(contents.archive, contents.manifest)
    return contents.archive.digest(MANIFEST)[1]


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
    result.signs += [*signs_between_texts(contents), *unread_signs(contents), *missing_float64_signs(contents)]
    result.notes += notes_in_metadata(contents, now)
    kept: Kept = {}
    for stage in contents.stages:
        progress(f"comparing {stage}")
        recordings, claim = contents.recordings(stage), summary["stages"][stage]
        comparison = _judged(stage, recordings, contents)
        signs, notes = signs_in_arrays(stage, recordings, contents.layers_of(stage))
        result.mismatches += check_stage(stage, claim, comparison, words=not is_of_another_version(contents))
        result.mismatches += check_log(stage, contents.text(log_member(stage)), comparison)
        result.signs += signs
        result.signs += signs_in_names(stage, recordings, contents)
        result.signs += signs_between_stages(stage, recordings, contents, kept)
        result.signs += signs_in_steps(recordings) if stage == "backward" else ()
        judge = functools.partial(_judged, stage, contents=contents)
        result.signs += excuse_signs(stage, recordings, comparison, judge)
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
    if INITIAL in summary:
        progress("comparing initial weights")
        claim, found = summary[INITIAL], _judged_initial(contents)
        result.initial = {"claimed": claim["verdict"], "found": found.verdict, "tensors": found.tensors}
        result.initial["counts"] = claim["counts"]
        result.mismatches += check_initial(claim, found.to_json(), words=not is_of_another_version(contents))
    if result.recomputed != summary["verdict"]:
        result.mismatches.append(Mismatch("", "the whole run", "verdict", summary["verdict"], result.recomputed))
    return result


def _judged(stage: str, recordings: StageRecordings, contents: Contents) -> Comparison:
    """Call `compare_stage` as `twinalign run` does, on recordings that a stranger made."""
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


def _judged_initial(contents: Contents) -> InitialWeights:
    try:
        with np.errstate(all="ignore"):
            return compare_initial(contents.recordings(INITIAL), contents.summary[INITIAL]["counts"])
    except (ArithmeticError, LookupError, TypeError, ValueError, MemoryError) as error:
        label = f"{contents.archive.label}: initial weights"
        raise InputError(f"{label}: the recordings cannot be compared ({type(error).__name__}); refused") from error


def _without_false_samples(recording: Recording) -> dict[str, Any]:
    sampled = recording.metadata.get("sampled", {})
    sound = {name: entry for name, entry in sampled.items() if fault_of_sample(recording, name, entry) is None}
    return {**recording.metadata, "sampled": sound}
