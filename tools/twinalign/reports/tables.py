"""A comparison and the zoo as tables, from their JSON: the cells that a terminal and Markdown share."""

from collections.abc import Iterable, Mapping
from typing import Any

from twinalign.files.text import printable
from twinalign.reports.attached_facts import sentences
from twinalign.reports.language import language
from twinalign.reports.shown_values import plain
from twinalign.reports.summary import worst_first

COMPARISON_HEADERS = ("tensor", "verdict", "max abs", "mean abs", "noise ×", "float64", "why")
ZOO_HEADERS = ("architecture", "keys matched by", "float64 differs by", "noise ×", "verdict")


def summary_line(comparison: Mapping[str, Any]) -> str:
    """One line: the verdict, the counts, and the classic verdict."""
    counts = ", ".join(f"{count} {name}" for name, count in comparison["counts"].items())
    classic = comparison["classic"]
    word = "stops with an error" if classic["error"] else "passed" if classic["passed"] else "failed"
    return f"{comparison['verdict']}: {counts} · reprod_log at {float(classic['threshold']):g}: {word}"


def comparison_cells(tensor: Mapping[str, Any]) -> list[str]:
    """One tensor in the order of `COMPARISON_HEADERS`."""
    return [
        printable(tensor["name"]),
        tensor["verdict"] + (f" (accepted: {tensor['accepted']})" if tensor["accepted"] else ""),
        *(_number(tensor[key]) for key in ("max_abs", "mean_abs", "noise_ratio", "fp64_rel")),
        tensor["reason"],
    ]


def comparison_markdown(comparison: Mapping[str, Any], title: str = "Comparison", lang: str = "en") -> str:
    """A Markdown section: summary, notes, and a table of all tensors, the diverged first.

    `lang`: of what is said of attached trainers and of the reasons.
    """
    say = language(lang)
    lines = [f"## {plain(title)}", "", f"**{plain(summary_line(comparison))}**", ""]
    told = sentences(comparison["attached"], say) if "attached" in comparison else ()
    lines += [f"- {plain(sentence)}" for sentence in told]
    lines += [f"- {plain(note)}" for note in comparison["notes"]]
    lines += ["", markdown_row(COMPARISON_HEADERS), "|" + " --- |" * len(COMPARISON_HEADERS)]
    for tensor in worst_first(comparison["tensors"]):
        *cells, reason = comparison_cells(tensor)
        lines.append(markdown_row(map(plain, [*cells, say.translated(reason)])))
    return "\n".join(lines) + "\n"


def _number(value: Any) -> str:
    return "" if value is None else f"{float(value):.3g}"


def zoo_cells(outcome: Mapping[str, Any]) -> list[str]:
    """One architecture in the order of `ZOO_HEADERS`."""
    matched = ", ".join(f"{how} ({count})" for how, count in outcome["matched"].items())
    return [
        outcome["name"],
        matched or "–",
        "–" if outcome["float64"] is None else f"{outcome['float64']:.1e}",
        "–" if outcome["noise"] is None else f"{outcome['noise']:.2g}",
        outcome["verdict"],
    ]


def zoo_counts(zoo: Mapping[str, Any]) -> str:
    """How many architectures have each verdict, in one line."""
    counts = ", ".join(f"{count} {verdict}" for verdict, count in zoo["counts"].items())
    return f"{len(zoo['architectures'])} architectures: {counts}"


def zoo_markdown(zoo: Mapping[str, Any]) -> str:
    """The table as Markdown, with what differs below it."""
    lines = [markdown_row(ZOO_HEADERS), "|" + " --- |" * len(ZOO_HEADERS)]
    lines += [markdown_row(zoo_cells(outcome)) for outcome in zoo["architectures"]]
    for outcome in zoo["architectures"]:
        if outcome["explanation"]:
            lines += ["", f"**{outcome['name']}**: {outcome['explanation']}"]
    return "\n".join([*lines, "", zoo_counts(zoo)]) + "\n"


def markdown_row(cells: Iterable[str]) -> str:
    """A row of a Markdown table; the cells are escaped already."""
    return f"| {' | '.join(cells)} |"
