"""A mended port on the terminal: the patch, then what is left."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from twinalign.reports.fault_facts import entries
from twinalign.terminal.console import output, print_text
from twinalign.terminal.faults import fault_text
from twinalign.verdict.results import ALIGNED

_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def print_fix(found: Mapping[str, Any], console: Console | None = None) -> None:
    """Print the patch with the cause beside each hunk, what is left, and the verdict."""
    console = console or output()
    for line in found["patch"].splitlines():
        console.print(Text(line, style=_STYLES.get(line[:1], "")), soft_wrap=True)
    for note in found["notes"]:
        print_text(console, note, "yellow")
    for number, fault in enumerate(entries(found["left"]), start=1):
        print_text(console, fault_text(f"left {number}.", fault))
    print_text(
        console,
        f"\n{found['case']}: {_summary(found)}",
        style=f"bold {'green' if found['verdict'] == ALIGNED else 'red'}",
    )
    if found["patch_file"]:
        console.print(f"patch in {found['patch_file']}", style="dim", highlight=False)


def _summary(found: Mapping[str, Any]) -> str:
    places = len({(edit["file"], *edit["span"], edit["after"]) for edit in found["edits"]})
    if not places and found["verdict"] == ALIGNED:
        return "nothing is wrong, nothing was written"
    edits = f"{places} edit{'' if places == 1 else 's'} proven" if places else "no edit is proven"
    left = len(found["left"])
    rest = f", {left} fault{'' if left == 1 else 's'} left" if left else ""
    written = f", {len(found['written'])} file{'' if len(found['written']) == 1 else 's'} written"
    return f"{found['verdict']} with the patch: {edits}{rest}{written if found['written'] else ''}"
