"""A run as JUnit XML, for what shows test results: a suite for each stage, a test for each tensor.

What diverged is a failure, what is inconclusive an error. The form is what both Jenkins' schema and Ant's allow.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from twinalign.figures import figure
from twinalign.report.summary import has_figures, legible, load_summary, number

# What XML 1.0 cannot hold even as a reference; `legible` escapes these as well, and this is the second lock.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NAME = 1000
_FIGURES = ("max_abs", "mean_abs", "max_rel", "noise_ratio", "fp64_rel", "worst_index")


def junit(folder: Path) -> str:
    """The run in a folder as JUnit XML; raises InputError where no run has finished there."""
    summary = load_summary(folder)
    finished = datetime.datetime.fromtimestamp((folder / "summary.json").stat().st_mtime, datetime.UTC)
    root = ElementTree.Element("testsuites")
    for position, (name, stage) in enumerate(summary["stages"].items()):
        root.append(_suite(position, name, stage, summary, finished))
    ElementTree.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(
    position: int, name: str, stage: Mapping[str, Any], summary: Mapping[str, Any], finished: datetime.datetime
) -> ElementTree.Element:
    tensors = stage["tensors"]
    package = f"twinalign.{_text(summary['case'])}"
    tests = [_test(tensor, f"{package}.{_text(name)}") for tensor in tensors]
    counts = {kind: sum(test.find(kind) is not None for test in tests) for kind in ("failure", "error")}
    suite = ElementTree.Element(
        "testsuite",
        {
            "id": str(position),
            "name": _text(name),
            "package": package,
            "timestamp": finished.strftime("%Y-%m-%dT%H:%M:%S"),
            "hostname": "localhost",
            "tests": str(len(tests)),
            "failures": str(counts["failure"]),
            "errors": str(counts["error"]),
            # A run is timed as a whole: its first suite has the seconds.
            "time": f"{number(summary.get('seconds')) or 0:.1f}" if position == 0 else "0",
        },
    )
    properties = ElementTree.SubElement(suite, "properties")
    for key, value in _properties(stage, summary):
        ElementTree.SubElement(properties, "property", {"name": _text(key), "value": _text(value) or "-"})
    suite.extend(tests)
    ElementTree.SubElement(suite, "system-out").text = "\n".join(_text(str(note)) for note in stage.get("notes", ()))
    ElementTree.SubElement(suite, "system-err")
    return suite


def _test(tensor: Mapping[str, Any], classname: str) -> ElementTree.Element:
    test = ElementTree.Element("testcase", {"classname": classname, "name": _text(tensor["name"]) or "-", "time": "0"})
    kind = {"diverged": "failure", "inconclusive": "error"}.get(tensor["verdict"])
    if kind is not None and not tensor.get("accepted"):
        found = ElementTree.SubElement(
            test, kind, {"message": _text(tensor["reason"]), "type": _text(tensor["verdict"])}
        )
        known = _FIGURES if has_figures(tensor) else ("worst_index",)
        figures = [f"{key}: {figure(tensor[key])}" for key in known if tensor.get(key) is not None]
        found.text = _text("; ".join(figures))
    return test


def _properties(stage: Mapping[str, Any], summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    classic = "passed" if stage["classic"]["passed"] else "failed"
    found = [("verdict", stage["verdict"]), ("reprod_log", f"{classic} at {stage['classic']['threshold']}")]
    for side, environment in summary["environment"].items():
        found += [(f"{side}.{name}", str(version)) for name, version in (environment.get("versions") or {}).items()]
    return found


def _text(text: str) -> str:
    return _FORBIDDEN.sub("?", legible(text, _NAME))
