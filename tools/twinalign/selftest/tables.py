"""The selftest on the terminal: a row for each fault, then the counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from twinalign import terminal
from twinalign.selftest.running import SelftestResult, Trial

if TYPE_CHECKING:
    from twinalign.selftest.catalogue import PlantableFault
    from twinalign.selftest.rank_faults import RankFault

_YES, _NO = Text("yes", style="green"), Text("no", style="bold red")


def print_selftest(result: SelftestResult, located: bool, console: Console | None = None) -> None:
    """Print every trial that counts, what went wrong, and the counts."""
    console = console or terminal.output()
    table = Table(box=None, pad_edge=False)
    for header in ("fault", "kind", "planted in", "flagged by", "detected"):
        table.add_column(header, overflow="fold")
    if located:
        for header in ("located", "explained", "cause found"):
            table.add_column(header, overflow="fold")
    for trial in result.trials:
        if trial.counts:
            table.add_row(*_cells(trial, located))
    console.print(table)
    for trial in result.trials:
        if trial.error:
            console.print(Text(f"{trial.id}: {trial.error}", style="red"))
        for place in trial.extra:
            console.print(Text(f"{trial.id}: false alarm at {place or 'the model'}", style="red"))
    for alarm in result.alarms:
        console.print(Text(f"false alarm without any fault: {alarm or 'the model'}", style="red"))
    _print_counts(result, located, console)


def _cells(trial: Trial, located: bool) -> list[Text | str]:
    cells: list[Text | str] = [
        trial.id,
        trial.kind,
        trial.place or "the model",
        trial.flagged or "–",
        _YES if trial.detected else _NO,
    ]
    if located:
        causes = [found["cause"] for found in trial.named if found["cause"]]
        cells += [
            _YES if trial.right_place else _NO,
            _YES if trial.right_cause else _NO,
            ", ".join(dict.fromkeys(causes)) or "–",
        ]
    return cells


def _print_counts(result: SelftestResult, located: bool, console: Console) -> None:
    summary = result.summary()
    total = summary["faults"]

    def share(name: str) -> str:
        return f"{summary[name]} of {total}" + (f" ({100 * summary[name] / total:.0f}%)" if total else "")

    parts = [f"detected {share('detected')}"]
    if located:
        parts += [f"located {share('located')}", f"explained {share('explained')}"]
    parts.append(f"false alarms {summary['false_alarms']}")
    console.print(f"\n{result.case}: " + ", ".join(parts) + f", in {result.seconds:.0f} s", highlight=False)
    if result.left_out or summary["without_effect"]:
        console.print(
            f"{len(result.left_out)} faults of the catalogue have no place in this case, "
            f"{summary['without_effect']} change no number in it",
            style="dim",
            highlight=False,
        )


def print_places(
    places: Mapping[str, str],
    faults: Mapping[str, PlantableFault] | Mapping[str, RankFault],
    case: str,
    console: Console | None = None,
) -> None:
    """Print which of the faults have a place in the case."""
    console = console or terminal.output()
    table = Table(box=None, pad_edge=False)
    for header in ("fault", "kind", "would go into", "what is wrong"):
        table.add_column(header, overflow="fold")
    for name, place in places.items():
        table.add_row(name, faults[name].kind, place or "the model", faults[name].text)
    console.print(table)
    kinds = Counter(faults[name].kind for name in places)
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    console.print(f"\n{case}: {len(places)} of {len(faults)} faults: {counts}", highlight=False)
