"""The located faults with the proof of each cause, and pictures of wrong data inside the page."""

import base64
import dataclasses
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageChops

from twinalign.reports.fault_facts import (
    PATHS_OF_IMAGES,
    accept_line,
    accepted_of,
    edit_place,
    entries,
    facts,
    layer_class,
    layer_values,
    shown_phase,
)
from twinalign.reports.language import Language
from twinalign.reports.shown_values import figure, legible, short_name

_MOST = 60
_VALUES = 12
_EDITS = 6
_LINES = 40
"""Lines shown of an edit's text."""
_PICTURE_BYTES = 400_000
"""Limit for all pictures of a page, before encoding as text."""
_MEASURES = ("unexplained_error", "remaining_error")


@dataclasses.dataclass(frozen=True)
class ShownEdit:
    """An edit of the port's source."""

    place: str
    before: list[str]
    after: list[str]
    """The lines of its text, as it is and as it is to be."""


@dataclasses.dataclass
class ShownFault:
    """One fault as shown."""

    fault: Mapping[str, Any]
    layer: str
    """Its class; empty where it is none."""
    phase: str
    facts: list[str]
    values: dict[str, Mapping[str, Any]]
    proof: str
    accept: str
    """What to write in the case to keep a convention of the framework; empty if it is none."""
    accepted: list[str]
    details: list[tuple[str, str]]
    images: list[dict[str, str]]
    images_left_out: int
    edits: list[ShownEdit]
    """The likeliest edit of each place."""
    further_edits: list[ShownEdit]
    """What may be meant instead."""


def shown_faults(summary: Mapping[str, Any], folder: Path, say: Language) -> tuple[list[ShownFault], int]:
    """Every fault, and how many were left out."""
    faults = entries((summary.get("located") or {}).get("faults", []))
    budget = _PICTURE_BYTES
    found = []
    for fault in faults[:_MOST]:
        images, left_out, budget = _images(fault, folder, budget, say)
        explanation = fault.get("explanation") or {}
        evidence = explanation.get("evidence") or {}
        values = layer_values(fault)
        found.append(
            ShownFault(
                fault,
                layer_class(fault),
                shown_phase(fault),
                [fact for fact in facts(fault) if not (images and fact.startswith(PATHS_OF_IMAGES))],
                dict(list(values.items())[:_VALUES]),
                _proof(evidence, bool(values), say),
                accept_line(fault),
                accepted_of(fault, say),
                [(str(name), _text(value)) for name, value in evidence.items() if name not in _MEASURES],
                images,
                left_out,
                _edits(fault["edits"]),
                _edits(fault.get("further_edits") or []),
            )
        )
    return found, max(0, len(faults) - _MOST)


def _edits(edits: Sequence[Mapping[str, Any]]) -> list[ShownEdit]:
    return [ShownEdit(edit_place(edit), _code(edit["before"]), _code(edit["after"])) for edit in edits[:_EDITS]]


def _code(text: str) -> list[str]:
    lines = str(text).splitlines()
    return [legible(line, 400) for line in lines[:_LINES]] + ["…"] * (len(lines) > _LINES)


def causes_counted(faults: Sequence[ShownFault], say: Language) -> str:
    """How many causes there are in how many places; bugs and conventions are counted separately."""
    bugs = [shown for shown in faults if not {"accepted", "convention"} & set(shown.fault["evidence"])]
    counts = []
    for kind, some in (("bugs", bugs), ("conventions", [shown for shown in faults if shown not in bugs])):
        if some:
            places = sum(1 + len(shown.fault["also"]) for shown in some)
            counts.append(f"{say(f'faults.{kind}', count=len(some))} {say('faults.in_places', count=places)}")
    return say("header.between").join(counts)


def _proof(evidence: Mapping[str, Any], of_layer: bool, say: Language) -> str:
    before, after = (evidence.get(name) for name in _MEASURES)
    if before is None or after is None:
        return ""
    unit = say("faults.of_values" if of_layer else "faults.of_difference")
    return say("faults.proof", before=figure(before), after=figure(after), unit=unit)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return legible(", ".join(f"{key}: {_text(item)}" for key, item in value.items()), 400)
    if isinstance(value, list):
        return legible(", ".join(_text(item) for item in value[:20]) + (", …" if len(value) > 20 else ""), 400)
    return legible(figure(value), 400)


def _images(
    fault: Mapping[str, Any], folder: Path, budget: int, say: Language
) -> tuple[list[dict[str, str]], int, int]:
    """Pictures for the page, how many are too large for it, and the remaining budget."""
    shown, left_out, read = [], 0, list[bytes]()
    what = f"{short_name(fault['paddle_layer'])}, {legible(str(fault['evidence'].get('step', '')))}"
    for key, name in zip(("image_reference", "image_port"), fault["evidence"].get("pictures", ()), strict=False):
        path = folder / "locate" / "data" / Path(str(name)).name
        if path.suffix != ".png" or not path.is_file():
            continue
        if path.stat().st_size > budget:
            left_out += 1
            continue
        budget -= path.stat().st_size
        read.append(path.read_bytes())
        shown.append({"text": say(f"faults.{key}", what=what), "data": _inline(read[-1])})
    if len(read) == 2 and (found := amplified(*read)) is not None and len(found[0]) <= budget:
        budget -= len(found[0])
        text = say("faults.image_difference", what=what, most=figure(found[1]), factor=figure(found[2]))
        shown.append({"text": text, "data": _inline(found[0])})
    return shown, left_out, budget


def amplified(reference: bytes, port: bytes) -> tuple[bytes, int, float] | None:
    """The difference of two pictures as a PNG, the greatest one in grey levels, and the factor that makes it white.

    None if the pictures are equal or not of one size.
    """
    pictures = [Image.open(io.BytesIO(data)).convert("RGB") for data in (reference, port)]
    if pictures[0].size != pictures[1].size:
        return None
    difference = ImageChops.difference(*pictures)
    most = int(np.asarray(difference).max())
    if not most:
        return None
    factor = 255 / most
    out = io.BytesIO()
    difference.point(lambda level: round(level * factor)).save(out, format="PNG", optimize=True)
    return out.getvalue(), most, factor


def _inline(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"
