"""`report.html`: one file that asks for nothing outside of itself."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from pathlib import Path
from typing import Any

from twinalign.case import stage_number
from twinalign.figures import figure
from twinalign.recording import write_text
from twinalign.report.curves import Curve, curves_of, outcomes_of
from twinalign.report.environment import environment_groups
from twinalign.report.faults import shown_faults
from twinalign.report.language import Language, language
from twinalign.report.layer_tree import SHADES, LayerPart, describe, layer_parts
from twinalign.report.plots import Plot, curve_plot, inherited_plot, plotting, stage_plots
from twinalign.report.rows import COLUMNS, stage_tables
from twinalign.report.summary import legible, load_summary, not_checked, sentence, short_name, unlocated
from twinalign.training_facts import main_horizons, sentences, steps_alike


def write_report(folder: Path, code: str = "en") -> Path:
    """Write `report.html` into the folder of a finished run and return its path.

    Everything shown comes from that folder and is escaped; the page asks for nothing outside of itself.

    Args:
        folder: what `twinalign run` wrote.
        code: language of the page, `en` or `zh`.

    Raises:
        InputError: no run has finished there.
    """
    path = folder / "report.html"
    write_text(path, page(load_summary(folder), folder, code))
    return path


def page(summary: dict[str, Any], folder: Path, code: str = "en") -> str:
    """The page of a summary; curves and pictures are taken from the folder where they are there."""
    say = language(code)
    curves, unreadable = curves_of(summary, folder)
    training = summary["stages"].get("train", {}).get("training", {})
    parts = layer_parts(summary, say)
    faults, faults_left_out = shown_faults(summary, folder, say)
    style, script = _static("report.css"), _static("report.js")
    tables = stage_tables(summary["stages"], say)
    with plotting():
        plots = {name: stage_plots(name, stage["tensors"], say) for name, stage in summary["stages"].items()}
        depths = _depth_plots(parts, say)
        curve_plots = _curve_plots(curves, say)
    return (
        _environment(say)
        .get_template("report.html")
        .render(
            summary=summary,
            sentence=sentence(summary, say),
            not_checked=not_checked(summary, say),
            tables=tables,
            columns=COLUMNS,
            plots=plots,
            faults=faults,
            faults_left_out=faults_left_out,
            searched=_searched(summary),
            unlocated=unlocated(summary, say),
            parts=parts,
            depths=depths,
            shades=["< " + figure(SHADES[0]), *(f"≥ {figure(limit)}" for limit in SHADES)],
            curves=curve_plots,
            unreadable=unreadable,
            outcomes=outcomes_of(summary),
            horizons=main_horizons(training),
            findings=list(sentences(training)),
            environments=environment_groups(summary),
            style=style,
            script=script,
            policy=_policy(style, script),
        )
    )


def _environment(say: Language) -> Any:
    import jinja2
    import markupsafe

    def finalize(value: Any) -> Any:
        return legible(value) if isinstance(value, str) and not isinstance(value, markupsafe.Markup) else value

    found = jinja2.Environment(
        loader=jinja2.PackageLoader("twinalign.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def breakable(text: str) -> Any:
        """A dotted name that may go on in the next line after each dot."""
        return markupsafe.Markup(".<wbr>").join(text.split("."))

    found.filters.update(figure=figure, short_name=short_name, breakable=breakable)
    found.filters.update(stage_number=stage_number, steps=steps_alike)
    found.globals.update(say=say, describe=lambda node, alone: describe(node, alone, say))
    return found


def _static(name: str) -> str:
    return resources.files("twinalign.report").joinpath(f"static/{name}").read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """A policy under which nothing but these two blocks and pictures in the page itself has any effect."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _searched(summary: dict[str, Any]) -> str:
    if summary.get("located") is not None:
        return "nothing"
    return "not_searched" if summary["verdict"] == "diverged" else "aligned"


def _depth_plots(parts: list[LayerPart], say: Language) -> list[Plot | None]:
    return [inherited_plot(part.depth, say) if part.depth is not None else None for part in parts]


def _curve_plots(curves: list[Curve], say: Language) -> list[Plot]:
    return [curve_plot(curve, f"curve-{number}", say) for number, curve in enumerate(curves)]
