"""The report of a run, from `summary.json` alone: one HTML file that opens offline, and a table for a pull request."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from twinalign.errors import InputError
from twinalign.figures import figure
from twinalign.locate.describing import facts, layer_values
from twinalign.recording import read_metadata, write_text

ROWS_A_STAGE = 250
"""Tensors shown of each stage, the worst first; all of them are in `summary.json`."""

_ORDER = {"diverged": 0, "inconclusive": 1, "rounding": 2, "aligned": 3}
_SENTENCES = {
    "aligned": "The port is aligned with its reference",
    "diverged": "The port has diverged from its reference",
    "inconclusive": "It cannot be told yet whether the port is aligned",
}


def load_summary(folder: Path) -> dict[str, Any]:
    """`summary.json` of a finished run; raises InputError where there is none."""
    found = read_metadata(folder / "summary")
    if not {"case", "verdict", "stages", "environment"} <= set(found):
        raise InputError(f"{folder / 'summary.json'}: no finished run there; give the --out folder of `twinalign run`")
    return found


def write_report(folder: Path) -> Path:
    """Write `report.html` into the folder of a finished run and return its path.

    Everything shown comes from `summary.json` and is escaped; the page asks for nothing outside of itself.
    """
    import jinja2

    summary = load_summary(folder)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("twinalign.report", "templates"), autoescape=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["figure"] = figure
    stages = {name: _shown(stage) for name, stage in summary["stages"].items()}
    text = environment.get_template("report.html").render(
        summary=summary,
        stages=stages,
        sentence=sentence(summary),
        environments=environment_rows(summary),
        located=_located(summary, folder),
    )
    path = folder / "report.html"
    write_text(path, text)
    return path


def _located(summary: dict[str, Any], folder: Path) -> dict[str, Any] | None:
    """What was located, with the pictures of wrong data in the page itself."""
    located = summary.get("located")
    if located is None:
        return None
    faults = [
        {**fault, "facts": facts(fault), "rows": layer_values(fault), "images": _images(fault, folder)}
        for fault in located["faults"]
    ]
    return {**located, "faults": faults}


def _images(fault: dict[str, Any], folder: Path) -> list[dict[str, str]]:
    shown = []
    for text, name in zip(("the reference's", "the port's"), fault["evidence"].get("pictures", ()), strict=False):
        path = folder / "locate" / "data" / Path(str(name)).name
        if path.suffix == ".png" and path.is_file():
            data = base64.b64encode(path.read_bytes()).decode()
            step = f"{fault['paddle_layer']}, {fault['evidence'].get('step', '')}: {text}"
            shown.append({"text": step, "data": f"data:image/png;base64,{data}"})
    return shown


def sentence(summary: dict[str, Any]) -> str:
    """The verdict in one sentence."""
    wrong = [name for name, stage in summary["stages"].items() if stage["verdict"] != "aligned"]
    where = f": first in stage {wrong[0]}" if wrong else f" in {_listed(list(summary['stages']))}"
    return _SENTENCES[summary["verdict"]] + where + "."


def markdown(summary: dict[str, Any]) -> str:
    """The table that goes into a pull request."""
    lines = [f"**{summary['case']}**: {sentence(summary)}", ""]
    lines += ["| stage | verdict | tensors | float64 differs by | times the noise | reprod_log 1e-6 |"]
    lines += ["| --- | --- | ---: | ---: | ---: | --- |"]
    for name, stage in summary["stages"].items():
        shown = _shown(stage)
        lines.append(
            f"| {name} | {stage['verdict']} | {len(stage['tensors'])} | {figure(shown['float64'])} "
            f"| {figure(shown['noise'])} | {'passed' if stage['classic']['passed'] else 'failed'} |"
        )
    sides = [
        ", ".join(f"{name} {version}" for name, version in side.get("versions", {}).items())
        for side in summary["environment"].values()
    ]
    return "\n".join([*lines, "", "; ".join(sides), ""])


def environment_rows(summary: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Versions, flags and machine of both sides, row by row."""
    sides = [_flat(summary["environment"].get(side, {})) for side in ("ref", "paddle")]
    return [(key, sides[0].get(key, ""), sides[1].get(key, "")) for key in dict.fromkeys([*sides[0], *sides[1]])]


def _flat(values: dict[str, Any]) -> dict[str, str]:
    flat = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat.update({name: str(item) for name, item in value.items()})
        else:
            flat[key] = str(value)
    return flat


def _shown(stage: dict[str, Any]) -> dict[str, Any]:
    tensors = sorted(stage["tensors"], key=lambda tensor: _ORDER.get(tensor["verdict"], 0))
    greatest = {
        key: max((t[key] for t in tensors if isinstance(t.get(key), float)), default=None)
        for key in ("fp64_rel", "noise_ratio")
    }
    return {
        **stage,
        "tensors": tensors[:ROWS_A_STAGE],
        "left_out": max(0, len(tensors) - ROWS_A_STAGE),
        "count": len(tensors),
        "identical": all(tensor.get("max_abs") == 0 for tensor in tensors),
        "float64": greatest["fp64_rel"],
        "noise": greatest["noise_ratio"],
    }


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
