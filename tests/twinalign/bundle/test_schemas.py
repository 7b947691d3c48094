"""The published schemas: they accept what twinalign writes, and refuse what it does not."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest

from tests.conftest import ROOT
from twinalign.errors import InputError
from twinalign.files.strict_json import check_form, parse_json, schema
from twinalign.verdict import TensorVerdict

SCHEMAS = ("summary", "recording", "case", "manifest")


@pytest.mark.parametrize("name", SCHEMAS)
def test_published_schema_is_a_schema(name: str) -> None:
    published = schema(name)
    assert published["$schema"] == "http://json-schema.org/draft-07/schema#"
    fastjsonschema.compile(published)
    assert f"schemas/{name}.schema.json" in (ROOT / "docs" / "summary-schema" / "README.md").read_text()


def test_summary_schema_describes_every_field_of_a_tensor() -> None:
    described = set(schema("summary")["definitions"]["tensor"]["properties"])
    assert described == {field.name for field in dataclasses.fields(TensorVerdict)}


def test_run_writes_what_is_published(honest: Path) -> None:
    run = honest / "run"
    check_form(json.loads((run / "summary.json").read_text()), "summary", "summary.json")
    check_form(json.loads((run / "case.json").read_text()), "case", "case.json")
    for path in (*run.glob("*_ref.json"), *run.glob("float64/*.json")):
        check_form(json.loads(path.read_text()), "recording", path.name)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda s: s.pop("verdict"), "the whole"),
        (lambda s: s.update(verdict="fine"), "verdict"),
        (lambda s: s["stages"].update(seventh=s["stages"]["loss"]), "stages"),
        (lambda s: s["stages"]["loss"].pop("tensors"), "stages.loss"),
        (lambda s: s["stages"]["loss"]["tensors"][0].pop("fp64_rel"), "stages.loss.tensors.0"),
        (lambda s: s["stages"]["loss"]["tensors"][0].update(max_abs="small"), "stages.loss.tensors.0.max_abs"),
        (lambda s: s["stages"]["loss"]["tensors"][0].update(worst_index=[-1]), "stages.loss.tensors.0.worst_index.0"),
        (lambda s: s["environment"].pop("ref"), "environment"),
    ],
)
def test_schema_refuses_another_form(change: Callable[[Any], Any], place: str, honest: Path) -> None:
    summary = copy.deepcopy(json.loads((honest / "run" / "summary.json").read_text()))
    change(summary)
    with pytest.raises(InputError, match=rf"^s\.json: {place} is not as summary\.schema\.json requires"):
        check_form(summary, "summary", "s.json")


def test_numbers_that_json_lacks_are_texts() -> None:
    with pytest.raises(InputError, match=r"^s\.json: not JSON \(Infinity is not a JSON number\); refused$"):
        parse_json(b'{"a": [1, Infinity]}', "s.json")
