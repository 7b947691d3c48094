"""Facts about a fault in words, for terminal and report, from its JSON."""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from twinalign.files.curve_names import LEARNING_RATE, WEIGHT_NORM
from twinalign.reports.language import Language
from twinalign.reports.shown_values import figure, figures, legible

_SHOWN = 4
_SHOWN_CURVES = 4
_MOST_OTHERS = 2
"""Other edits that fit as well, which all stand in the evidence."""
_MOST_MEASURED = 4
_SIDE = {"ref": "the reference", "paddle": "the port"}
_RETURNING = {"(loss)": "loss", "(forward)": "the model"}
_PARAMETRISED = ".parametrizations."
_ON_PART = " on part "
_A_LINE = re.compile(r"line \d+ of ")
_NUMBER = re.compile(r"\b\d+\b")
PATHS_OF_IMAGES = "both images: "
"""Start of the fact with the paths of pictures on the machine of the run."""


def layer_values(fault: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The values of a wrong layer by name, each with its relative difference; empty for other parts.

    A part of what a layer or function returns has the name by which its user takes it out, such as `['l1']`.
    """
    evidence = fault["evidence"]
    values, places = evidence.get("values"), evidence.get("places") or {}
    if not isinstance(values, Mapping):
        return {}
    whole = _RETURNING.get(str(evidence.get("paddle_class", "")), "it")
    names = {str(name): f"part {place} of what {whole} returns" for name, place in places.items() if place}
    return {
        names.get(str(name), str(name)): v for name, v in values.items() if isinstance(v, Mapping) and "relative" in v
    }


def layer_class(fault: Mapping[str, Any]) -> str:
    """Class name of a wrong layer in the port; empty for anything else."""
    path = str(fault["evidence"].get("paddle_class", ""))
    return "" if path.startswith("(") else path.rpartition(".")[2]


def entries(faults: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Faults with one cause, down to its details, as the first of them; so are like layers of which none is known.

    One cause in one line of the port, which several layers run, is one as well, whatever its details in each of them.

    Three fields are added: `also`, the places of the others; `edits`, the different likeliest edits of them all; and
    `lines`, words for the lines that the cause's sentence does not name.
    Bugs come first, then conventions of the framework, then what the case accepts.
    """
    found: list[dict[str, Any]] = []
    known: dict[Any, dict[str, Any]] = {}
    for number, fault in enumerate(faults):
        cause, keys = fault.get("explanation"), _keys(fault, number)
        entry = next((known[key] for key in keys if key in known), None)
        if entry is None:
            found.append(entry := {**fault, "also": [], "edits": [], "lines": []})
        else:
            entry["also"].append(fault["paddle_layer"])
        known.update({key: entry for key in keys if key not in known})
        entry["lines"] += [line for line in unnamed_lines(cause or {}) if line not in entry["lines"]]
        edit = fault.get("edit")
        if edit is not None and edit not in entry["edits"]:
            entry["edits"].append(edit)
    return sorted(found, key=lambda fault: ("accepted" in fault["evidence"], "convention" in fault["evidence"]))


def _keys(fault: Mapping[str, Any], number: int) -> list[Any]:
    """What faults that are told as one have in common: their sentence, or cause and line of the port."""
    cause, evidence = fault.get("explanation"), fault["evidence"]
    if not cause:
        return [_alike(fault, number)]
    alike = [str(evidence.get(name)) for name in ("accepted", "accepted_causes", "convention")]
    lines = (cause.get("evidence") or {}).get("lines_of_port")
    told = [cause["text"], *([(cause["id"], str(lines))] if lines else [])]
    return [(fault["phase"], one, *alike) for one in told]


def _alike(fault: Mapping[str, Any], number: int) -> Any:
    """What unexplained faults of like layers have in common, such as all blocks; else `number`, this one's own.

    What layers of one class keep is made by one code, wherever they stand.
    """
    evidence, like = fault["evidence"], _NUMBER.sub("#", str(fault["paddle_layer"]))
    if fault["phase"] == "state":
        like = str(evidence.get("paddle_class"))
    if like == fault["paddle_layer"] or "accepted" in evidence:
        return number
    facts = [evidence.get(name) for name in ("paddle_class", "where", "inside", "notes", "fits_here")]
    return fault["phase"], like, str(sorted(layer_values(fault))), *map(str, facts)


def unnamed_lines(cause: Mapping[str, Any]) -> list[str]:
    """Words for the lines of a cause that its sentence does not name: the port's, and those of the reference's calls.

    A line of the port that is proven to be wrong says where to look; one of the reference, what the port lacks. A
    sentence that names any line names the reference's.
    """
    text, proof = str(cause.get("text", "")), cause.get("evidence") or {}
    spans = [(Path(str(file)).name, range(first, last + 1)) for file, first, last in proof.get("lines_of_port", ())]
    unnamed = [(name, span) for name, span in spans if not any(f"line {line} of {name}" in text for line in span)]
    calls = [str(call.get("line", "")) for call in proof.get("reference_calls", ())]
    theirs = [f"{line} in the reference" for line in calls if line and not _A_LINE.search(text)]
    lines = [f"line {span[0]} of {name} in the port" for name, span in unnamed] + theirs
    return [legible(line, 200) for line in dict.fromkeys(lines)][:_SHOWN]


def remarks(located: Mapping[str, Any]) -> list[str]:
    """Which layers were not judged alone, and why, and in which nothing but an accepted convention differs."""
    lines = _not_searched(located.get("not_searched", {}), located.get("crashes", {}))
    for part in located.get("layers", {}).values():
        alike: dict[str, list[str]] = {}
        for path, reason in part.get("left_out", {}).items():
            alike.setdefault(reason, []).append(path or "the model itself")
        lines += [f"not judged alone: {some(paths)}: {reason}" for reason, paths in alike.items()]
        for name, paths in part.get("accepted", {}).items():
            layers = f"{len(paths)} layer{'' if len(paths) == 1 else 's'}"
            lines.append(f"accepted as {name}, and not looked into, in {layers}: {some(paths)}")
    return lines


def _not_searched(reasons: Mapping[str, str], crashes: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Why parts could not be searched; what crashes at one place is told once."""
    parts_of: dict[str, list[str]] = {}
    for part in reasons:
        crash = crashes.get(part, {})
        parts_of.setdefault(f"{crash['side']} {crash['place']}" if "side" in crash else f"of {part}", []).append(part)
    lines = []
    for parts in parts_of.values():
        lines.append(f"{', '.join(parts)} could not be searched: {reasons[parts[0]]}")
        lines += [crashes[part]["other_shape"] for part in parts if "other_shape" in crashes.get(part, {})][:1]
    return lines


def without_counterpart(paths: Iterable[str], side: str, layers: Iterable[Mapping[str, Any]]) -> list[str]:
    """Layers of one side that the other lacks, without those that only make the weights of a layer that is right.

    torch's parametrisations, such as weight norm, are layers; paddle does the same by hooks.
    """
    key = "reference_layer" if side == "reference" else "paddle_layer"
    right = {layer[key] for layer in layers if layer.get("judged", True) and not layer.get("wrong")}
    return [path for path in paths if not (_PARAMETRISED in path and path.partition(_PARAMETRISED)[0] in right)]


def no_layer_judged(located: Mapping[str, Any]) -> str:
    """Why no layer could be judged; empty if some were, or nothing failed."""
    judged = any(layer.get("judged", True) for part in located["layers"].values() for layer in part["layers"])
    if judged or located["faults"] or not located.get("not_searched"):
        return ""
    crash: Mapping[str, str] = next(iter(located.get("crashes", {}).values()), {})
    if "side" not in crash:
        return "no layer could be judged"
    return f"no layer could be judged, since {_SIDE[crash['side']]} crashes at {crash['place']}"


def shown_phase(fault: Mapping[str, Any]) -> str:
    """Where a fault shows: `loss` for the case's loss function, which is replayed as a layer is; else its phase."""
    return "loss" if fault["evidence"].get("paddle_class") == "(loss)" else str(fault["phase"])


def edit_place(edit: Mapping[str, Any]) -> str:
    """Where an edit goes: the name of the file and the line."""
    return f"{legible(Path(str(edit['file'])).name, 200)}:{edit['line']}"


def accept_line(fault: Mapping[str, Any]) -> str:
    """The line of the case that accepts a fault as a convention of the framework; empty if it is none."""
    name = fault["evidence"].get("convention")
    return f'accept = ("{legible(str(name))}",)' if name is not None else ""


def acceptance(fault: Mapping[str, Any], say: Language) -> list[str]:
    """What the case accepts of a fault, or could accept as a convention of the framework."""
    line = accept_line(fault)
    return ([say("faults.convention", line=line)] if line else []) + accepted_of(fault, say)


def accepted_of(fault: Mapping[str, Any], say: Language) -> list[str]:
    """What the case accepts of a fault."""
    evidence = fault["evidence"]
    said = []
    if "accepted_causes" in evidence:
        names = say("header.comma").join(legible(str(name)) for name in evidence["accepted_causes"])
        said.append(say("faults.accepted_causes", names=names))
    if "accepted" in evidence:
        said.append(say("faults.accepted", name=legible(str(evidence["accepted"]))))
    return said


def facts(fault: Mapping[str, Any]) -> list[str]:
    """What is known besides the cause, one line each."""
    evidence = fault["evidence"]
    also = [f"the same in {len(fault['also'])} more: {some(fault['also'])}"] if fault.get("also") else []
    describe = {"optimizer": _of_steps, "data": _of_data, "metric": _of_metric, "train": _of_steps}.get(fault["phase"])
    lines = also + ([f"differs in {evidence['where']}"] if evidence.get("where") else [])
    lines += _of_lines(evidence["inside"]) if evidence.get("inside") else []
    lines += _of_other_causes(fault.get("explanation") or {})
    return lines + (describe(evidence) if describe else []) + [str(note) for note in evidence.get("notes", [])]


def some(names: Sequence[str]) -> str:
    """The first few of many names, and how many more there are."""
    shown = ", ".join(map(str, names[:_SHOWN]))
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown


def _of_other_causes(cause: Mapping[str, Any]) -> list[str]:
    proof = cause.get("evidence", {})
    # Of the cause's line with others that do nothing, the sentence is the cause's own.
    alike = [text for text in dict.fromkeys(proof.get("alike", [])) if text != cause.get("text")]
    rivals = proof.get("rivals", [])
    return [
        *_first("fits as well, though other inputs would tell them apart: ", rivals),
        *_first("gives the same, on other inputs as well: ", alike),
    ]


def _first(said: str, texts: Sequence[str], most: int = _MOST_OTHERS) -> list[str]:
    """A line for each of the first few texts, and one that counts the others."""
    more = [f"… and {len(texts) - most} more"] if len(texts) > most else []
    return [said + text for text in texts[:most]] + more


def _of_lines(inside: Mapping[str, Any]) -> list[str]:
    lines = [f"first value absent from the reference: {_line(inside['unknown'])}"]
    return lines + ([f"last value before it that both sides have: {_line(inside['known'])}"] if inside["known"] else [])


def _line(step: Mapping[str, Any]) -> str:
    what = f"`{step['name']}`" if step["name"] else "the returned value"
    return f"{what} in line {step['line']} of {step['file']}: {step['source']}"


def _of_steps(evidence: Mapping[str, Any]) -> list[str]:
    if "parameters" not in evidence:
        return _of_curves(evidence.get("values", {}))
    wrong, judged = evidence["parameters_wrong"], evidence["parameters_judged"]
    greatest = evidence["largest_relative_difference"]
    by = "" if greatest is None else f", by up to {figure(greatest)} relative"
    since = f"from step {evidence['first_step']} on"
    return [f"updates {wrong} of {judged} parameters differently, {since}{by}: {some(evidence['parameters'])}"]


def _of_curves(values: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Curves that differ: parameters that one side alone trains and rates before what follows from them."""
    lines, told = list[str](), set[str]()
    for side, other in (("reference", "port"), ("port", "reference")):
        alone = [name for name, value in values.items() if name.startswith(WEIGHT_NORM) and not value[other]]
        if alone and any(name.startswith(WEIGHT_NORM) and value[other] for name, value in values.items()):
            told.update(alone)
            names = some([name.removeprefix(WEIGHT_NORM) for name in alone])
            lines.append(f"no optimizer of the {other} has {names}, as one of the {side} does")
    left = {name: value for name, value in values.items() if name not in told}
    ordered = sorted(left, key=lambda name: not name.startswith(LEARNING_RATE))
    for name in ordered[:_SHOWN_CURVES]:
        value = left[name]
        reference, port = _numbers(value["reference"], value["port"])
        once, step = len(value["reference"]) == len(value["port"]) == 1, value["first_step"]
        since = "" if once and step == 0 else f" from step {step} on"
        lines.append(f"{name} differs{since}: {reference} in the reference, {port} in the port")
    more = len(left) - _SHOWN_CURVES
    return lines + ([f"{more} more curves differ, which --json lists"] if more > 0 else [])


def _of_data(evidence: Mapping[str, Any]) -> list[str]:
    lines = []
    if "step" in evidence:
        number = f"{evidence['step_number'] + 1}, " if "step_number" in evidence else ""
        lines.append(f"first differs in step {number}{evidence['step']}, on sample {evidence.get('sample', 0)}")
    if "reference_steps" in evidence:
        lines.append(f"steps of the reference: {', '.join(evidence['reference_steps'])}")
        lines.append(f"steps of the port: {', '.join(evidence['port_steps'])}")
    of_value = f"{evidence['value']}: " if "value" in evidence else ""
    lines += [of_value + said for said in _of_elements(evidence)]
    if "order" in evidence:
        lines.append(f"the port's samples are the reference's samples {some([str(n) for n in evidence['order']])}")
    if evidence.get("pictures"):
        lines.append(f"{PATHS_OF_IMAGES}{', '.join(str(path) for path in evidence['pictures'])}")
    return lines


def _of_elements(evidence: Mapping[str, Any]) -> list[str]:
    """Which elements of two arrays differ, or how their shapes do."""
    if "shapes" in evidence:
        return [f"shape {evidence['shapes']['port']}, the reference has {evidence['shapes']['reference']}"]
    if "first_difference" not in evidence:
        return []
    reference, port = figures(evidence["values"]["reference"], evidence["values"]["port"])
    return [
        f"first at {evidence['first_difference']}: {reference} in the reference, "
        f"{port} in the port; {100 * evidence['share_differing']:.3g}% of the values differ, "
        f"by up to {figure(evidence['largest_difference'])}"
    ]


def _of_metric(evidence: Mapping[str, Any]) -> list[str]:
    parts = str(evidence.get("parts", "part # of the samples"))
    arrays, said = evidence.get("arrays", {}), list[str]()
    for name, value in evidence.get("values", {}).items():
        reference, port = figures(value.get("ref"), value.get("paddle"))
        found = _of_elements(arrays.get(name, {})) or [f"{reference} in the reference, {port} in the port"]
        said.append(f"{_measured(name, parts)}: {found[0]}")
    return _first("", said, _MOST_MEASURED)


def _measured(name: str, parts: str) -> str:
    """The name that the case gives a result; for one of several measurements, which."""
    result, is_part, number = name.removeprefix("metric.").rpartition(_ON_PART)
    return (
        f"{result} on {parts.replace('#', str(int(number) + 1))}" if is_part and number.isdigit() else number or result
    )


def _numbers(*sides: Sequence[Any]) -> list[str]:
    """The first values of both sides, in as many digits as tell those of one place apart."""
    pairs = [figures(*both) for both in itertools.zip_longest(*(values[:_SHOWN] for values in sides))]
    return [
        f"[{', '.join(pair[at] for pair in pairs[: len(values)])}{', …' if len(values) > _SHOWN else ''}]"
        for at, values in enumerate(sides)
    ]
