"""Both models side by side, on the terminal."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from twinalign.runs.model_info import COUNTED
from twinalign.terminal.console import output, print_text, table


def print_info(found: Mapping[str, Any], console: Console | None = None) -> None:
    """Print a row for each layer; where the port's count differs, both are given, and the row is marked."""
    console = console or output()
    rows = table("layer", "class", "parameters", "buffers", "FLOPs", right=("parameters", "buffers", "FLOPs"))
    for row in found["layers"]:
        known = row["ref"] or row["paddle"]
        alone = "" if row["ref"] and row["paddle"] else " (port only)" if row["paddle"] else " (reference only)"
        style = "red" if row["differ"] else "yellow" if alone else ""
        counts = [_count(row, name) for name in COUNTED]
        rows.add_row(
            Text((known["layer"] or "the model") + alone, style=style), known["class"].rpartition(".")[2], *counts
        )
    console.print(rows)
    shapes = ", ".join(f"{name} {shape}" for name, shape in found["inputs"].items())
    wrong = sum(bool(row["differ"]) for row in found["layers"])
    unpaired = sum(not (row["ref"] and row["paddle"]) for row in found["layers"])
    said = f"{wrong} layers differ, {unpaired} have no layer of that path on the other side"
    console.print(Text(f"\n{found['case']}: {said if wrong or unpaired else 'all layers agree'} (inputs: {shapes})"))
    print_text(
        console,
        "FLOPs: a multiply-add counts twice; products of matrices, convolutions and attention, as in "
        "torch.utils.flop_counter; the same rules on paddle's operators.",
        "dim",
    )


def _count(row: Mapping[str, Any], name: str) -> Text:
    values = [f"{row[side][name]:,}" for side in ("ref", "paddle") if row[side]]
    return Text(" ≠ ".join(values), style="red") if name in row["differ"] else Text(values[0])
