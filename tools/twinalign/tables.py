"""A run on the terminal: one table of stages, then what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from twinalign import terminal
from twinalign.case import stage_number
from twinalign.locate.tables import print_located
from twinalign.report.language import language
from twinalign.report.summary import accepted, deciding, greatest, identical, not_checked, unlocated
from twinalign.training_tables import print_training
from twinalign.verdict.render import sorted_by_weight
from twinalign.verdict.results import ALIGNED, DIVERGED, INCONCLUSIVE

if TYPE_CHECKING:
    from twinalign.judging import RunResult
    from twinalign.verdict import Comparison

_COLOURS = {ALIGNED: "green", DIVERGED: "red", INCONCLUSIVE: "yellow"}
_SHOWN = 5


def print_run(result: RunResult, out: Path | None = None, console: Console | None = None) -> None:
    """Print the stages, the worst tensors of those that are not aligned, and the verdict."""
    console, say = console or terminal.output(), language("en")
    table = Table(box=None, pad_edge=False)
    table.add_column("stage")
    table.add_column("verdict")
    for header in ("tensors", "float64 differs by", "noise ×", "reprod_log 1e-06"):
        table.add_column(header, justify="right")
    for stage, comparison in result.stages.items():
        table.add_row(f"{stage_number(stage)} {stage}", *_cells(comparison))
    console.print(table)
    for stage, comparison in result.stages.items():
        _print_faults(console, stage, comparison)
        for note in comparison.notes:
            console.print(Text(f"\n{stage}: {note}", style="yellow"), soft_wrap=True)
        if comparison.training is not None:
            print_training(comparison.training, console)
    if result.located is not None:
        console.print("\nWhat is at fault:", style="bold")
        print_located(result.located, console, unlocated(_outline(result), say))
    left_out = accepted([vars(tensor) for comparison in result.stages.values() for tensor in comparison.tensors], say)
    console.print(
        Text.assemble(
            f"\n{result.case}: ",
            (result.verdict, f"bold {_COLOURS[result.verdict]}"),
            f" ({left_out})" if left_out else "",
            f" in {result.seconds:.0f} s",
        ),
        soft_wrap=True,
    )
    if missing := not_checked({"not_checked": result.not_checked}, say):
        console.print(Text(missing, style="dim"), soft_wrap=True)
    if out is not None:
        console.print(
            f"report in {out / 'report.html'}, evidence in {out / 'summary.json'}", style="dim", highlight=False
        )


def _outline(result: RunResult) -> dict[str, Any]:
    """As much of `summary.json` as tells where a divergence starts that nothing was located for."""
    located = result.located
    return {
        "stages": {
            stage: {"verdict": comparison.verdict, "tensors": [vars(tensor) for tensor in comparison.tensors]}
            for stage, comparison in result.stages.items()
        },
        "located": {"faults": [vars(fault) for fault in located.faults]} if located is not None else None,
    }


def _cells(comparison: Comparison) -> list[Text]:
    described = [vars(tensor) for tensor in comparison.tensors]
    tensors, left_out = deciding(described), accepted(described, language("en"))
    float64, noise = greatest(tensors, "fp64_rel"), greatest(tensors, "noise_ratio")
    return [
        Text.assemble((comparison.verdict, _COLOURS[comparison.verdict]), f" ({left_out})" if left_out else ""),
        Text(str(len(comparison.tensors))),
        Text(f"{float64:.1e}" if float64 is not None else ("bit-equal" if identical(tensors) else "–")),
        Text(f"{noise:.2g}" if noise is not None else "–"),
        Text("passed" if comparison.classic.passed else "failed"),
    ]


def _print_faults(console: Console, stage: str, comparison: Comparison) -> None:
    if comparison.verdict == ALIGNED:
        return
    wrong = [t for t in sorted_by_weight(comparison.tensors) if t.verdict in (DIVERGED, INCONCLUSIVE)]
    console.print(
        Text(f"\n{stage}: {len(wrong)} of {len(comparison.tensors)} tensors", style=_COLOURS[comparison.verdict])
    )
    for tensor in wrong[:_SHOWN]:
        console.print(Text(f"  {tensor.name}: {tensor.reason}"), soft_wrap=True)
    if len(wrong) > _SHOWN:
        console.print(f"  … and {len(wrong) - _SHOWN} more", style="dim")
