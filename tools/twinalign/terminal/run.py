"""A run on the terminal: a table of stages, then what is wrong."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from twinalign.reports.initial import initial_groups, initial_mark, initial_sentence
from twinalign.reports.language import language
from twinalign.reports.summary import (
    accepted,
    allowed,
    deciding,
    far_from_rounding,
    greatest,
    identical,
    not_checked,
    part_of_stage,
    unlocated,
    worst_first,
)
from twinalign.sides import stage_number
from twinalign.terminal.console import COLOURS, output, print_text, table
from twinalign.terminal.faults import print_located
from twinalign.terminal.training import print_training
from twinalign.verdict.results import ALIGNED, DIVERGED, INCONCLUSIVE

_SHOWN, _SHOWN_UNCOUNTED = 5, 2
_OF_THRESHOLD = (
    "The last column is what reprod_log's fixed threshold of 1e-06 would say of the float32 runs; the verdict does not"
    " depend on it."
)


def print_run(found: Mapping[str, Any], console: Console | None = None, *, out: Path | None = None) -> None:
    """Print the stages, the worst tensors of stages that are not aligned, and last what is at fault and the verdict."""
    console, say = console or output(), language("en")
    numbers = ("tensors", "float64 differs by", "noise ×", "reprod_log 1e-06")
    stages = table("stage", "verdict", *numbers, right=numbers)
    for stage, comparison in found["stages"].items():
        stages.add_row(f"{stage_number(stage)} {stage}", *_cells(comparison))
    if "initial" in found:
        initial = found["initial"]
        mark = initial_mark(found)
        verdict = say("initial.uncounted") if mark == "uncounted" else initial["verdict"]
        stages.add_row(
            "initial", Text(verdict, style=COLOURS.get(mark, "yellow")), str(initial["tensors"]), "–", "–", "–"
        )
    console.print(stages)
    if any(one["verdict"] == ALIGNED and not one["classic"]["passed"] for one in found["stages"].values()):
        print_text(console, _OF_THRESHOLD, "dim")
    for stage, comparison in found["stages"].items():
        _print_faults(console, stage, comparison)
        for note in comparison["notes"]:
            print_text(console, f"\n{stage}: {note}", "yellow")
        if "training" in comparison:
            print_training(comparison["training"], console)
    _print_initial(found, console)
    for text in (*allowed(found["stages"]), *far_from_rounding(found["stages"])):
        print_text(console, f"\n{text}", "dim")
    if missing := not_checked(found, say):
        print_text(console, f"\n{missing}", "dim")
    if out is not None:
        print_text(console, f"report in {out / 'report.html'}, evidence in {out / 'summary.json'}", "dim")
    if "located" in found:
        console.print("\nWhat is at fault:", style="bold")
        print_located(found["located"], console, unlocated=unlocated(found, say))
    left_out = accepted([tensor for comparison in found["stages"].values() for tensor in comparison["tensors"]], say)
    coloured = Text(found["verdict"], style=f"bold {COLOURS[found['verdict']]}")
    accepts = f" ({left_out})" if left_out else ""
    print_text(console, Text.assemble(f"\n{found['case']}: ", coloured, f"{accepts} in {found['seconds']:.0f} s"))


def _print_initial(found: Mapping[str, Any], console: Console) -> None:
    groups = initial_groups(found)
    if not groups and not found.get("initial", {}).get("notes"):
        return
    print_text(console, f"\n{initial_sentence(found, language('en'))}", "yellow")
    for note in found["initial"]["notes"]:
        print_text(console, f"  {note}")
    shown = _SHOWN if found["initial"]["counts"] else _SHOWN_UNCOUNTED
    for group in groups[:shown]:
        more = f" and {len(group.names) - 1} more" if len(group.names) > 1 else ""
        remedy = f"; write {group.remedy}" if group.remedy else ""
        text = f"  {group.names[0]}{more} ({group.layer}): {group.reference} in the reference, {group.port} in the port"
        print_text(console, f"{text}{remedy}")
    if len(groups) > shown:
        console.print(f"  … and {len(groups) - shown} more kinds, which report.html lists", style="dim")


def _cells(comparison: Mapping[str, Any]) -> list[Text]:
    tensors, left_out = deciding(comparison["tensors"]), accepted(comparison["tensors"], language("en"))
    float64, noise = greatest(tensors, "fp64_rel"), greatest(tensors, "noise_ratio")
    verdict = comparison["verdict"]
    return [
        Text.assemble((verdict, COLOURS[verdict]), f" ({left_out})" if left_out else ""),
        Text(str(len(comparison["tensors"]))),
        # JSON has names for numbers that are not finite; `float` converts them back.
        Text(f"{float(float64):.1e}" if float64 is not None else ("bit-equal" if identical(tensors) else "–")),
        Text(f"{float(noise):.2g}" if noise is not None else "–"),
        Text("passed" if comparison["classic"]["passed"] else "failed"),
    ]


def _print_faults(console: Console, stage: str, comparison: Mapping[str, Any]) -> None:
    if comparison["verdict"] == ALIGNED:
        return
    wrong = [t for t in worst_first(deciding(comparison["tensors"])) if t["verdict"] in (DIVERGED, INCONCLUSIVE)]
    count = f"{len(wrong)} of {len(comparison['tensors'])} tensors"
    console.print(Text(f"\n{stage}: {count}", style=COLOURS[comparison["verdict"]]))
    for tensor in wrong[:_SHOWN]:
        print_text(console, f"  {part_of_stage(stage, tensor['name'])}: {tensor['reason']}")
    if len(wrong) > _SHOWN:
        console.print(f"  … and {len(wrong) - _SHOWN} more", style="dim")
