"""An edit inside of a function is told by what all calls of the reference's function return."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from twinalign.replay import function_edits
from twinalign.replay.lines_of_components import lines_of_component
from twinalign.replay.port_lines import LinesVariant
from twinalign.replay.running_functions import functions_of
from twinalign.replay.whole_functions import functions_as_wholes


@pytest.fixture(autouse=True)
def untraced() -> Iterator[None]:
    """Another test of this process may have left a trace function, under which no functions are noted."""
    before = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(before)


ROWS = ([1.0, 4.0, 2.0], [3.0, 9.0], [5.0, 1.0, 7.0])
OURS = """
def width_of(row):
    low, high = min(row), max(row)
    return {"width": float(high - low), "total": float(sum(row) - low)}
""".strip()


def spread(row: list[float]) -> dict[str, float]:
    ordered = sorted(row)
    return {"width": ordered[-1] - ordered[0], "total": float(np.sum(ordered))}


class Net:
    def forward(self, row: list[float]) -> list[float]:
        return [value * 1.0 for value in row]


def run(variant: LinesVariant | None = None, moved: float = 0.0) -> dict[str, np.ndarray]:
    if variant is not None:
        with variant.apply():
            return run()
    found = [spread(Net().forward(row)) for row in ROWS]
    return {name: np.array([one[name] for one in found]) for name in found[0]}


def function(name: str, source: str) -> dict[str, Any]:
    return {"file": "port.py", "line": 1, "name": name, "source": source, "globals": {}}


def gives_port(variant: LinesVariant) -> bool:
    wrong = [sum(row) - min(row) for row in ROWS]
    return bool(np.array_equal(run(variant)["total"], wrong))


def test_calls_that_come_when_the_time_is_over_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call returns one wrong value, which alone would tell nothing."""
    clock, edits = [0.0], function_edits._Calls._edits

    def until_the_end(*given: Any) -> Iterator[Any]:
        yield from edits(*given)
        clock[0] = 100.0

    monkeypatch.setattr(function_edits._Calls, "_edits", until_the_end)
    monkeypatch.setattr("time.process_time", lambda: clock[0])
    (found,) = functions_as_wholes([function("width_of", OURS)], functions_of(run), gives_port, run)
    assert found.edit is not None
    assert found.edit.text.startswith("`sum(row) - low` in place of `sum(row)`")


def test_lines_of_layers_come_last() -> None:
    """A layer is searched by itself, and has more lines than what is called with its results."""
    layer = "def forward(self, row):\n    return [value * 2.0 for value in row]"
    ours = "def spread(row):\n    ordered = sorted(row)\n    return {'width': ordered[-1] - ordered[1]}"
    functions = [function("Net.forward", layer), function("spread", ours)]
    found = list(lines_of_component(functions, functions_of(run), run, run, lambda variant: False))
    assert [one.lines[0].theirs.name for one in found][:2] == ["spread", "Net.forward"]


PRE_EMPHASIS = """
def load_wave(wave):
    moved = np.append(wave[0], wave[:-1] - np.float32(0.97) * wave[1:])
    return ((moved - moved.mean()) * (1.0 / np.sqrt(moved.var() + 1e-5))).astype("float32")
""".strip()
WAVES = [np.random.default_rng(seed).standard_normal(200).astype(np.float32) for seed in range(3)]


def normalise(wave: np.ndarray) -> np.ndarray:
    moved = np.concatenate([wave[:1], wave[1:] - np.float32(0.97) * wave[:-1]])
    return ((moved - np.mean(moved)) / np.sqrt(np.var(moved) + 1e-5)).astype(np.float32)


def test_an_edit_may_leave_what_rounding_to_float32_makes() -> None:
    """Both forms of the normalisation round otherwise."""
    wrong = [wave.copy() for wave in WAVES]

    def waves(variant: LinesVariant | None = None, moved: float = 0.0) -> dict[str, np.ndarray]:
        if variant is not None:
            with variant.apply():
                return waves()
        return {str(number): normalise(wave).astype(np.float64) for number, wave in enumerate(wrong)}

    theirs = functions_of(waves)
    own = function("load_wave", PRE_EMPHASIS) | {"globals": {"np": ["name", "numpy"]}}
    (found,) = functions_as_wholes([own], theirs, lambda variant: True, waves)
    assert found.edit is not None
    assert "`wave[1:] - np.float32(0.97) * wave[:-1]`, line 2 of port.py" in found.edit.text
