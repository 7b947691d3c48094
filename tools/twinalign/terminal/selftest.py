"""The self-test on the terminal: a row for each fault, then the counts."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from twinalign.planted_faults.catalogue import PlantableFault
from twinalign.planted_faults.rank_faults import RankFault
from twinalign.terminal.console import output, table

_YES, _NO = Text("yes", style="green"), Text("no", style="bold red")


def print_selftest(found: Mapping[str, Any], console: Console | None = None, *, located: bool = True) -> None:
    """Print every trial that counts, the false alarms and errors, and the totals."""
    console = console or output()
    more = ("located", "explained", "cause found") if located else ()
    rows = table("fault", "kind", "planted in", "flagged by", "detected", *more, overflow="fold")
    for trial in found["trials"]:
        if trial["changed"] or trial["error"] is not None:  # a fault that changes no number proves nothing
            rows.add_row(*_cells(trial, located))
    console.print(rows)
    for trial in found["trials"]:
        if trial["error"]:
            console.print(Text(f"{trial['id']}: {trial['error']}", style="red"))
        for place in trial["extra"]:
            console.print(Text(f"{trial['id']}: false alarm at {place or 'the model'}", style="red"))
    for alarm in found["alarms"]:
        console.print(Text(f"false alarm without any fault: {alarm or 'the model'}", style="red"))
    _print_counts(found, located, console)


def _cells(trial: Mapping[str, Any], located: bool) -> list[Text | str]:
    cells: list[Text | str] = [
        trial["id"],
        trial["kind"],
        trial["place"] or "the model",
        trial["flagged"] or "–",
        _YES if trial["detected"] else _NO,
    ]
    if located:
        causes = [named["cause"] for named in trial["named"] if named["cause"]]
        cells += [
            _YES if trial["right_place"] else _NO,
            _YES if trial["right_cause"] else _NO,
            ", ".join(dict.fromkeys(causes)) or "–",
        ]
    return cells


def _print_counts(found: Mapping[str, Any], located: bool, console: Console) -> None:
    summary = found["summary"]
    total = summary["faults"]

    def share(name: str) -> str:
        return f"{summary[name]} of {total}" + (f" ({100 * summary[name] / total:.0f}%)" if total else "")

    parts = [f"detected {share('detected')}"]
    if located:
        parts += [f"located {share('located')}", f"explained {share('explained')}"]
    parts.append(f"false alarms {summary['false_alarms']}")
    console.print(f"\n{found['case']}: " + ", ".join(parts) + f", in {found['seconds']:.0f} s", highlight=False)
    if found["left_out"] or summary["without_effect"]:
        console.print(
            f"{len(found['left_out'])} faults of the catalogue do not fit into this case, "
            f"{summary['without_effect']} change no number in it",
            style="dim",
            highlight=False,
        )


def print_repairs(found: Mapping[str, Any], console: Console | None = None) -> None:
    """Print what became of every fault that was planted in the source, and the totals."""
    console = console or output()
    rows = table("fault", "planted", "located", "suggested", "repaired", "wrong edit", "written", overflow="fold")
    for trial in found["trials"]:
        if trial["changed"] and trial["error"] is None:
            told = [_YES if trial[name] else _NO for name in ("located", "suggested", "repaired")]
            wrong = Text("yes", style="bold red") if trial["wrong"] else Text("no")
            planted = f"{trial['before']} → {trial['after']}"
            rows.add_row(trial["id"], planted, *told, wrong, "; ".join(trial["edits"]) or "–")
    console.print(rows)
    summary = found["summary"]
    counts = [f"{name} {summary[name]} of {summary['faults']}" for name in ("located", "suggested", "repaired")]
    totals = ", ".join([*counts, f"wrong edits called proven {summary['wrong']}"])
    console.print(f"\n{found['case']}: {totals}, in {found['seconds']:.0f} s", highlight=False)
    if summary["stopped"] or summary["without_effect"]:
        others = f"{summary['stopped']} more stop with an error, {summary['without_effect']} change no result"
        console.print(others, style="dim", highlight=False)


def print_fitting_faults(
    fitting: Mapping[str, str],
    faults: Mapping[str, PlantableFault] | Mapping[str, RankFault],
    case: str,
    console: Console | None = None,
) -> None:
    """Print the faults that fit into the case, and where they would go."""
    console = console or output()
    rows = table("fault", "kind", "would go into", "what is wrong", overflow="fold")
    for name, place in fitting.items():
        rows.add_row(name, faults[name].kind, place or "the model", faults[name].text)
    console.print(rows)
    kinds = Counter(faults[name].kind for name in fitting)
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    console.print(f"\n{case}: {len(fitting)} of {len(faults)} faults: {counts}", highlight=False)
