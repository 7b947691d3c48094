"""JUnit XML of a run: of the form that readers of it agree on, whatever the names are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.twinalign.reports.runs import rich_summary, stage, summary, tensor
from twinalign.reports.junit import junit

# What Ant's JUnit schema asks of each element: its attributes, all of them required, and its children in order.
_FORM = {
    "testsuites": (set(), ["testsuite"]),
    "testsuite": (
        {"id", "name", "package", "timestamp", "hostname", "tests", "failures", "errors", "time"},
        ["properties", "testcase", "system-out", "system-err"],
    ),
    "properties": (set(), ["property"]),
    "property": ({"name", "value"}, []),
    "testcase": ({"name", "classname", "time"}, ["error", "failure"]),
    "failure": ({"message", "type"}, []),
    "error": ({"message", "type"}, []),
    "system-out": (set(), []),
    "system-err": (set(), []),
}


def check_form(element: ElementTree.Element) -> None:
    attributes, children = _FORM[element.tag]
    assert set(element.attrib) == attributes
    places = [children.index(child.tag) for child in element]
    assert places == sorted(places)
    if element.tag == "testsuite":
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", element.attrib["timestamp"])
        assert element.attrib["id"].isdigit()
        float(element.attrib["time"])
        for name in ("properties", "system-out", "system-err"):
            assert len(element.findall(name)) == 1
        for name, tag in (("tests", "testcase"), ("failures", "testcase/failure"), ("errors", "testcase/error")):
            assert int(element.attrib[name]) == len(element.findall(tag))
    for child in element:
        check_form(child)


def test_a_suite_a_stage_and_a_test_a_tensor(rich_run: Path) -> None:
    root = ElementTree.fromstring(junit(rich_run))
    check_form(root)
    found = rich_summary()["stages"]
    assert [suite.attrib["name"] for suite in root] == list(found)
    for suite, wanted in zip(root, found.values(), strict=True):
        tests = suite.findall("testcase")
        assert [test.attrib["name"] for test in tests] == [one["name"] for one in wanted["tensors"]]
        assert {test.attrib["classname"] for test in tests} == {f"twinalign.made_up.{suite.attrib['name']}"}
    failed = root.find("testsuite/testcase[@name='layer.0']/failure")
    assert failed is not None
    assert failed.attrib["type"] == "diverged"
    assert failed.attrib["message"].startswith("the float64 runs")
    assert "max_abs: 1e-07" in (failed.text or "")
    assert root.find("testsuite/testcase[@name='layer.4']/error") is not None
    assert root.find("testsuite/testcase[@name='layer.1']/*") is None  # rounding is no failure


def test_no_number_stands_for_a_nan(tmp_path: Path) -> None:
    nan = tensor("logits", "diverged", basis="structure", max_abs=0.0, worst_index=(1, 2))
    (tmp_path / "summary.json").write_text(json.dumps(summary({"forward": stage([nan], "diverged")}, "diverged")))
    assert ElementTree.fromstring(junit(tmp_path)).findtext("testsuite/testcase/failure") == "worst_index: [1, 2]"


def test_an_accepted_difference_is_no_failure(tmp_path: Path) -> None:
    found = summary({"forward": stage([tensor("variance", "diverged", accepted="running_variance")])})
    (tmp_path / "summary.json").write_text(json.dumps(found))
    root = ElementTree.fromstring(junit(tmp_path))
    assert root[0].attrib["failures"] == "0"


@pytest.mark.parametrize(
    "name",
    ['"><script>', "a\x00\x08\x1f\x7f", "a\ud800", "\ufffe\uffff", "]]>", "a\n\tb", "\u202eabc", "n" * 10_000, ""],
)
def test_hostile_names(name: str, tmp_path: Path) -> None:
    found = summary({"forward": stage([tensor(name, "diverged")], "diverged")}, "diverged", located=None)
    del found["located"]
    found["case"] = name
    (tmp_path / "summary.json").write_text(json.dumps(found))
    root = ElementTree.fromstring(junit(tmp_path).encode())
    check_form(root)
    assert root[0].attrib["failures"] == "1"
