"""Several lines of the port that give its values together only, such as a call and the number that it is given."""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from twinalign.replay.fewest import fewest_by_twos
from twinalign.replay.port_lines import LinesVariant, together
from twinalign.verdict.array_difference import difference

SHARE_OF_LINES, MANY_WRONG = 1e-3, 8
"""Lines of the port may leave so much of what is wrong to rounding, where as many values or more are wrong."""
MANY_VALUES = 16
"""An edit of a function must make as many values right to be told."""
_SECONDS = 8.0
"""Of processor time."""
_MOST_IN_PAIRS = 8
_NOTHING = 1e-12
Values = Mapping[str, np.ndarray]


def several(
    lines: Sequence[LinesVariant],
    begins: Callable[[LinesVariant | None], Values],
    gives_port: Callable[[LinesVariant], bool],
) -> Iterator[LinesVariant]:
    """The fewest of the lines that run which give the port's values; none where a single one does.

    Args:
        begins: the first values, as the reference has them or with a line; raises where the line does not run.
        gives_port: whether lines give all of the port's values.
    """
    until = time.process_time() + _SECONDS
    usual, changing, others = begins(None), list[LinesVariant](), list[LinesVariant]()
    for one in lines if len(lines) > 1 else ():
        if time.process_time() > until:
            return
        try:
            found = begins(one)
        except Exception:  # the line needs what the reference's function does not have
            if one.lines[0].old is None:  # which another line of the port may make
                others.append(one)
            continue
        (others if _is_same(found, usual) else changing).append(one)

    def holds(some: Sequence[LinesVariant]) -> bool:
        return time.process_time() < until and bool(some) and gives_port(together(some))

    # A later step may show what the first values do not, and what only the port has is read by other lines.
    every = [*changing, *(one for one in others if not one.lines[0].has_same_words)]
    if len(every) > 1 and holds(every):
        if len(needed := fewest_by_twos(every, holds)) > 1:
            yield together(needed)
    elif 1 < len(changing) <= _MOST_IN_PAIRS:
        yield from (together(two) for two in itertools.combinations(changing, 2))


def _is_same(found: Values, usual: Values) -> bool:
    return found.keys() == usual.keys() and all(difference(found[n], v).relative <= _NOTHING for n, v in usual.items())
