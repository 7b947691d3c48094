"""What a mistake in a metric does to all samples, and to the parts of them that are measured as well."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from twinalign.causes.metric.mistakes import _fewer


@pytest.mark.parametrize("rows", [6, 5, 3])
def test_the_last_sample_is_left_out_of_each_part_too(rows: int) -> None:
    subject: Any = SimpleNamespace(labels=np.arange(6))
    outputs, labels = _fewer(subject)["the last 1"]([np.arange(2.0 * rows).reshape(rows, 2)], np.arange(rows))
    assert labels.tolist() == list(range(rows - 1))
    assert len(outputs[0]) == rows - 1
