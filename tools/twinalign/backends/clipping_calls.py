"""Calls of a framework's functions that clip gradients, whose first arguments are the parameters and the limit."""

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from twinalign.patching import replaced_everywhere


def watching_calls(
    kind: str,
    original: Callable[..., Any],
    is_tensor: Callable[[Any], bool],
    before: Callable[[str, float], None],
    after: Callable[[Any, Any], None],
) -> AbstractContextManager[None]:
    """Inside the block `before` gets the kind and the limit of each call, and `after` what it returns and None."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def clip(*arguments: Any, **keywords: Any) -> Any:
        given = signature.bind(*arguments, **keywords)
        parameters, limit = list(given.arguments)[:2]  # the limit is `max_norm` or `clip_value`
        tensors = given.arguments[parameters]
        given.arguments[parameters] = [tensors] if is_tensor(tensors) else list(tensors)
        before(kind, float(given.arguments[limit]))
        result = original(*given.args, **given.kwargs)
        after(result, None)
        return result

    return replaced_everywhere(original, clip)
