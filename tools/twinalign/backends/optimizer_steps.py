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
                stack.enter_context(replaced(kind, name, replacement(vars(kind)[name])))
        yield


@contextlib.contextmanager
def _at_once(optimizer: Any, before: Callable[[Any], None]) -> Iterator[None]:
    before(optimizer)
    yield


def watched(
    before: Callable[[Any], None],
    after: Callable[[Any], None],
    calling: Callable[[Any, Callable[[Any], None]], contextlib.AbstractContextManager[None]] = _at_once,
    inside: Callable[[Any], None] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What replaces a step so that `before(optimizer)` and `after(optimizer)` are called around it.

    `calling(optimizer, before)` is entered around the step, and calls `before` when it is time. `inside(optimizer)` is
    called where the step of a class calls that of the class from which it derives: by then it may have clipped.
    """
    busy: set[int] = set()

    def replacement(original: Callable[..., Any]) -> Callable[..., Any]:
        def step(self: Any, *arguments: Any, **keywords: Any) -> Any:
            if id(self) in busy:  # a class's step that calls the one it derives from
                if inside is not None:
                    inside(self)
                return original(self, *arguments, **keywords)
            busy.add(id(self))
            try:
                with calling(self, before):
                    result = original(self, *arguments, **keywords)
                after(self)
                return result
            finally:
                busy.discard(id(self))

        return step

    return replacement


def watching_steps_of(
    base: type,
    before: Callable[[Any], None],
    after: Callable[[Any], None],
    names: Sequence[str] = ("step",),
    inside: Callable[[Any], None] | None = None,
) -> contextlib.AbstractContextManager[None]:
    """Call `before(optimizer)` and `after(optimizer)` around every step of every optimizer of a class below `base`.

    `inside` as for `watched`.
    """
    return replacing_steps(base, watched(before, after, inside=inside), names)
