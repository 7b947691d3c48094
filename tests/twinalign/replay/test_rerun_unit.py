"""A unit of the reference that runs again."""

from __future__ import annotations

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
