"""The learning-rate schedules of paddle's that the port makes, with the steps that are taken."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from paddle.optimizer import lr

from twinalign.patching import replaced


@dataclasses.dataclass(eq=False)
class MadeSchedule:
    """A schedule, as it was made and used.

    Attributes:
        kind: its class.
        arguments, keywords: what it was given; a schedule inside of it, as behind a warm-up, as one of these.
        place: name of the file, and line, of the code that makes it.
        steps: the arguments of each of its steps; None where its rate is used.
    """

    kind: type
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    place: tuple[str, int]
    steps: list[tuple[tuple[Any, ...], dict[str, Any]] | None] = dataclasses.field(default_factory=list)
    is_made: bool = False

    def holds(self, other: MadeSchedule) -> bool:
        return any(value is other for value in (*self.arguments, *self.keywords.values()))

    def rates(self, one: MadeSchedule, other: MadeSchedule) -> list[float]:
        """The rate wherever it is used if `other` were made in place of `one`: of this one, or of one inside of it."""
        schedule, found = self._made(one, other), []
        for step in self.steps:
            if step is None:
                found.append(float(schedule()))
            else:
                schedule.step(*step[0], **step[1])
        return found

    def _made(self, one: MadeSchedule, other: MadeSchedule) -> Any:
        def again(value: Any) -> Any:
            return value._made(one, other) if isinstance(value, MadeSchedule) else value

        is_now = other if self is one else self
        return self.kind(*map(again, is_now.arguments), **{key: again(value) for key, value in is_now.keywords.items()})


@contextlib.contextmanager
def noting_schedules() -> Iterator[list[MadeSchedule]]:
    """Inside the block each schedule that is made is noted, with its steps."""
    made: list[MadeSchedule] = []
    known: dict[int, tuple[Any, MadeSchedule]] = {}

    def noted(value: Any) -> Any:
        return known[id(value)][1] if id(value) in known else value

    def initializing(original: Callable[..., None], schedule: Any, *arguments: Any, **keywords: Any) -> None:
        if id(schedule) in known:  # a class calls the one that it extends
            return original(schedule, *arguments, **keywords)
        frame = sys._getframe(2)
        place = Path(frame.f_code.co_filename).name, frame.f_lineno
        given = tuple(map(noted, arguments)), {key: noted(value) for key, value in keywords.items()}
        made.append(one := MadeSchedule(type(schedule), *given, place))
        known[id(schedule)] = schedule, one
        original(schedule, *arguments, **keywords)  # which makes a first step
        one.is_made = True

    def stepping(original: Callable[..., None], schedule: Any, *arguments: Any, **keywords: Any) -> None:
        original(schedule, *arguments, **keywords)  # which may refuse a step behind its last one
        one = known[id(schedule)][1] if id(schedule) in known else None
        if one is not None and one.is_made:
            one.steps.append((arguments, keywords))

    with contextlib.ExitStack() as stack:
        for kind in _kinds(lr.LRScheduler):
            if "__init__" in vars(kind):
                stack.enter_context(replaced(kind, "__init__", _method(initializing, vars(kind)["__init__"])))
        stack.enter_context(replaced(lr.LRScheduler, "step", _method(stepping, lr.LRScheduler.step)))
        yield made


def _kinds(kind: type) -> Iterator[type]:
    yield kind
    extending: list[type] = kind.__subclasses__()
    for one in extending:
        yield from _kinds(one)


def _method(around: Callable[..., None], original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def method(schedule: Any, *arguments: Any, **keywords: Any) -> None:
        around(original, schedule, *arguments, **keywords)

    return method
