"""Lines and functions of the port in a component of the reference, in the order in which they are tried."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from twinalign.replay.aligned_code import Code, Difference
from twinalign.replay.helper_edits import reached
from twinalign.replay.likeness import own_words
from twinalign.replay.moved_statements import moved, moved_in_other_words
from twinalign.replay.parts_of_lines import narrowed
from twinalign.replay.port_lines import LinesVariant, lines_of
from twinalign.replay.reordered_statements import reordered
from twinalign.replay.several_lines import several
from twinalign.replay.whole_functions import functions_as_wholes, is_forward

Run = Callable[..., Mapping[str, np.ndarray]]


def lines_of_component(
    functions: Sequence[Mapping[str, Any]],
    theirs: Sequence[Code] | None,
    begins: Run,
    run: Run,
    gives_port: Callable[[LinesVariant], bool],
) -> Iterator[LinesVariant]:
    """What may be why, the likeliest first: a line that reads otherwise, before a function, before what reads the same.

    Args:
        functions: the port's own, as `code_lines.Function` in JSON.
        theirs: the reference's own.
        begins, run: the first values of the component and all of them, under a variant or None.
        gives_port: whether a variant gives all of the port's values.
    """
    lines = lines_of(functions, lambda: begins(None), theirs=theirs)
    # Layers are searched by themselves; what only calls another framework is as it should be more often than not.
    lines.sort(key=lambda one: (is_forward(one.lines[0].theirs), *map(_calls_another_framework, one.lines)))
    alike = [one for one in lines if one.lines[0].has_same_words]
    calling = [one for one in lines if one not in alike and reached(one, one.helpers.alone)]
    yield from moved(lines)
    yield from (one for one in lines if one not in alike and one not in calling)
    yield from reordered(lines)
    wholes = list(functions_as_wholes(functions, theirs or (), gives_port, run))
    yield from (_lines_inside(one, lines, begins, gives_port) for one in wholes)
    if not wholes:
        yield from calling
        yield from (narrowed(one, gives_port) for one in alike)
        yield from moved_in_other_words(lines)
        yield from several(lines, begins, gives_port)


def _calls_another_framework(one: Difference) -> int:
    """0 for partners that say something else, 1 for a line that one side has alone, 2 for what is the same but for
    functions."""
    if one.old is None or one.new is None:
        return 1
    return 2 if own_words(one.old) == own_words(one.new) else 0


def _lines_inside(
    whole: LinesVariant, lines: Sequence[LinesVariant], begins: Run, gives_port: Callable[[LinesVariant], bool]
) -> LinesVariant:
    """The lines of a wrong function that are enough to give the port's values, where some are, else the function."""
    place = _place(whole)
    own = [one for one in lines if _place(one) == place and one.lines[0].ours.name == whole.lines[0].ours.name]
    if (alone := next(filter(gives_port, own), None)) is not None:
        return alone
    together = (some for some in several(own, begins, gives_port) if not reached(some, some.helpers.alone))
    return next(filter(gives_port, together), whole)


def _place(one: LinesVariant) -> tuple[str, str, int]:
    code = one.lines[0].theirs
    return code.file, code.name, code.tree.lineno
