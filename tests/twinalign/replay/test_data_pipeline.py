"""What the steps of `Case.preprocessing` return."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from twinalign.backends import load_backend
from twinalign.errors import InputError
from twinalign.replay.data_pipeline import record_steps


class Waves:
    def __init__(self, result: Any) -> None:
        self._result = result

    def preprocessing(self, framework: str, split: str, index: int) -> dict[str, Any]:
        return {"wave": [("load", lambda _: np.ones(3)), ("mask", lambda wave: self._result)]}


def recorded(result: Any, path: Path) -> np.ndarray:
    worker = SimpleNamespace(
        fresh_case=lambda stage: Waves(result), framework="torch", backend=load_backend("torch"), kept={}
    )
    record_steps(worker, split="train", indices=[2], path=str(path))
    with np.load(path) as stored:
        return np.array(stored["2.wave.1"])


def test_a_step_that_returns_one_array_is_recorded(tmp_path: Path) -> None:
    assert recorded(np.arange(4), tmp_path / "steps.npz").tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("result", [(np.ones(3), np.ones(5)), {"wave": np.ones(3)}])
def test_a_step_that_returns_several_is_the_users_mistake(result: Any, tmp_path: Path) -> None:
    kind = type(result).__name__
    message = (
        f"preprocessing of train, image 'wave', step 'mask' returns a {kind}; let each step return one Pillow image"
    )
    with pytest.raises(InputError, match=re.escape(message)):
        recorded(result, tmp_path / "steps.npz")
    assert not (tmp_path / "steps.npz").exists()
