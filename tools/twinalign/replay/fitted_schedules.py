"""The argument, given or left out, with which a schedule of paddle's gives the reference's learning rates.

A schedule needs no training: made anew with another value, it takes the steps that were noted.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from twinalign.replay.aligned_code import Code, last_part
from twinalign.replay.fitting import fitting_number
from twinalign.replay.helper_edits import HelperEdit
from twinalign.replay.small_edits import numbers_in, texts_in

_SAME = 1e-9
"""Relative difference of rates that rounding explains."""
_DIGITS = 6


def other_schedules(
    run: Callable[[Callable[[], None]], Any], right: np.ndarray, codes: Sequence[Code], theirs: Sequence[ast.AST]
) -> Iterator[HelperEdit]:
    """Edits of one argument that a schedule is made of, or of one more, with which it gives the rates that are `right`.

    Args:
        run: runs what makes the port's schedules, and calls what it is given wherever a rate is used.
        codes: the port's functions.
        theirs: the reference's code, of which numbers may be meant.
    """
    from twinalign.backends.paddle.port_only.schedules import noting_schedules

    with noting_schedules() as made:

        def used() -> None:
            for one in made:
                one.steps.append(None)

        run(used)
    written = [node for tree in (*theirs, *(code.tree for code in codes)) for node in ast.walk(tree)]
    meant = [*numbers_in(written), *texts_in(written)]
    for one in made:
        code, call = _call_of(one, codes)
        outermost = one
        while outer := next((other for other in made if other.holds(outermost)), None):
            outermost = outer
        given: list[tuple[int | str, Any]] = [*enumerate(one.arguments), *one.keywords.items(), *_left_out(one)]
        for key, value in given if call is not None else ():
            old = _argument(call, key)
            if old is None and key in one.keywords:
                continue
            with contextlib.suppress(Exception):  # a schedule may refuse a number
                for other in _fitting(_Argument(outermost, one, key), value, right, meant):
                    new = ast.parse(repr(other), mode="eval").body
                    if old is None:
                        new = ast.Call(call.func, call.args, [*call.keywords, ast.keyword(str(key), new)])
                    place = call if old is None else old
                    yield HelperEdit(code, place, ast.fix_missing_locations(ast.copy_location(new, place)))


def _left_out(schedule: Any) -> Iterator[tuple[str, Any]]:
    """The parameters that a schedule is not given, and their defaults."""
    parameters = list(inspect.signature(schedule.kind).parameters.values())[len(schedule.arguments) :]
    lacking = (one for one in parameters if one.name not in schedule.keywords)
    yield from ((one.name, one.default) for one in lacking if isinstance(one.default, (bool, int, float, str)))


@dataclasses.dataclass
class _Argument:
    """An argument, by its place or name, of a schedule that stands inside of the `outermost` one, or is it."""

    outermost: Any
    schedule: Any
    key: int | str

    def rates(self, value: Any) -> np.ndarray:
        """The rates with another value."""
        arguments = [value if at == self.key else given for at, given in enumerate(self.schedule.arguments)]
        keywords = {**self.schedule.keywords, **({self.key: value} if isinstance(self.key, str) else {})}
        other = dataclasses.replace(self.schedule, arguments=arguments, keywords=keywords)
        return np.asarray(self.outermost.rates(self.schedule, other))


def _call_of(one: Any, codes: Sequence[Code]) -> tuple[Any, Any]:
    """The function, and the call in it, that has made a schedule."""
    file, line = one.place
    for code in codes:
        for call in code.calls if code.file == file else ():
            named = last_part(ast.unparse(call.func)) == one.kind.__name__
            if named and call.lineno <= line <= (call.end_lineno or call.lineno):
                return code, call
    return None, None


def _argument(call: ast.Call, key: int | str) -> ast.expr | None:
    if isinstance(key, str):
        return next((one.value for one in call.keywords if one.arg == key), None)
    plain = not any(isinstance(one, ast.Starred) for one in call.args)
    return call.args[key] if plain and key < len(call.args) else None


def _fitting(argument: _Argument, value: Any, right: np.ndarray, meant: Sequence[Any]) -> Iterator[Any]:
    """Values, with numbers in few digits, with which the schedule gives the right rates."""

    def apart(other: Any) -> np.ndarray:
        rates = argument.rates(other)
        return rates[: len(right)] - right[: len(rates)]

    for other in _likely(value, apart, meant, len(right)):
        with contextlib.suppress(Exception):
            if other != value and np.abs(apart(other)).max(initial=0.0) <= _SAME * np.abs(right).max(initial=0.0):
                yield other


def _likely(value: Any, apart: Callable[[Any], np.ndarray], known: Sequence[Any], steps: int) -> Iterator[Any]:
    """What may be meant in place of a value: a number, a text, or a list of numbers with one of them, or all, moved.

    `known`: numbers and texts.
    """
    numbers = [one for one in known if not isinstance(one, str)]
    whole = [int(number) for number in numbers if number == int(number)]
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1, value * 2, value // 2, value * 10, value // 10, *whole)
    elif isinstance(value, float):
        found = fitting_number(apart, value)
        if found is not None and np.isfinite(found):
            yield float(f"{found:.{_DIGITS}g}")
        yield from filter(None, numbers)
    elif isinstance(value, str):
        yield from dict.fromkeys(one for one in known if isinstance(one, str))
    elif isinstance(value, (list, tuple)):
        values = list(value)
        if all(type(one) is int for one in values):
            yield from ([one + number for one in values] for number in (-1, 1, *whole, *(-number for number in whole)))

        def with_one(at: int, other: Any) -> list[Any]:
            return [*values[:at], other, *values[at + 1 :]]

        for at, one in enumerate(values):
            apart_of = functools.partial(lambda at, other: apart(with_one(at, other)), at)
            meant = _likely(one, apart_of, known, steps) if isinstance(one, (int, float)) else ()
            every = range(steps + 1) if isinstance(one, int) else ()
            yield from (with_one(at, other) for other in (*meant, *every))
