"""Which setting each parameter has in the port, such as a learning rate or a decay of its own.

All parameters take a step with one value after the other. Where only a few values are possible, those that give the
port's step are known then; else each parameter's is read off, for all of them at once: what a parameter is after the
first step that differs depends on its own setting alone.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

Values = Mapping[str, float]
"""Of a setting, by the names of parameters."""
_TRIES, _EXACT = 12, 1e-8
_DIGITS, _ROUND = 4, 1e-5
"""A number that is so near to one of few digits is taken for it."""
MOST_VALUES = 8


def of_kinds(
    kinds: Mapping[str, Any], values: Iterable[float], refuted: Callable[[float], Iterable[str]]
) -> dict[Any, list[float]]:
    """Kind of parameters → the values with which none of its parameters steps otherwise than in the port.

    `refuted` says which do, where all have a value.
    """
    fitting: dict[Any, list[float]] = {kind: [] for kind in kinds.values()}
    for value in values:
        wrong = {kinds[name] for name in refuted(value)}
        for kind in fitting.keys() - wrong:
            fitting[kind].append(value)
    return fitting


def read_off(
    own: Values, wrong: Sequence[str], others: Sequence[float], left: Callable[[Values], Values], allowed: Values
) -> dict[str, float] | None:
    """The port's values of the parameters that are `wrong`; None if one of them has none.

    Args:
        own: the reference's values.
        others: values that are tried first.
        left: how far each parameter's size then is from the port's.
        allowed: how far it may be.
    """
    found: dict[str, float] = {}
    whole = left(own)
    for value in others:
        remaining = left({**own, **{name: value for name in wrong if name not in found}})
        found |= {
            n: value for n in wrong if n not in found and abs(remaining[n]) <= max(allowed[n], _EXACT * abs(whole[n]))
        }
    rest = [name for name in wrong if name not in found]
    fits = _by_secants({name: own[name] for name in rest}, {n: whole[n] for n in rest}, lambda v: left({**own, **v}))
    return None if rest and fits is None else {**found, **(fits or {})}


def _by_secants(own: Values, whole: Values, left: Callable[[Values], Values]) -> dict[str, float] | None:
    """The values that leave nothing (secant method for each parameter), all near the own ones."""
    before, now, last = dict(own), {name: 1.01 * value or 0.01 for name, value in own.items()}, dict(whole)
    for _ in range(_TRIES if own else 0):
        remaining = left(now)
        open_ones = [name for name in own if not abs(remaining[name]) <= _EXACT * abs(whole[name])]
        if not open_ones:
            return {name: _rounded(value) for name, value in now.items()}
        following = dict(now)
        for name in open_ones:
            slope = remaining[name] - last[name]
            if not math.isfinite(remaining[name]) or slope == 0.0:
                return None
            following[name] = now[name] - remaining[name] * (now[name] - before[name]) / slope
        before, now, last = now, following, {**last, **{name: remaining[name] for name in own}}
    return None


def _rounded(value: float) -> float:
    short = float(f"{value:.{_DIGITS}g}")
    return short if abs(short - value) <= _ROUND * abs(value) else value


def unseen_beside(own: Values, others: Values, kind: Callable[[str], Any]) -> Iterator[dict[str, float]]:
    """`others`, and these with all parameters that have their value and are of their kind, where these have one value.

    A decay moves no bias that is zero as yet, so that its first step does not tell.
    """
    yield dict(others)
    found: dict[Any, set[float]] = {}
    for name, value in others.items():
        found.setdefault((own[name], kind(name)), set()).add(value)
    one = {key: values.pop() for key, values in found.items() if len(values) == 1}
    more = {name: one[own[name], kind(name)] for name in own if (own[name], kind(name)) in one}
    if not more.keys() <= others.keys():
        yield {**more, **others}


def in_groups(own: Values, others: Values) -> dict[tuple[float, float], list[str]]:
    """The own value and the port's → the parameters that have them."""
    found: dict[tuple[float, float], list[str]] = {}
    for name in own:
        if name in others:
            found.setdefault((own[name], others[name]), []).append(name)
    return dict(sorted(found.items()))
