"""Which lines of the user's code build a model's layers."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import paddle

from twinalign.patching import replaced


@contextlib.contextmanager
def layers_built(note: Callable[[Any, FrameType], None]) -> Iterator[None]:
    """Inside the block `note` is called with each new layer and the frame outside its own constructors."""
    built = paddle.nn.Layer.__init__

    def init(self: Any, *arguments: Any, **keywords: Any) -> None:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_name == "__init__" and frame.f_locals.get("self") is self:
            frame = frame.f_back
        if frame is not None:
            note(self, frame)
        built(self, *arguments, **keywords)

    with replaced(paddle.nn.Layer, "__init__", init):
        yield


def function_named(name: str) -> Any:
    """A function or class by its path in paddle, `nn.functional.gelu` for example; None where there is none."""
    found: Any = paddle
    for part in name.split("."):
        found = getattr(found, part, None)
    return found
