"""The parts of an opened bundle, parsed and checked for form: nothing here judges."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from twinalign.bundle.archive import Archive
from twinalign.bundle.layout import (
    CASE,
    DTYPES,
    MANIFEST,
    RECORDER_LOG,
    REPEAT,
    RESULT,
    SOURCE,
    STEP_LIMIT,
    SUMMARY,
    TENSOR_LIMIT,
    TEXT_LIMIT,
    ledger_member,
    log_member,
    metadata_member,
    recording_member,
    shown,
)
from twinalign.bundle.strict_json import check_form, check_sizes, parse_json
from twinalign.errors import InputError
from twinalign.files.reader import read_npy_arrays
from twinalign.jobs import SIDES
from twinalign.recording import Recording
from twinalign.stage_verdict import StageRecordings
from twinalign.stages import STAGE_BY_NAME

Key = tuple[str, str, str]
"""Side, stage and precision of a recording; `REPEAT` in the place of a precision."""


@dataclasses.dataclass
class Contents:
    """What a bundle says, apart from its arrays."""

    archive: Archive
    manifest: dict[str, Any]
    summary: dict[str, Any]
    case: dict[str, Any]
    metadata: dict[Key, dict[str, Any]]

    @classmethod
    def of(cls, archive: Archive) -> Contents:
        """Read every text of a bundle.

        Raises:
            InputError: a text is malformed, or the members are not those that the manifest and the summary call for.
        """
        texts = {shown(name): archive.read(name) for name in archive.names if name.endswith(".json")}
        check_sizes(texts, archive.label)
        manifest = _json(archive, MANIFEST, "manifest")
        _check_members(archive, manifest)
        summary = _json(archive, SUMMARY, "summary")
        case = _json(archive, CASE, "case")
        found = cls(archive, manifest, summary, case, {})
        found._check_stages()
        for stage in manifest["stages"]:
            for side, dtype in found.keys_of(stage):
                found.metadata[side, stage, dtype] = _json(archive, metadata_member(side, stage, dtype), "recording")
        found._check_paths()
        return found

    @property
    def description(self) -> dict[str, Any]:
        """What the case said of itself when it was recorded."""
        return self.case["description"]

    @property
    def stages(self) -> list[str]:
        """Stages of the bundle, in the guide's order."""
        return [stage for stage in STAGE_BY_NAME if stage in self.manifest["stages"]]

    def keys_of(self, stage: str) -> list[tuple[str, str]]:
        """Side and precision of each recording of a stage."""
        names, kinds = set(self.archive.names), (*DTYPES, REPEAT)
        return [(side, kind) for kind in kinds for side in SIDES if recording_member(side, stage, kind) in names]

    def without_float64(self, stage: str) -> dict[str, str]:
        """Sides on which the model does not run in float64, as the summary has it, with what was raised."""
        return self.summary["stages"][stage].get("without_float64", {})

    def part_of(self, stage: str) -> str:
        """Which part of the case, with a model and weights of its own, defines a stage."""
        return self.description["parts"][stage]

    def layers_of(self, stage: str) -> set[str]:
        """Full names of the classes, and their bases, of the layers that the stage's model has on either side.

        As any recording of that model says: one alone could be silent on them.
        """
        part = self.part_of(stage)
        of_model = [entry["layer_classes"] for (_, at, _), entry in self.metadata.items() if self.part_of(at) == part]
        return {name for classes in of_model for own, entry in classes.items() for name in (own, *entry["bases"])}

    def recordings(self, stage: str) -> StageRecordings:
        """The recordings of a stage, their arrays in place; raises InputError where one is no recording."""
        found = {}
        for side, dtype in self.keys_of(stage):
            name = recording_member(side, stage, dtype)
            label = f"{self.archive.label}: {name}"
            arrays = read_npy_arrays(self.archive.read(name), label, STEP_LIMIT)
            if len(arrays) > TENSOR_LIMIT:
                raise InputError(f"{label}: {len(arrays)} tensors, more than the {TENSOR_LIMIT} that are read; refused")
            found[side, dtype] = Recording(arrays, self.metadata[side, stage, dtype])
            self.archive.forget_pages()
        repeat = found.pop(("ref", REPEAT), None)
        return StageRecordings(found, repeat, self.archive.forget_pages)

    def text(self, name: str) -> str:
        """A member as text, whatever bytes it has; raises InputError where it is too long."""
        content = self.archive.read(name)
        if len(content) > TEXT_LIMIT:
            size = f"{len(content)} bytes of text, more than the {TEXT_LIMIT} that are read"
            raise InputError(f"{self.archive.label}: {name}: {size}; refused")
        return bytes(content).decode("utf-8", errors="replace")

    def json(self, name: str) -> dict[str, Any]:
        """A member as a JSON object; raises InputError where it is none."""
        return parse_json(self.archive.read(name), f"{self.archive.label}: {name}")

    def _check_stages(self) -> None:
        label, names = self.archive.label, set(self.archive.names)
        claimed, packed = set(self.summary["stages"]), set(self.manifest["stages"])
        if claimed != packed:
            odd = sorted(claimed ^ packed)[0]
            where = "the summary alone" if odd in claimed else "the manifest alone"
            raise InputError(f"{label}: stage {odd} is in {where}; refused")
        for stage in self.stages:
            if stage not in self.description["parts"]:
                raise InputError(f"{label}: the case has no part for stage {stage}; refused")
            keys = self.keys_of(stage)
            for missing in self._missing_recordings(stage, keys):
                raise InputError(f"{label}: {missing} is missing, and stage {stage} is claimed; refused")
            wanted = [metadata_member(side, stage, dtype) for side, dtype in keys] + [log_member(stage)]
            if STAGE_BY_NAME[stage].needs_model:
                wanted.append(ledger_member(self.part_of(stage)))
            for name in wanted:
                if name not in names:
                    raise InputError(f"{label}: {shown(name)} is missing, and stage {stage} is claimed; refused")

    def _missing_recordings(self, stage: str, keys: list[tuple[str, str]]) -> Iterator[str]:
        """Members that a stage must have beside those that it has: both sides, but for what float64 cannot do."""
        precisions = {kind for _, kind in keys} - {REPEAT}
        judged = sorted(precisions - {"float64"})
        if len(judged) > 1:
            what = f"stage {stage} is recorded in {' and in '.join(judged)}, and one is judged"
            raise InputError(f"{self.archive.label}: {what}; refused")
        for dtype in sorted(precisions) or ["float32"]:
            for side in SIDES:
                excused = judged and dtype == "float64" and side in self.without_float64(stage)
                if (side, dtype) not in keys and not excused:
                    yield recording_member(side, stage, dtype)

    def _check_paths(self) -> None:
        """Sources are those that the manifest lists, and no member is left that nothing accounts for."""
        label, names = self.archive.label, self.archive.names
        sources = {name for name in names if name.startswith(SOURCE)}
        if sources != set(self.manifest["source"]):
            odd = sorted(sources ^ set(self.manifest["source"]))[0]
            raise InputError(
                f"{label}: {shown(odd)} is not both in the bundle and among the manifest's sources; refused"
            )
        wanted = {recording_member(*key) for key in self.metadata} | {metadata_member(*key) for key in self.metadata}
        wanted |= {log_member(stage) for stage in self.stages} | {RECORDER_LOG.format(side=side) for side in SIDES}
        wanted |= {ledger_member(self.part_of(stage)) for stage in self.stages if STAGE_BY_NAME[stage].needs_model}
        for name in names:
            if name.startswith(RESULT) and name not in wanted | {SUMMARY, CASE}:
                raise InputError(f"{label}: {shown(name)} belongs to no stage of {', '.join(self.stages)}; refused")


def _json(archive: Archive, name: str, form: str) -> dict[str, Any]:
    label = f"{archive.label}: {name}"
    found = parse_json(archive.read(name), label)
    check_form(found, form, label)
    return found


def _check_members(archive: Archive, manifest: dict[str, Any]) -> None:
    there, listed = set(archive.names) - {MANIFEST}, set(manifest["members"])
    for name in sorted(there - listed):
        raise InputError(f"{archive.label}: {shown(name)} is not in its manifest; refused")
    for name in sorted(listed - there):
        raise InputError(f"{archive.label}: {shown(name)} is in its manifest and missing; refused")


def check_digests(archive: Archive, manifest: dict[str, Any]) -> None:
    """Raise InputError at the first member whose size or SHA-256 is not what the manifest says."""
    archive.digest(MANIFEST)
    for name, expected in manifest["members"].items():
        if archive.digest(name) != (expected["size"], expected["sha256"]):
            raise InputError(
                f"{archive.label}: {shown(name)} is not what the manifest has (its SHA-256 differs); refused"
            )
