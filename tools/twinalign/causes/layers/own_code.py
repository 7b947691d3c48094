"""Lines of the port's own code, and values of its layer's attributes, in the reference's layer."""

import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from twinalign.causes.layers.changed_calls import forward, state
from twinalign.causes.layers.subject import LayerSubject
from twinalign.causes.registry import Cause, enter
from twinalign.replay.aligned_code import Helpers
from twinalign.replay.fewest import fewest
from twinalign.replay.moved_statements import moved
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
    # What the port's layer has under names of its own: child layers by those of their partners, and plain values.
    names = {**getattr(subject.unit, "child_names", {}), **subject.unit.facts}
    lines = lines_of(getattr(subject.unit, "functions", ()), subject.run, subject.module, names)
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
    single = [dataclasses.replace(one, spelled=spelled) for one in (*single, *_attributes(subject))]
    yield from single
    # What only the port computes changes nothing until another line reads it.
    added = [one for one in lines if changes[id(one)] <= _NOTHING and one.lines[0].old is None]
    whole = _gives_port(subject, lines)
    if whole:
        others = [one for one in lines if changes[id(one)] <= _NOTHING and one not in added]
        needed = fewest([*single, *added, *others], lambda some: bool(_gives_port(subject, some)))
        if len(needed) > 1:
            yield dataclasses.replace(together(needed), spelled=spelled)
    elif whole is None and len(single) + len(added) <= _MOST_TOGETHER:
        yield from (together(both) for both in itertools.combinations((*added, *single), 2))
    for function in whole_functions(lines):
        parts = [one for one in lines if one.lines[0] in function.lines]
        needed = fewest(parts, lambda some: bool(_gives_port(subject, some))) if _gives_port(subject, parts) else parts
        part = together(needed) if len(needed) < len(parts) else function
        yield dataclasses.replace(part, spelled=spelled)


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


def _attributes(subject: LayerSubject) -> Iterator[LinesVariant]:
    """The reference's layer with the port's value of one of its own attributes."""
    module = subject.module
    if module is None or type(module).__module__.startswith("torch."):
        return
    own = {name.lstrip("_"): name for name in vars(module)}
    for name, value in subject.unit.facts.items():
        mine = vars(module).get(own.get(name, ""))
        if name in own and isinstance(mine, (bool, int, float, str, tuple, list)):
            value = tuple(value) if isinstance(mine, tuple) and isinstance(value, list) else value
            if value != mine:
                detail = f"`{name}` is {value!r} in place of {mine!r}"
                yield LinesVariant(detail, (), module, {}, Helpers({}, ()), ((own[name], value),))
    tables = dict[str, object](getattr(subject.unit, "tables", dict)())
    for one in [{name: tables[name]} for name in tables] + [tables] * (len(tables) > 1):
        detail = f"`{'`, `'.join(one)}`: what the constructor makes and nothing stores has other values"
        yield LinesVariant(detail, (), module, {}, Helpers({}, ()), tuple(one.items()))
