"""The result of a verification as lines of text: nothing in them steers a terminal or forges a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from twinalign.bundle.layout import shown
from twinalign.bundle.verifying import CONFIRMED, REFUTED, SUSPECT, Verification
from twinalign.case import stage_number

_LINES = 20
"""Of each kind; all of them are in the JSON."""


def text_lines(result: Verification) -> Iterator[str]:
    """What a reviewer reads, the verdict last."""
    yield f"{result.file}: {size_of(result.size)}, manifest sha256 {result.manifest_sha256}"
    sides = " against ".join(_versions(result.environment.get(side, {})) for side in ("ref", "paddle"))
    yield f"case {shown(result.case)}: {sides}"
    yield "every file in it is as its manifest says"
    if result.missing_stages:
        yield f"packed as partial: {', '.join(result.missing_stages)} missing"
    yield ""
    yield f"{'stage':<12} {'claimed':<13} {'recomputed':<13} tensors"
    for stage, check in result.stages.items():
        numbered = f"{stage_number(stage)} {stage}"
        yield f"{numbered:<12} {check.claimed:<13} {check.found:<13} {check.tensors}"
    for stage, check in result.stages.items():
        yield from _listed(f"{stage}: differences that the case accepts as conventions", check.accepted)
        yield from _listed(f"{stage}: notes", check.notes)
    yield from _listed("claims that the arrays do not bear out", result.mismatches)
    yield from _listed("signs of fabrication", result.signs)
    yield from _listed("worth asking about", result.notes)
    if result.replay is not None:
        yield from _replay_lines(result.replay)
    yield ""
    yield f"{result.verdict}: {_sentence(result)}"


def _listed(title: str, items: list[Any]) -> Iterator[str]:
    if not items:
        return
    yield ""
    yield f"{title} ({len(items)}):"
    for item in items[:_LINES]:
        yield f"  {shown(str(item), 600)}"
    if len(items) > _LINES:
        yield f"  … and {len(items) - _LINES} more (--json has all)"


def _replay_lines(replay: dict[str, Any]) -> Iterator[str]:
    yield ""
    yield f"run again here: {replay['run']}; the packed recordings against those made here: {replay['verdict']}"
    for stage, sides in replay["stages"].items():
        for side, found in sides.items():
            yield f"  {stage:<9} {side:<7} {found['verdict']:<13} {shown(found['reason'], 300)}"


def _sentence(result: Verification) -> str:
    if result.verdict == CONFIRMED:
        stages = "all six stages" if not result.missing_stages else ", ".join(result.stages)
        return f"the arrays give what is claimed: aligned in {stages}, and nothing looks fabricated"
    if result.verdict == REFUTED:
        return f"the arrays give {result.recomputed}, and not all that is claimed"
    if result.verdict == SUSPECT:
        return f"the arrays give {result.recomputed}, and honest recordings do not look like these: ask the author"
    if result.replay is not None and result.replay["verdict"] == result.verdict != result.recomputed:
        return f"the arrays give {result.recomputed} as claimed; run again here they are {result.verdict}"
    return "the arrays give what is claimed"


def _versions(environment: dict[str, Any]) -> str:
    framework = environment.get("framework", "?")
    version = environment.get("versions", {}).get(framework, "?")
    return shown(f"{framework} {version} on {environment.get('device', '?')}")


def size_of(count: int) -> str:
    """A number of bytes as people read it."""
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"
