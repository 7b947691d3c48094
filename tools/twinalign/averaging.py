"""How models that average themselves over time (a momentum encoder, a teacher) do so: the method that moves them."""

from __future__ import annotations

import re
from typing import Any

_AVERAGING = re.compile(
    r"(update|move|copy|sync).*(momentum|ema|teacher|target|key)|(momentum|ema|teacher|key).*update"
)


def averaging_method(model: Any) -> str | None:
    """Name of a method that moves a momentum encoder (or teacher, or target) by a factor that it is given."""
    for name in dir(type(model)):
        if _AVERAGING.search(name.lower()) and callable(getattr(type(model), name)):
            return name
    return None
