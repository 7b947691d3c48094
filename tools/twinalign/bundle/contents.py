"""The parts of an opened bundle, parsed and checked for form; nothing is compared here."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from twinalign.bundle import layout
from twinalign.bundle.archive import Archive
from twinalign.errors import InputError
from twinalign.files.reader import read_npy_arrays
from twinalign.files.recordings import Recording
from twinalign.files.strict_json import check_form, check_sizes, parse_json
from twinalign.files.text import shown
from twinalign.sides import INITIAL, SIDES, STAGES
from twinalign.verdict.stage_recordings import StageRecordings

Key = tuple[str, str, str]
"""Side, stage and precision of a recording, or `layout.REPEAT` instead of a precision."""


@dataclasses.dataclass
class Contents:
    """Everything in a bundle except its arrays."""

    archive: Archive
    manifest: dict[str, Any]
    summary: dict[str, Any]
    case: dict[str, Any]
    metadata: dict[Key, dict[str, Any]]

    @classmethod
    def of(cls, archive: Archive) -> Contents:
        """Read every text of a bundle; raises InputError if one is malformed, or a member is missing or unexpected."""
        texts = {shown(name): archive.read(name) for name in archive.names if name.endswith(".json")}
        check_sizes(texts, archive.label)
        manifest = _json(archive, layout.MANIFEST, "manifest")
        _check_members(archive, manifest)
        summary = _json(archive, layout.SUMMARY, "summary")
        case = _json(archive, layout.CASE, "case")
        found = cls(archive, manifest, summary, case, {})
        found._check_stages()
        for stage in found.recorded:
            for side, dtype in found.keys_of(stage):
                found.metadata[side, stage, dtype] = _json(
                    archive, layout.metadata_member(side, stage, dtype), "recording"
                )
        found._check_paths()
        return found

    @property
    def description(self) -> dict[str, Any]:
        """What the case said about itself when it was recorded."""
        return self.case["description"]

    @property
    def stages(self) -> list[str]:
        return [stage for stage in STAGES if stage in self.manifest["stages"]]

    @property
    def recorded(self) -> list[str]:
        """The stages, and the check of initial weights if the run made it."""
        return [*self.stages, *([INITIAL] if INITIAL in self.summary else [])]

    def keys_of(self, stage: str) -> list[tuple[str, str]]:
        """Side and precision of each recording of a stage."""
        names, kinds = set(self.archive.names), (*layout.DTYPES, layout.REPEAT)
        return [(side, kind) for kind in kinds for side in SIDES if layout.recording_member(side, stage, kind) in names]

    def without_float64(self, stage: str) -> dict[str, str]:
        """Side -> why its model does not run in float64, according to the summary."""
        return self.summary["stages"].get(stage, {}).get("without_float64", {})

    def part_of(self, stage: str) -> str:
        """The part of the case, with its own model and weights, that defines a stage."""
        return self.description["parts"][stage]

    def layers_of(self, stage: str) -> set[str]:
        """Full names of the layer classes, and their bases, in the stage's model on either side.

        Collected from all recordings of that model: a forger could leave them out of one.
        """
        part = self.part_of(stage)
        of_model = [entry["layer_classes"] for (_, at, _), entry in self.metadata.items() if self.part_of(at) == part]
        return {name for classes in of_model for own, entry in classes.items() for name in (own, *entry["bases"])}

    def recordings(self, stage: str) -> StageRecordings:
        """The recordings of a stage, their arrays not copied; raises InputError if one is malformed."""
        found = {}
        for side, dtype in self.keys_of(stage):
            name = layout.recording_member(side, stage, dtype)
            label = f"{self.archive.label}: {name}"
            arrays = read_npy_arrays(self.archive.read(name), label, layout.STEP_LIMIT)
            if len(arrays) > layout.TENSOR_LIMIT:
                raise InputError(f"{label}: {len(arrays)} tensors, limit {layout.TENSOR_LIMIT}; refused")
            found[side, dtype] = Recording(arrays, self.metadata[side, stage, dtype])
            self.archive.forget_pages()
        repeat = found.pop(("ref", layout.REPEAT), None)
        return StageRecordings(found, repeat, self.archive.forget_pages)

    def text(self, name: str) -> str:
        """A member as text, whatever bytes it has; raises InputError if it is too long."""
        content = self.archive.read(name)
        if len(content) > layout.TEXT_LIMIT:
            size = f"{len(content)} bytes of text, limit {layout.TEXT_LIMIT}"
            raise InputError(f"{self.archive.label}: {name}: {size}; refused")
        return bytes(content).decode("utf-8", errors="replace")

    def json(self, name: str) -> dict[str, Any]:
        """A member as a JSON object; raises InputError if it is not one."""
        return parse_json(self.archive.read(name), f"{self.archive.label}: {name}")

    def _check_stages(self) -> None:
        label, names = self.archive.label, set(self.archive.names)
        claimed, packed = set(self.summary["stages"]), set(self.manifest["stages"])
        if claimed != packed:
            odd = sorted(claimed ^ packed)[0]
            where = "summary" if odd in claimed else "manifest"
            raise InputError(f"{label}: stage {odd} is only in the {where}; refused")
        for stage in self.recorded:
            if stage not in self.description["parts"]:
                raise InputError(f"{label}: the case has no part for stage {stage}; refused")
            keys = self.keys_of(stage)
            for missing in self._missing_recordings(stage, keys):
                raise InputError(f"{label}: {missing} is missing, but stage {stage} is claimed; refused")
            metadata = [layout.metadata_member(side, stage, dtype) for side, dtype in keys]
            for name in (*metadata, *(layout.texts_of(stage, self.part_of(stage)) if stage != INITIAL else ())):
                if name not in names:
                    raise InputError(f"{label}: {shown(name)} is missing, but stage {stage} is claimed; refused")

    def _missing_recordings(self, stage: str, keys: list[tuple[str, str]]) -> Iterator[str]:
        """Recordings that a stage lacks: it needs both sides in each precision, but float64 only if the model can."""
        precisions = {kind for _, kind in keys} - {layout.REPEAT}
        judged = sorted(precisions - {"float64"})
        if len(judged) > 1:
            what = f"stage {stage} is recorded in {' and in '.join(judged)}, but only one is compared"
            raise InputError(f"{self.archive.label}: {what}; refused")
        for dtype in sorted(precisions) or ["float32"]:
            for side in SIDES:
                excused = judged and dtype == "float64" and side in self.without_float64(stage)
                if (side, dtype) not in keys and not excused:
                    yield layout.recording_member(side, stage, dtype)

    def _check_paths(self) -> None:
        """The sources must be those that the manifest lists, and every other member must belong to a stage."""
        label, names = self.archive.label, self.archive.names
        sources = {name for name in names if name.startswith(layout.SOURCE)}
        if sources != set(self.manifest["source"]):
            odd = sorted(sources ^ set(self.manifest["source"]))[0]
            raise InputError(
                f"{label}: {shown(odd)} must be both in the bundle and among the manifest's sources; refused"
            )
        wanted = {member(*key) for key in self.metadata for member in (layout.recording_member, layout.metadata_member)}
        wanted |= {layout.RECORDER_LOG.format(side=side) for side in SIDES}
        wanted |= {name for stage in self.stages for name in layout.texts_of(stage, self.part_of(stage))}
        for name in names:
            if name.startswith(layout.RESULT) and name not in wanted | {layout.SUMMARY, layout.CASE}:
                raise InputError(f"{label}: {shown(name)} belongs to no stage of {', '.join(self.stages)}; refused")


def _json(archive: Archive, name: str, form: str) -> dict[str, Any]:
    label = f"{archive.label}: {name}"
    found = parse_json(archive.read(name), label)
    check_form(found, form, label)
    return found


def _check_members(archive: Archive, manifest: dict[str, Any]) -> None:
    there, listed = set(archive.names) - {layout.MANIFEST}, set(manifest["members"])
    for name in sorted(there - listed):
        raise InputError(f"{archive.label}: {shown(name)} is not in its manifest; refused")
    for name in sorted(listed - there):
        raise InputError(f"{archive.label}: {shown(name)} is in its manifest but missing; refused")


def check_digests(archive: Archive, manifest: dict[str, Any]) -> None:
    """Raise InputError at the first member whose size or SHA-256 differs from the manifest's."""
    archive.digest(layout.MANIFEST)
    for name, expected in manifest["members"].items():
        if archive.digest(name) != (expected["size"], expected["sha256"]):
            raise InputError(
                f"{archive.label}: {shown(name)} is not the file that the manifest lists (its SHA-256 differs); refused"
            )
