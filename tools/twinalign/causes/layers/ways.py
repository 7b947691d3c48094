"""Other ways to make a call: other numbers, switches and axes in its arguments, something done to what it is given.

Each function here makes what a row of `enter_edits` says of its calls.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twinalign.backends.torch.reference_only.operations import FunctionCall, Site
from twinalign.causes.layers.changed_calls import Changes, Ways, changing
from twinalign.causes.layers.subject import LayerSubject

FLOAT32 = {"float32_constants": True}
"""Field of a cause about a number that paddle may keep in float32."""


def number(argument: str, default: float, *usual: float, words: Sequence[str] = (), kind: type = float) -> Ways:
    """Another number: the port's own, which its attributes call by one of the `words`, then `usual` ones."""

    def ways(site: Site, subject: LayerSubject) -> Changes:
        current = site.get(argument, default)
        if isinstance(current, (int, float)):
            for value in subject.candidates(words or (argument,), usual, current):
                yield f"{value:g} in place of {current:g}", changing(**{argument: kind(value)})

    return ways


def small_number(argument: str, default: float, *usual: float, words: Sequence[str]) -> Ways:
    """Another small number that guards a division or a root, in an argument or in a formula that is written out."""

    def ways(site: Site, subject: LayerSubject) -> Changes:
        written = {"add": "other", "clamp": "min", "clamp_min": "min"}.get(site.name)
        small = isinstance(value := site.get(written or argument), float) and 0.0 < value < 1e-2
        if written is None or small:
            yield from number(written or argument, default, *usual, words=words)(site, subject)

    return ways


def switch(argument: str, default: bool, on: str = "", off: str = "", modes: Sequence[str] = ()) -> Ways:
    """The other setting of a switch, if the call is in one of these modes."""

    def ways(site: Site, subject: LayerSubject) -> Changes:
        now = bool(site.get(argument, default))
        if not modes or site.get("mode", "nearest") in modes:
            yield (off if now else on) or f"{argument} {not now} in place of {now}", changing(**{argument: not now})

    return ways


def choice(argument: str, default: Any, *values: Any, text: str = "{} in place of {}") -> Ways:
    """Another one of these values."""

    def ways(site: Site, subject: LayerSubject) -> Changes:
        current = site.get(argument, default)
        yield from ((text.format(v, current), changing(**{argument: v})) for v in values if v != current)

    return ways


def other_axis(of_rank: Callable[[int], int | None], named: bool = False) -> Ways:
    """Another axis, the last first; `of_rank` is where the function, which is `named` or not, runs by default."""

    def ways(site: Site, subject: LayerSubject) -> Changes:
        argument = "dims" if site.name == "flip" else "dim"
        rank = len(site.shape() or site.shape("x1") or site.output.shape)
        given = site.get(argument, of_rank(rank))
        now = given[0] if isinstance(given, Sequence) and len(given) == 1 else given
        for other in reversed(range(rank)) if isinstance(now, int) else ():
            if other != now % rank:
                of = f" ({site.name})" if named else ""
                yield f"{other} in place of {now % rank}{of}", changing(**{argument: other})

    return ways


def given(argument: str, changes: Mapping[str, Callable[[Any], Any]]) -> Ways:
    """Something done to what the call is given first."""

    def change(call: FunctionCall, of: Callable[[Any], Any]) -> Any:
        return call.run(**{argument: of(call[argument])})

    def ways(site: Site, subject: LayerSubject) -> Changes:
        if site.tensor(argument):
            yield from ((detail, functools.partial(change, of=of)) for detail, of in changes.items())

    return ways


def made(changes: Mapping[str, Any], where: Callable[[Site], object] = lambda site: True) -> Ways:
    """The call made in other ways, where it is such a call."""
    return lambda site, subject: changes.items() if where(site) else ()


def taken_for_input(call: FunctionCall) -> Any:
    """The call is left out: what it is given is what it returns."""
    return call["input"]
