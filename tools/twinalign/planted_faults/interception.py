"""Functions of paddle that are replaced while chosen layers run code of their own, and while a block runs."""

import contextlib
import functools
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from twinalign.patching import replaced

FUNCTIONS: Mapping[str, Sequence[str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
"""Name of a function in the catalogue → the attributes of paddle by which code can call it."""

Replacement = Callable[..., Any]
"""`replacement(original, *arguments, **keywords)` returns what the call is to return."""


class Interception:
    """Knows which layer's own code is running, and passes the calls that it makes through a replacement."""

    def __init__(self, paddle: Any) -> None:
        """Intercept functions of the given paddle module."""
        self._paddle = paddle
        self._running: list[Any] = []
        self._inside = False

    def follow(self, layers: Iterable[tuple[Any, Any]]) -> None:
        """Note whenever one of these `(mark, layer)` runs; the mark is what `intercepted` asks for."""
        for mark, layer in layers:
            self.around(layer, functools.partial(self._run, mark))

    @staticmethod
    def around(layer: Any, replacement: Replacement) -> None:
        """Replace the `forward` of one layer object."""
        original = layer.forward

        @functools.wraps(original)
        def forward(*arguments: Any, **keywords: Any) -> Any:
            return replacement(original, *arguments, **keywords)

        object.__setattr__(layer, "forward", forward)

    def _run(self, mark: Any, original: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        self._running.append(mark)
        try:
            return original(*arguments, **keywords)
        finally:
            self._running.pop()

    @property
    def running(self) -> Any:
        """The mark of the followed layer whose own code runs, None outside of all of them."""
        return self._running[-1] if self._running else None

    @contextlib.contextmanager
    def intercepted(
        self, names: Iterable[str], replacement: Callable[..., Any], always: bool = False
    ) -> Iterator[None]:
        """Let `replacement(name, original, *arguments, **keywords)` take the calls of followed layers' own code.

        With `always` it takes those of everybody. What the replacement itself calls is the original.
        """
        with contextlib.ExitStack() as stack:
            for name in names:
                for path in FUNCTIONS[name]:
                    *steps, attribute = path.split(".")
                    owner = functools.reduce(getattr, steps, self._paddle)
                    original = getattr(owner, attribute, None)
                    if original is not None:
                        caught = self._caught(name, original, replacement, always)
                        stack.enter_context(replaced(owner, attribute, caught))
            yield

    def _caught(
        self, name: str, original: Callable[..., Any], replacement: Callable[..., Any], always: bool
    ) -> Callable[..., Any]:
        # A function, and not a partial: it is to bind as a method of Tensor.
        @functools.wraps(original)
        def call(*arguments: Any, **keywords: Any) -> Any:
            if self._inside or not (always or self.running):
                return original(*arguments, **keywords)
            self._inside = True
            try:
                return replacement(name, original, *arguments, **keywords)
            finally:
                self._inside = False

        return call
