"""Gradients that a search for causes asks for again and again."""

from __future__ import annotations

import numpy as np
import pytest

from twinalign.case.moved_values import scaled_by_pattern
from twinalign.replay import optimizer
from twinalign.replay.optimizer import GradientsOfSteps


class Counted(dict[str, np.ndarray]):
    read = 0

    def __getitem__(self, name: str) -> np.ndarray:
        self.read += 1
        return super().__getitem__(name)


def test_each_step_is_read_once_and_as_it_is() -> None:
    given = Counted({"a": np.arange(6, dtype="float32").reshape(2, 3)})
    gradients = GradientsOfSteps(given)
    for step in (0, 1, 1, 0):
        assert np.array_equal(gradients.of_step("a", step), scaled_by_pattern(given.get("a"), step))
    assert given.read == 2
    assert set(gradients) == {"a"}
    assert "b" not in gradients


def test_nobody_can_change_what_is_kept() -> None:
    gradients = GradientsOfSteps({"a": np.ones(3)})
    with pytest.raises(ValueError, match="read-only"):
        gradients.of_step("a", 0)[:] = 2


def test_large_ones_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizer, "_SMALL", 2)
    given = Counted({"a": np.ones(3)})
    gradients = GradientsOfSteps(given)
    for _ in range(2):
        gradients.of_step("a", 0)
    assert given.read == 2


def test_a_single_number_is_scaled_as_well() -> None:
    found = GradientsOfSteps({"scale": np.array(2.0, np.float32)}).of_step("scale", 1)
    assert found == 2.0 * (0.75 + 0.75 * np.sin(1))
    assert isinstance(found, np.ndarray)
    assert not found.flags.writeable
