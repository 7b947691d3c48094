"""The table that goes into a pull request."""

from collections.abc import Mapping
from typing import Any

from twinalign.reports.curves import outcomes_of
from twinalign.reports.fault_facts import PATHS_OF_IMAGES, acceptance, entries, facts, layer_class, shown_phase
from twinalign.reports.initial import initial_groups, initial_sentence
from twinalign.reports.language import Language, language
from twinalign.reports.shown_values import figure, plain, short_name
from twinalign.reports.summary import accepted, deciding, greatest, identical, not_checked, sentence, unlocated
from twinalign.reports.tables import markdown_row

_FAULTS = 20
_FACTS = 2
"""Facts shown of a fault without a cause; the report has all."""


def markdown(summary: Mapping[str, Any], code: str = "en") -> str:
    """Verdict, stages, metrics, faults and versions as Markdown."""
    say = language(code)
    lines = [f"**{plain(summary['case']).strip()}**: {plain(sentence(summary, say))}", ""]
    lines += _stages(summary, say)
    lines += _outcomes(summary, say)
    lines += _open(summary, say)
    lines += _faults(summary, say)
    lines += _initial(summary, say)
    if missing := not_checked(summary, say):
        lines += ["", plain(missing)]
    sides = [
        ", ".join(f"{plain(str(name))} {plain(str(version))}" for name, version in (side.get("versions") or {}).items())
        for side in summary["environment"].values()
    ]
    return "\n".join([*lines, "", "; ".join(sides), ""])


def _stages(summary: Mapping[str, Any], say: Language) -> list[str]:
    columns = ("stage", "tensors", "mean", "float64", "noise", "classic", "verdict")
    lines = [
        markdown_row(say(f"markdown.{column}") for column in columns),
        "| --- | ---: | ---: | ---: | ---: | --- | --- |",
    ]
    for name, stage in summary["stages"].items():
        tensors, left_out = deciding(stage["tensors"]), accepted(stage["tensors"], say)
        verdict = say.known("verdict", stage["verdict"])
        cells = (
            plain(say.known("stage", name)),
            str(len(stage["tensors"])),
            figure(greatest(tensors, "mean_abs")),
            say("markdown.identical") if identical(tensors) else figure(greatest(tensors, "fp64_rel")),
            figure(greatest(tensors, "noise_ratio")),
            say("markdown.passed" if stage["classic"]["passed"] else "markdown.failed"),
            plain(f"{verdict} ({left_out})" if left_out else verdict),
        )
        lines.append(markdown_row(cells))
    return lines


def _outcomes(summary: Mapping[str, Any], say: Language) -> list[str]:
    outcomes = outcomes_of(summary)
    if not outcomes:
        return []
    head = ("curves.metric", "side.reference", "side.port", "curves.difference", "markdown.verdict")
    lines = ["", markdown_row(say(key) for key in head), "| --- | ---: | ---: | ---: | --- |"]
    for outcome in outcomes:
        name = f"{say.known('stage', outcome.stage)}: {short_name(outcome.name)}"
        numbers = (f"{outcome.reference:.6g}", f"{outcome.port:.6g}", figure(outcome.port - outcome.reference))
        lines.append(markdown_row([plain(name), *numbers, say.known("verdict", outcome.verdict)]))
    return lines


def _open(summary: Mapping[str, Any], say: Language) -> list[str]:
    """For each inconclusive stage the reason of its first such tensor, and the notes, which are in English."""
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
    shown = entries(faults)
    for fault in shown[:_FAULTS]:
        where = f"{short_name(fault['paddle_layer']) or say('faults.own_code')} {layer_class(fault)}".rstrip()
        where += f" (+{len(fault['also'])})" if fault["also"] else ""
        known = fault.get("explanation")
        cause = ", ".join([known["text"], *fault["lines"]]) if known else _unexplained(fault, say)
        phase = say.known("phase", shown_phase(fault))
        end = "".join(f" ({plain(text)})" for text in acceptance(fault, say))
        lines.append(f"- **{plain(where)}** ({plain(phase)}): {plain(cause)}{end}")
    if len(shown) > _FAULTS:
        lines.append(f"- {say('faults.left_out', count=len(shown) - _FAULTS)}")
    return lines


def _initial(summary: Mapping[str, Any], say: Language) -> list[str]:
    said = initial_sentence(summary, say)
    lines = ["", plain(said)] if said else []
    for group in initial_groups(summary)[:_FAULTS]:
        more = f" ({say('initial.more', count=len(group.names) - 1)})" if len(group.names) > 1 else ""
        remedy = f"; {say('initial.remedy')}: {group.remedy}" if group.remedy else ""
        text = f"{say('side.reference')}: {group.reference}; {say('side.port')}: {group.port}{remedy}"
        lines.append(f"- **{plain(short_name(group.names[0]) + more)}** ({plain(group.layer)}): {plain(text)}")
    return lines


def _unexplained(fault: Mapping[str, Any], say: Language) -> str:
    """The facts, which are in English, if there is no cause."""
    known = [fact for fact in facts(fault) if not fact.startswith(PATHS_OF_IMAGES)]
    return say("header.between").join([say("markdown.unexplained"), *known[:_FACTS]])
