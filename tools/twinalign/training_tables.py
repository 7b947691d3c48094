"""What a training has shown, on the terminal: horizons, equivalence of outcomes, kinds of weights, experiments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from twinalign.training_facts import main_horizons, sentences, steps_alike

_SIDES = ("port", "reference")


def print_training(found: Mapping[str, Any], console: Console) -> None:
    """Print the facts that `summary.json` has of the train stage under `training`."""
    horizons = main_horizons(found)
    if horizons:
        console.print(_horizon_table(horizons))
    for text in sentences(found):
        console.print(Text(text), soft_wrap=True)


def _horizon_table(horizons: list[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, title="steps before curves part (the port / the reference's moved copy)")
    table.title_justify, table.title_style = "left", "dim"
    table.add_column("curve")
    table.add_column("precision")
    for tolerance in horizons[0]["tolerances"]:
        table.add_column(f"by {tolerance:.0e}", justify="right")
    table.add_column("grows a step", justify="right")
    for horizon in horizons:
        port, reference = ([steps_alike(count, horizon["steps"]) for count in horizon[s] or ()] for s in _SIDES)
        cells = [f"{a} / {b}" for a, b in zip(port, reference or ["–"] * len(port), strict=True)]
        growths = [horizon["port_growth"], horizon["reference_growth"]]
        growth = " / ".join("–" if factor is None else f"{factor:.2f}" for factor in growths)
        table.add_row(horizon["curve"], horizon["precision"], *cells, growth)
    return table
