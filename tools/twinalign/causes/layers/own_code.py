"""Lines of the port's own code, and values of its layer's attributes, in the reference's layer."""

import dataclasses
import itertools
import math
import time
from collections.abc import Generator, Iterator, Sequence
from typing import Any

from twinalign.causes.layers.changed_calls import forward
from twinalign.causes.layers.subject import LayerSubject
from twinalign.causes.registry import Cause, enter
from twinalign.replay.fewest import fewest, fewest_by_twos, without_groups
from twinalign.replay.line_runs import NOTHING, LineRuns
from twinalign.replay.moved_calls import told
from twinalign.replay.moved_statements import moved
from twinalign.replay.parts_of_lines import narrowed
from twinalign.replay.port_attributes import attributes_of, exchanged_layers
from twinalign.replay.port_lines import LinesVariant, lines_of, together, whole_functions
from twinalign.replay.reordered_statements import reordered
from twinalign.replay.whole_functions import layers_as_wholes

_SECONDS_TO_MEASURE = 3.0
"""Of processor time: to see what each line changes; of what is left then, each may be what is wrong."""
_MOST_TOGETHER = 12  # of more lines no two are tried together


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
    # What the port's layer has under names of its own: layers and tensors by their partners' names, and plain values.
    names = {**getattr(subject.unit, "names", {}), **subject.unit.facts}
    lines = lines_of(getattr(subject.unit, "functions", ()), subject.run, subject.module, names, steps=steps)
    if steps and not lines:
        return False
    if lines and (near := [site.line for site in subject.tried_first]):
        lines.sort(key=lambda line: not line.stands_in(near))
    until = time.process_time() + _SECONDS_TO_MEASURE
    runs = LineRuns(subject.run, subject.traced[0], subject.unit.port, subject.port)
    changes = {id(one): runs.change(one) if time.process_time() < until else math.inf for one in lines}
    spelled = tuple(one.lines[0] for one in lines if NOTHING < changes[id(one)] <= runs.rounding)
    moves = [dataclasses.replace(one, spelled=spelled) for one in moved(lines)]
    yield from (moves := [one for one in moves if runs.gives_port(one)])
    # A part of what has moved may give the port's values, too: what is done twice, where the second time does nothing.
    lines = [one for one in lines if all(one.lines[0] not in move.lines for move in moves)]
    single = [*(o for o in lines if changes[id(o)] > runs.rounding), *attributes_of(subject.module, subject.unit)]
    single = [narrowed(dataclasses.replace(one, spelled=spelled), runs.gives_port) for one in single]
    yield from (told(one) for one in single if not one.reads_other_values)
    yield from (again := [one for one in reordered(lines) if runs.gives_port(one)])
    if again:  # lines that belong together would say the same in more words
        return True
    # What only the port computes changes nothing until another line reads it.
    added = [one for one in lines if changes[id(one)] <= NOTHING and one.lines[0].old is None]
    whole, needed = runs.give_port(lines), list[LinesVariant]()
    if whole:
        others = [one for one in lines if changes[id(one)] <= NOTHING and one not in added]
        groups = without_groups([*single, *added, *others], runs.hold, lambda o: o.lines and id(o.lines[0].theirs))
        needed = fewest_by_twos(groups, runs.hold)
    several = [told(dataclasses.replace(together(needed), spelled=spelled))] if len(needed) > 1 else []
    if several and several[0].exchanges_blocks and not steps:
        return several[0]
    if lines and (several if whole else not any(map(runs.gives_port, single))):
        # Several lines say too much: an edit inside of the whole says which is wrong.
        edited = list(layers_as_wholes(subject, lines, runs.gives_port))
        if whole is None and len(single) + len(added) <= _MOST_TOGETHER:
            several = [told(together(two)) for two in itertools.combinations((*added, *single), 2)]
        yield from edited or several
    for function in whole_functions(lines):
        parts = [one for one in lines if one.lines[0] in function.lines]
        needed = fewest(parts, runs.hold) if runs.give_port(parts) else parts
        part = together(needed) if len(needed) < len(parts) else function
        yield told(dataclasses.replace(part, spelled=spelled))
    subject.right_lines[:] = runs.right_lines(lines, changes)
    return bool(whole)


_BUFFERS = "a line of the port updates buffers differently"
enter(Cause("line_of_port_for_buffers", "state", _BUFFERS, LayerSubject, line_of_port, alone=True, own_code=True))
_EXCHANGED = "two like layers stand in each other's place, by the code or by their weights"
enter(Cause("layers_exchanged", "forward", _EXCHANGED, LayerSubject, lambda s: exchanged_layers(s.module), rank=-1))
