"""A training on the terminal: horizons, equivalence of outcomes, kinds of weights, experiments."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from twinalign.reports.training_facts import main_horizons, sentences, steps_alike
from twinalign.terminal.console import print_text, table

_SIDES = ("port", "reference")


def print_training(found: Mapping[str, Any], console: Console) -> None:
    """Print the `training` facts of the train stage in `summary.json`."""
    horizons = main_horizons(found)
    if horizons:
        console.print(_horizon_table(horizons))
    for text in sentences(found):
        print_text(console, text)


def _horizon_table(horizons: list[Mapping[str, Any]]) -> Table:
    numbers = (*(f"by {tolerance:.0e}" for tolerance in horizons[0]["tolerances"]), "growth per step")
    title = "steps before each curve departs (the port / the reference's copy)"
    rows = table("curve", "precision", *numbers, right=numbers, title=title, title_justify="left", title_style="dim")
    for horizon in horizons:
        port, reference = ([steps_alike(count, horizon["steps"]) for count in horizon[s] or ()] for s in _SIDES)
        cells = [f"{a} / {b}" for a, b in zip(port, reference or ["–"] * len(port), strict=True)]
        growths = [horizon["port_growth"], horizon["reference_growth"]]
        growth = " / ".join("–" if factor is None else f"{factor:.2f}" for factor in growths)
        rows.add_row(horizon["curve"], horizon["precision"], *cells, growth)
    return rows
