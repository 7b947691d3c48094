"""`twinalign pack`: packs a finished run into one file for review, or says why it is not fit for review."""

import contextlib
import filecmp
import hashlib
import importlib.metadata
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from twinalign.bundle import layout
from twinalign.bundle.archive import write_archive
from twinalign.bundle.contents import Key
from twinalign.bundle.fabrication_in_metadata import collected_hashes_of
from twinalign.bundle.verifying import Verification, verify_bundle
from twinalign.errors import InputError, writing
from twinalign.files.freshness import MISSING, hash_path
from twinalign.files.recordings import hash_arrays, read_metadata
from twinalign.files.strict_json import check_form
from twinalign.files.text import shown
from twinalign.recorder.recorder import WeightFiles
from twinalign.recorder.recording_plan import judged_precision, recorded_identity, recorded_precisions
from twinalign.reports import load_summary
from twinalign.sides import FRAMEWORK_OF_SIDE, INITIAL, SIDES, STAGES
from twinalign.stages import STAGE_BY_NAME

_PACKAGE = Path(__file__).resolve().parents[1]
_AGAIN = "run `twinalign run` again"


def pack_run(
    folder: Path, target: Path, *, partial: bool = False, progress: Callable[[str], None] = lambda text: None
) -> Verification:
    """Pack the run in `folder` into `target`, which is written only after it passed the reviewer's check.

    `folder` is the `--out` folder of a finished `twinalign run`; the same folder gives the same bytes. With `partial`
    the run may lack some of the guide's six stages; the bundle says which.

    Raises:
        InputError: the run is stale, aliased or incomplete; the message names which.
    """
    if target.exists() and not _is_bundle(target):
        raise InputError(f"{target}: exists already and is not a bundle; give FILE another name")
    run = _Run(folder)
    run.require_complete(partial)
    run.require_two_sides()
    run.require_fresh()
    progress("writing")
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    _require_writable(target, beside)
    try:
        with writing(target):
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
    """Whether a file is a bundle, which another bundle may replace, and not weights, text or a device."""
    try:
        with zipfile.ZipFile(path) if path.is_file() else contextlib.nullcontext() as archive:
            return archive is not None and layout.MANIFEST in archive.namelist()
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
    objections: list[Any] = result.signs or result.mismatches
    more = f" (and {len(objections) - 1} more)" if len(objections) > 1 else ""
    if result.signs:
        raise InputError(f"{folder}: a reviewer would not accept it: {objections[0]}{more}; {_AGAIN} with --fresh")
    if objections:
        raise InputError(f"{folder / 'summary.json'}: stale: {objections[0]}{more}; {_AGAIN}")


class _Run:
    """The folder of a run, and the contents of its JSON files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.summary = load_summary(folder)
        case = read_metadata(folder / "case")
        if not {"identity", "description"} <= set(case):
            raise InputError(f"{folder / 'case.json'}: missing or malformed; {_AGAIN}")
        self.identity, self.description = case["identity"], case["description"]
        self.stages = [stage for stage in STAGES if stage in self.summary["stages"]]
        self.paths = {
            key: self._path(layout.recording_member(*key)) for stage in self.stages for key in self._keys_of(stage)
        }
        if INITIAL in self.summary:
            initial = [(side, INITIAL, "float32") for side in SIDES]
            self.paths |= {key: self._path(layout.recording_member(*key)) for key in initial}
        self.metadata = {key: read_metadata(path) for key, path in self.paths.items()}

    def _keys_of(self, stage: str) -> list[Key]:
        """The recordings that the run used; earlier runs may have left other precisions in the folder."""
        failed = self.summary["stages"][stage].get("without_float64", {})
        steps = self.description.get("float64_train_steps", 0)
        keys = [
            (side, stage, dtype)
            for dtype in recorded_precisions(stage, self.summary.get("precision", "both"), steps)
            for side in SIDES
            if dtype != "float64" or side not in failed
        ]
        repeat = read_metadata(self._path(layout.recording_member("ref", stage, layout.REPEAT)))
        is_used = repeat.get("dtype") == judged_precision((side, dtype) for side, _, dtype in keys)
        return [*keys, ("ref", stage, layout.REPEAT)] if is_used else keys

    def _path(self, member: str) -> Path:
        return self.folder / member.removeprefix(layout.RESULT)

    def require_complete(self, partial: bool) -> None:
        """Refuse a run without every stage of the guide (unless `partial`) or with a file missing."""
        missing = [stage for stage in STAGES if stage not in self.stages]
        if missing and not partial:
            raise InputError(
                f"{self.folder}: incomplete: the guide also asks for {', '.join(missing)}; record "
                f"{'it' if len(missing) == 1 else 'them'}, or pack with --partial: the bundle then says what is missing"
            )
        for stage in self.stages:
            if not any(key[1] == stage and path.exists() for key, path in self.paths.items()):
                raise InputError(f"{self.folder}: incomplete: stage {stage} has no recordings; {_AGAIN}")
        for path in (*self.paths.values(), *map(self._path, self._texts())):
            if not path.is_file():
                raise InputError(f"{path}: incomplete: it is missing; {_AGAIN}")
        for key, metadata in self.metadata.items():
            if "recorded_at" not in metadata:
                what = "its metadata are missing or were written by an earlier twinalign"
                raise InputError(f"{self.paths[key]}: incomplete: {what}; {_AGAIN} with --fresh")
            check_form(metadata, "recording", str(self.paths[key].with_suffix(".json")))

    def require_two_sides(self) -> None:
        """Refuse recordings that are one file under two names, or made by the wrong framework."""
        paths = list(self.paths.values())
        for at, path in enumerate(paths):
            for other in paths[:at]:
                if path.samefile(other):
                    raise InputError(f"{path}: aliased: it is the same file as {other}; record each side")
        for key, metadata in self.metadata.items():
            own = FRAMEWORK_OF_SIDE[key[0]]
            named = metadata.get("environment", {}).get("framework")
            if metadata.get("side") != key[0] or named != own:
                raise InputError(
                    f"{self.paths[key]}: aliased: this belongs to the {key[0]} side ({own}), but was recorded as "
                    f"{shown(str(metadata.get('side')))} with {shown(str(named))}; record each side in its framework"
                )
        for stage in self.stages:
            self._require_own_numbers(stage)

    def _require_own_numbers(self, stage: str) -> None:
        """Refuse a port's file that is a copy of the reference's although the summary says that they differ."""
        for key, path in self.paths.items():
            reference = self.paths.get(("ref", *key[1:]), path)
            if key[:2] != ("paddle", stage) or not filecmp.cmp(path, reference, shallow=False):
                continue
            number = "fp64_rel" if key[2] == "float64" else "max_abs"
            differing = [t["name"] for t in self.summary["stages"][stage]["tensors"] if t.get(number)]
            if differing:
                raise InputError(
                    f"{path}: aliased: it is a copy of {reference}, but summary.json says that "
                    f"{shown(differing[0])} differs; record each side: {_AGAIN} with --fresh"
                )

    def require_fresh(self) -> None:
        """Refuse recordings whose case, code, data or weights have changed since."""
        present: dict[str, str] = {}
        weights: dict[str, str] = {}
        for key, metadata in self.metadata.items():
            path = self.paths[key]
            if metadata.get("identity") != recorded_identity(self.identity, key[0], key[1], self.summary):
                raise InputError(f"{path}: stale: recorded under another case, option or interpreter; {_AGAIN}")
            for source, digest in {**metadata["code_sha256"], **metadata["data_sha256"]}.items():
                if present.setdefault(source, hash_path(Path(source))) != digest:
                    what = "no longer exists" if present[source] == MISSING else "has changed since it was recorded"
                    raise InputError(f"{path}: stale: {source} {what}; {_AGAIN}")
            if STAGE_BY_NAME[key[1]].needs_model:
                part = self.description["parts"][key[1]]
                if part not in weights:
                    weights[part] = self._hash_weights(part)
                if metadata.get("weights_sha256") != weights[part]:
                    raise InputError(
                        f"{path}: stale: the weights of {part} have changed since it was recorded; {_AGAIN}"
                    )
        for (side, stage, dtype), metadata in self.metadata.items():
            other = self.metadata.get(("ref", stage, dtype), metadata)
            if metadata.get("inputs_sha256") != other.get("inputs_sha256"):
                path = self.paths[side, stage, dtype]
                raise InputError(f"{path}: the two sides had different inputs: inputs(rng) must depend on rng alone")

    def _hash_weights(self, part: str) -> str:
        path = WeightFiles.of(self.folder / "weights", part, "ref").arrays
        try:
            with np.load(path, allow_pickle=False) as stored:
                return hash_arrays(dict(stored))
        except (OSError, ValueError):
            raise InputError(f"{path}: incomplete: no weights to check the recordings against; {_AGAIN}") from None

    def _texts(self) -> list[str]:
        of_stages = [name for at in self.stages for name in layout.texts_of(at, self.description["parts"][at])]
        return list(dict.fromkeys([layout.SUMMARY, layout.CASE, *of_stages]))

    def members(self) -> dict[str, bytes | Path]:
        found: dict[str, Path] = {name: self._path(name) for name in self._texts()}
        logs = {name: self._path(name) for name in (layout.RECORDER_LOG.format(side=side) for side in SIDES)}
        found |= {name: path for name, path in logs.items() if path.is_file()}
        for key, path in self.paths.items():
            found[layout.recording_member(*key)] = path
            found[layout.metadata_member(*key)] = path.with_suffix(".json")
        source = self._source()
        found |= {name: Path(path) for name, path in source.items()}
        for name in found:
            fault = layout.fault_of_name(name)
            if fault is not None:
                raise InputError(f"{found[name]}: cannot be packed: its name is {fault}; rename it")
        manifest = {
            "format": layout.FORMAT,
            "version": layout.VERSION,
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
        return {layout.MANIFEST: text.encode("utf-8"), **found}

    def _source(self) -> dict[str, str]:
        """Member -> path of the case's own code: everything that the sides loaded, without twinalign itself."""
        code: dict[str, str] = {}
        for metadata in self.metadata.values():
            code |= metadata["code_sha256"]
        # Another interpreter imports this package through a link to the same files.
        paths = sorted(p for p, digest in code.items() if digest != MISSING and not Path(p).is_relative_to(_PACKAGE))
        if not paths:
            raise InputError(f"{self.folder}: incomplete: the recordings name no source of the case; {_AGAIN}")
        root = os.path.commonpath([os.path.dirname(path) for path in paths])
        return {layout.SOURCE + os.path.relpath(path, root).replace(os.sep, "/"): path for path in paths}


def _sized_hash(path: Path) -> dict[str, Any]:
    with path.open("rb") as stream:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(stream, "sha256").hexdigest()}
