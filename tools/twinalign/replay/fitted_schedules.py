"""The number with which a schedule of paddle's gives the reference's learning rates.

A schedule needs no training: made anew with another number, it takes the steps that were noted.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from twinalign.replay.aligned_code import Code, last_part
from twinalign.replay.fitting import fitting_number
from twinalign.replay.helper_edits import HelperEdit
from twinalign.replay.small_edits import numbers_in

_SAME = 1e-9
"""Relative difference of rates that rounding explains."""
_DIGITS = 6


def other_schedules(
    worker: Any, run: Callable[[], Any], right: np.ndarray, codes: Sequence[Code], theirs: Sequence[ast.AST]
) -> Iterator[HelperEdit]:
    """Edits of one number that a schedule is made of, with which it gives the rates that are `right`.

    Args:
        worker: of the port's process.
        run: runs the port's training.
        codes: the port's functions.
        theirs: the reference's code, of which numbers may be meant.
    """
    from twinalign.backends.paddle.port_only.schedules import noting_schedules

    with noting_schedules() as made:

        def stepped(optimizer: Any) -> None:
            for one in made:
                one.steps.append(None)

        with worker.backend.watching_steps(stepped, lambda optimizer: None):
            run()
    numbers = numbers_in([node for tree in theirs for node in ast.walk(tree)])
    for one in made:
        code, call = _call_of(one, codes)
        given: list[tuple[int | str, Any]] = [*enumerate(one.arguments), *one.keywords.items()]
        for key, value in given if call is not None else ():
            old = _argument(call, key)
            if old is None or isinstance(value, bool) or not isinstance(value, (int, float)):
                continue
            with contextlib.suppress(Exception):  # a schedule may refuse a number
                for other in _fitting(one, key, value, right, numbers):
                    yield HelperEdit(code, old, ast.copy_location(ast.Constant(other), old))


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


def _fitting(one: Any, key: int | str, value: float, right: np.ndarray, numbers: Sequence[float]) -> Iterator[float]:
    """Numbers with which the schedule gives the right rates, in few digits."""

    def apart(other: float) -> np.ndarray:
        arguments = [other if at == key else given for at, given in enumerate(one.arguments)]
        keywords = {**one.keywords, **({key: other} if isinstance(key, str) else {})}
        rates = np.asarray(one.rates(arguments, keywords))
        return rates[: len(right)] - right[: len(rates)]

    likely: list[float]
    if isinstance(value, int):
        likely = [value + 1, value - 1, value * 2, value // 2, value * 10, value // 10]
        likely += [int(number) for number in numbers if number == int(number)]
    else:
        found = fitting_number(apart, value)
        likely = [float(f"{found:.{_DIGITS}g}")] if found is not None and np.isfinite(found) else []
        likely += [number for number in numbers if number]
    for other in dict.fromkeys(likely):
        with contextlib.suppress(Exception):
            if other != value and np.abs(apart(other)).max(initial=0.0) <= _SAME * np.abs(right).max(initial=0.0):
                yield other
