"""A run as JUnit XML, for viewers of test results: a suite for each stage, a test for each tensor.

A diverged tensor is a failure, an inconclusive one an error. The schemas of both Jenkins and Ant allow the form.
"""

import datetime
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from twinalign.reports.initial import initial_groups, initial_sentence
from twinalign.reports.language import language
from twinalign.reports.shown_values import figure, legible, number
from twinalign.reports.summary import has_numbers, load_summary

# What XML 1.0 cannot hold even as a reference; `legible` escapes these as well, and this is the second lock.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NAME = 1000
_NUMBERS = ("max_abs", "mean_abs", "max_rel", "noise_ratio", "fp64_rel", "worst_index")


def junit(folder: Path) -> str:
    """The run in a folder as JUnit XML; raises InputError if no run has finished there."""
    summary = load_summary(folder)
    finished = datetime.datetime.fromtimestamp((folder / "summary.json").stat().st_mtime, datetime.UTC)
    root = ElementTree.Element("testsuites")
    for position, (name, stage) in enumerate(summary["stages"].items()):
        root.append(_suite(position, name, stage, summary, finished))
    if summary.get("initial"):
        root.append(_initial_suite(len(summary["stages"]), summary, finished))
    ElementTree.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(
    position: int, name: str, stage: Mapping[str, Any], summary: Mapping[str, Any], finished: datetime.datetime
) -> ElementTree.Element:
    package = f"twinalign.{_text(summary['case'])}"
    tests = [_test(tensor, f"{package}.{_text(name)}") for tensor in stage["tensors"]]
    # A run is timed as a whole: its first suite has the seconds.
    seconds = f"{number(summary.get('seconds')) or 0:.1f}" if position == 0 else "0"
    notes = [str(note) for note in stage.get("notes", ())]
    return _suite_of(position, name, package, finished, seconds, _properties(stage, summary), tests, notes)


def _initial_suite(position: int, summary: Mapping[str, Any], finished: datetime.datetime) -> ElementTree.Element:
    """One test for all initial weights; it fails where a difference counts, and is skipped where it does not."""
    package, initial = f"twinalign.{_text(summary['case'])}", summary["initial"]
    test = ElementTree.Element("testcase", {"classname": f"{package}.initial", "name": "initial weights", "time": "0"})
    said = initial_sentence(summary, language("en"))
    if initial["verdict"] != "aligned":
        kind = "failure" if initial["counts"] else "skipped"
        ElementTree.SubElement(
            test, kind, {"message": _text(said), **({"type": "diverged"} if initial["counts"] else {})}
        )
    lines = [f"{', '.join(group.names)}: {group.text}; {group.remedy or ''}" for group in initial_groups(summary)]
    properties = [("verdict", initial["verdict"])]
    return _suite_of(position, "initial", package, finished, "0", properties, [test], [*lines, *initial["notes"]])


def _suite_of(
    position: int,
    name: str,
    package: str,
    finished: datetime.datetime,
    seconds: str,
    described: Sequence[tuple[str, str]],
    tests: Sequence[ElementTree.Element],
    output: Sequence[str],
) -> ElementTree.Element:
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
            "time": seconds,
        },
    )
    properties = ElementTree.SubElement(suite, "properties")
    for key, value in described:
        ElementTree.SubElement(properties, "property", {"name": _text(key), "value": _text(value) or "-"})
    suite.extend(tests)
    ElementTree.SubElement(suite, "system-out").text = "\n".join(map(_text, output))
    ElementTree.SubElement(suite, "system-err")
    return suite


def _test(tensor: Mapping[str, Any], classname: str) -> ElementTree.Element:
    test = ElementTree.Element("testcase", {"classname": classname, "name": _text(tensor["name"]) or "-", "time": "0"})
    kind = {"diverged": "failure", "inconclusive": "error"}.get(tensor["verdict"])
    if kind is not None and not tensor.get("accepted"):
        found = ElementTree.SubElement(
            test, kind, {"message": _text(tensor["reason"]), "type": _text(tensor["verdict"])}
        )
        known = _NUMBERS if has_numbers(tensor) else ("worst_index",)
        numbers = [f"{key}: {figure(tensor[key])}" for key in known if tensor.get(key) is not None]
        found.text = _text("; ".join(numbers))
    return test


def _properties(stage: Mapping[str, Any], summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    classic = "passed" if stage["classic"]["passed"] else "failed"
    found = [("verdict", stage["verdict"]), ("reprod_log", f"{classic} at {stage['classic']['threshold']}")]
    for side, environment in summary["environment"].items():
        found += [(f"{side}.{name}", str(version)) for name, version in (environment.get("versions") or {}).items()]
    return found


def _text(text: str) -> str:
    return _FORBIDDEN.sub("?", legible(text, _NAME))
