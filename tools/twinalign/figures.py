"""Numbers as they are shown."""

from __future__ import annotations

from typing import Any


def figure(value: Any) -> str:
    """A number in three digits, other values as they are, nothing for None."""
    if value is None:
        return "–"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
