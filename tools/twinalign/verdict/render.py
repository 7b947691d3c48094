"""A comparison as text: reprod_log's log lines, Markdown, and a table for a terminal."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from twinalign.verdict.classic import Classic
    from twinalign.verdict.results import Comparison, TensorVerdict


def log_lines(classic: Classic, time: datetime.datetime | None = None) -> list[str]:
    """Lines as `ReprodDiffHelper.report` of reprod_log 1.0.1 writes them to a `*_diff.log`.

    Args:
        classic: The classic verdict.
        time: When the lines are written; now by default.
    """
    stamp = (time or datetime.datetime.now()).strftime("%Y/%m/%d %H:%M:%S")
    return [f"[{stamp}] root INFO: {line}" for line in classic.lines]


def summary_line(comparison: Comparison) -> str:
    """One line: the verdict, how many tensors have which, and the classic verdict beside it."""
    counts = ", ".join(f"{count} {name}" for name, count in comparison.counts.items())
    classic = comparison.classic
    return f"{comparison.verdict}: {counts} · reprod_log at {classic.threshold:g}: {_classic_word(classic)}"


def markdown(comparison: Comparison, title: str = "Comparison") -> str:
    """A Markdown section: summary, notes, and a table of all tensors, the diverged first."""
    lines = [f"## {title}", "", f"**{summary_line(comparison)}**", ""]
    lines += [f"- {note}" for note in comparison.notes]
    lines += ["", "| " + " | ".join(_HEADERS) + " |", "|" + " --- |" * len(_HEADERS)]
    for tensor in sorted_by_weight(comparison.tensors):
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in _cells(tensor)) + " |")
    return "\n".join(lines) + "\n"


def rich_table(comparison: Comparison, limit: int | None = None) -> Table:
    """A table for a terminal; rich is imported here and nowhere else.

    Args:
        comparison: What to show.
        limit: Show this many tensors, the worst first; all by default.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(title=summary_line(comparison), title_justify="left", expand=False)
    for header in _HEADERS:
        table.add_column(header, overflow="fold", justify="left" if header in ("tensor", "verdict", "why") else "right")
    for tensor in sorted_by_weight(comparison.tensors)[:limit]:
        table.add_row(*(Text(cell) for cell in _cells(tensor)), style=_STYLES.get(tensor.verdict, ""))
    return table


def text_lines(comparison: Comparison, limit: int | None = None) -> list[str]:
    """Plain lines for pipes and logs: one a tensor, the diverged first."""
    lines = []
    for tensor in sorted_by_weight(comparison.tensors)[:limit]:
        figure = "" if tensor.max_abs is None else f" (max {tensor.max_abs:.3g}, mean {tensor.mean_abs:.3g})"
        lines.append(f"{tensor.verdict:<12} {printable(tensor.name)}{figure}: {tensor.reason}")
    return lines


def sorted_by_weight(tensors: list[TensorVerdict]) -> list[TensorVerdict]:
    """Diverged, inconclusive, rounding, aligned; in the recording's order within each."""
    order = {"diverged": 0, "inconclusive": 1, "rounding": 2, "aligned": 3}
    return sorted(tensors, key=lambda tensor: order.get(tensor.verdict, 0))


_HEADERS = ("tensor", "verdict", "max abs", "mean abs", "noise ×", "float64", "why")
_STYLES = {"diverged": "red", "inconclusive": "yellow", "rounding": "cyan"}


def _classic_word(classic: Classic) -> str:
    if classic.error:
        return "stops with an error"
    return "passed" if classic.passed else "failed"


def _cells(tensor: TensorVerdict) -> list[str]:
    return [
        printable(tensor.name),
        tensor.verdict + (f" (accepted: {tensor.accepted})" if tensor.accepted else ""),
        _number(tensor.max_abs),
        _number(tensor.mean_abs),
        _number(tensor.noise_ratio),
        _number(tensor.fp64_rel),
        tensor.reason,
    ]


def printable(name: str) -> str:
    """`name` with a question mark for every letter that is not printable."""
    # A name out of a file must not end a line or a table's row, nor steer a terminal.
    return "".join(letter if letter.isprintable() else "?" for letter in name)


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.3g}"
