"""The result of a verification as lines of text, safe against control characters and forged lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from twinalign.bundle.claims import Mismatch
from twinalign.bundle.fabrication_in_metadata import Sign
from twinalign.bundle.verifying import CONFIRMED, REFUTED, SUSPECT
from twinalign.files.text import shown
from twinalign.sides import stage_number
from twinalign.terminal.console import line_writer

if TYPE_CHECKING:
    from rich.console import Console

_LINES = 20
"""Most lines of each kind; the JSON has all."""


def print_verification(found: Mapping[str, Any], console: Console | None = None) -> None:
    """Print the result of a verification; without a console, no other package is needed."""
    write = line_writer(console)
    for line in verification_lines(found):
        write(line)


def verification_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The lines for a reviewer, the verdict last."""
    yield f"{found['file']}: {size_of(found['size'])}, manifest sha256 {found['manifest_sha256']}"
    sides = " against ".join(_versions(found["environment"].get(side, {})) for side in ("ref", "paddle"))
    yield f"case {shown(found['case'])}: {sides}"
    yield "every file matches its manifest"
    if found["missing_stages"]:
        yield f"packed as partial: {', '.join(found['missing_stages'])} missing"
    yield ""
    yield f"{'stage':<12} {'claimed':<13} {'recomputed':<13} tensors"
    for stage, check in found["stages"].items():
        numbered = f"{stage_number(stage)} {stage}"
        yield f"{numbered:<12} {check['claimed']:<13} {check['found']:<13} {check['tensors']}"
    if initial := found.get("initial"):
        counted = "" if initial["counts"] else " (not part of the verdict)"
        yield f"{'initial':<12} {initial['claimed']:<13} {initial['found']:<13} {initial['tensors']}{counted}"
    for stage, check in found["stages"].items():
        yield from _listed(f"{stage}: differences that the case accepts as conventions", check["accepted"])
        yield from _listed(f"{stage}: notes", check["notes"])
    mismatches = [str(Mismatch(**mismatch)) for mismatch in found["mismatches"]]
    yield from _listed("claims that the arrays contradict", mismatches)
    yield from _listed("signs of fabrication", [str(Sign(**sign)) for sign in found["signs"]])
    yield from _listed("worth asking about", found["notes"])
    if found["replay"] is not None:
        yield from _replay_lines(found["replay"])
    yield ""
    yield f"{found['verdict']}: {_sentence(found)}"


def _listed(title: str, items: list[str]) -> Iterator[str]:
    if not items:
        return
    yield ""
    yield f"{title} ({len(items)}):"
    for item in items[:_LINES]:
        yield f"  {shown(item, 600)}"
    if len(items) > _LINES:
        yield f"  … and {len(items) - _LINES} more (--json has all)"


def _replay_lines(replay: Mapping[str, Any]) -> Iterator[str]:
    yield ""
    yield f"run again here: {replay['run']}; packed recordings compared with those made here: {replay['verdict']}"
    for stage, sides in replay["stages"].items():
        for side, found in sides.items():
            yield f"  {stage:<9} {side:<7} {found['verdict']:<13} {shown(found['reason'], 300)}"


def _sentence(found: Mapping[str, Any]) -> str:
    verdict, recomputed, replay = found["verdict"], found["recomputed"], found["replay"]
    if verdict == CONFIRMED:
        stages = "all six stages" if not found["missing_stages"] else ", ".join(found["stages"])
        sure = "" if replay else "; made-up numbers can look like this too, which only --replay shows"
        return f"the arrays confirm the claim: aligned in {stages}, and nothing looks fabricated{sure}"
    if verdict == REFUTED:
        return f"the arrays give {recomputed} and contradict the claim"
    if verdict == SUSPECT:
        return f"the arrays give {recomputed}, but honest recordings do not look like these: ask the author"
    if replay is not None and replay["verdict"] == verdict != recomputed:
        return f"the arrays give {recomputed} as claimed, but {verdict} when run again here"
    return "the arrays confirm the claim"


def _versions(environment: dict[str, Any]) -> str:
    framework = environment.get("framework", "?")
    version = environment.get("versions", {}).get(framework, "?")
    return shown(f"{framework} {version} on {environment.get('device', '?')}")


def size_of(count: int) -> str:
    """A number of bytes in kB or MB."""
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"
