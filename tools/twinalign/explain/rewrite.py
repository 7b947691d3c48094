"""Base classes of hypotheses that change how a unit's calls are made; a subclass says which calls, and how."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from twinalign.explain.calls import Call, Change, Site
from twinalign.explain.registry import Hypothesis
from twinalign.explain.subject import CallVariant, LayerSubject

SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "matmul": "@", "pow": "**"}
"""Operators, by the names of their calls."""
MOST_SITES = 24
"""A hypothesis tries each place alone only where there are no more than this many (loops over time steps)."""


class Rewrite(Hypothesis):
    """A hypothesis about the calls of some functions.

    A subclass gives `functions` and `ways`, or `changes` where the ways depend on the call. Where a unit makes several
    such calls, a change is tried in all of them at once and in each alone. A change that cannot run is passed over, so
    it need not ask whether it fits.

    Attributes:
        functions: names of the functions concerned.
        together: whether calls of different functions are changed at once, too.
        ways: other ways to make such a call, by the detail for the text.
    """

    functions: ClassVar[tuple[str, ...]] = ()
    together: ClassVar[bool] = False
    ways: ClassVar[Mapping[str, Change]] = types.MappingProxyType({})

    def changes(self, site: Site, subject: LayerSubject) -> Iterable[tuple[str, Change]]:
        """Pairs of a detail for the text and another way to make the call at `site`; `ways`, unless overridden."""
        return self.ways.items()

    def sites(self, subject: LayerSubject) -> list[Site]:
        """The calls that can be meant."""
        return subject.named(*self.functions)

    def variants(self, subject: LayerSubject) -> Iterator[CallVariant]:
        """All places at once, then each alone."""
        sites = self.sites(subject)
        alone: dict[tuple[str, str], list[tuple[Site, Change]]] = {}
        for site in sites:
            for detail, change in self.changes(site, subject):
                kind = "" if self.together else site.name
                alone.setdefault((detail, kind), []).append((site, change))
        for (detail, _), places in alone.items():
            yield subject.variant(detail, {site.key: change for site, change in places})
        for (detail, _), places in alone.items():
            if 1 < len(places) <= MOST_SITES:
                for site, change in places:
                    yield subject.variant(joined(detail, place_of(site, sites)), {site.key: change})


class Constant(Rewrite):
    """A hypothesis that a numeric argument has another value in the port.

    Attributes:
        argument: name of the argument.
        default: its value where the call leaves it out.
        words: names of the port's attributes that hold it.
        usual: values that it often has, tried after the port's own.
    """

    float32_constants = True
    argument: ClassVar[str]
    default: ClassVar[float] = 0.0
    words: ClassVar[tuple[str, ...]] = ()
    usual: ClassVar[tuple[float, ...]] = ()

    def changes(self, site: Site, subject: LayerSubject) -> Iterator[tuple[str, Change]]:
        """One for each candidate."""
        current = site.get(self.argument, self.default)
        if not isinstance(current, (int, float)):
            return
        for value in subject.candidates(self.words, self.usual, current):
            yield f"{value:g} in place of {current:g}", changing(**{self.argument: value})


def any_of(ways: Mapping[str, Change]) -> Mapping[str, Change]:
    """Ways to make a call, by detail, for a class's `ways`."""
    return types.MappingProxyType(dict(ways))


def changing(**arguments: Any) -> Change:
    """The change that makes a call with other values of some arguments."""

    def change(call: Call) -> Any:
        return call.run(**arguments)

    return change


def stored(change_values: Any) -> Any:
    """Turn a function of a tensor into one that changes its values but not how gradients reach it.

    A parameter whose stored values are wrong still gets its gradient in its own place; one that is used in another
    way passes the gradient through that use.
    """

    def changed(tensor: Any) -> Any:
        return tensor + (change_values(tensor) - tensor).detach()

    return changed


def joined(*parts: str) -> str:
    """The non-empty parts, separated by commas."""
    return ", ".join(part for part in parts if part)


def place_of(site: Site, sites: list[Site]) -> str:
    """Words for one of several places: the child's path, or which of the calls in a line of the reference."""
    if "path" in site.arguments:
        return f"after {site.arguments['path'] or 'all'}"
    same = [other for other in sites if other.name == site.name and other.line == site.line]
    operation = f"`{SIGNS[site.name]}`" if site.name in SIGNS else site.name
    which = f" number {same.index(site) + 1} of {len(same)}" if len(same) > 1 else ""
    return f"at {operation}{which}{' in the reference, ' if site.line else ''}{site.line}"
