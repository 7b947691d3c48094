"""What was located, with the proof of each cause, and the pictures of wrong data in the page itself."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twinalign.figures import figure
from twinalign.locate.describing import PATHS_OF_IMAGES, facts, layer_class, layer_values
from twinalign.report.language import Language
from twinalign.report.summary import legible, short_name

_MOST = 60
_VALUES = 12
_PICTURE_BYTES = 400_000
"""What the pictures of a page may take together, before they are written as text."""
_MEASURES = ("unexplained_error", "remaining_error")


@dataclasses.dataclass
class ShownFault:
    """One fault as it is shown."""

    fault: Mapping[str, Any]
    layer: str
    """Its class; empty where it is none."""
    facts: list[str]
    values: dict[str, Mapping[str, Any]]
    proof: str
    acceptance: list[str]
    details: list[tuple[str, str]]
    images: list[dict[str, str]]
    images_left_out: int


def shown_faults(summary: Mapping[str, Any], folder: Path, say: Language) -> tuple[list[ShownFault], int]:
    """Every fault, and how many were left out."""
    faults = (summary.get("located") or {}).get("faults", [])
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
                [fact for fact in facts(fault) if not (images and fact.startswith(PATHS_OF_IMAGES))],
                dict(list(values.items())[:_VALUES]),
                _proof(evidence, bool(values), say),
                acceptance(fault, say),
                [(str(name), _text(value)) for name, value in evidence.items() if name not in _MEASURES],
                images,
                left_out,
            )
        )
    return found, max(0, len(faults) - _MOST)


def acceptance(fault: Mapping[str, Any], say: Language) -> list[str]:
    """What the case accepts of a fault, or could accept because it is the framework's own convention."""
    evidence = fault["evidence"]
    said = []
    if "convention" in evidence:
        said.append(say("faults.convention", name=legible(str(evidence["convention"]))))
    if "accepted_causes" in evidence:
        names = say("header.comma").join(legible(str(name)) for name in evidence["accepted_causes"])
        said.append(say("faults.accepted_causes", names=names))
    if "accepted" in evidence:
        said.append(say("faults.accepted", name=legible(str(evidence["accepted"]))))
    return said


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
    """Pictures as the page takes them, how many are too large for it, and what is left of the budget."""
    shown, left_out = [], 0
    what = f"{short_name(fault['paddle_layer'])}, {legible(str(fault['evidence'].get('step', '')))}"
    for key, name in zip(("image_reference", "image_port"), fault["evidence"].get("pictures", ()), strict=False):
        path = folder / "locate" / "data" / Path(str(name)).name
        if path.suffix != ".png" or not path.is_file():
            continue
        if path.stat().st_size > budget:
            left_out += 1
            continue
        budget -= path.stat().st_size
        data = base64.b64encode(path.read_bytes()).decode()
        shown.append({"text": say(f"faults.{key}", what=what), "data": f"data:image/png;base64,{data}"})
    return shown, left_out, budget
