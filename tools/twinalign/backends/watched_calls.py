"""What both frameworks watch alike of a trainer: what it calls to take losses, to scale them and to clip gradients."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from twinalign.patching import replaced, replaced_everywhere


def removing(handles: Sequence[Any]) -> Callable[[], None]:
    """A function that removes these hooks."""

    def remove() -> None:
        for handle in handles:
            handle.remove()

    return remove


def watching_clips(
    kind: str,
    original: Callable[..., Any],
    is_tensor: Callable[[Any], bool],
    before: Callable[[str, float], None],
    after: Callable[[Any, Any], None],
) -> contextlib.AbstractContextManager[None]:
    """Inside the block `before` gets the kind and the limit of each call, and `after` what it returns and None.

    `original` is a function whose first arguments are the parameters and the limit.
    """
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


def watching_losses(
    original: Callable[..., Any], seen: Callable[[Any, Any, dict[str, Any]], Any]
) -> contextlib.AbstractContextManager[None]:
    """Inside the block `seen` gets what each call of a cross entropy is given; it may return other labels."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def cross_entropy(*arguments: Any, **keywords: Any) -> Any:
        given = signature.bind(*arguments, **keywords)
        given.apply_defaults()
        (_, logits), (of_labels, labels), *_ = given.arguments.items()
        known = ("ignore_index", "reduction", "label_smoothing")
        settings = {name: given.arguments[name] for name in known if name in given.arguments}
        fed = seen(logits, labels, {**settings, "axis": given.arguments.get("axis", min(1, logits.ndim - 1))})
        if fed is not None:
            given.arguments[of_labels] = fed
        return original(*given.args, **given.kwargs)

    return replaced_everywhere(original, cross_entropy)


def watching_scaler(
    kind: type, name: str, event: str, scale_of: Callable[[Any], float], seen: Callable[[str, float, Any], None]
) -> contextlib.AbstractContextManager[None]:
    """Inside the block `seen` is told before and after each call of a scaler's method: event, scale, first argument."""
    original = vars(kind)[name]

    @functools.wraps(original)
    def method(self: Any, given: Any, *arguments: Any, **keywords: Any) -> Any:
        scale = scale_of(self)
        seen(f"before {event}", scale, given)
        result = original(self, given, *arguments, **keywords)
        seen(f"after {event}", scale, given)
        return result

    return replaced(kind, name, method)
