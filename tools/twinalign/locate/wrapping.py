"""Stand between a model and its layers: every call of every layer passes through one function."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Around = Callable[[str, Any, Callable[..., Any], tuple, dict], Any]
"""`around(path, layer, forward, arguments, keywords)` returns what the call is to return."""


@contextlib.contextmanager
def wrapped(layers: Iterable[tuple[str, Any]], around: Around) -> Iterator[None]:
    """Let every call of these layers go through `around` inside the block, keywords and direct `forward` calls too.

    An attribute `forward` of the layer object hides that of its class in both frameworks; hooks see positional
    arguments only in paddle, and cannot be told which call they belong to.
    """
    layers = list(layers)
    before = [vars(layer).get("forward") for _, layer in layers]
    for path, layer in layers:
        object.__setattr__(layer, "forward", _through(path, layer, layer.forward, around))
    try:
        yield
    finally:
        for (_, layer), own in zip(layers, before, strict=True):
            if own is None:
                object.__delattr__(layer, "forward")
            else:
                object.__setattr__(layer, "forward", own)


def _through(path: str, layer: Any, forward: Callable[..., Any], around: Around) -> Callable[..., Any]:
    @functools.wraps(forward)
    def call(*arguments: Any, **keywords: Any) -> Any:
        return around(path, layer, forward, arguments, keywords)

    return call
