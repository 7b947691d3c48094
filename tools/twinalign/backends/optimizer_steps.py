"""Watch or replace the steps of a framework's optimizers inside a block."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from twinalign.patching import family, replaced


@contextlib.contextmanager
def replacing_steps(
    base: type, replacement: Callable[[Callable[..., Any]], Callable[..., Any]], names: Sequence[str] = ("step",)
) -> Iterator[None]:
    """Inside the block, every optimizer class below `base` uses `replacement(step)` instead of its own `step`.

    `names`: of the methods to replace so.
    """
    with contextlib.ExitStack() as stack:
        for kind, name in itertools.product(family(base), names):
            if name in vars(kind):
                step: Any = replacement(vars(kind)[name])
                # torch's optimizers wrap their class's method once more when they are made, so that a profiler sees it,
                # unless it says that this has been done.
                step.hooked = True
                stack.enter_context(replaced(kind, name, step))
        yield


@contextlib.contextmanager
def watching_steps_of(
    base: type, before: Callable[[Any], None], after: Callable[[Any], None], names: Sequence[str] = ("step",)
) -> Iterator[None]:
    """Call `before(optimizer)` and `after(optimizer)` around every step of every optimizer of a class below `base`."""
    busy: set[int] = set()

    def watched(original: Callable[..., Any]) -> Callable[..., Any]:
        def step(self: Any, *arguments: Any, **keywords: Any) -> Any:
            if id(self) in busy:  # a class's step that calls the one it derives from
                return original(self, *arguments, **keywords)
            busy.add(id(self))
            try:
                before(self)
                result = original(self, *arguments, **keywords)
                after(self)
                return result
            finally:
                busy.discard(id(self))

        return step

    with replacing_steps(base, watched, names):
        yield
