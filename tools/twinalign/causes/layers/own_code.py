"""Lines of the port's own code, and values of its layer's attributes, in the reference's layer."""

import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.causes.layers.changed_calls import forward, state
from twinalign.causes.layers.subject import LayerSubject
from twinalign.causes.registry import Cause, enter
from twinalign.replay.fewest import fewest, fewest_by_twos, without_groups
from twinalign.replay.moved_statements import moved
from twinalign.replay.port_attributes import attributes_of
from twinalign.replay.port_lines import LinesVariant, exchanged_layers, lines_of, together, whole_functions
from twinalign.verdict.array_difference import difference

_ROUNDING, _NOTHING = 1e-6, 1e-12
"""A line that changes less than the first only computes with numbers that paddle holds in float32, or with none."""
_SHARE = 1e-3
"""Where the port differs by little more than that, a line counts that changes this share of it."""
_SECONDS_TO_MEASURE = 3.0
"""Of processor time: to see what each line changes; of what is left then, each may be what is wrong."""
_MOST_TOGETHER = 12
"""Of more lines than these no two are tried together."""


@forward(alone=True, own_code=True)
def line_of_port(subject: LayerSubject) -> Iterator[LinesVariant]:
    """A line of the port computes something else."""
    steps = getattr(subject.unit, "steps", ())
    whole = yield from _lines_of_port(subject)
    if isinstance(whole, LinesVariant) or not whole:
        again = steps and (yield from _lines_of_port(subject, steps))
        yield from [whole] if isinstance(whole, LinesVariant) and not again else []


def _lines_of_port(subject: LayerSubject, steps: Sequence[Any] = ()) -> Generator[LinesVariant, None, Any]:
    """Lines, with `steps` those of the branches that ran; returns whether all of them give the port's values.

    What says no more than that a conditional block is another one is not told yet, but returned.
    """
    # What the port's layer has under names of its own: child layers by those of their partners, and plain values.
    names = {**getattr(subject.unit, "child_names", {}), **subject.unit.facts}
    functions = getattr(subject.unit, "functions", ())
    lines = lines_of(functions, subject.run, subject.module, names, steps=steps)
    if steps and not lines:
        return False
    if lines and (near := [site.line for site in subject.tried_first]):
        lines.sort(key=lambda line: not line.stands_in(near))
    until = time.process_time() + _SECONDS_TO_MEASURE
    rounding = _rounding(subject)
    changes = {id(one): _change(subject, one) if time.process_time() < until else math.inf for one in lines}
    spelled = tuple(one.lines[0] for one in lines if _NOTHING < changes[id(one)] <= rounding)
    moves = [dataclasses.replace(one, spelled=spelled) for one in moved(lines)]
    yield from (moves := [one for one in moves if _gives_port(subject, [one])])
    # A part of what has moved may give the port's values, too: what is done twice, where the second time does nothing.
    lines = [one for one in lines if all(one.lines[0] not in move.lines for move in moves)]
    single = [one for one in lines if changes[id(one)] > rounding]
    single = [
        dataclasses.replace(one, spelled=spelled) for one in (*single, *attributes_of(subject.module, subject.unit))
    ]
    yield from single
    # What only the port computes changes nothing until another line reads it.
    added = [one for one in lines if changes[id(one)] <= _NOTHING and one.lines[0].old is None]
    whole = _gives_port(subject, lines)
    if whole:
        others = [one for one in lines if changes[id(one)] <= _NOTHING and one not in added]
        candidates = without_groups([*single, *added, *others], holds := functools.partial(_holds, subject), _function)
        needed = fewest_by_twos(candidates, holds)
        both = dataclasses.replace(together(needed), spelled=spelled)
        if len(needed) > 1 and both.exchanges_blocks and not steps:
            return both
        yield from [both] * (len(needed) > 1)
    elif whole is None and len(single) + len(added) <= _MOST_TOGETHER:
        yield from (together(both) for both in itertools.combinations((*added, *single), 2))
    for function in whole_functions(lines):
        parts = [one for one in lines if one.lines[0] in function.lines]
        whole_part = _gives_port(subject, parts)
        needed = fewest(parts, functools.partial(_holds, subject)) if whole_part else parts
        part = together(needed) if len(needed) < len(parts) else function
        yield dataclasses.replace(part, spelled=spelled)
    return bool(whole)


@state(alone=True, own_code=True)
def line_of_port_for_buffers(subject: LayerSubject) -> Iterator[LinesVariant]:
    """A line of the port updates buffers differently."""
    yield from line_of_port(subject)


_EXCHANGED = "two like layers stand in each other's place, by the code or by their weights"
enter(Cause("layers_exchanged", "forward", _EXCHANGED, LayerSubject, lambda s: exchanged_layers(s.module), rank=-1))


def _change(subject: LayerSubject, variant: LinesVariant) -> float:
    """The greatest relative change of the unit's values that a line makes; infinite where it does not run."""
    try:
        found = subject.run(variant)
    except Exception:  # a line may need names that the reference's function does not have, or another line
        return math.inf
    return _greatest(found, subject.traced[0])


def _rounding(subject: LayerSubject) -> float:
    """What a line may change without computing something else."""
    return min(_ROUNDING, _SHARE * _greatest(subject.port, subject.reference))


def _greatest(found: Mapping[str, np.ndarray], usual: Mapping[str, np.ndarray]) -> float:
    return max((difference(found[n], v).relative if n in found else math.inf for n, v in usual.items()), default=0.0)


def _holds(subject: LayerSubject, lines: Sequence[LinesVariant]) -> bool:
    return bool(_gives_port(subject, lines))


def _function(one: LinesVariant) -> int:
    """Which of the reference's functions the first of these lines stands in."""
    return id(one.lines[0].theirs) if one.lines else 0


def _gives_port(subject: LayerSubject, lines: Sequence[LinesVariant]) -> bool | None:
    """Whether these lines at once give the port's values; None where they do not run together.

    If all lines of the port do not, what is wrong stands in none of them, and two together fit by chance.
    """
    try:
        found = subject.run(functools.reduce(LinesVariant.merged, lines))
    except Exception:  # the code as a whole may need what some lines alone do not have
        return None
    port = [(name, value) for name, value in subject.unit.port.items() if name in subject.traced[0]]
    rounding = _rounding(subject)
    return all(name in found and difference(found[name], value).relative <= rounding for name, value in port)
