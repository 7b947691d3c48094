"""`twinalign pack`: a finished run as one file for review, or the reason why no reviewer should be handed it."""

from __future__ import annotations

import contextlib
import filecmp
import hashlib
import importlib.metadata
import json
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import twinalign
from twinalign.backends import FRAMEWORK_OF_SIDE
from twinalign.bundle.archive import write_archive
from twinalign.bundle.contents import Key
from twinalign.bundle.layout import (
    CASE,
    FORMAT,
    MANIFEST,
    RECORDER_LOG,
    REPEAT,
    RESULT,
    SOURCE,
    SUMMARY,
    VERSION,
    fault_of_name,
    ledger_member,
    log_member,
    metadata_member,
    recording_member,
    shown,
)
from twinalign.bundle.signs import collected_hashes_of
from twinalign.bundle.strict_json import check_form
from twinalign.bundle.verifying import Verification, verify_bundle
from twinalign.case import STAGES
from twinalign.errors import InputError
from twinalign.freshness import MISSING, hash_path
from twinalign.jobs import recorded_identity, recorded_precisions
from twinalign.recording import hash_arrays, read_metadata
from twinalign.report import load_summary
from twinalign.runner import SIDES, WeightFiles
from twinalign.stages import STAGE_BY_NAME

_PACKAGE = Path(twinalign.__file__).resolve().parent
_AGAIN = "run `twinalign run` again"


def pack_run(
    folder: Path, target: Path, *, partial: bool = False, progress: Callable[[str], None] = lambda text: None
) -> Verification:
    """Pack the run in `folder` into `target`, and check the bundle as a reviewer will before it gets its name.

    The same folder gives the same bytes.

    Args:
        folder: The `--out` folder of a finished `twinalign run`.
        target: The bundle to write.
        partial: Allow a run without all six stages of the guide; the bundle says which are missing.
        progress: Told what is being done.

    Raises:
        InputError: the run is stale, aliased or incomplete; the message names which.
    """
    if target.exists() and not _is_bundle(target):
        raise InputError(f"{target}: it is there already and is no bundle; give FILE another name")
    run = _Run(folder)
    run.require_complete(partial)
    run.require_two_sides()
    run.require_fresh()
    progress("writing")
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    _require_writable(target, beside)
    try:
        write_archive(beside, run.members())
        progress("checking as a reviewer will")
        result = verify_bundle(beside, progress=progress)
        _require_honest(result, folder)
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)
    result.file = str(target)
    return result


def _is_bundle(path: Path) -> bool:
    """Whether a file is a bundle that may be replaced by another: no device, no archive of weights, no text."""
    try:
        with zipfile.ZipFile(path) if path.is_file() else contextlib.nullcontext() as archive:
            return archive is not None and MANIFEST in archive.namelist()
    except (OSError, ValueError, zipfile.BadZipFile):
        return False


def _require_writable(target: Path, beside: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        beside.touch()
    except OSError as error:
        reason = f"cannot be written there ({error.strerror})"
        raise InputError(f"{target}: {reason}; give FILE in a folder that you can write to") from None


def _require_honest(result: Verification, folder: Path) -> None:
    if result.signs:
        more = f" (and {len(result.signs) - 1} more)" if len(result.signs) > 1 else ""
        raise InputError(f"{folder}: a reviewer would not take it: {result.signs[0]}{more}; {_AGAIN} with --fresh")
    if result.mismatches:
        more = f" (and {len(result.mismatches) - 1} more)" if len(result.mismatches) > 1 else ""
        raise InputError(f"{folder / 'summary.json'}: stale: {result.mismatches[0]}{more}; {_AGAIN}")


class _Run:
    """The folder of a run, with what its files say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.summary = load_summary(folder)
        case = read_metadata(folder / "case")
        if not {"identity", "description"} <= set(case):
            raise InputError(f"{folder / 'case.json'}: missing or malformed; {_AGAIN}")
        self.identity, self.description = case["identity"], case["description"]
        self.stages = [stage for stage in STAGES if stage in self.summary["stages"]]
        self.paths = {key: self._path(recording_member(*key)) for stage in self.stages for key in self._keys_of(stage)}
        self.metadata = {key: read_metadata(path) for key, path in self.paths.items()}

    def _keys_of(self, stage: str) -> list[Key]:
        """The recordings that the run rests on; what lies in the folder of other precisions is of earlier runs."""
        failed = self.summary["stages"][stage].get("without_float64", {})
        steps = self.description.get("float64_train_steps", 0)
        keys = [
            (side, stage, dtype)
            for dtype in recorded_precisions(stage, self.summary.get("precision", "both"), steps)
            for side in SIDES
            if dtype != "float64" or side not in failed
        ]
        reference = read_metadata(self._path(recording_member("ref", stage, "float64")))
        casts = ("ref", stage, "float64") in keys and reference.get("casts_to_float32")
        repeated = self._path(recording_member("ref", stage, REPEAT)).exists()
        return [*keys, ("ref", stage, REPEAT)] if repeated and ("ref" in failed or casts) else keys

    def _path(self, member: str) -> Path:
        return self.folder / member.removeprefix(RESULT)

    def require_complete(self, partial: bool) -> None:
        """Every stage of the guide, both sides of each, and what belongs to them."""
        missing = [stage for stage in STAGES if stage not in self.stages]
        if missing and not partial:
            raise InputError(
                f"{self.folder}: incomplete: the guide asks for {', '.join(missing)} as well; record "
                f"{'it' if len(missing) == 1 else 'them'}, or pack with --partial, and the bundle says what is missing"
            )
        for stage in self.stages:
            if not any(key[1] == stage and path.exists() for key, path in self.paths.items()):
                raise InputError(f"{self.folder}: incomplete: stage {stage} has no recordings; {_AGAIN}")
        wanted = {str(path): path for path in self.paths.values()}
        for name in self._texts():
            wanted[name] = self._path(name)
        for path in wanted.values():
            if not path.is_file():
                raise InputError(f"{path}: incomplete: it is missing; {_AGAIN}")
        for key, metadata in self.metadata.items():
            if "recorded_at" not in metadata:
                what = "no metadata beside it, or of an earlier twinalign"
                raise InputError(f"{self.paths[key]}: incomplete: {what}; {_AGAIN} with --fresh")
            check_form(metadata, "recording", str(self.paths[key].with_suffix(".json")))

    def require_two_sides(self) -> None:
        """Two files of two frameworks, not one under two names."""
        keys = list(self.paths)
        for at, key in enumerate(keys):
            for other in keys[:at]:
                if self.paths[key].samefile(self.paths[other]):
                    raise InputError(
                        f"{self.paths[key]}: aliased: it is the same file as {self.paths[other]}; record each side"
                    )
        for key, metadata in self.metadata.items():
            own = FRAMEWORK_OF_SIDE[key[0]]
            named = metadata.get("environment", {}).get("framework")
            if metadata.get("side") != key[0] or named != own:
                raise InputError(
                    f"{self.paths[key]}: aliased: {key[0]} is {own}'s side, and this was recorded as "
                    f"{shown(str(metadata.get('side')))} with {shown(str(named))}; record each side in its framework"
                )
        for stage in self.stages:
            self._require_own_numbers(stage)

    def _require_own_numbers(self, stage: str) -> None:
        """A side's file is no copy of the other's where the summary, made before, says that they differ."""
        for key, path in self.paths.items():
            reference = self.paths.get(("ref", *key[1:]), path)
            if key[:2] != ("paddle", stage) or not filecmp.cmp(path, reference, shallow=False):
                continue
            number = "fp64_rel" if key[2] == "float64" else "max_abs"
            differing = [t["name"] for t in self.summary["stages"][stage]["tensors"] if t.get(number)]
            if differing:
                raise InputError(
                    f"{path}: aliased: it has the very bytes of {reference}, and summary.json says that "
                    f"{shown(differing[0])} differs; record each side: {_AGAIN} with --fresh"
                )

    def require_fresh(self) -> None:
        """Recordings of the case, the code, the data and the weights that are there now."""
        present: dict[str, str] = {}
        weights: dict[str, str] = {}
        for key, metadata in self.metadata.items():
            path = self.paths[key]
            if metadata.get("identity") != recorded_identity(self.identity, key[0], key[1], self.summary):
                raise InputError(f"{path}: stale: recorded under another case, option or interpreter; {_AGAIN}")
            for source, digest in {**metadata["code_sha256"], **metadata["data_sha256"]}.items():
                if present.setdefault(source, hash_path(Path(source))) != digest:
                    what = (
                        "is not there any more" if present[source] == MISSING else "has changed since it was recorded"
                    )
                    raise InputError(f"{path}: stale: {source} {what}; {_AGAIN}")
            if STAGE_BY_NAME[key[1]].needs_model:
                part = self.description["parts"][key[1]]
                if part not in weights:
                    weights[part] = self._hash_weights(part)
                if metadata.get("weights_sha256") != weights[part]:
                    raise InputError(f"{path}: stale: recorded from other weights of {part} than are there; {_AGAIN}")
        for (side, stage, dtype), metadata in self.metadata.items():
            other = self.metadata.get(("ref", stage, dtype), metadata)
            if metadata.get("inputs_sha256") != other.get("inputs_sha256"):
                path = self.paths[side, stage, dtype]
                raise InputError(f"{path}: the two sides had other inputs: inputs(rng) must depend on rng alone")

    def _hash_weights(self, part: str) -> str:
        path = WeightFiles.of(self.folder / "weights", part, "ref").arrays
        try:
            with np.load(path, allow_pickle=False) as stored:
                return hash_arrays(dict(stored))
        except (OSError, ValueError):
            raise InputError(f"{path}: incomplete: no weights to check the recordings against; {_AGAIN}") from None

    def _texts(self) -> Iterator[str]:
        yield from (SUMMARY, CASE)
        for stage in self.stages:
            yield log_member(stage)
            if STAGE_BY_NAME[stage].needs_model:
                yield ledger_member(self.description["parts"][stage])

    def members(self) -> dict[str, bytes | Path]:
        """Everything that goes into the bundle, the manifest included."""
        found: dict[str, Path] = {name: self._path(name) for name in self._texts()}
        for side in SIDES:
            member = RECORDER_LOG.format(side=side)
            if self._path(member).is_file():
                found[member] = self._path(member)
        for key, path in self.paths.items():
            found[recording_member(*key)] = path
            found[metadata_member(*key)] = path.with_suffix(".json")
        source = self._source()
        found |= {name: Path(path) for name, path in source.items()}
        for name in found:
            fault = fault_of_name(name)
            if fault is not None:
                raise InputError(f"{found[name]}: cannot be packed: its name is {fault}; rename it")
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "twinalign": importlib.metadata.version("twinalign"),
            "case": self.summary["case"],
            "verdict": self.summary["verdict"],
            "stages": self.stages,
            "missing_stages": [stage for stage in STAGES if stage not in self.stages],
            "environment": self.summary["environment"],
            "hashes": collected_hashes_of(self.metadata, self.description["parts"]),
            "source": source,
            "members": {name: _sized_hash(path) for name, path in sorted(found.items())},
        }
        text = json.dumps(manifest, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        return {MANIFEST: text.encode("utf-8"), **found}

    def _source(self) -> dict[str, str]:
        """Member -> path of the case's own code: all that the sides had loaded, without twinalign itself."""
        code: Mapping[str, str] = {}
        for metadata in self.metadata.values():
            code = {**code, **metadata["code_sha256"]}
        paths = sorted(path for path, digest in code.items() if digest != MISSING and not _is_own(Path(path)))
        if not paths:
            raise InputError(f"{self.folder}: incomplete: the recordings name no source of the case; {_AGAIN}")
        root = os.path.commonpath([os.path.dirname(path) for path in paths])
        return {SOURCE + os.path.relpath(path, root).replace(os.sep, "/"): path for path in paths}


def _is_own(path: Path) -> bool:
    # A foreign interpreter is lent this package through a link, and its files are the same ones.
    return path.is_relative_to(_PACKAGE)


def _sized_hash(path: Path) -> dict[str, Any]:
    with path.open("rb") as stream:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(stream, "sha256").hexdigest()}
