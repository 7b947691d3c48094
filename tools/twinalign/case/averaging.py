"""Find how models that average themselves over time (momentum encoder, teacher) update the average."""

import re
from typing import Any

_AVERAGING = re.compile(
    r"(update|move|copy|sync).*(momentum|ema|teacher|target|key)|(momentum|ema|teacher|key).*update"
)


def averaging_method(model: Any) -> str | None:
    """Name of the method that updates a momentum encoder (or teacher, or target), None without one."""
    for name in dir(type(model)):
        if _AVERAGING.search(name.lower()) and callable(getattr(type(model), name)):
            return name
    return None
