"""The learning-rate schedules of paddle's that the port makes, with the steps that are taken."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from paddle.optimizer import lr

from twinalign.patching import replaced


@dataclasses.dataclass
class MadeSchedule:
    """A schedule, as it was made and used.

    Attributes:
        kind: its class.
        arguments, keywords: what it was given.
        place: name of the file, and line, of the code that makes it.
        steps: the arguments of each of its steps; None where an optimizer makes one.
    """

    kind: type
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    place: tuple[str, int]
    steps: list[tuple[tuple[Any, ...], dict[str, Any]] | None] = dataclasses.field(default_factory=list)
    is_made: bool = False

    def rates(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> list[float]:
        """The rate at each step of an optimizer if the schedule were made of these arguments."""
        schedule, found = self.kind(*arguments, **keywords), []
        for step in self.steps:
            if step is None:
                found.append(float(schedule()))
            else:
                schedule.step(*step[0], **step[1])
        return found


@contextlib.contextmanager
def noting_schedules() -> Iterator[list[MadeSchedule]]:
    """Inside the block each schedule that is made is noted, with its steps."""
    made: list[MadeSchedule] = []
    known: dict[int, tuple[Any, MadeSchedule]] = {}

    def initializing(original: Callable[..., None], schedule: Any, *arguments: Any, **keywords: Any) -> None:
        if id(schedule) in known:  # a class calls the one that it extends
            return original(schedule, *arguments, **keywords)
        frame = sys._getframe(2)
        place = Path(frame.f_code.co_filename).name, frame.f_lineno
        made.append(one := MadeSchedule(type(schedule), arguments, keywords, place))
        known[id(schedule)] = schedule, one
        original(schedule, *arguments, **keywords)  # which makes a first step
        one.is_made = True

    def stepping(original: Callable[..., None], schedule: Any, *arguments: Any, **keywords: Any) -> None:
        one = known[id(schedule)][1] if id(schedule) in known else None
        if one is not None and one.is_made:
            one.steps.append((arguments, keywords))
        original(schedule, *arguments, **keywords)

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
