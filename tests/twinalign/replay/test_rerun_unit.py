"""A unit of the reference that runs again."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from twinalign.replay import rerun_unit
from twinalign.replay.rerun_unit import PERTURBATION, RerunUnit


class _RunsError(Exception):
    pass


def test_whether_all_is_whole_numbers_is_asked_only_where_noise_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def is_whole(array: np.ndarray) -> bool:
        asked.append(array)
        return False

    def runs(*given: Any) -> Any:
        raise _RunsError

    monkeypatch.setattr(rerun_unit, "is_whole", is_whole)
    monkeypatch.setattr(rerun_unit, "_Children", runs)
    unit: Any = object.__new__(RerunUnit)
    unit._pass, unit.backend, unit._arrays = SimpleNamespace(run=None), None, {3: {"input.0": np.ones(2)}}
    call: Any = SimpleNamespace(number=3, inputs=[])
    with pytest.raises(_RunsError):
        unit._values_of(call, 0.0)
    assert not asked
    with pytest.raises(_RunsError):
        unit._values_of(call, PERTURBATION)
    assert len(asked) == 1


def test_more_than_the_reference_returns_is_no_run_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The outputs that are compared might all be right, and what is returned a nested tuple."""
    unit: Any = object.__new__(RerunUnit)
    backend = SimpleNamespace(
        is_tensor=lambda value: isinstance(value, np.ndarray),
        default_dtype=lambda dtype: contextlib.nullcontext(),
        named_layers=lambda root: [],
    )
    unit._pass, unit.backend, unit._arrays, unit._root = (
        SimpleNamespace(run=SimpleNamespace(dtype="")),
        backend,
        {3: {}},
        None,
    )
    monkeypatch.setattr(unit, "_state", lambda *given: contextlib.nullcontext(), raising=False)
    monkeypatch.setattr(rerun_unit, "_Children", lambda *given: SimpleNamespace(around=None, values={}))
    monkeypatch.setattr(unit, "_invoke", lambda *given: ((np.ones(1), np.ones(2)), np.ones(3)), raising=False)
    call: Any = SimpleNamespace(number=3, inputs=[], outputs=[1, 2])
    with pytest.raises(ValueError, match="3 tensors are returned in place of 2"):
        unit._values_of(call, 0.0)
