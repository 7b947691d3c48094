"""The table that goes into a pull request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from twinalign.figures import figure
from twinalign.locate.describing import PATHS_OF_IMAGES, facts, layer_class
from twinalign.report.curves import outcomes_of
from twinalign.report.language import Language, language
from twinalign.report.summary import (
    accepted,
    deciding,
    greatest,
    identical,
    legible,
    not_checked,
    sentence,
    short_name,
    unlocated,
)

# An underscore within a word is only an underscore.
_SPECIAL = re.compile(r"([\\`*{}\[\]<>#|~@&$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
_FAULTS = 20
_FACTS = 2
"""Of a fault without a cause; the report has all."""


def markdown(summary: Mapping[str, Any], code: str = "en") -> str:
    """Verdict, a row for each stage, the metrics, what is at fault and the versions, as Markdown."""
    say = language(code)
    lines = [f"**{plain(summary['case']).strip()}**: {plain(sentence(summary, say))}", ""]
    lines += _stages(summary, say)
    lines += _outcomes(summary, say)
    lines += _open(summary, say)
    lines += _faults(summary, say)
    if missing := not_checked(summary, say):
        lines += ["", plain(missing)]
    sides = [
        ", ".join(f"{plain(str(name))} {plain(str(version))}" for name, version in (side.get("versions") or {}).items())
        for side in summary["environment"].values()
    ]
    return "\n".join([*lines, "", "; ".join(sides), ""])


def plain(text: str) -> str:
    """`text` as Markdown that shows it and does nothing else."""
    return _SPECIAL.sub(r"\\\1", legible(text, 500))


def _stages(summary: Mapping[str, Any], say: Language) -> list[str]:
    columns = ("stage", "tensors", "mean", "float64", "noise", "classic", "verdict")
    lines = [_row(say(f"markdown.{column}") for column in columns), "| --- | ---: | ---: | ---: | ---: | --- | --- |"]
    for name, stage in summary["stages"].items():
        tensors, left_out = deciding(stage["tensors"]), accepted(stage["tensors"], say)
        verdict = say.known("verdict", stage["verdict"])
        same = identical(tensors)
        lines.append(
            _row(
                [
                    plain(say.known("stage", name)),
                    str(len(stage["tensors"])),
                    figure(greatest(tensors, "mean_abs")),
                    say("markdown.identical") if same else figure(greatest(tensors, "fp64_rel")),
                    figure(greatest(tensors, "noise_ratio")),
                    say("markdown.passed" if stage["classic"]["passed"] else "markdown.failed"),
                    plain(f"{verdict} ({left_out})" if left_out else verdict),
                ]
            )
        )
    return lines


def _outcomes(summary: Mapping[str, Any], say: Language) -> list[str]:
    outcomes = outcomes_of(summary)
    if not outcomes:
        return []
    head = ("curves.metric", "side.reference", "side.port", "curves.difference", "markdown.verdict")
    lines = ["", _row(say(key) for key in head), "| --- | ---: | ---: | ---: | --- |"]
    for outcome in outcomes:
        name = f"{say.known('stage', outcome.stage)}: {short_name(outcome.name)}"
        numbers = (f"{outcome.reference:.6g}", f"{outcome.port:.6g}", figure(outcome.port - outcome.reference))
        lines.append(_row([plain(name), *numbers, say.known("verdict", outcome.verdict)]))
    return lines


def _open(summary: Mapping[str, Any], say: Language) -> list[str]:
    """Of each inconclusive stage the reason of the first such tensor, and what is noted, which is English."""
    lines = []
    for name, stage in summary["stages"].items():
        first = next((t for t in deciding(stage["tensors"]) if t["verdict"] == "inconclusive"), None)
        if stage["verdict"] == "inconclusive" and first is not None:
            where = f"{say.known('stage', name)}: {short_name(first['name'])}"
            lines.append(f"- **{plain(where)}**: {plain(first['reason'])}")
            lines += [f"  - {plain(note)}" for note in stage["notes"]]
    return ["", *lines] if lines else []


def _faults(summary: Mapping[str, Any], say: Language) -> list[str]:
    faults = (summary.get("located") or {}).get("faults", [])
    nothing = unlocated(summary, say)
    start = ["", plain(nothing)] if nothing else []
    if not faults:
        return start
    lines = [*start, "", say("markdown.faults"), ""]
    for fault in sorted(faults, key=lambda fault: "accepted" in fault["evidence"])[:_FAULTS]:
        where = f"{short_name(fault['paddle_layer']) or say('faults.own_code')} {layer_class(fault)}".rstrip()
        cause = fault["explanation"]["text"] if fault.get("explanation") else _unexplained(fault, say)
        known = fault["evidence"].get("accepted")
        end = f" ({plain(say('faults.accepted', name=known))})" if known else ""
        lines.append(f"- **{plain(where)}** ({plain(say.known('phase', fault['phase']))}): {plain(cause)}{end}")
    if len(faults) > _FAULTS:
        lines.append(f"- {say('faults.left_out', count=len(faults) - _FAULTS)}")
    return lines


def _unexplained(fault: Mapping[str, Any], say: Language) -> str:
    """The facts, which are English, where there is no cause."""
    known = [fact for fact in facts(fault) if not fact.startswith(PATHS_OF_IMAGES)]
    return say("header.between").join([say("markdown.unexplained"), *known[:_FACTS]])


def _row(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"
