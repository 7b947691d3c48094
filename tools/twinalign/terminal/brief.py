"""A result in a few lines for `print`, and as a table with coloured verdicts for a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from twinalign.files.text import printable
from twinalign.reports.fault_facts import edit_place, entries
from twinalign.reports.shown_values import figure
from twinalign.reports.summary import deciding, greatest, worst_first
from twinalign.reports.tables import COMPARISON_HEADERS, comparison_cells, summary_line

LINES = 10
"""Most lines that `print` writes of any result."""
_ROWS = 40
_COLOURS = {"aligned": "#116329", "rounding": "#0550ae", "diverged": "#b3131c", "inconclusive": "#7d4e00"}


def causes(found: Mapping[str, Any]) -> list[str]:
    """What is wrong in a run or a search, a line for each cause: its place, its id, the cause, where to edit."""
    faults = (found.get("located") or {}).get("faults", []) if "stages" in found else found.get("faults", [])
    return [_cause(fault) for fault in entries(fault for fault in faults if "accepted" not in fault["evidence"])]


def _cause(fault: Mapping[str, Any]) -> str:
    cause = fault["explanation"]
    more = f" and {len(fault['also'])} more" if fault["also"] else ""
    said = f"[{cause['id']}] {', '.join([cause['text'], *fault['lines']])}" if cause else "unexplained"
    place = f", {edit_place(fault['edits'][0])}" if fault["edits"] else ""
    return printable(f"{fault['paddle_layer'] or 'the model itself'}{more} ({fault['phase']}): {said}{place}")


def headline(found: Mapping[str, Any]) -> str:
    """A run in one line: the first cause, because pytest's summary cuts lines; without one, the first wrong tensor."""
    case = f"{printable(found['case'])} {found['verdict']}"
    if known := causes(found):
        return f"{known[0]}; {f'{len(known) - 1} more; ' if len(known) > 1 else ''}{case}"
    wrong = [tensor for stage in found["stages"].values() for tensor in deciding(worst_first(stage["tensors"]))]
    first = next((tensor for tensor in wrong if tensor["verdict"] == found["verdict"] != "aligned"), None)
    return f"{printable(first['name'])}: {first['reason']}; {case}" if first else case


def brief(kind: str, found: Mapping[str, Any], whole: str) -> str:
    """At most `LINES` lines of a result; `whole` is what its command prints."""
    if kind == "run":
        stages = (f"{name} {stage['verdict']}" for name, stage in found["stages"].items())
        return _first([f"{found['case']}: {found['verdict']} ({', '.join(stages)})", *causes(found)])
    if kind == "compare":
        wrong = [
            tensor
            for tensor in worst_first(found["tensors"])
            if tensor["verdict"] in ("diverged", "inconclusive") and not tensor["accepted"]
        ]
        tensors = (f"{printable(tensor['name'])}: {tensor['verdict']}: {tensor['reason']}" for tensor in wrong)
        return _first([summary_line(found), *tensors])
    lines = whole.strip("\n").splitlines()
    if len(lines) <= LINES:
        return whole
    # The verdict of every command is at its end.
    left_out = f"… {len(lines) - LINES + 1} lines left out; twinalign.terminal.show(result) prints all"
    return "\n".join([*lines[:2], left_out, *lines[3 - LINES :]])


def _first(lines: Sequence[str]) -> str:
    more = len(lines) - LINES + 1
    shown = (
        lines if more <= 1 else [*lines[: LINES - 1], f"… and {more} more; twinalign.terminal.show(result) prints all"]
    )
    return "\n".join(shown)


def html(kind: str, found: Mapping[str, Any]) -> str | None:
    """A run, a search or a comparison as a table with its causes, everything escaped; None for other results."""
    if kind == "run":
        title, rows = f"{found['case']}: {found['verdict']}", _stage_rows(found)
        head: Sequence[str] = ("stage", "verdict", "tensors", "float64 differs by", "noise ×")
    elif kind == "compare":
        title, head = summary_line(found), COMPARISON_HEADERS
        rows = (comparison_cells(tensor) for tensor in worst_first(found["tensors"])[:_ROWS])
    elif kind == "locate":
        title, head, rows = f"{found['case']}: {found['verdict']}", (), iter(())
    else:
        return None
    parts = [f'<p style="font-weight:600">{escape(title)}</p>']
    if head:
        cells = "".join(f'<th scope="col" style="text-align:left">{escape(name)}</th>' for name in head)
        parts.append(f"<table><thead><tr>{cells}</tr></thead><tbody>{''.join(map(_row, rows))}</tbody></table>")
    if kind == "compare" and len(found["tensors"]) > _ROWS:
        parts.append(f"<p>{len(found['tensors']) - _ROWS} more tensors are in tensors.</p>")
    if known := causes(found):
        parts.append("<ol>" + "".join(f"<li>{escape(cause)}</li>" for cause in known) + "</ol>")
    return "".join(parts)


def _stage_rows(found: Mapping[str, Any]) -> Iterator[list[str]]:
    for name, stage in found["stages"].items():
        known = (greatest(stage["tensors"], key) for key in ("fp64_rel", "noise_ratio"))
        numbers = ("–" if value is None else figure(float(value)) for value in known)
        yield [name, stage["verdict"], str(len(stage["tensors"])), *numbers]


def _row(cells: Sequence[str]) -> str:
    colour = _COLOURS.get(cells[1].partition(" ")[0], "inherit")
    styles = ["text-align:left"] * len(cells)
    styles[1] += f";color:{colour};background:#fff;font-weight:600"
    shown = zip(styles, cells, strict=True)
    return "<tr>" + "".join(f'<td style="{style}">{escape(cell)}</td>' for style, cell in shown) + "</tr>"
