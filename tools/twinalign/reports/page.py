"""`report.html`: one file that loads nothing from elsewhere."""

import base64
import functools
import hashlib
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from twinalign.reports.changes import changes
from twinalign.reports.curves import curves_of, outcomes_of
from twinalign.reports.environment import environment_groups
from twinalign.reports.fault_facts import remarks
from twinalign.reports.faults import causes_counted, shown_faults
from twinalign.reports.initial import initial_groups, initial_mark, initial_sentence
from twinalign.reports.language import Language, language
from twinalign.reports.layer_tree import SHADES, describe, layer_parts
from twinalign.reports.plots import curve_plot, inherited_plot, plotting, stage_plots
from twinalign.reports.shown_values import figure, legible, short_name
from twinalign.reports.stage_tables import COLUMNS, stage_tables
from twinalign.reports.summary import FILES, not_checked, sentence, unlocated
from twinalign.reports.training_facts import main_horizons, sentences, steps_alike
from twinalign.sides import stage_number


def page(summary: Mapping[str, Any], folder: Path, code: str = "en", earlier: Mapping[str, Any] | None = None) -> str:
    """The page of a summary; curves and pictures are read from the folder if present.

    `earlier` is the summary of a run of the same case before this one.
    """
    say = language(code)
    curves, unreadable = curves_of(summary, folder)
    training = summary["stages"].get("train", {}).get("training", {})
    parts = layer_parts(summary, say)
    faults, faults_left_out = shown_faults(summary, folder, say)
    found, horizons, outcomes = list(sentences(training)), main_horizons(training), outcomes_of(summary)
    has_curves = bool(curves or unreadable or horizons or found or outcomes)
    style, script = _static("report.css") + _labels(say), _static("report.js")
    tables = stage_tables(summary["stages"], say)
    with plotting():
        plots = {name: stage_plots(name, stage["tensors"], say) for name, stage in summary["stages"].items()}
        depths = [inherited_plot(part.depth, say) if part.depth is not None else None for part in parts]
        curve_plots = [curve_plot(curve, f"curve-{number}", say) for number, curve in enumerate(curves)]
    return (
        _environment(code)
        .get_template("report.html")
        .render(
            summary=summary,
            sentence=sentence(summary, say),
            not_checked=not_checked(summary, say),
            initial=initial_sentence(summary, say),
            initial_groups=initial_groups(summary),
            initial_mark=initial_mark(summary),
            tables=tables,
            columns=COLUMNS,
            plots=plots,
            faults=faults,
            causes_counted=causes_counted(faults, say),
            changed=changes(earlier, summary, say) if earlier is not None else [],
            sections=_sections(summary, bool(parts), has_curves, earlier is not None, say),
            has_curves=has_curves,
            faults_left_out=faults_left_out,
            remarks=remarks(summary.get("located") or {}),
            searched=_searched(summary),
            unlocated=unlocated(summary, say),
            parts=parts,
            depths=depths,
            shades=["< " + figure(SHADES[0]), *(f"≥ {figure(limit)}" for limit in SHADES)],
            curves=curve_plots,
            unreadable=unreadable,
            outcomes=outcomes,
            horizons=horizons,
            findings=found,
            environments=environment_groups(summary),
            style=style,
            script=script,
            policy=_policy(style, script),
        )
    )


def _sections(
    summary: Mapping[str, Any], layers: bool, curves: bool, changed: bool, say: Language
) -> list[dict[str, str]]:
    """The links of the sidebar, in the order of the page; sections without content have none."""
    stages = [
        {"id": f"stage-{name}", "text": say.known("stage", name), "verdict": stage["verdict"]}
        for name, stage in summary["stages"].items()
    ]
    initial = summary.get("initial")
    if initial is not None:
        stages.append({"id": "initial", "text": say("initial.title"), "verdict": initial_mark(summary)})
    present = {"layers": layers, "curves": curves, "environment": bool(summary["environment"]), "reading": True}
    rest = [{"id": name, "text": say(f"{name}.title"), "verdict": ""} for name, there in present.items() if there]
    first = "checked.title" if summary["verdict"] == "aligned" else "faults.title"
    top = [{"id": "changes", "text": say("changes.title"), "verdict": ""}] if changed else []
    return [*top, {"id": "faults", "text": say(first), "verdict": ""}, *stages, *rest]


@functools.cache
def _environment(code: str) -> Any:
    import jinja2
    import markupsafe

    say = language(code)

    def finalize(value: Any) -> Any:
        return legible(value) if isinstance(value, str) and not isinstance(value, markupsafe.Markup) else value

    found = jinja2.Environment(
        loader=jinja2.PackageLoader("twinalign.reports", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def breakable(text: str) -> Any:
        """A name that may go on in the next line after each dot and underscore, but not within a number."""
        return markupsafe.Markup("<wbr>").join(re.split(r"(?<=[._])(?!(?<=\d\.)\d)", text))

    def unbroken(text: str) -> Any:
        """A sentence in which no number such as 1e-06 is torn apart at its hyphen."""
        escaped = str(markupsafe.escape(legible(text)))
        return markupsafe.Markup(re.sub(r"-?\d[\d.]*e-\d+|(?<!\w)-\d[\d.]*", r"<samp>\g<0></samp>", escaped))

    found.filters.update(
        unbroken=unbroken,
        figure=figure,
        short_name=short_name,
        breakable=breakable,
        stage_number=stage_number,
        steps=steps_alike,
    )

    def english(text: str) -> Any:
        """The attribute of a sentence that stays English in a page of another language."""
        return markupsafe.Markup(" lang=en" if say.code != "en" and say.translated(text) == text else "")

    found.globals.update(say=say, english=english, describe=lambda node, alone: describe(node, alone, say))
    return found


def _static(name: str) -> str:
    return resources.files("twinalign.reports").joinpath(f"static/{name}").read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """A policy that allows only these two blocks and pictures inside the page."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _labels(say: Language) -> str:
    """On a phone each cell of a tensor stands beside the name of its column, which only the style sheet repeats."""
    rules = (
        f'.tensors td:nth-child({place})::before {{ content: "{say(f"column.{column}")}"; }}'
        for place, column in enumerate(COLUMNS[2:], start=3)
    )
    return "@media screen and (max-width: 40rem) {\n" + "\n".join(rules) + "\n}\n"


def _searched(summary: Mapping[str, Any]) -> str:
    if list(summary["stages"]) == [FILES]:
        return "files"
    if summary.get("located") is not None:
        return "nothing"
    return "not_searched" if summary["verdict"] == "diverged" else "aligned"
