"""Constants of modules that differ: found by their names, edited in every function that reads them, and told."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from twinalign.replay.aligned_code import Difference
from twinalign.replay.constants import differ
from twinalign.replay.module_constants import constants_of_modules
from twinalign.replay.ordered_edits import edited
from twinalign.replay.running_functions import functions_of

TEXT = """
STD = (0.2, 0.5)
RATE: float = 0.1
NAME = "theirs"
OTHER = 3


def scaled(x):
    return x / STD[1] * RATE


def shifted(x):
    return scaled(x) - STD[0] + OTHER
"""


def module(folder: Path, name: str, text: str) -> ModuleType:
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def described(**values: Any) -> list[Any]:
    kinds = {name: ["literal", repr(v)] if isinstance(v, tuple | list) else ["value", v] for name, v in values.items()}
    return [[{"globals": {"F": ["name", "torch.nn.functional"], **kinds}}, {}]]


def test_a_constant_has_the_references_value_in_all_functions_while_the_edit_is_tried(tmp_path: Path) -> None:
    port = module(tmp_path, "of_port", TEXT)
    codes = functions_of(lambda: port.shifted(1.0))
    theirs = described(STD=[0.25, 0.5], RATE=0.1, NAME="theirs", OTHER=3, ABSENT=1)
    (edit,) = constants_of_modules(codes, theirs)
    assert edit.text == "`STD` is `(0.2, 0.5)` in place of `[0.25, 0.5]`, line 2 of of_port.py"
    assert edit.to_json() == {"before": "STD = (0.2, 0.5)", "after": "STD = [0.25, 0.5]"}
    assert edit.lines_of_port == [("of_port.py", 2, 2)]
    assert port.shifted(1.0) == pytest.approx(3.0)
    with edited(edit):
        assert port.shifted(1.0) == pytest.approx(2.95)
        assert port.STD == (0.25, 0.5)  # a tuple stays one
    assert port.shifted(1.0) == pytest.approx(3.0)


def test_a_constant_of_another_module_is_told_where_it_is_read(tmp_path: Path) -> None:
    port = module(tmp_path, "reading", "def scaled(x):\n    return x * RATE\n")
    port.RATE = 0.5  # type: ignore[attr-defined]
    (edit,) = constants_of_modules(functions_of(lambda: port.scaled(1.0)), described(RATE=0.1))
    assert edit.text == "`RATE` is another value in place of `0.1`, line 2 of reading.py"
    assert edit.to_json() == {"before": "RATE", "after": "0.1"}


def test_a_line_that_reads_another_constant_says_so(tmp_path: Path) -> None:
    ours = functions_of(lambda: module(tmp_path, "ours", TEXT.replace("(0.2, 0.5)", "(0.2, 0.6)")).scaled(1.0))[-1]
    theirs = functions_of(lambda: module(tmp_path, "theirs", TEXT).scaled(1.0))[-1]
    ours.globals = {"STD": ["literal", "(0.2, 0.6)"], "RATE": ["value", 0.1]}  # type: ignore[misc]
    old, new = theirs.tree.body[0], ours.tree.body[0]
    said = Difference(theirs, ours, (0, "instead"), old, new).text
    assert said.endswith(", where `STD` is `(0.2, 0.6)` in place of `(0.2, 0.5)`")


@pytest.mark.parametrize(
    ("ours", "theirs", "other"),
    [
        (1.0, 1.5, True),
        ((1, 2), [1, 2], False),
        ((1, 2), (1, 3), True),
        ({"a": (1,)}, {"a": (2,)}, True),
        ({"a": 1}, {"b": 1}, False),  # one is not the other's
        ("port", "reference", True),
        (len, max, False),
    ],
)
def test_which_plain_values_differ(ours: Any, theirs: Any, other: bool) -> None:
    assert differ(ours, theirs) is other
