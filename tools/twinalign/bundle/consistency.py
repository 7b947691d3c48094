"""What one part of a bundle says against what another proves: ledger, layer classes, names of arrays, optimizer."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from twinalign.bundle import layout
from twinalign.bundle.case_source import CaseSource
from twinalign.bundle.contents import Contents
from twinalign.bundle.fabrication_in_metadata import CONTRADICTION, Sign
from twinalign.bundle.layout import SUMMARY, ledger_member, recording_member
from twinalign.files.text import shown
from twinalign.recorder.recording_plan import STAGES_IN_CASES_MODE, not_checked
from twinalign.sides import SIDES
from twinalign.stages import STAGE_BY_NAME
from twinalign.verdict.stage_recordings import StageRecordings

_STEP = re.compile(r"step(\d{1,6})\.([^.]+)\.(.+)")
_STATE = ("parameter", "buffer")
_NO_STATE_OF_OPTIMIZER = (*_STATE, "gradient", "loss")
_MEAN, _VARIANCE = "running_mean", "running_var"
_WHOLE = {"copied", "transposed", "reshaped", "renamed", "cast"}
"""What may happen to a tensor that keeps all of its elements and gets no others."""
_LAYERS_OF_ENTRY = re.compile(r"(\w+) to (\w+): ")
_FREEZING = ("eval", "momentum", "use_global_stats")
"""What the source of a case uses whose batch norms keep their statistics in training mode."""
_BATCH_NORM = re.compile(r"(paddle\.nn\.layer\.norm|torch\.nn\.modules\.batchnorm)\.\w*BatchNorm\w*")

Shapes = Mapping[str, tuple[int, ...]]


def signs_between_texts(contents: Contents) -> Iterator[Sign]:
    """Contradictions between the JSON files of a bundle."""
    summary = contents.summary
    wanted = not_checked(contents.description, contents.stages)
    if summary.get("not_checked", wanted) != wanted:
        yield Sign(CONTRADICTION, SUMMARY, f"it says that all but {summary['not_checked']} was checked, not {wanted}")
    for field, told, member in (
        ("not_checked", summary, SUMMARY),
        ("precision", summary, SUMMARY),
        ("train_mode", contents.description, layout.CASE),
    ):
        if field not in told:
            yield Sign(CONTRADICTION, member, f"it does not say {field}, as every run does")
    first: dict[tuple[str, str], tuple[str, Any]] = {}
    for (side, stage, dtype), metadata in contents.metadata.items():
        if STAGE_BY_NAME[stage].judged_in_any_precision:
            place, classes = recording_member(side, stage, dtype), metadata["layer_classes"]
            before, known = first.setdefault((side, contents.part_of(stage)), (place, classes))
            if classes != known:
                yield Sign(CONTRADICTION, place, f"its model has other layers than that of {before}")
        entries = [metadata, *metadata.get("ranks", ())]
        casts = any(entry.get("casts_to_float32") for entry in entries)
        repeated = ("ref", layout.REPEAT) in contents.keys_of(stage) or stage == "train"
        if casts and (side != "ref" or dtype != "float64" or not repeated):
            text = "it counts casts to float32, which only a float64 run of the reference does that has a repeat"
            yield Sign(CONTRADICTION, layout.metadata_member(side, stage, dtype), text)
        if side == "ref" and any("draws" in e and e["draws"] != ("changed_by_draws" in e) for e in entries):
            text = "it drew random numbers and has no effect of them, or the other way round"
            yield Sign(CONTRADICTION, layout.metadata_member(side, stage, dtype), text)
    of_case, of_run = contents.description.get("environment", {}), summary["environment"]["ref"]
    if any(
        of_case[name] != of_run.get(name) for name in ("framework", "versions", "device", "python") if name in of_case
    ):
        yield Sign(CONTRADICTION, layout.CASE, "its environment is not that of the reference's recordings")
    for part in {contents.part_of(stage) for stage in contents.stages if STAGE_BY_NAME[stage].judged_in_any_precision}:
        yield from _ledger_signs(
            contents, part, {side: first[side, part][1] for side in SIDES if (side, part) in first}
        )


def signs_in_names(stage: str, recordings: StageRecordings, contents: Contents) -> Iterator[Sign]:
    """What the names and shapes of a stage's arrays lack although something in the bundle proves that it was there."""
    if stage not in STAGES_IN_CASES_MODE:
        return
    entries = _entries(contents, contents.part_of(stage))
    ranked = recordings.of_ranks() if recordings.ranks > 1 else [recordings]
    for one in ranked:
        for (side, dtype), recording in one.by_key.items():
            place = recording_member(side, stage, dtype)
            steps = set(map(int, recording.metadata.get("inputs_sha256", {})))
            shapes = {name: array.shape for name, array in recording.arrays.items()}
            sampled = recording.metadata.get("sampled", {})
            shapes |= {name: tuple(entry["shape"]) for name, entry in sampled.items() if name in shapes}
            texts = [] if steps else ["its metadata has no hash of the inputs"]
            texts += _mode_faults(stage, recording.arrays, contents)
            if stage == "backward":
                texts += [*_step_faults(shapes, steps), *_state_faults(shapes), *_shape_faults(shapes)]
                texts += _faults_against_ledger(shapes, entries) if side == "ref" else ()
            else:
                texts += _pair_faults(shapes, "buffer.")
            yield from (Sign(CONTRADICTION, place, text) for text in texts)
        if not any(array.size for array in (one.arrays("ref", one.judged_dtype) or {}).values()):
            yield Sign(CONTRADICTION, recording_member("ref", stage, one.judged_dtype), "it holds no number at all")


def _entries(contents: Contents, part: str) -> list[dict[str, Any]]:
    """The ledger's entries, as far as they have the form of one."""
    found = contents.json(ledger_member(part)).get("entries")
    return [entry for entry in found if _is_entry(entry)] if isinstance(found, list) else []


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    lists = [entry.get(name) for name in ("source", "actions", "source_shapes")]
    texts = isinstance(entry.get("reason"), str) and isinstance(entry.get("target"), str | None)
    return texts and all(isinstance(item, list) for item in lists) and all(isinstance(n, str) for n in lists[0] or ())


def _ledger_signs(contents: Contents, part: str, classes: Mapping[str, Mapping[str, Any]]) -> Iterator[Sign]:
    member = ledger_member(part)
    ledger, entries = contents.json(member), _entries(contents, part)
    if not isinstance(ledger.get("entries"), list) or len(entries) != len(ledger["entries"]):
        yield Sign(CONTRADICTION, member, "its entries are not those of a conversion")
        return
    for entry in entries:
        shapes = [*entry["source_shapes"], entry.get("target_shape")]
        whole = {*map(str, entry["actions"])} <= _WHOLE and len(entry["source"]) == 1 == len(shapes) - 1
        if whole and _elements_differ(*shapes):
            yield Sign(CONTRADICTION, member, f"{shown(entry['source'][0])} has more elements on one side")
    totals = Counter(str(action) for entry in entries for action in entry["actions"])
    if ledger.get("totals") != totals:
        yield Sign(CONTRADICTION, member, "its totals are not those of its entries")
    named = {side: {name.rpartition(".")[2] for name in of_side} for side, of_side in classes.items()}
    for entry in entries:
        match = _LAYERS_OF_ENTRY.match(entry["reason"])
        for side, name in zip(SIDES, match.groups() if match else (), strict=False):
            if name not in named.get(side, {name}):
                yield Sign(CONTRADICTION, member, f"a layer {name}, which is not among the layers of the {side} side")
                return
    means = {"ref": sum(source.endswith(_MEAN) for entry in entries for source in entry["source"])}
    means["paddle"] = sum((entry["target"] or "").endswith("_mean") for entry in entries)
    for side, of_side in classes.items():
        count = sum(entry["count"] for name, entry in of_side.items() if _BATCH_NORM.fullmatch(name))
        if side == "paddle" and count > means[side]:  # torch's may have no statistics
            yield Sign(CONTRADICTION, member, f"it has {means[side]} running means for {count} batch norms of {side}")


def _elements_differ(shape: Any, other: Any) -> bool:
    """Whether two shapes have different numbers of elements, if both are shapes."""
    if not all(isinstance(item, list) and all(type(size) is int for size in item) for item in (shape, other)):
        return False
    return math.prod(shape) != math.prod(other)


def _mode_faults(stage: str, arrays: Mapping[str, np.ndarray], contents: Contents) -> Iterator[str]:
    """Evaluation mode changes no buffer; training mode changes those of every batch norm that counts."""
    trained = contents.description.get("train_mode")
    changed = any(name.startswith("buffer.") for name in arrays)
    if stage != "forward" or trained is None or changed == trained:
        return
    if changed:
        yield "it has changed buffers, but the case is said to run in evaluation mode"
        return
    parts = {contents.part_of(at) for at in contents.stages if at in STAGES_IN_CASES_MODE}
    if len(parts) > 1 or not any(s.endswith(_MEAN) for entry in _entries(contents, *parts) for s in entry["source"]):
        return
    if any(map(_BATCH_NORM.fullmatch, contents.layers_of(stage))):
        source = CaseSource(map(contents.archive.read, contents.manifest["source"]), _FREEZING)
        if not any(map(source.uses, _FREEZING)):
            yield "its batch norms changed no buffer, but the case is said to run in training mode"


def _step_faults(shapes: Shapes, steps: set[int]) -> Iterator[str]:
    found = {int(match[1]) for name in shapes if (match := _STEP.fullmatch(name))}
    if found != steps and steps:
        yield f"it has the steps {sorted(found)}, but inputs for {sorted(steps)}"


def _by_step(shapes: Shapes) -> dict[int, dict[str, set[str]]]:
    """Step -> quantity -> names of the tensors that have it."""
    found: dict[int, dict[str, set[str]]] = {}
    for name in shapes:
        if match := _STEP.fullmatch(name):
            found.setdefault(int(match[1]), {}).setdefault(match[2], set()).add(match[3])
    return dict(sorted(found.items()))


def _state_faults(shapes: Shapes) -> Iterator[str]:
    """Every step has the same parameters and buffers; what an optimizer has it keeps, and has from a gradient."""
    known: set[str] = set()
    before: dict[str, set[str]] = {}
    for step, named in _by_step(shapes).items():
        known |= named.get("gradient", set())
        for quantity, names in before.items():
            kept = quantity not in ("gradient", "loss")
            for name in sorted(names - named.get(quantity, set()))[:1] if kept else ():
                yield f"{quantity}.{name} is in step {step - 1}, but not in step {step}"
        for quantity in _STATE:
            for name in sorted(named.get(quantity, set()) - before.get(quantity, set()))[:1] if before else ():
                yield f"{quantity}.{name} is in step {step}, but not in step {step - 1}"
        for quantity in named.keys() - {*_NO_STATE_OF_OPTIMIZER}:
            owners = named[quantity] & named.get("parameter", set())
            for name in sorted(owners - known)[:1]:
                yield f"the optimizer has {quantity} of {name} in step {step}, but no gradient of it is there"
        before = named
        yield from _pair_faults(shapes, f"step{step}.buffer.")


def _shape_faults(shapes: Shapes) -> Iterator[str]:
    """What belongs to a parameter has its shape; an optimizer may also keep one number of it."""
    for name, shape in shapes.items():
        match = _STEP.fullmatch(name)
        if match is None or match[2] in (*_STATE, "loss"):
            continue
        own = shapes.get(f"step{match[1]}.parameter.{match[3]}", shape)
        if shape != own and (match[2] == "gradient" or math.prod(shape) != 1):
            yield f"{name} has the shape {list(shape)}, its parameter {list(own)}"
            return


def _pair_faults(shapes: Shapes, prefix: str) -> Iterator[str]:
    """A batch norm changes its mean and its variance together."""
    names = [name for name in shapes if name.startswith(prefix)]
    for one, other in ((_MEAN, _VARIANCE), (_VARIANCE, _MEAN)):
        for name in names:
            partner = name.removesuffix(one) + other
            if name.endswith(one) and partner not in shapes:
                yield f"{name} is there, but {partner} is not"
                return


def _faults_against_ledger(shapes: Shapes, entries: list[dict[str, Any]]) -> Iterator[str]:
    """Every converted tensor is recorded after each step, in the shape that the ledger gives."""
    steps = _by_step(shapes)
    for entry in entries:
        if entry["target"] is None or "tied" in entry["actions"]:
            continue
        for name, shape in zip(entry["source"], entry["source_shapes"], strict=False):
            for step, named in steps.items():
                kind = next((kind for kind in _STATE if name in named.get(kind, ())), None)
                if kind is None:
                    yield f"{name} was converted, but is not among what step {step} recorded"
                    return
                if list(shapes[f"step{step}.{kind}.{name}"]) != shape:
                    yield f"{name} has another shape than in the ledger of the conversion"
                    return
