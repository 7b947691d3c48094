"""Facts about a difference that name a cause at once: permutation, transpose, factor, offset, shift."""

from __future__ import annotations

from typing import Any

import numpy as np


def describe_difference(reference: np.ndarray, reproduced: np.ndarray) -> list[dict[str, Any]]:
    """Findings, each `{"id", "text", ...}`, the most specific first; empty where nothing simple explains it."""
    return []
