"""Signs of fabrication in what a bundle says about itself: frameworks, hashes, times.

A sign does not prove intent. It names something that honest recordings do not show, so that the reviewer can ask.
"""

import dataclasses
import datetime
import hashlib
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from twinalign.bundle.case_source import CaseSource
from twinalign.bundle.claims import stamps_of
from twinalign.bundle.contents import Contents, Key
from twinalign.bundle.layout import MANIFEST, REPEAT, SUMMARY, ledger_member, log_member, recording_member
from twinalign.files.text import shown
from twinalign.recorder.recording_plan import judged_precision, recorded_identity, recorded_precisions
from twinalign.sides import FRAMEWORK_OF_SIDE, SIDES, STAGES
from twinalign.stages import STAGE_BY_NAME
from twinalign.verdict.case_allowances import counted_normalisations
from twinalign.version import __version__

SAME_FRAMEWORK = "same_framework"
CONTRADICTION = "contradiction"
IMPOSSIBLE_TIME = "impossible_time"

_BASES = {"torch": "torch.nn.modules.module.Module", "paddle": "paddle.nn.layer.layers.Layer"}
_CLOCKS_DIFFER = datetime.timedelta(minutes=10)
_EARLIEST = datetime.datetime(2019, 1, 1, tzinfo=datetime.UTC)
"""Before paddle's first release with layers."""
_ZONES = (datetime.timedelta(hours=-12), datetime.timedelta(hours=14))
_CLOCK_IN_A_ZONE = _ZONES[1] + _CLOCKS_DIFFER
"""How far ahead a clock can be that was set to local time and is read as UTC."""
_NORMALISATIONS_A_WEIGHT = 8
"""More than models have: some normalisations have no weights, and some models have no other layers."""
_CASES_OF_OUR_OWN = "twinalign.model_zoo."
"""Whose source is not packed."""
_OVERLAP = datetime.timedelta(seconds=5)


@dataclasses.dataclass(frozen=True)
class Sign:
    """One thing that honest recordings do not show, with where it was found."""

    id: str
    where: str
    text: str

    def __str__(self) -> str:
        return f"{shown(self.where)}: {shown(self.text, 400)}"


def signs_in_metadata(contents: Contents, now: datetime.datetime) -> list[Sign]:
    """Signs in a bundle that fits the published schemas; `now` is the reviewer's time, UTC."""
    return [
        *_framework_signs(contents),
        *_identity_signs(contents),
        *_hash_signs(contents),
        *_layer_signs(contents),
        *_source_signs(contents),
        *_precision_signs(contents),
        *_manifest_signs(contents),
        *_time_signs(contents, now),
    ]


def _place(key: Key) -> str:
    return recording_member(*key)


def _framework_signs(contents: Contents) -> Iterator[Sign]:
    for key, metadata in contents.metadata.items():
        own = FRAMEWORK_OF_SIDE[key[0]]
        environment = metadata["environment"]
        named = environment["framework"], *environment["versions"]
        if environment["framework"] != own or own not in environment["versions"]:
            text = f"this side is {own}'s, but its environment names {', '.join(dict.fromkeys(named))}"
            yield Sign(SAME_FRAMEWORK, _place(key), text)
        for other in {*FRAMEWORK_OF_SIDE.values()} - {own}:
            if other in environment["versions"]:
                yield Sign(SAME_FRAMEWORK, _place(key), f"the environment of {own}'s side names {other} as well")
        classes = metadata["layer_classes"].items()
        for strange in [name for name, entry in classes if _BASES[own] not in (name, *entry["bases"])][:1]:
            yield Sign(SAME_FRAMEWORK, _place(key), f"a layer of {own}'s side, {strange}, is not a {_BASES[own]}")


def _identity_signs(contents: Contents) -> Iterator[Sign]:
    first: dict[tuple[str, str], Any] = {}
    for key, metadata in contents.metadata.items():
        side, stage, dtype = key
        precision = judged_precision(contents.keys_of(stage)) if dtype == REPEAT else dtype
        for field, expected in (("side", side), ("stage", stage), ("dtype", precision)):
            if metadata[field] != expected:
                text = f"its metadata says {field} {metadata[field]}, but its name says {expected}"
                yield Sign(CONTRADICTION, _place(key), text)
        if metadata["case"] != contents.description["name"]:
            text = f"recorded from the case {metadata['case']}, not {contents.description['name']}"
            yield Sign(CONTRADICTION, _place(key), text)
        if metadata["identity"] != recorded_identity(contents.case["identity"], side, stage, contents.summary):
            yield Sign(CONTRADICTION, _place(key), "recorded under another identity (case, options, interpreter)")
        environment, interpreter = metadata["environment"], metadata["identity"]["interpreter"]
        for field in ("framework", "versions", "device", "python"):
            known = first.setdefault((side, field), environment.get(field))
            if environment.get(field) != known:
                yield Sign(CONTRADICTION, _place(key), f"its {field} is not that of the side's other recordings")
        if environment.get("python", interpreter.get("python")) != interpreter.get("python"):
            yield Sign(CONTRADICTION, _place(key), "its environment and its identity name two versions of Python")
        if environment.get("device") != metadata["identity"]["device"]:
            yield Sign(CONTRADICTION, _place(key), "its environment and its identity name two devices")


def _hash_signs(contents: Contents) -> Iterator[Sign]:
    weights: dict[str, str] = {}
    inputs: dict[tuple[str, str, str], str] = {}
    seeds: dict[str, Any] = {}
    code: dict[str, str] = {}
    for key, metadata in contents.metadata.items():
        side, stage, _ = key
        part = contents.part_of(stage)
        if STAGE_BY_NAME[stage].needs_model:
            digest = metadata["weights_sha256"]
            if digest is None or weights.setdefault(part, digest) != digest:
                yield Sign(CONTRADICTION, _place(key), f"recorded with other weights of {part} than the others")
        for step, digest in metadata.get("inputs_sha256", {}).items():
            # Different inputs on the two sides are a mistake in the case, which the verdict reports.
            if inputs.setdefault((side, part, step), digest) != digest:
                yield Sign(CONTRADICTION, _place(key), f"recorded with other inputs of step {step} than the others")
        if seeds.setdefault(part, metadata.get("seed")) != metadata.get("seed"):
            yield Sign(CONTRADICTION, _place(key), "recorded with another seed than the others")
        for field in ("code_sha256", "data_sha256"):
            for path, digest in metadata[field].items():
                if code.setdefault(path, digest) != digest:
                    yield Sign(CONTRADICTION, _place(key), f"recorded with another version of {path} than the others")
    for name, path in contents.manifest["source"].items():
        if hashlib.sha256(contents.archive.read(name)).hexdigest() != code.get(path):
            yield Sign(CONTRADICTION, name, f"not the code that the recordings were made with ({path})")


def _layer_signs(contents: Contents) -> Iterator[Sign]:
    # The allowance for normalisations grows with their number, so the number must be plausible.
    ledgers: dict[str, Any] = {}
    for key, metadata in contents.metadata.items():
        if not STAGE_BY_NAME[key[1]].judged_in_any_precision:
            continue
        if not metadata["layer_classes"]:
            yield Sign(CONTRADICTION, _place(key), "its model has no layers")
        member = ledger_member(contents.part_of(key[1]))
        if member not in ledgers:
            ledgers[member] = contents.json(member).get("entries")
        entries = ledgers[member]
        count = counted_normalisations(metadata)
        if isinstance(entries, list) and count > _NORMALISATIONS_A_WEIGHT * (len(entries) + 1):
            text = f"{count} normalisation layers in a model of {len(entries)} converted weights"
            yield Sign(CONTRADICTION, _place(key), text)


def _source_signs(contents: Contents) -> Iterator[Sign]:
    """All code that was run must be in the bundle, except twinalign's own."""
    packed = set(contents.manifest["source"].values())
    if not packed:
        yield Sign(CONTRADICTION, MANIFEST, "it holds no source of the case")
    for key, metadata in contents.metadata.items():
        for path, digest in metadata["code_sha256"].items():
            own = "twinalign" in re.split(r"[/\\]", path)[:-1]
            if digest != "missing" and path not in packed and not own:
                yield Sign(CONTRADICTION, _place(key), f"recorded with code that is not in the bundle ({path})")
                return
    if any(contents.case["identity"][side]["case"].startswith(_CASES_OF_OUR_OWN) for side in SIDES):
        return
    models = ("reference", "reproduced") if any(STAGE_BY_NAME[stage].needs_model for stage in contents.stages) else ()
    source = CaseSource(map(contents.archive.read, contents.manifest["source"]), models)
    for name in models if packed and not source.unread else ():
        if not source.defines(name):
            yield Sign(CONTRADICTION, MANIFEST, f"no source in it defines the case's {name}()")


def _precision_signs(contents: Contents) -> Iterator[Sign]:
    """A run records what its precision calls for; without float64 a stage is only compared by tolerances."""
    if "precision" not in contents.summary:
        return
    steps = contents.description.get("float64_train_steps", 0)
    for stage in contents.stages:
        wanted = set(recorded_precisions(stage, contents.summary["precision"], steps))
        found = {kind for _, kind in contents.keys_of(stage)} - {REPEAT}
        excused = {"float64"} if set(SIDES) <= set(contents.without_float64(stage)) else set()
        if found - wanted or wanted - found - excused:
            text = f"{stage} is recorded in {', '.join(sorted(found))}, but a run in this precision records "
            yield Sign(CONTRADICTION, SUMMARY, f"{text}{', '.join(sorted(wanted))}")


def is_of_another_version(contents: Contents) -> bool:
    """Whether another version of twinalign packed the bundle."""
    return bool(contents.manifest["twinalign"] != __version__)


def notes_in_metadata(contents: Contents, now: datetime.datetime) -> list[str]:
    """Oddities that have honest explanations; `now` is the reviewer's time, UTC."""
    found = []
    if is_of_another_version(contents):
        versions = f"packed by twinalign {contents.manifest['twinalign']} and checked by {__version__}"
        found.append(f"{versions}: verdicts and numbers are compared, the words of the reasons are not")
    ended = [time for metadata in contents.metadata.values() if (time := _parsed(metadata["recorded_at"]))]
    if ended and now + _CLOCKS_DIFFER < max(ended) <= now + _CLOCK_IN_A_ZONE:
        found.append(f"recorded at {_worded(max(ended))}, but it is {_worded(now)} here: one clock is wrong")
    for entry, what in (("accept", "accepts conventions"), ("allowances", "has allowances of its own")):
        named = contents.description.get(entry)
        if named:
            found.append(f"the case {what}: {', '.join(named)}")
    return found


def _manifest_signs(contents: Contents) -> Iterator[Sign]:
    manifest, summary = contents.manifest, contents.summary
    missing = [stage for stage in STAGES if stage not in manifest["stages"]]
    expected = {
        "case": (manifest["case"], summary["case"]),
        "description of the case": (contents.description["name"], summary["case"]),
        "verdict": (manifest["verdict"], summary["verdict"]),
        "missing stages": (manifest["missing_stages"], missing),
        "environment": (manifest["environment"], summary["environment"]),
        "hashes": (manifest["hashes"], collected_hashes_of(contents.metadata, contents.description["parts"])),
    }
    for what, (one, other) in expected.items():
        if one != other:
            yield Sign(CONTRADICTION, "manifest.json", f"{what}: not what the bundle's other files say")
    for side in SIDES:
        recorded = [metadata["environment"] for key, metadata in contents.metadata.items() if key[0] == side]
        if recorded and summary["environment"][side] not in recorded:
            text = f"the environment of {side} is not that of any of its recordings"
            yield Sign(CONTRADICTION, "result/summary.json", text)


def collected_hashes_of(metadata: Mapping[Key, dict[str, Any]], parts: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Hashes of weights, inputs, code and data for the manifest; `parts` maps stage to part of the case."""
    found: dict[str, dict[str, str]] = {"weights": {}, "inputs": {}, "code": {}, "data": {}}
    for (_, stage, _), entry in metadata.items():
        if STAGE_BY_NAME[stage].needs_model and entry["weights_sha256"]:
            found["weights"][parts[stage]] = entry["weights_sha256"]
        found["inputs"] |= {f"{parts[stage]} {step}": sha for step, sha in entry.get("inputs_sha256", {}).items()}
        found["code"] |= entry["code_sha256"]
        found["data"] |= entry["data_sha256"]
    return {kind: dict(sorted(entries.items())) for kind, entries in found.items()}


def _time_signs(contents: Contents, now: datetime.datetime) -> Iterator[Sign]:
    spans: dict[str, list[tuple[datetime.datetime, datetime.datetime, str]]] = {side: [] for side in SIDES}
    for key, metadata in contents.metadata.items():
        place, seconds = _place(key), metadata["seconds"]
        ended = _parsed(metadata["recorded_at"])
        if ended is None or not _EARLIEST <= ended <= now + _CLOCK_IN_A_ZONE:
            yield Sign(IMPOSSIBLE_TIME, place, f"recorded at {metadata['recorded_at']}; it is {_worded(now)} here")
            continue
        if not 0 <= seconds < 1e8 or not math.isfinite(seconds):
            yield Sign(IMPOSSIBLE_TIME, place, f"recorded in {seconds:g} seconds")
            continue
        spans[key[0]].append((ended - datetime.timedelta(seconds=seconds), ended, place))
    for side in spans.values():
        by_end = sorted(side, key=lambda span: (span[1], span[0]))  # ends are known to the second
        for (_, ended, _), (began, _, place) in itertools.pairwise(by_end):
            if began + _OVERLAP < ended:
                yield Sign(IMPOSSIBLE_TIME, place, "recorded while the same process recorded something else")
    for stage in contents.stages:
        stem = f"/{STAGE_BY_NAME[stage].file_stem}_"
        latest = max((end for side in spans.values() for _, end, place in side if stem in place), default=None)
        yield from _stamp_signs(stage, stamps_of(contents.text(log_member(stage))), latest, now)


def _stamp_signs(
    stage: str, stamps: Iterable[str], recorded: datetime.datetime | None, now: datetime.datetime
) -> Iterator[Sign]:
    """A log is written after its recordings and before now, whatever its time zone."""
    for stamp in stamps:
        try:
            written = datetime.datetime.strptime(stamp, "%Y/%m/%d %H:%M:%S").replace(tzinfo=datetime.UTC)
            earliest, latest = written - _ZONES[1], written - _ZONES[0]
        except (ValueError, OverflowError):
            yield Sign(IMPOSSIBLE_TIME, log_member(stage), f"written at {stamp}")
            return
        if earliest > now + _CLOCK_IN_A_ZONE or (recorded is not None and latest + _CLOCK_IN_A_ZONE < recorded):
            when = "in the future" if earliest > now else "before its recordings were made"
            yield Sign(IMPOSSIBLE_TIME, log_member(stage), f"written at {stamp}, {when}")
            return


def _parsed(text: str) -> datetime.datetime | None:
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError:
        return None


def _worded(time: datetime.datetime) -> str:
    return time.isoformat(timespec="seconds")
